"""What an acknowledgement of the brokers is worth: copies, how many acknowledge, and which may lead. Pure.

Exactly once rests on the brokers keeping what they have acknowledged: records, and the decisions about transactions.
Nothing here stops a pipeline: warnings say what can be lost and what to set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from tidegate.checks.cluster import MIN_IN_SYNC, UNCLEAN, Cluster, SeenTopic
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.kafka.facts import TRANSACTION_LOG
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.settings.base import Path

NAMES_MAX: Final = 5
_SERVERS: Final = ("kafka", "bootstrap.servers")


class _Group(msgspec.Struct, frozen=True):
    """Topics that a pipeline uses in the same way."""

    path: Path
    topics: Mapping[str, SeenTopic]
    loss: str
    """What is lost when acknowledged records are."""


def derive_durability_problems(loaded: LoadedPipeline, plan: Plan, cluster: Cluster) -> list[Problem]:
    """Warnings, one for each kind of topic and each weakness. What this user may not see is passed over."""
    if cluster.brokers == 1:
        message = "the cluster has one broker: what it acknowledges is lost with its disk, and nothing runs without it"
        return [_warn(loaded, _SERVERS, message, "in order for development; else use three or more")]
    found = []
    for group in _groups(loaded, plan, cluster):
        for weak, message, remedy in _weaknesses(group.topics):
            names = sorted(weak)
            which = ", ".join(f"`{name}`" for name in names[:NAMES_MAX])
            which += f" and {len(names) - NAMES_MAX} more" if len(names) > NAMES_MAX else ""
            found.append(_warn(loaded, group.path, f"{which}: {message}: {group.loss}", remedy))
    return found


def _groups(loaded: LoadedPipeline, plan: Plan, cluster: Cluster) -> Iterable[_Group]:
    settings = loaded.settings
    sinks, sources = plan.operators(SinkOperator), plan.operators(SourceOperator)
    if sinks:
        outputs = {topic: cluster.topics[topic] for sink in sinks for topic in sink.topics}
        yield _Group(("sinks", sinks[0].name, "topic"), outputs, "output that was committed can be lost")
    if sources:
        inputs = {topic: cluster.topics[topic] for source in sources for topic in source.topics}
        word = "topics" if settings.sources[sources[0].name].topics else "topic"
        loss = "records can be lost before they are read, and offsets can be given a second time"
        yield _Group(("sources", sources[0].name, word), inputs, loss)
    if plan.exactly_once:
        log = {name: seen for name, seen in cluster.internal.items() if name == TRANSACTION_LOG}
        yield _Group(_SERVERS, log, "decisions about transactions can be lost, and with them committed output")
    positions = {name: seen for name, seen in cluster.internal.items() if name != TRANSACTION_LOG}
    yield _Group(_SERVERS, positions, "mirrored positions, which lag tools see, can be lost")


def _weaknesses(topics: Mapping[str, SeenTopic]) -> Iterable[tuple[list[str], str, str]]:
    """Topics, what is weak, and the remedy."""
    alone = [name for name, seen in topics.items() if seen.copies == 1]
    if alone:
        yield (
            alone,
            "there is one copy, which is lost with its disk",
            "use three (kafka-reassign-partitions.sh)",
        )
    quick = [name for name, seen in topics.items() if seen.copies > 1 and seen.min_in_sync == 1]
    if quick:
        message = f"{MIN_IN_SYNC} is 1, so one copy acknowledges what no other has"
        yield quick, message, _alter(quick, f"{MIN_IN_SYNC}=2")
    unclean = [name for name, seen in topics.items() if seen.copies > 1 and seen.unclean]
    if unclean:
        message = f"{UNCLEAN} is on, so a copy that lacks acknowledged records can become the leader"
        yield unclean, message, _alter(unclean, f"{UNCLEAN}=false")


def _alter(names: list[str], setting: str) -> str:
    name = names[0] if len(names) == 1 else "TOPIC"
    return f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config {setting}"


def _warn(loaded: LoadedPipeline, path: Path, message: str, remedy: str) -> Problem:
    return msgspec.structs.replace(loaded.problem(path, message, remedy), severity="warning")
