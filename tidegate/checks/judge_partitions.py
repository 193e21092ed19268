"""Judges sinks that keep the partitions of what they copy: whether their topics have as many. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidegate.checks.facts import SeenTopic
from tidegate.checks.findings import Finding, prevent_start
from tidegate.formats.registry import FORMATS
from tidegate.ids import ClusterName, OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_lineages

Topics = Mapping[ClusterName, Mapping[str, SeenTopic]]
"""The topics of each cluster that could be asked."""


def judge_partitions(plan: Plan, topics: Topics) -> Iterator[Finding]:
    """Refuse a sink whose topic has fewer partitions than a source whose partition numbers it writes to.

    Later, partitions may be added to either topic. A row without a partition is a bad record then.
    """
    sinks = [sink for sink in plan.operators(SinkOperator) if sink.partition is not None]
    sources = {source.name: source for source in plan.operators(SourceOperator)}
    lineages = derive_lineages(plan) if sinks else {}
    for sink in sinks:
        for one in lineages[sink.name]:
            source = sources.get(OperatorName(one.origin))
            if source is not None and _keeps(sink.partition, "partition", one.columns, source):
                yield from _compare(sink, source, _find_pairs(sink, source, one.columns), topics)


def _keeps(column: str | None, part: str, digests: Mapping[str, str], source: SourceOperator) -> bool:
    """Return whether a column of a sink is this part of the source's records, unchanged."""
    own = {one.part: one.name for one in source.metadata}.get(part) or FORMATS[source.format].part_columns.get(part)
    (lineage,) = source.lineage(())
    return own is not None and column is not None and digests.get(column) == lineage.columns.get(own)


def _find_pairs(sink: SinkOperator, source: SourceOperator, digests: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the topics that are read, each with the topic that its records are written to, as far as it is known."""
    if isinstance(sink.topic, str):
        return [(topic, sink.topic) for topic in source.topics]
    if _keeps(sink.topic.column, "topic", digests, source):
        return [(topic, topic) for topic in source.topics if topic in sink.topics]
    return []


def _compare(
    sink: SinkOperator, source: SourceOperator, pairs: list[tuple[str, str]], topics: Topics
) -> Iterator[Finding]:
    for read, written in pairs:
        wanted, there = _count(topics, source.cluster, read), _count(topics, sink.cluster, written)
        if wanted is not None and there is not None and wanted > there:
            found = f"the topic `{written}` has {there} partitions, and `{read}`, whose partitions it keeps, {wanted}"
            remedy = f"add partitions to `{written}`, or remove `partition`: then the key decides"
            yield prevent_start(("sinks", sink.name, "partition"), found, remedy)


def _count(topics: Topics, cluster: ClusterName, topic: str) -> int | None:
    seen = topics.get(cluster, {}).get(topic)
    return None if seen is None or seen.facts is None else seen.facts.partitions
