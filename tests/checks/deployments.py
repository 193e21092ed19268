"""Deployments as values: a sound one, and changes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tests.daemon.small_pipeline import pipeline
from tidegate.checks.cluster import Cluster, SeenTopic
from tidegate.checks.facts import ClusterFacts, MachineFacts, Need, Room, Use
from tidegate.checks.findings import Finding, Level
from tidegate.checks.judge_cluster import Commands, judge_cluster
from tidegate.checks.judge_machine import judge_machine
from tidegate.checks.judge_topics import judge_topics
from tidegate.checks.uses import derive_uses
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.kafka.facts import TRANSACTION_LOG, TopicFacts
from tidegate.kafka.inspection import ClockReading
from tidegate.kafka.versions import BrokerVersion
from tidegate.plan.build import build_plan

COMMANDS = Commands("b:9092")
DEFAULTS = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "min.compaction.lag.ms": "0",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
    "max.message.bytes": "1048588",
}
"""Of a topic, as Kafka 4.3 has them."""
SOUND = SeenTopic("", TopicFacts("id", 1), frozenset(), copies=3, min_in_sync=2, unclean=False)
VERSIONS = (BrokerVersion(1, "4.3"), BrokerVersion(2, "4.3"))
BROKER = {"transactional.id.expiration.ms": "604800000"}
SERVERS = ("kafka", "bootstrap.servers")
RIGHT = Need("topic", "out", "Write", ("sinks", "out", "topic"), user="app", use="writing")
MORE = """\
version: 1
name: more
kafka: {bootstrap.servers: "b:9092"}
checkpoints: {directory: file:///tmp/x}
sources:
  orders: {topic: in, schema: {id: bigint, at: timestamp, gone: boolean}}
sinks:
  out: {from: orders, topic: out, key: id, timestamp: at, on_null: {column: gone, write: tombstone}}
"""


def keyed() -> LoadedPipeline:
    """A pipeline whose sink has keys, timestamps and tombstones."""
    loaded = parse_pipeline(MORE, "more.yaml", {})
    assert loaded.problems == ()
    return loaded


def of_topics(
    read: Mapping[str, str] | None = None,
    written: Mapping[str, str] | None = None,
    *,
    seen: SeenTopic = SOUND,
    brokers: int = 3,
    loaded: LoadedPipeline | None = None,
) -> list[Finding]:
    """Findings about a topic `in` and a topic `out`; settings are those of `DEFAULTS` with these changes, or none."""
    loaded = loaded or pipeline()
    topics = {"in": SOUND, "out": seen}
    cluster = Cluster("c", topics, 900_000, brokers=brokers, internal={TRANSACTION_LOG: SOUND})
    settings = {
        name: {} if changes is None else {**DEFAULTS, **changes} for name, changes in (("in", read), ("out", written))
    }
    uses: Sequence[Use] = derive_uses(loaded, build_plan(loaded))
    return judge_topics(loaded.settings, uses, ClusterFacts(cluster, settings=settings), COMMANDS)


def of_cluster(journal: str = "j", *, timeout: str = "15m", brokers: int = 3, **changes: object) -> list[Finding]:
    """Findings about the cluster as a whole."""
    loaded = pipeline(timeout=timeout)
    sound = ClusterFacts(
        Cluster("c", {"in": SOUND, "out": SOUND}, 900_000, brokers=brokers),
        VERSIONS,
        ClockReading(20, 5),
        broker_settings=BROKER,
        rights=((RIGHT, True),),
        transactions_seen=True,
    )
    return judge_cluster(loaded.settings, msgspec.structs.replace(sound, **changes), COMMANDS, journal)


MACHINE = MachineFacts(
    (
        Room("/data", ("checkpoints", "directory"), "ext4", 10 << 30, 100_000, 1 << 20),
        Room("/tmp", (), "tmpfs", 10 << 30, None, 0),
    ),
    open_files=65_536,
    memory_bytes=8 << 30,
    cpus=4,
)


def of_machine(loaded: LoadedPipeline | None = None, **changes: object) -> list[Finding]:
    """Findings about the machine."""
    loaded = loaded or pipeline()
    return judge_machine(loaded.settings, build_plan(loaded), msgspec.structs.replace(MACHINE, **changes))


def bad(findings: Sequence[Finding]) -> list[Finding]:
    """Those that are not in order."""
    return [one for one in findings if one.level is not Level.OK]


def only(findings: Sequence[Finding]) -> Finding:
    """The one that is not in order."""
    (one,) = bad(findings)
    return one
