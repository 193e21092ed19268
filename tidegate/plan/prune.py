"""Only what is needed: columns that nobody reads are neither computed nor sent (a source checks them all the same)."""

from __future__ import annotations

from tidegate.ids import OperatorName
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.plan.logical import LogicalGraph, LogicalNode


def derive_reachable(graph: LogicalGraph) -> LogicalGraph:
    """The part of the graph that leads to a sink."""
    needed: set[OperatorName] = set()
    for name in reversed(graph):
        if name in needed or isinstance(graph[name].operator, SinkOperator):
            needed.add(name)
            needed.update(one.upstream for one in graph[name].inputs)
    return {name: node for name, node in graph.items() if name in needed}


def derive_pruned(graph: LogicalGraph) -> LogicalGraph:
    """The same graph with narrow outputs."""
    needed: dict[OperatorName, set[str]] = {name: set() for name in graph}
    narrowed: LogicalGraph = {}
    for name in reversed(graph):
        node = graph[name]
        operator = node.operator.narrowed(needed[name])
        narrowed[name] = LogicalNode(operator, node.inputs)
        for one in node.inputs:
            needed[one.upstream] |= operator.reads()
    return {name: narrowed[name] for name in graph}
