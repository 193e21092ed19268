"""Sends requests that take longer than a start should wait, for `doctor` and for starts with `strict: true`.

Nothing is changed, and a running daemon is not affected. Blocking.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.checks.cluster import derive_unused_id
from tidegate.checks.facts import OFFSETS_LOG, ClusterFacts, Need, OtherWriter, Wait, derive_needs, derive_uses
from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.config.clusters import derive_clusters
from tidegate.config.load import LoadedPipeline
from tidegate.ids import ClusterName, OperatorName, TopicPartition
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.kafka.facts import OpenBrokerTransaction, TransactionListing
from tidegate.kafka.inspection import ActiveProducer, Inspector
from tidegate.kafka.properties import derive_login
from tidegate.kafka.transactions import TransactionClient
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.sinks.hanging_resolver import HangingTransactionResolver
from tidegate.sinks.hanging_transactions import RIPE_S, HangingTransaction
from tidegate.sinks.naming import derive_name, replay_id

ANSWER_S: Final = 15.0
DAY_MS: Final = 24 * 3600 * 1000
PARTITIONS_MAX: Final = 1000
"""How many partitions of outputs are searched for producers and open transactions."""


def read_details(
    loaded: LoadedPipeline, plan: Plan, facts: ClusterFacts, timeout_s: float, clock: Clock = SYSTEM_CLOCK
) -> ClusterFacts:
    """Read the clock of a cluster, test every right, find transactions and producers in its outputs.

    Raises BrokerUnavailable, KafkaRefused, KafkaError, OSError if the brokers stop responding.
    """
    kafka = derive_clusters(loaded.settings)[facts.name]
    inspector = Inspector(kafka, timeout_s)
    try:
        rights = tuple(_try_rights(loaded, plan, facts.name, inspector, timeout_s))
        facts = msgspec.structs.replace(facts, clock=inspector.clock(), rights=rights)
        return _with_transactions(facts, kafka, plan, inspector, clock) if plan.exactly_once else facts
    finally:
        inspector.close()


# -- rights ------------------------------------------------------------------------------------------------------------


def _try_rights(
    loaded: LoadedPipeline, plan: Plan, cluster: ClusterName, inspector: Inspector, timeout_s: float
) -> Iterable[tuple[Need, bool]]:
    needs, readable = derive_needs(loaded, plan, cluster), _any_topic(loaded, plan, cluster)
    by_login: dict[str, list[Need]] = {}
    for need in needs:
        by_login.setdefault(need.login, []).append(need)
    for login, found in by_login.items():
        try:
            asked = Inspector(_login(plan, login), timeout_s) if login else inspector
        except (BrokerUnavailable, KafkaRefused):
            continue  # already a finding of `start`
        try:
            operations = asked.operations()
            for need in found:
                yield need, _has(asked, need, operations, plan, readable)
        finally:
            if asked is not inspector:
                asked.close()


def _any_topic(loaded: LoadedPipeline, plan: Plan, cluster: ClusterName) -> str:
    return next((use.topic for use in derive_uses(loaded, plan) if use.cluster == cluster), OFFSETS_LOG)


def _login(plan: Plan, owner: str) -> Mapping[str, str]:
    owners = {one.name: one.kafka for one in plan.operators(SourceOperator)}
    owners |= {one.name: one.kafka for one in plan.operators(SinkOperator)}
    return derive_login(owners[OperatorName(owner)])


def _has(inspector: Inspector, need: Need, operations: frozenset[str], plan: Plan, topic: str) -> bool:
    match need.resource, need.operation:
        case "topic", "Read":
            return inspector.may_read(need.name)
        case "topic", "Write":
            return inspector.may_write(need.name)
        case "topic", "Describe":
            return inspector.may_see(need.name)
        case "topic", "DescribeConfigs":
            return inspector.may_see_settings(need.name)
        case "group", _:
            return inspector.may_mirror(need.name, topic)
        case "transactional-id", _:
            return inspector.may_transact(derive_unused_id(plan))
        case _, "ClusterAction":
            return bool({"CLUSTER_ACTION", "ALTER"} & operations)
        case _, "Describe":
            return "DESCRIBE" in operations
        case _:
            return "DESCRIBE_CONFIGS" in operations


# -- transactions ------------------------------------------------------------------------------------------------------


def _with_transactions(
    facts: ClusterFacts, kafka: Mapping[str, str], plan: Plan, inspector: Inspector, clock: Clock
) -> ClusterFacts:
    """Add transactions and producers.

    Those that this user may not see are left out, which is a finding of `permissions`.
    """
    partitions = _partitions(plan, facts)
    if not partitions:
        return facts
    client = TransactionClient(kafka, ANSWER_S)
    try:
        listings = client.list_transactions("", ANSWER_S)
        own = [one for one in listings if one.transactional_id.startswith(f"{plan.pipeline}.")]
        opened = client.open_transactions(partitions, ANSWER_S)
        hanging = _find_hanging(client, plan.pipeline, opened, clock)
        others = _others(plan.pipeline, listings, inspector.producers(partitions))
        waits = _waits(client, plan.pipeline, listings, opened, hanging)
        return msgspec.structs.replace(
            facts,
            transactions_seen=True,
            listings=tuple(own),
            others=tuple(others),
            hanging=tuple(hanging),
            waits=tuple(waits),
        )
    except (KafkaRefused, BrokerUnavailable):
        return facts
    finally:
        client.close()


def _partitions(plan: Plan, facts: ClusterFacts) -> list[TopicPartition]:
    """List the partitions of outputs that exist and may be read, because asking for producers requires READ."""
    refused = {
        need.name for need, had in facts.rights if need.resource == "topic" and need.operation == "Read" and not had
    }
    found = []
    sinks = [sink for sink in plan.operators(SinkOperator) if sink.cluster == facts.name]
    for topic in sorted({topic for sink in sinks for topic in sink.topics} - refused):
        seen = facts.topics[topic]
        if seen.facts is not None and not seen.leaderless:
            found += [TopicPartition(topic, number) for number in range(seen.facts.partitions)]
    return found[:PARTITIONS_MAX]


def _find_hanging(
    client: TransactionClient, pipeline: str, opened: Sequence[OpenBrokerTransaction], clock: Clock
) -> list[HangingTransaction]:
    """Find hanging transactions by asking twice, some seconds apart, because a marker may still arrive."""
    resolver = HangingTransactionResolver(client, pipeline, clock)
    first = resolver.judge(opened)
    if not first:
        return []
    clock.sleep(RIPE_S)
    again = {one.opened for one in resolver.judge(opened)}
    return [one for one in first if one.opened in again]


def _others(
    pipeline: str, listings: Sequence[TransactionListing], producers: Sequence[ActiveProducer]
) -> Iterable[OtherWriter]:
    names = {one.producer_id: one.transactional_id for one in listings}
    since_ms = int(time.time() * 1000) - DAY_MS
    found: dict[tuple[str, int], OtherWriter] = {}
    for one in producers:
        known = names.get(one.producer_id, "")
        name = derive_name(known)
        own = known == replay_id(pipeline) or (name is not None and name.pipeline == pipeline)
        if not own and one.last_ms >= since_ms:
            found[one.partition.topic, one.producer_id] = OtherWriter(
                one.partition.topic, one.producer_id, known, one.last_ms
            )
    return found.values()


def _waits(
    client: TransactionClient,
    pipeline: str,
    listings: Sequence[TransactionListing],
    opened: Sequence[OpenBrokerTransaction],
    hanging: Sequence[HangingTransaction],
) -> Iterable[Wait]:
    names = {one.producer_id: one.transactional_id for one in listings}
    stuck = {one.opened for one in hanging}
    now_ms = int(time.time() * 1000)
    for one in opened:
        known = names.get(one.producer.id)
        if one in stuck or known is None:
            continue
        told = client.describe(known, ANSWER_S)
        if told is None or told.opened_at_ms < 0:
            continue  # ended meanwhile
        name = derive_name(known)
        own = name is not None and name.pipeline == pipeline
        yield Wait(one.partition, one.start_offset, known, max(0, now_ms - told.opened_at_ms), own)
