"""What is wrong with a pipeline on the cluster that it names: problems with their places, from a survey. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

import msgspec

from tidegate.checks.cluster import MAX_TIMEOUT, Cluster, SeenTopic
from tidegate.checks.durability import derive_durability_problems
from tidegate.checks.start_problems import StartProblem
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS, DeadLetterOperator, find_unfit
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.settings.base import Path
from tidegate.settings.units import render_duration

_USER: Final = "the user of `kafka:`"


def derive_problems(
    loaded: LoadedPipeline, plan: Plan, cluster: Cluster, placed: Collection[OperatorName] = ()
) -> list[StartProblem]:
    """What is wrong with a pipeline on this cluster; an error that may pass by itself has the exit code 1.

    Of `placed` sources the newest checkpoint has the positions, so their `start` says nothing any more.
    """
    found: list[StartProblem] = []
    problems: list[Problem] = []
    for source in plan.operators(SourceOperator):
        for index, topic in enumerate(source.topics):
            words: Path = ("topics", index) if loaded.settings.sources[source.name].topics else ("topic",)
            path = ("sources", source.name, *words)
            found += _topic_problems(loaded, path, topic, cluster.topics[topic], ("READ",))
        if source.name not in placed:
            problems += _start_problems(loaded, source, cluster)
    for sink in plan.operators(SinkOperator):
        needed = ("WRITE", "READ") if plan.exactly_once else ("WRITE",)
        for path, topic in _written(sink):
            seen = cluster.topics[topic]
            found += _topic_problems(loaded, path, topic, seen, needed)
            unfit = _find_unfit(sink, seen)
            if unfit is not None:
                problem = loaded.problem(path, f"the topic `{topic}` {unfit[0]}", unfit[1])
                found.append(StartProblem(problem, examined=not isinstance(sink, DeadLetterOperator)))
    limit, wanted = cluster.max_transaction_timeout_ms, loaded.settings.checkpoints.transaction_timeout_ms
    if plan.exactly_once and limit is not None and wanted > limit:
        message = f"{render_duration(wanted)} is more than the broker's {MAX_TIMEOUT} ({render_duration(limit)})"
        remedy = f"set it to {render_duration(limit)} or less, or raise the broker's limit"
        found.append(_examined(loaded.problem(("checkpoints", "transaction_timeout"), message, remedy)))
    found += map(_examined, _name_problems(loaded, plan, cluster))
    problems += _idle_slots(loaded, plan, cluster)
    found += map(_examined, derive_durability_problems(loaded, plan, cluster))
    return [*found, *map(StartProblem, problems)]


def _find_unfit(sink: SinkOperator, seen: SeenTopic) -> tuple[str, str] | None:
    """Why a topic takes none of the records, or not all of the letters, and the remedy; see `sinks/limits.py`."""
    if isinstance(sink, DeadLetterOperator):
        return find_unfit(compacted=bool(seen.compacted), batch_bytes=seen.batch_bytes)
    if seen.compacted and sink.key is None:
        remedy = "set `key` of the sink, or change the topic's cleanup.policy"
        return "is compacted: it takes no record without a key", remedy
    return None


def _examined(problem: Problem) -> StartProblem:
    return StartProblem(problem, examined=True)


def _written(sink: SinkOperator) -> Iterator[tuple[Path, str]]:
    """All topics of a sink, by where the file names them."""
    path: Path = (DEAD_LETTERS, "topic") if isinstance(sink, DeadLetterOperator) else ("sinks", sink.name, "topic")
    for index, topic in enumerate(sink.topics):
        yield path if isinstance(sink.topic, str) else (*path, "allow", index), topic


def _name_problems(loaded: LoadedPipeline, plan: Plan, cluster: Cluster) -> list[Problem]:
    """What is named after the pipeline."""
    problems: list[Problem] = []
    if not cluster.may_transact:
        remedy = f"grant WRITE on transactional ids with the prefix `{plan.pipeline}.`"
        problems.append(loaded.problem(("name",), f"{_USER} may not write transactions under this name", remedy))
    if not cluster.may_mirror:
        message = f"{_USER} may not write positions to the consumer group `{plan.pipeline}`: lag tools will not see it"
        problem = loaded.problem(("name",), message, "grant READ on that group")
        problems.append(_warning(problem))
    return problems


def _idle_slots(loaded: LoadedPipeline, plan: Plan, cluster: Cluster) -> list[Problem]:
    """Nothing is said where a pattern finds topics: there may be more of them soon."""
    sources = plan.operators(SourceOperator)
    if any(source.pattern for source in sources):
        return []
    read = [topic for source in sources for topic in source.topics]
    counts = [facts.partitions for topic in read if (facts := cluster.topics[topic].facts) is not None]
    if len(counts) < len(read) or sum(counts) >= plan.parallelism:
        return []
    message = f"{plan.parallelism} slots are more than the {sum(counts)} partitions of all sources: some read nothing"
    problem = loaded.problem(("parallelism",), message, "lower it, or add partitions")
    return [_warning(problem)]


def _topic_problems(
    loaded: LoadedPipeline, path: Path, topic: str, seen: SeenTopic, operations: tuple[str, ...]
) -> list[StartProblem]:
    if seen.error == "UnknownTopicOrPartition":
        message, remedy = f"the topic `{topic}` does not exist", "create it, or correct the name"
        return [StartProblem(loaded.problem(path, message, remedy))]
    if seen.error == "TopicAuthorizationFailed" or (seen.operations and "DESCRIBE" not in seen.operations):
        return [_examined(loaded.problem(path, f"{_USER} may not see the topic `{topic}`", "grant DESCRIBE on it"))]
    if seen.error:
        message, remedy = f"the broker says {seen.error} about the topic `{topic}`", "see the broker's log"
        return [StartProblem(loaded.problem(path, message, remedy), exit_code=1)]
    problems: list[StartProblem] = []
    for operation in operations if seen.operations else ():
        if operation not in seen.operations:
            message = f"{_USER} may not {operation.lower()} the topic `{topic}`"
            problems.append(_examined(loaded.problem(path, message, f"grant {operation} on it")))
    if seen.leaderless:
        numbers = ", ".join(map(str, seen.leaderless[:10]))
        problem = loaded.problem(path, f"no leader for partition {numbers} of `{topic}`", "start its broker")
        problems.append(StartProblem(_warning(problem)))
    return problems


def _warning(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, severity="warning")


def _start_problems(loaded: LoadedPipeline, source: SourceOperator, cluster: Cluster) -> list[Problem]:
    if not isinstance(source.start, dict):
        return []
    topic, problems = source.topics[0], []
    facts = cluster.topics[topic].facts
    for partition, offset in source.start.items():
        path = ("sources", source.name, "start", str(partition))
        if facts is not None and partition >= facts.partitions:
            message = f"the topic `{topic}` has no partition {partition}"
            problems.append(loaded.problem(path, message, f"partitions are 0 to {facts.partitions - 1}"))
        first, after = cluster.offsets.get(TopicPartition(topic, partition), (0, offset))
        if not first <= offset <= after:
            message = f"offset {offset} is not in partition {partition} of `{topic}`"
            problems.append(loaded.problem(path, message, f"use {first} to {after}"))
    return problems
