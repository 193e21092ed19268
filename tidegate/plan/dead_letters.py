"""The part of the graph that writes dead letters, fed by every operator with that policy. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from tidegate.config.clusters import properties_of
from tidegate.config.errors import Problem
from tidegate.config.fields.dead_letters import DeadLetterSettings
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import LoadedPipeline
from tidegate.config.properties import derive_client_properties
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS, READ_BACK, Origin, make_read_back, make_sink
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.retry import RETRY
from tidegate.operators.spec import DEAD, Requirement
from tidegate.plan.logical import Input, LogicalGraph, LogicalNode
from tidegate.plan.retries import add_retry_source


def add_dead_letters(graph: LogicalGraph, loaded: LoadedPipeline) -> LogicalGraph:
    """Adds the operators that write dead letters, if any are written."""
    settings, failing = loaded.settings.dead_letters, _failing(graph)
    if settings is None or not failing:
        return graph
    sources = _sources(graph)
    if settings.retry_topic is not None:
        graph = add_retry_source(graph, loaded, settings.retry_topic, settings.cluster)
        failing = [RETRY, *failing]
    origins = tuple(Origin(source.topics, source.kafka, source.pattern, source.cluster) for source in sources)
    kafka = reveal(derive_client_properties(properties_of(loaded.settings, settings.cluster), "producer"))
    sink = make_sink(settings.topic, loaded.settings.name, settings.per_minute_max, kafka, settings.cluster)
    named = []
    if len(sources) > 1 or any(len(source.topics) != 1 for source in sources):
        named.append(Requirement.TOPIC)
    if len({source.cluster for source in sources}) > 1:
        named.append(Requirement.CLUSTER)
    return {
        **{name: _naming(node, named) for name, node in graph.items()},
        READ_BACK: LogicalNode(make_read_back(origins), tuple(Input(name, DEAD) for name in failing)),
        DEAD_LETTERS: LogicalNode(sink, (Input(READ_BACK),)),
    }


def find_dead_letter_problems(graph: LogicalGraph, loaded: LoadedPipeline) -> tuple[list[Problem], list[Problem]]:
    """Returns errors and warnings about `dead_letters`."""
    settings = loaded.settings.dead_letters
    if settings is None:
        return [], []
    found = list(_topic_problems(graph, loaded, settings))
    if _failing(graph):
        return found, []
    message, remedy = (
        "no source has `bad_records: dead-letter`: nothing is written",
        "set it at a source, or remove this",
    )
    return found, [loaded.problem(("dead_letters",), message, remedy, at_key=True)]


def _topic_problems(graph: LogicalGraph, loaded: LoadedPipeline, settings: DeadLetterSettings) -> list[Problem]:
    cluster, sinks = settings.cluster, loaded.settings.sinks
    problems = []
    if settings.retry_topic == settings.topic:
        message, remedy = f"`{settings.topic}` is the topic of the dead letters themselves", "give it another topic"
        problems.append(loaded.problem(("dead_letters", "retry_topic"), message, remedy))
    for key, topic in (("topic", settings.topic), ("retry_topic", settings.retry_topic)):
        if topic is None:
            continue
        path, remedy = ("dead_letters", key), "give dead letters a topic of their own"
        readers = [one.name for one in _sources(graph) if one.reads_topic(cluster, topic)]
        writers = [name for name, sink in sinks.items() if sink.cluster == cluster and topic in sink.all_topics]
        if readers:
            message = f"`{topic}` is read by `{readers[0]}`: letters about letters would never end"
            problems.append(loaded.problem(path, message, remedy))
        if writers:
            problems.append(loaded.problem(path, f"`{topic}` is written by the sink `{writers[0]}`", remedy))
    return problems


def _sources(graph: LogicalGraph) -> list[SourceOperator]:
    return [node.operator for node in graph.values() if isinstance(node.operator, SourceOperator)]


def _failing(graph: LogicalGraph) -> list[OperatorName]:
    return [
        name
        for name, node in graph.items()
        if any(
            node.operator.bad_records_of(port) is BadRecordPolicy.DEAD_LETTER
            for port in {one.port for one in node.inputs} or (0,)
        )
    ]


def _naming(node: LogicalNode, named: Sequence[Requirement]) -> LogicalNode:
    """Returns a source with rows that name their record in this way as well; other operators unchanged."""
    if not isinstance(node.operator, SourceOperator):
        return node
    planned = node.operator.planned
    planned = msgspec.structs.replace(planned, carries=(*planned.carries, *named))
    return replace(node, operator=msgspec.structs.replace(node.operator, planned=planned))
