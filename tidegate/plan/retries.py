"""The part of the graph that replays dead letters at the step that failed: a source, and edges to inputs. Pure.

The edges are added when vertices are known: a row returns to any node of a vertex, so no chain is cut for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from tidegate.config.clusters import properties_of
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import LoadedPipeline
from tidegate.config.properties import derive_client_properties
from tidegate.formats.dead_letters import RETRY_TRIES
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import ClusterName, OperatorName, SourceTopic
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.retry import RETRY, RetryInput, RetryOperator, make_retry
from tidegate.operators.spec import Requirement
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

_Outputs = set[tuple[OperatorName, str]]


def add_retry_source(graph: LogicalGraph, loaded: LoadedPipeline, topic: str, cluster: ClusterName) -> LogicalGraph:
    """Adds the source of the retry topic. It ends with the others if all of them end."""
    settings = loaded.settings
    bounded = all(one.until != "never" for one in settings.sources.values())
    kafka = reveal(derive_client_properties(properties_of(settings, cluster), "consumer"))
    return {RETRY: LogicalNode(make_retry(topic, settings.name, kafka, cluster, bounded=bounded)), **graph}


def add_retry_inputs(graph: LogicalGraph, words: Mapping[OperatorName, UpgradeDirective]) -> LogicalGraph:
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
    inputs = tuple(_derive_inputs(graph, words))
    return {**graph, RETRY: replace(graph[RETRY], operator=msgspec.structs.replace(retry, inputs=inputs))}


def _derive_inputs(graph: LogicalGraph, words: Mapping[OperatorName, UpgradeDirective]) -> Iterator[RetryInput]:
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
                was=_former_name(name, words),
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


def _former_name(name: OperatorName, words: Mapping[OperatorName, UpgradeDirective]) -> OperatorName:
    """Returns the former name of an operator of a renamed step; empty if it was not renamed."""
    step, dot, part = name.partition(".")
    directive = words.get(OperatorName(step))
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
