"""The part of the graph that writes dead letters, fed by every operator with that policy, and the part that replays
them at the step that failed: a source, and edges to inputs. Pure.

Edges of replays are added when vertices are known: a row returns to any node of a vertex, so no chain is cut for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from tidegate.config.clusters import properties_of
from tidegate.config.errors import Problem
from tidegate.config.fields.records import DeadLetterSettings
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import LoadedPipeline
from tidegate.config.properties import derive_client_properties
from tidegate.formats.dead_letters import RETRY_TRIES
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import ClusterName, OperatorName, SourceTopic
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS, READ_BACK, Origin, make_read_back, make_sink
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.retry import RETRY, RetryInput, RetryOperator, make_retry
from tidegate.operators.spec import DEAD, Requirement
from tidegate.plan.graph import RETRY_VERTEX, Edge, OutputPath, UpgradeDirective, Vertex
from tidegate.plan.logical import (
    Input,
    LogicalGraph,
    LogicalNode,
    derive_carried,
    derive_crossing,
    order_requirements,
    upstream_of,
)


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
        message, remedy = f"`{settings.topic}` is also the topic of the dead letters", "give it another topic"
        problems.append(loaded.problem(("dead_letters", "retry_topic"), message, remedy))
    for key, topic in (("topic", settings.topic), ("retry_topic", settings.retry_topic)):
        if topic is None:
            continue
        path, remedy = ("dead_letters", key), "give dead letters a topic of their own"
        readers = [one.name for one in _sources(graph) if one.reads_topic(cluster, topic)]
        writers = [name for name, sink in sinks.items() if sink.cluster == cluster and topic in sink.all_topics]
        if readers:
            message = f"`{topic}` is read by `{readers[0]}`: dead letters would produce dead letters without end"
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


_Outputs = set[tuple[OperatorName, str]]


# -- replays -----------------------------------------------------------------------------------------------------------


def add_retry_source(graph: LogicalGraph, loaded: LoadedPipeline, topic: str, cluster: ClusterName) -> LogicalGraph:
    """Adds the source of the retry topic. It ends with the others if all of them end."""
    settings = loaded.settings
    bounded = all(one.until != "never" for one in settings.sources.values())
    kafka = reveal(derive_client_properties(properties_of(settings, cluster), "consumer"))
    return {RETRY: LogicalNode(make_retry(topic, settings.name, kafka, cluster, bounded=bounded)), **graph}


def add_retry_inputs(graph: LogicalGraph, directives: Mapping[OperatorName, UpgradeDirective]) -> LogicalGraph:
    """Adds to the source of the retry topic what the inputs of a planned graph take."""
    if RETRY not in graph:
        return graph
    retry = graph[RETRY].operator
    assert isinstance(retry, RetryOperator)
    operators = [node.operator for node in graph.values() if node.operator is not retry]
    sources = [one for one in operators if isinstance(one, SourceOperator)]
    named = {one for source in sources for one in source.planned.carries} & {Requirement.TOPIC, Requirement.CLUSTER}
    if any(source.names_topic for source in sources):
        named.add(Requirement.TOPIC)
    planned = msgspec.structs.replace(retry.planned, carries=order_requirements({*retry.planned.carries, *named}))
    retry = msgspec.structs.replace(retry, planned=planned)
    inputs = tuple(_derive_inputs(graph, directives))
    return {**graph, RETRY: replace(graph[RETRY], operator=msgspec.structs.replace(retry, inputs=inputs))}


def _derive_inputs(graph: LogicalGraph, directives: Mapping[OperatorName, UpgradeDirective]) -> Iterator[RetryInput]:
    of_records = _find_outputs_of_records(graph)
    for name, node in graph.items():
        operator = node.operator
        for port, first in {one.port: one for one in reversed(node.inputs)}.items():
            if operator.bad_records_of(port) is not BadRecordPolicy.DEAD_LETTER:
                continue
            inputs = [one for one in node.inputs if one.port == port]
            above = [graph[one].operator for one in upstream_of(graph, [one.upstream for one in inputs])]
            sources = [one for one in above if isinstance(one, SourceOperator)]
            topics = {SourceTopic(one.cluster, topic) for one in sources for topic in one.topics}
            yield RetryInput(
                step=name,
                port=port,
                columns=derive_crossing(graph, first, operator),
                carries=derive_carried(operator, port),
                some_kinds=operator.planned.some_kinds,
                topics=tuple(sorted(topics)),
                of_records=all((one.upstream, one.output) in of_records for one in inputs),
                was=_former_name(name, directives),
            )


def _find_outputs_of_records(graph: LogicalGraph) -> _Outputs:
    """Returns the outputs each of whose rows has the place of a record."""
    found: _Outputs = set()
    for name, node in graph.items():
        above = [(one.upstream, one.output) in found for one in node.inputs if not one.port]
        for output in ("", *node.operator.side_outputs()):
            if node.operator.preserves_record(output) and all(above):
                found.add((name, output))
    return found


def _former_name(name: OperatorName, directives: Mapping[OperatorName, UpgradeDirective]) -> OperatorName:
    """Returns the former name of an operator of a renamed step; empty if it was not renamed."""
    step, dot, part = name.partition(".")
    directive = directives.get(OperatorName(step))
    return OperatorName(f"{directive.was}{dot}{part}" if directive is not None and directive.was else "")


def add_retry_edges(
    vertices: tuple[Vertex, ...], edges: tuple[Edge, ...], graph: LogicalGraph
) -> tuple[tuple[Vertex, ...], tuple[Edge, ...]]:
    """Adds an edge for each input of the retry source. They come last, so the others keep their indices."""
    retry = graph[RETRY].operator if RETRY in graph else None
    if not isinstance(retry, RetryOperator):
        return vertices, edges
    places = {node.operator.name: (vertex, index) for vertex in vertices for index, node in enumerate(vertex.nodes)}
    found = list(edges)
    sides: dict[str, OutputPath] = {}
    for one in retry.inputs:
        vertex, index = places[one.step]
        inputs = [each for each in graph[one.step].inputs if each.port == one.port]
        keys = _derive_keys(vertex, index, inputs, edges)
        edge = Edge(
            len(found), RETRY_VERTEX, vertex.id, keys, one.columns, one.port, one.carries, retries=True, node=index
        )
        found.append(edge)
        sides[one.output] = OutputPath(edges=(edge.index,))
    (head,) = next(vertex for vertex in vertices if vertex.id == RETRY_VERTEX).nodes
    source = Vertex(RETRY_VERTEX, (msgspec.structs.replace(head, sides={**sides, **head.sides}),))
    return tuple(source if vertex.id == RETRY_VERTEX else vertex for vertex in vertices), tuple(found)


def _derive_keys(vertex: Vertex, index: int, inputs: Sequence[Input], edges: Sequence[Edge]) -> tuple[str, ...]:
    """Returns the keys of an edge: those of the input that it feeds, at the head of a vertex.

    Rows for other nodes may go to any slot. If all other edges of the vertex are keyed, barriers may overtake rows on
    them. The edge then also has a key, since a single edge without one would prevent that (`task/barriers/choice.py`).
    """
    own = () if index else next((one.keys for one in inputs if one.keys), ())
    others = [edge for edge in edges if edge.downstream == vertex.id]
    return own or ((RETRY_TRIES,) if others and all(edge.keys for edge in others) else ())
