"""Derives what a pipeline requires of a cluster: topics and their use, rights, and the retention of records. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tidegate.checks.facts import Need, Use, place_servers
from tidegate.checks.findings import Severity
from tidegate.config.clusters import derive_clusters
from tidegate.config.fields.base import Path
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import PipelineSettings
from tidegate.formats.registry import FORMATS
from tidegate.ids import ClusterName, OperatorName
from tidegate.kafka.client_properties import derive_login
from tidegate.kafka.facts import TRANSACTION_LOG
from tidegate.kafka.producer_properties import largest_record
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS, DeadLetterOperator
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import TOMBSTONE, SourceOperator
from tidegate.operators.builtin.retry import RETRY
from tidegate.plan.graph import Plan

PRINCIPAL: Final = "PRINCIPAL"
"""Placeholder if only the broker knows the user's name, for example from a client certificate."""
INPUT_LOSS: Final = "records can be lost before they are read, and offsets can be assigned twice"
OUTPUT_LOSS: Final = "output that was committed can be lost"
WEEKEND_MS: Final = 3 * 24 * 3600 * 1000
"""Outages may last a weekend before a person notices."""
UNATTENDED: Final = "the longest time that an unattended restart may take"


def derive_uses(loaded: LoadedPipeline, plan: Plan) -> list[Use]:
    """Derive the use of every topic that the plan names, in its order; topics of a pattern are not included."""
    return [*_read(loaded, plan), *_written(plan)]


def _read(loaded: LoadedPipeline, plan: Plan) -> Iterator[Use]:
    for source in plan.operators(SourceOperator):
        changes = FORMATS[source.format].is_changelog or source.on_null == TOMBSTONE
        time = source.timing
        for index, topic in enumerate(source.topics):
            stamped = time is not None and source.carries_time and not time.text and not time.arrival
            place = place_source(source.name)
            if source.name != RETRY:
                below: Path = ("topics", index) if loaded.settings.sources[source.name].topics else ("topic",)
                place = (*place, *below)
            yield Use(topic, place, tombstones=changes, loss=INPUT_LOSS, stamped=stamped, cluster=source.cluster)


def place_source(name: OperatorName) -> Path:
    """Derive where the file has a source. That of the retry topic is a setting of the dead letters."""
    return (DEAD_LETTERS, "retry_topic") if name == RETRY else ("sources", name)


def _written(plan: Plan) -> Iterator[Use]:
    for sink in plan.operators(SinkOperator):
        letters = isinstance(sink, DeadLetterOperator)
        path: Path = (DEAD_LETTERS, "topic") if letters else ("sinks", sink.name, "topic")
        for index, topic in enumerate(sink.topics):
            yield Use(
                topic,
                path if isinstance(sink.topic, str) else (*path, "allow", index),
                written=True,
                keyed=letters or sink.key is not None,
                tombstones=sink.deleted is not None,
                loss=OUTPUT_LOSS,
                stamped=sink.timestamp is not None,
                client_bytes=largest_record(sink.kafka),
                cluster=sink.cluster,
            )


def derive_needs(loaded: LoadedPipeline, plan: Plan, cluster: ClusterName) -> list[Need]:
    """Derive every right that the pipeline needs in one cluster.

    A source or sink with its own login needs its rights for both that user and the one of its cluster.
    """
    top = derive_login(derive_clusters(loaded.settings)[cluster])
    owners: dict[str, Mapping[str, str]] = {one.name: one.kafka for one in plan.operators(SourceOperator)}
    owners |= {one.name: one.kafka for one in plan.operators(SinkOperator) if one.name != DEAD_LETTERS}
    found: dict[Need, None] = {}
    for need in _needs(plan, cluster, [use for use in derive_uses(loaded, plan) if use.cluster == cluster]):
        owner = str(need.place[1]) if need.place[0] in ("sources", "sinks") else ""
        found[_of(need, "", top)] = None
        own = derive_login(owners[owner]) if owner else top
        if own != top and need.resource != "cluster":
            found[_of(need, owner, own)] = None
    return list(found)


def _of(need: Need, owner: str, login: Mapping[str, str]) -> Need:
    return msgspec.structs.replace(need, login=owner, user=login.get("sasl.username", PRINCIPAL))


def _needs(plan: Plan, cluster: ClusterName, uses: list[Use]) -> Iterator[Need]:
    for use in uses:
        if use.written:
            yield Need("topic", use.topic, "Write", use.place, use="writing")
            if plan.exactly_once:
                yield Need("topic", use.topic, "Read", use.place, use="the proof that a transaction is complete")
            yield Need(
                "topic", use.topic, "DescribeConfigs", use.place, Severity.WARNING, "the topic's limits on a record"
            )
        else:
            yield Need("topic", use.topic, "Read", use.place, use="reading")
            yield Need("topic", use.topic, "DescribeConfigs", use.place, Severity.WARNING, "these checks")
            if use.place == place_source(RETRY):
                yield Need("topic", use.topic, "Write", use.place, Severity.WARNING, "`tidegate dead-letters replay`")
    name, servers = ("name",), place_servers(cluster)
    is_read = any(source.cluster == cluster for source in plan.operators(SourceOperator))
    is_written = any(use.written for use in uses)
    if is_written and plan.exactly_once:
        yield Need("transactional-id", f"{plan.pipeline}.", "Write", name, use="transactions")
    if is_read:
        yield Need(
            "group", plan.pipeline, "Read", name, Severity.WARNING, "lag tools, and the ownership record in Kafka"
        )
    if is_written:
        yield Need("cluster", "", "DescribeConfigs", servers, Severity.WARNING, "the brokers' limits")
    yield Need("cluster", "", "Describe", servers, Severity.WARNING, "the cluster's clock")
    if is_written and plan.exactly_once:
        yield Need("cluster", "", "ClusterAction", servers, Severity.WARNING, "writing markers that Kafka has lost")
        yield Need("topic", TRANSACTION_LOG, "Describe", servers, Severity.WARNING, "detecting coordinators that move")


def derive_unattended_ms(settings: PipelineSettings) -> int:
    """Derive the longest time from a record's arrival to the end of a recovery without help.

    It assumes that a transaction is as old as it can be, the checkpoint takes as long as it may, attempts fail until
    the daemon gives up, and one start follows.
    """
    checkpoints, restart, runtime = settings.checkpoints, settings.restart, settings.runtime
    return (
        checkpoints.transaction_timeout_ms
        + checkpoints.timeout_ms
        + restart.give_up_after.within_ms
        + restart.max_ms
        + runtime.start_timeout_ms
    )
