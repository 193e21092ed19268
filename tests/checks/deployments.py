"""Deployments as values: a sound one, and changes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tests.daemon.small_pipeline import pipeline
from tidegate.checks.facts import ClusterFacts, MachineFacts, Need, Room, SeenTopic, Use, derive_uses
from tidegate.checks.findings import Finding, Severity
from tidegate.checks.judge_cluster import Commands, judge_cluster
from tidegate.checks.judge_machine import judge_machine
from tidegate.checks.judge_topics import judge_topics
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.kafka.facts import TRANSACTION_LOG, TopicFacts
from tidegate.kafka.inspection import BrokerVersion, ClockReading
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
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
}
"""Of a topic, as Kafka 4.3 has them."""
SOUND = SeenTopic("", TopicFacts("id", 1), copies=3, settings=DEFAULTS)
VERSIONS = (BrokerVersion(1, "4.3"), BrokerVersion(2, "4.3"))
BROKER = {"transactional.id.expiration.ms": 604_800_000, "transaction.max.timeout.ms": 900_000}
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
    log: SeenTopic = SOUND,
    brokers: int = 3,
    loaded: LoadedPipeline | None = None,
) -> list[Finding]:
    """Findings about `in`, `out`, which is as `seen`, and the `log` of transactions: with these changes of settings."""
    loaded = loaded or pipeline()
    settings = {
        name: {} if changes is None else {**one.settings, **changes}
        for name, one, changes in (("in", SOUND, read), ("out", seen, written))
    }
    topics = {
        "in": msgspec.structs.replace(SOUND, settings=settings["in"]),
        "out": msgspec.structs.replace(seen, settings=settings["out"]),
    }
    facts = ClusterFacts(topics, {TRANSACTION_LOG: log}, brokers)
    uses: Sequence[Use] = derive_uses(loaded, build_plan(loaded))
    return judge_topics(loaded.settings, uses, facts, COMMANDS, [settings["in"]])


def of_cluster(journal: str = "j", *, timeout: str = "15m", brokers: int = 3, **changes: object) -> list[Finding]:
    """Findings about the cluster as a whole."""
    loaded = pipeline(timeout=timeout)
    sound = ClusterFacts(
        {"in": SOUND, "out": SOUND},
        brokers=brokers,
        versions=VERSIONS,
        broker_settings=BROKER,
        rights=((RIGHT, True),),
        clock=ClockReading(20, 5),
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
    return [one for one in findings if one.severity is not Severity.OK]


def only(findings: Sequence[Finding]) -> Finding:
    """The one that is not in order."""
    (one,) = bad(findings)
    return one
