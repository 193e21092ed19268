"""Judges what concerns only a start: missing topics, offsets of `start`, errors of brokers and the journal.

It also judges what the pipeline would continue from, and sinks that keep the partitions of what they copy. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from tidegate.checks.facts import (
    BATCH_BYTES,
    DIRECTORY,
    ClusterFacts,
    Comparison,
    SeenTopic,
    Use,
    derive_uses,
    place_servers,
    place_source,
)
from tidegate.checks.findings import Finding, prevent_start, warn_of_start
from tidegate.checks.judge_machine import judge_storage_error
from tidegate.config.clusters import place_of, properties_of
from tidegate.config.errors import Problem
from tidegate.config.fields.base import Path
from tidegate.config.load import LoadedPipeline
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import RestoreRefused, merge_positions
from tidegate.coordinator.upgrade import UpgradeRefusal
from tidegate.errors import REPLACED_TOPIC, TidegateError
from tidegate.formats.registry import FORMATS
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, TopicPartition
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.operators.builtin.dead_letters import DeadLetterOperator, find_unfit
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.retry import RETRY
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_lineages
from tidegate.sources.positions import describe_out_of_range
from tidegate.sources.start_offsets import AHEAD, AHEAD_REMEDY
from tidegate.storage.base import StorageError

# -- the clusters ------------------------------------------------------------------------------------------------------


def judge_start(
    loaded: LoadedPipeline, plan: Plan, clusters: Mapping[ClusterName, ClusterFacts], journal: JournalState | None
) -> Iterator[Finding]:
    """Judge the topics as a start requires them, in those clusters that could be asked.

    The `start` of a source whose positions are in `journal` is ignored.
    """
    yield from _judge_same_cluster(clusters.values())
    for use in derive_uses(loaded, plan):
        if use.cluster in clusters:
            where = f" on {use.cluster}" if loaded.settings.clusters else ""
            facts = clusters[use.cluster]
            known = use.topic in _derive_known_topics(facts.cluster_id, journal)
            yield from _judge_topic(use, facts.topics[use.topic], where, known=known)
    for letters in plan.operators(DeadLetterOperator):
        if letters.cluster in clusters:
            yield from _judge_dead_letters(loaded, plan, letters, clusters[letters.cluster].topics)
    placed = _derive_placed(plan, journal)
    for source in plan.operators(SourceOperator):
        if source.cluster in clusters and source.name not in placed:
            yield from _judge_offsets(source, clusters[source.cluster])
    yield from judge_partitions(plan, {name: facts.topics for name, facts in clusters.items()})
    yield from _judge_parallelism(plan, clusters)


def _judge_same_cluster(clusters: Iterable[ClusterFacts]) -> Iterator[Finding]:
    """Refuse two names for one cluster: loops through it would not be found, and its transactions have two owners."""
    names: dict[str, ClusterName] = {}
    for one in clusters:
        first = names.setdefault(one.cluster_id, one.name)
        if first != one.name:
            found = f"this is the same cluster as `{first}` (id {one.cluster_id})"
            remedy = f"name it once: remove it, and write another login of `{first}` in `kafka:` of the source or sink"
            yield prevent_start(place_of(one.name), found, remedy)


def _derive_known_topics(cluster_id: str, journal: JournalState | None) -> Collection[str]:
    """Derive the topics of a cluster that the pipeline had used by its newest checkpoint."""
    identity = None if journal is None else journal.identity
    clusters = () if identity is None else identity.clusters.values()
    return {topic for one in clusters if one.id == cluster_id for topic in one.topic_ids}


def _judge_topic(use: Use, seen: SeenTopic, where: str, *, known: bool) -> Iterator[Finding]:
    """Judge one topic. A topic that is hidden from this user is a finding of `permissions`.

    `known`: the newest checkpoint has its id, so a start would refuse a new topic of this name.
    """
    if seen.error == "UnknownTopicOrPartition" and known:
        found = f"the topic `{use.topic}`{where} was deleted since the checkpoint"
        yield prevent_start(use.place, found, REPLACED_TOPIC)
    elif seen.error == "UnknownTopicOrPartition":
        found = f"the topic `{use.topic}` does not exist{where}"
        yield prevent_start(use.place, found, "create it, or correct the name")
    elif seen.error and seen.error != "TopicAuthorizationFailed":
        found = f"the broker answers {seen.error} for the topic `{use.topic}`{where}"
        yield prevent_start(use.place, found, "see the broker's log", exit_code=1)
    elif seen.leaderless:
        numbers = ", ".join(map(str, seen.leaderless[:10]))
        found = f"no leader for partition {numbers} of `{use.topic}`{where}"
        yield warn_of_start(use.place, found, "start its broker")


def _judge_dead_letters(
    loaded: LoadedPipeline, plan: Plan, letters: DeadLetterOperator, topics: Mapping[str, SeenTopic]
) -> Iterator[Finding]:
    for use in derive_uses(loaded, plan):
        written = use.written and use.cluster == letters.cluster and use.topic in letters.topics
        if written or use.place == place_source(RETRY):
            seen = topics[use.topic]
            unfit = find_unfit(compacted=seen.has_policy("compact"), batch_bytes=seen.number(BATCH_BYTES))
            if unfit is not None:
                yield prevent_start(use.place, f"the topic `{use.topic}` {unfit[0]}", unfit[1])


def _derive_placed(plan: Plan, journal: JournalState | None) -> Collection[OperatorName]:
    """Derive the sources whose positions are in the newest checkpoint, by their present names."""
    newest = None if journal is None else journal.newest_checkpoint
    known = set() if newest is None else set(merge_positions(newest.positions))
    return known | {name for name, one in plan.directives.items() if one.was in known}


def _judge_offsets(source: SourceOperator, facts: ClusterFacts) -> Iterator[Finding]:
    if not isinstance(source.start, dict):
        return
    topic = source.topics[0]
    seen = facts.topics[topic].facts
    for partition, offset in source.start.items():
        place = ("sources", source.name, "start", str(partition))
        if seen is not None and partition >= seen.partitions:
            found = f"the topic `{topic}` has no partition {partition}"
            yield prevent_start(place, found, f"partitions are 0 to {seen.partitions - 1}")
        first, after = facts.offsets.get(TopicPartition(topic, partition), (0, offset))
        if not first <= offset <= after:
            found = f"offset {offset} is not in partition {partition} of `{topic}`"
            yield prevent_start(place, found, f"use {first} to {after}")


def _judge_parallelism(plan: Plan, clusters: Mapping[ClusterName, ClusterFacts]) -> Iterator[Finding]:
    """Warn about slots that read nothing, unless a pattern may find more topics."""
    sources = [one for one in plan.operators(SourceOperator) if one.name != RETRY]
    if any(source.pattern or source.cluster not in clusters for source in sources):
        return
    read = [clusters[source.cluster].topics[topic].facts for source in sources for topic in source.topics]
    counts = [seen.partitions for seen in read if seen is not None]
    if len(counts) == len(read) and sum(counts) < plan.parallelism:
        found = f"{plan.parallelism} slots for {sum(counts)} partitions of all sources: some slots read nothing"
        yield warn_of_start(("parallelism",), found, "lower it, or add partitions")


# -- what a start would continue from ----------------------------------------------------------------------------------


def judge_comparison(comparison: Comparison) -> Iterator[Finding]:
    """Judge the differences from what the pipeline would continue from."""
    remedy = "or restore a newer checkpoint or savepoint" if comparison.goes_back else ""
    for lost in comparison.lost:
        found = describe_out_of_range(lost.partition, lost.from_offset, lost.to_offset, lost.to_offset)
        yield prevent_start(place_source(lost.source), found, remedy, exit_code=4)
    for one in comparison.skipped:
        found = f"{one.partition}: {one.offsets} offsets were removed by retention before they were read, "
        found += f"[{one.from_offset}, {one.to_offset}): a start skips them, because `on_lost_input` is `continue`"
        yield warn_of_start(place_source(one.source), found)
    for source in comparison.ahead:
        yield prevent_start((*place_source(source.name), "until"), f"{source.until} {AHEAD}", AHEAD_REMEDY)


# -- errors ------------------------------------------------------------------------------------------------------------


def judge_error(loaded: LoadedPipeline, error: TidegateError) -> list[Finding]:
    """Judge an error of brokers, journal, storage or restore, at the source, step or directory that it concerns."""
    if isinstance(error, RestoreRefused) and error.refusals:
        return [
            prevent_start(_find_place(loaded, one.name), one.told, one.remedy, error.exit_code, error)
            for one in error.refusals
        ]
    if isinstance(error, BrokerUnavailable | KafkaRefused):
        return [judge_broker_error(loaded, error, _cluster_of(error))]
    if isinstance(error, RestoreRefused) and "cluster" in error.fields:
        return [prevent_start(place_servers(_cluster_of(error)), error.message, "", error.exit_code, error)]
    directory = str(loaded.settings.checkpoints.directory)
    here = str(error.fields.get("location", directory)) == directory
    if isinstance(error, StorageError) and here and "operator" not in error.fields:
        return [judge_storage_error(error)]
    place = _find_place(loaded, error.fields.get("operator")) if here else ()  # a savepoint from the command line
    code = judge_storage_error(error).exit_code if isinstance(error, StorageError) else error.exit_code
    return [prevent_start(place, error.message, exit_code=code, cause=error)]


def _cluster_of(error: TidegateError) -> ClusterName:
    return ClusterName(str(error.fields.get("cluster", MAIN_CLUSTER)))


def judge_broker_error(
    loaded: LoadedPipeline, error: BrokerUnavailable | KafkaRefused, cluster: ClusterName, owner: Path = ()
) -> Finding:
    """Judge why no broker responds or accepts the login; `owner` is a source or sink with a login of its own."""
    name = str(error.fields.get("property", ""))
    properties = properties_of(loaded.settings, cluster)
    given = [one for one in (name, "bootstrap.servers", "metadata.broker.list") if one in properties]
    place: Path = (*owner, "kafka", name) if owner else (*place_of(cluster), *given[:1])
    message, remedy = str(error.fields.get("text", error.message)), str(error.fields.get("remedy", ""))
    return prevent_start(place, message, remedy, error.exit_code, error)


def place_refusal(loaded: LoadedPipeline, refusal: UpgradeRefusal) -> Problem:
    """Place a refusal at its source or step, or at the checkpoint directory if the file has no such name."""
    return loaded.problem(_find_place(loaded, refusal.name), refusal.told, refusal.remedy)


def _find_place(loaded: LoadedPipeline, name: object) -> Path:
    if name in loaded.settings.sources:
        return ("sources", str(name))
    if name in loaded.settings.sinks:
        return ("sinks", str(name))
    for index, step in zip(loaded.step_indices, loaded.settings.steps, strict=True):
        if step.name == name:
            return ("steps", index, "name")
    return DIRECTORY


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
