"""CPU time per record of what a sink does: encode a batch to JSON, and hand it to a producer with a real broker.

    python bench/writing.py [--records 300000] [--rounds 5] [--partitions 4] [--batch 5000] [--ways native,client]

Sets: a key and a value of five fields; the same with two headers; and with a timestamp, a partition and the headers.
Prints nanoseconds per record, the minimum of the rounds: `encode` and `hand over` of the calling thread, and `process`,
which includes the threads of the client until all is delivered. `native` is in C (ADR 82), `client` by calls of the
Python client.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

import confluent_kafka as ck
import polars as pl

from tests.support import clients
from tidegate.datatypes import BIGINT, DOUBLE, STRING
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics
from tidegate.formats.record_parts import HeaderRules, RecordParts
from tidegate.formats.records import OutputRecords, RecordEncoder
from tidegate.ids import TransactionalId
from tidegate.kafka.producing import ClientProducing, Producing, open_producing
from tidegate.kafka.properties import derive_producer_properties

TOPIC: Final = "out"
COLUMNS: Final = (("id", BIGINT), ("ts", BIGINT), ("customer", STRING), ("sku", STRING), ("total", DOUBLE))
HEADERS: Final = HeaderRules(added=(("trace", "trace"), ("source", "sku")))
SETS: Final[Mapping[str, RecordParts]] = {
    "key and value": RecordParts(key="customer"),
    "two headers": RecordParts(key="customer", headers=HEADERS),
    "all parts": RecordParts(key="customer", headers=HEADERS, timestamp="at", partition="partition"),
}
KEYS: Final = 10_000
FRAMES: Final = 8
ROOM: Final = 50_000
"""Records that may wait in the client before the loop waits for it."""


class Costs(NamedTuple):
    """Nanoseconds per record."""

    encode: float
    hand_over: float
    process: float


def main() -> None:
    """See the module."""
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="tidegate-writing-") as name:
        broker = DevelopmentBroker(Path(name), heap_mib=1024)
        try:
            bootstrap = broker.start().bootstrap
            create_topics(bootstrap, {TOPIC: options.partitions})
            frames = [make_frame(options.batch, options.partitions, seed) for seed in range(FRAMES)]
            for what, parts in SETS.items():
                found: dict[str, list[Costs]] = {way: [] for way in options.ways.split(",")}
                for _ in range(options.rounds):
                    for way, costs in found.items():
                        costs.append(measure(bootstrap, frames, parts, way, options.records))
                for way, costs in found.items():
                    best = Costs(*map(min, zip(*costs, strict=True)))
                    print(f"{what:>14}, {way:>6}: encode {best.encode:5.0f}, hand over {best.hand_over:5.0f}, "
                          f"process {best.process:5.0f}", flush=True)  # fmt: skip
        finally:
            broker.kill()


def make_frame(rows: int, partitions: int, seed: int) -> pl.DataFrame:
    """Returns rows as a `select` leaves them."""
    dice = random.Random(seed)
    customers = [f"c{dice.randrange(KEYS):07d}" for _ in range(rows)]
    return pl.DataFrame(
        {
            "id": range(rows),
            "ts": range(1_767_225_600_000, 1_767_225_600_000 + rows),
            "customer": customers,
            "sku": [f"p{dice.randrange(5000):05d}" for _ in range(rows)],
            "total": [dice.randrange(100, 1_000_000) / 100 for _ in range(rows)],
            "trace": [f"{dice.getrandbits(128):032x}" for _ in range(rows)],
            "partition": [dice.randrange(partitions) for _ in range(rows)],
            "at": pl.Series([1_767_225_600_000] * rows).cast(pl.Datetime("ms")).cast(pl.Datetime("us", "UTC")),
        },
        schema_overrides={"partition": pl.Int32},
    )


def measure(bootstrap: str, frames: list[pl.DataFrame], parts: RecordParts, way: str, count: int) -> Costs:
    """Writes one transaction of `count` records at least, and commits it."""
    properties = derive_producer_properties({"bootstrap.servers": bootstrap}, TransactionalId(f"bench-{way}"), 60_000)
    producer = clients.producer({**properties, "delivery.report.only.error": True, "on_delivery": _fail})
    partitions = len(producer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions)
    producer.init_transactions(30)
    producer.begin_transaction()
    producing = open_producing(producer) if way == "native" else ClientProducing(producer)
    encoder = RecordEncoder("json", COLUMNS, parts)
    encoding, handing, began, done = 0, 0, time.process_time_ns(), 0
    while done < count:
        frame = frames[done // len(frames[0]) % len(frames)]
        start = time.thread_time_ns()
        records = encoder.encode(frame)
        encoding += time.thread_time_ns() - start
        handing += _hand_over(producer, producing, records, partitions)
        done += len(records)
    producer.flush(60)
    process = time.process_time_ns() - began
    if producing.take_undelivered()[0]:
        raise SystemExit("records were not delivered")
    producer.commit_transaction(30)
    producing.close()
    return Costs(encoding / done, handing / done, process / done)


def _hand_over(producer: ck.Producer, producing: Producing, records: OutputRecords, partitions: int) -> int:
    """Returns the nanoseconds of the calling thread, without those of waiting for room."""
    place, spent = 0, 0
    while place < len(records):
        while len(producer) > ROOM:
            producer.poll(0.001)
        start = time.thread_time_ns()
        place = producing.produce(TOPIC, records, place, len(records), partitions)
        producer.poll(0)
        spent += time.thread_time_ns() - start
    return spent


def _fail(error: ck.KafkaError, _message: object) -> None:
    raise SystemExit(f"a record was not delivered: {error}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--batch", type=int, default=5000)
    parser.add_argument("--ways", default="native,client")
    return parser.parse_args()


if __name__ == "__main__":
    os.environ.pop("KAFKA_BOOTSTRAP", None)
    main()
