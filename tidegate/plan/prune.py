"""Only what is needed: columns that nobody reads are neither computed nor sent (a source checks them all the same), and
event time and headers are carried only where an operator needs them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.logical import Input, LogicalGraph, LogicalNode, upstream_of


def derive_reachable(graph: LogicalGraph) -> LogicalGraph:
    """The part of the graph that leads to a sink."""
    needed = upstream_of(graph, (name for name, node in graph.items() if isinstance(node.operator, SinkOperator)))
    return {name: node for name, node in graph.items() if name in needed}


def derive_timed(graph: LogicalGraph) -> LogicalGraph:
    """The same graph with event time wherever an operator downstream needs it, and nowhere else.

    All inputs of a union have it then, since all of them lead there.
    """
    needing = upstream_of(graph, (name for name, node in graph.items() if node.operator.needs_time()))
    return {
        name: LogicalNode(node.operator.timed(carried=name in needing), node.inputs) for name, node in graph.items()
    }


def derive_headed(graph: LogicalGraph) -> LogicalGraph:
    """The same graph with the headers of records on every way to an operator that needs them, and nowhere else."""
    needing = upstream_of(graph, (name for name, node in graph.items() if node.operator.needs_headers()))
    return {
        name: LogicalNode(node.operator.with_headers(carried=name in needing), node.inputs, name in needing)
        for name, node in graph.items()
    }


def find_loss(graph: LogicalGraph, inputs: Iterable[Input]) -> OperatorName | None:
    """The first operator upstream of these inputs, nearest first, whose rows have no headers of a record any more."""
    waiting = deque(inputs)
    while waiting:
        one = waiting.popleft()
        node = graph.get(one.upstream)
        if node is None:
            continue
        if not node.operator.carries_headers(one.output):
            return one.upstream
        waiting.extend(node.inputs)
    return None


def derive_pruned(graph: LogicalGraph) -> LogicalGraph:
    """The same graph with narrow outputs."""
    needed: defaultdict[tuple[OperatorName, str], set[str]] = defaultdict(set)
    narrowed: LogicalGraph = {}
    for name in reversed(graph):
        node = graph[name]
        operator = node.operator.narrowed(needed[name, ""])
        for side in operator.side_outputs():
            operator = operator.narrowed_at(side, needed[name, side])
        narrowed[name] = LogicalNode(operator, node.inputs, node.headers)
        for one in node.inputs:
            needed[one.upstream, one.output] |= operator.reads()
    return {name: narrowed[name] for name in graph}
