"""A copy of a topic into another cluster, byte for byte, compared with Kafka's MirrorMaker 2.

    python bench/mirror.py [--records 1000000] [--repeat 3] [--sizes 100,1000] [--headers 0]
        [--kinds tidegate,defaults,exactly-once] [--limit 0.5]

Two real brokers, one for each cluster. Records have a key, a value of so many bytes, a timestamp and headers, in 12
partitions; each copy keeps all of it, and the partition. `tidegate` runs on local[2] and commits every second.
MirrorMaker 2 runs in its dedicated mode with two tasks, from jars that are fetched once:
`defaults` delivers at least once; `exactly-once` commits every second, too. Everything else is left at its defaults.

In each run a warm-up block is copied first. Then records of one open transaction become visible at once. CPU is that
of the whole process tree until the last copy is visible. Every copy is compared with its original. Prints each run,
the medians, and the ratios to MirrorMaker 2; a first run, which warms the brokers, is not counted. Exit code 1 if
Tidegate takes more than `--limit` times the CPU of any kind of MirrorMaker 2.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

import confluent_kafka as ck
import msgspec

from bench.engines import fetch_jars
from bench.support import Ends, Meter, Outcome, Program, drain, hold, order_of, summarise
from tests.support import clients
from tests.support.campaign import Record, deliver, produce
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics
from tidegate.spark.java import find_java

PARTITIONS: Final = 12
WARM: Final = 300_000
COPY: Final = "from."
"""What a copy's name begins with. MirrorMaker 2 gives the name of the cluster that it reads, and a dot."""
TIDEGATE: Final = "tidegate"
EXACTLY_ONCE: Final = "exactly-once"
KINDS: Final = (TIDEGATE, "defaults", EXACTLY_ONCE)
LOGGING: Final = """\
status = warn
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class Clusters(NamedTuple):
    """Addresses of the cluster that is read and of the one that is written, and the pid of the latter's broker."""

    source: str
    target: str
    broker: int


class Load(NamedTuple):
    """What is copied."""

    size: int
    headers: int
    records: int

    def make(self, topic: str, count: int, seed: int) -> Iterator[Record]:
        """Yields records of keys and values that do not compress well."""
        dice = random.Random(seed)
        pool = dice.randbytes(1 << 20)
        headers = [(f"header-{number}", b"0123456789abcdef") for number in range(self.headers)]
        for number in range(count):
            start = dice.randrange(len(pool) - self.size)
            key = b"key-%08d" % (number % 100_000)
            yield Record(topic, number % PARTITIONS, key, pool[start : start + self.size], headers)


def main() -> int:
    """See the module."""
    options = _parse()
    kinds = options.kinds.split(",")
    failed = False
    for size in map(int, options.sizes.split(",")):
        load = Load(size, options.headers, options.records)
        outcomes: dict[str, list[Outcome]] = {kind: [] for kind in kinds}
        with tempfile.TemporaryDirectory(prefix="tidegate-mirror-") as name, _brokers(Path(name)) as clusters:
            place = Path(name)
            _run(clusters, place, kinds[0], -1, load)
            for turn in range(options.repeat):
                for kind in order_of(kinds, turn):
                    outcomes[kind].append(_run(clusters, place, kind, turn, load))
        failed |= _report(load, outcomes, options.limit)
    return 1 if failed else 0


@contextmanager
def _brokers(directory: Path) -> Iterator[Clusters]:
    brokers = [DevelopmentBroker(directory / name, heap_mib=1024) for name in ("source", "target")]
    try:
        source, target = (broker.start() for broker in brokers)
        assert target.pid is not None
        yield Clusters(source.bootstrap, target.bootstrap, target.pid)
    finally:
        for broker in brokers:
            broker.kill()


def _run(clusters: Clusters, directory: Path, kind: str, turn: int, load: Load) -> Outcome:
    topic = f"{kind}-{load.size}-{turn}".replace("--", "-warm-")
    copy = COPY + topic
    create_topics(clusters.source, {topic: PARTITIONS})
    create_topics(clusters.target, {copy: PARTITIONS})
    deliver(clusters.source, load.make(topic, WARM, seed=1))
    command = (
        _tidegate(clusters, directory, topic) if kind == TIDEGATE else _mirror_maker(clusters, directory, topic, kind)
    )
    records = load.make(topic, load.records, seed=2)
    with Program(command, directory / f"{topic}.log") as program:
        ends = Ends(clusters.target, copy, PARTITIONS)
        ends.wait(WARM, program.check)
        producer = hold(clusters.source, topic, lambda producer: produce(producer, records))
        meter = Meter(program.pid, clusters.broker)
        outcome = drain(meter, ends, producer, load.records, load.records, program.check)
    if digest(clusters.source, topic) != digest(clusters.target, copy):
        raise SystemExit(f"{copy} is not a copy of {topic}")
    clients.delete_topics(clusters.source, [topic])
    clients.delete_topics(clusters.target, [copy])
    print(summarise(f"{kind}, {load.size} bytes", [outcome]), flush=True)
    return outcome


def _tidegate(clusters: Clusters, directory: Path, topic: str) -> Sequence[str]:
    """Returns the command of a daemon. JSON is YAML."""
    document = {
        "version": 1,
        "name": topic,
        "kafka": {"bootstrap.servers": clusters.source},
        "clusters": {"target": {"bootstrap.servers": clusters.target}},
        "spark": {"master": "local[2]"},
        "parallelism": 2,
        "checkpoints": {"directory": f"file://{directory / 'state' / topic}", "interval": "1s", "timeout": "120s"},
        "http": {"port": 0},
        "sources": {"original": {"topic": topic, "format": "raw"}},
        "sinks": {
            "copy": {
                "from": "original",
                "topic": COPY + topic,
                "cluster": "target",
                "format": "raw",
                "headers": {"pass": "all"},
                "timestamp": "timestamp",
                "partition": "partition",
            }
        },
    }
    path = directory / f"{topic}.yaml"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2))
    return [sys.executable, "-m", "tidegate", "run", str(path)]


def _mirror_maker(clusters: Clusters, directory: Path, topic: str, kind: str) -> Sequence[str]:
    """Returns the command of MirrorMaker 2 for one topic, with the Java options of Kafka's own start script."""
    name = COPY.removesuffix(".")
    settings: dict[str, Any] = {
        "clusters": f"{name},to",
        f"{name}.bootstrap.servers": clusters.source,
        "to.bootstrap.servers": clusters.target,
        f"{name}->to.enabled": "true",
        f"to->{name}.enabled": "false",
        f"{name}->to.topics": topic,
        "tasks.max": 2,
        "replication.factor": 1,
        **{f"{one}.topic.replication.factor": 1 for one in ("checkpoints", "heartbeats", "offset-syncs")},
        **{f"{one}.storage.replication.factor": 1 for one in ("config", "offset", "status")},
        f"{name}.consumer.isolation.level": "read_committed",
    }
    if kind == EXACTLY_ONCE:
        settings |= {
            "to.exactly.once.source.support": "enabled",
            "transaction.boundary": "interval",
            "transaction.boundary.interval.ms": 1000,
        }
    return [
        *(str(find_java()), "-Xms256M", "-Xmx2G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
        f"-Dlog4j2.configurationFile={_write(directory / 'log4j2.properties', LOGGING)}",
        *("-cp", f"{fetch_jars('mirror-maker')}/*", "org.apache.kafka.connect.mirror.MirrorMaker"),
        str(_write(directory / f"{topic}.properties", "".join(f"{key} = {settings[key]}\n" for key in settings))),
    ]


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def digest(bootstrap: str, topic: str) -> list[tuple[int, str]]:
    """Returns the number of records of each partition and a digest of them in order: all but their offsets."""
    found = [(0, blake2b(digest_size=16)) for _ in range(PARTITIONS)]
    consumer = clients.consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "digest",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    left = PARTITIONS
    try:
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while left:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is None:
                    count, state = found[message.partition() or 0]
                    state.update(
                        repr((message.key(), message.value(), message.headers(), message.timestamp())).encode()
                    )
                    found[message.partition() or 0] = count + 1, state
                elif error.code() == ck.KafkaError._PARTITION_EOF:  # noqa: SLF001 - the client's code
                    left -= 1
                else:
                    raise SystemExit(f"{topic} cannot be read: {error}")
    finally:
        consumer.close()
    return [(count, state.hexdigest()) for count, state in found]


def _report(load: Load, outcomes: Mapping[str, list[Outcome]], limit: float) -> bool:
    """Prints medians and ratios. Returns whether Tidegate is above the limit."""
    medians = {kind: statistics.median(one.cpu_s for one in found) for kind, found in outcomes.items()}
    failed = False
    for kind, found in outcomes.items():
        ratio = ""
        if kind != TIDEGATE and TIDEGATE in medians:
            ratio = f", Tidegate takes {medians[TIDEGATE] / medians[kind]:.2f} of it"
            failed |= medians[TIDEGATE] > limit * medians[kind]
        print(f"median of {summarise(f'{kind}, {load.size} bytes', found, ratio)}")
    return failed


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--sizes", default="100,1000")
    parser.add_argument("--headers", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--limit", type=float, default=0.5)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
