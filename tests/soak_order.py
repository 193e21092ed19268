"""Order per key under CPU starvation: writes through a KafkaSink alone while other processes keep both cores busy.

    python -m tests.soak_order --records 5000000 --seed 1 [--bootstrap HOST:PORT] [--spinners 2] [--cold]

Every checkpoint goes to a topic created a moment before (`--cold`) or to one topic; sequence numbers per key must come
back without a gap, a repeat or a step back. Prints one line; exit code 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import TopicPartition as Position

from tests.sinks.driving import NO_IDS, Cluster, DrivenSink, permit, sink_operator
from tests.support import clients
from tests.support.records import records_of
from tidegate.dev.broker import DevelopmentBroker
from tidegate.formats.records import OutputRecords
from tidegate.ids import CheckpointId

KEYS = 5_000
BATCH = 5_000
PER_CHECKPOINT = 100_000
READ_SILENCE_S = 60.0
SPIN_S_MAX = 3600.0


def spin(parent: int) -> None:
    """One busy core, until the soak has ended or an hour has passed."""
    deadline = time.monotonic() + SPIN_S_MAX
    while os.getppid() == parent and time.monotonic() < deadline:
        sum(range(100_000))


class Written:
    """Makes records: the value is `<key> <number of the record within its key>`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.counts = [0] * KEYS
        self._pad = b" " * 150

    def batch(self, count: int) -> OutputRecords:
        keys = self.random.choices(range(KEYS), k=count)
        values: list[bytes] = []
        for key in keys:
            values.append(b"%d %d" % (key, self.counts[key]) + self._pad)
            self.counts[key] += 1
        return records_of(values, [b"k%d" % key for key in keys])


class Check:
    """Follows the sequence of each key."""

    def __init__(self) -> None:
        self.next = [0] * KEYS
        self.out_of_order = self.missing = self.read = 0

    def record(self, value: bytes) -> None:
        key, number = (int(part) for part in value.split())
        expected = self.next[key]
        if number < expected:
            self.out_of_order += 1
        else:
            self.missing += number - expected
            self.next[key] = number + 1
        self.read += 1


def read(bootstrap: str, topic: str, partitions: int, count: int, check: Check) -> None:
    """Everything committed in the topic, partition by partition in their own order."""
    reader = clients.consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "soak",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": 16384,
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        reader.assign([Position(topic, index, 0) for index in range(partitions)])
        target, heard = check.read + count, time.monotonic()
        while check.read < target and time.monotonic() - heard < READ_SILENCE_S:
            for message in reader.consume(10_000, 0.5):
                value = message.value()
                if message.error() is None and value is not None:
                    check.record(value)
                    heard = time.monotonic()
    finally:
        reader.close()


def run(bootstrap: str, records: int, seed: int, cold: bool) -> Check:
    written, check = Written(seed), Check()
    cluster = Cluster(bootstrap, lambda name: f"{name}-{seed}-{os.getpid()}-{written.random.getrandbits(32):08x}")
    topic, ended, driven = "", NO_IDS, None
    in_topic = attempt = 0
    for checkpoint in range(1, -(-records // PER_CHECKPOINT) + 1):
        if driven is None or cold:
            if driven is not None:
                driven.sink.close()
                read(bootstrap, topic, 4, in_topic, check)
            topic, ended, in_topic, attempt = cluster.topic(4), NO_IDS, 0, attempt + 1
            driven = DrivenSink(sink_operator(bootstrap, topic), cluster.pipeline, attempt, timeout_ms=600_000)
        count = min(PER_CHECKPOINT, records - (checkpoint - 1) * PER_CHECKPOINT)
        for start in range(0, count, BATCH):
            driven.write(written.batch(min(BATCH, count - start)))
        committables = driven.prepared(checkpoint).committables
        outcomes = cluster.committer.commit(permit(committables, checkpoint))
        assert all(outcome.committed for outcome in outcomes)
        driven.sink.completed(CheckpointId(checkpoint), ended)
        ended = frozenset(committable.transactional_id for committable in committables)
        in_topic += count
    if driven is not None:
        driven.sink.close()
        read(bootstrap, topic, 4, in_topic, check)
    cluster.close()
    check.missing += sum(count - found for count, found in zip(written.counts, check.next, strict=True))
    return check


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bootstrap", default=os.environ.get("KAFKA_BOOTSTRAP"))
    parser.add_argument("--spinners", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--cold", action="store_true", help="a fresh topic and fresh producers for every checkpoint")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    spinners = [context.Process(target=spin, args=(os.getpid(),), daemon=True) for _ in range(options.spinners)]
    with tempfile.TemporaryDirectory(prefix="soak-") as directory:
        broker = None if options.bootstrap else DevelopmentBroker(Path(directory))
        try:
            bootstrap = options.bootstrap if broker is None else broker.start().bootstrap
            for spinner in spinners:
                spinner.start()
            started = time.monotonic()
            check = run(bootstrap, options.records, options.seed, options.cold)
            seconds = time.monotonic() - started
        finally:
            for spinner in spinners:
                if spinner.pid is not None:
                    spinner.terminate()
            if broker is not None:
                broker.kill()
    print(
        f"records {options.records} seed {options.seed} cold {options.cold} spinners {options.spinners}: "
        f"read {check.read}, missing {check.missing}, out of order {check.out_of_order}, {seconds:.0f} s"
    )
    return int(bool(check.missing or check.out_of_order or check.read != options.records))


if __name__ == "__main__":
    sys.exit(main())
