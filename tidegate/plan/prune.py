"""Pruning: unused columns are neither computed nor sent, and event time and headers are carried only where needed.

A source validates unused columns nevertheless.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.spec import DEAD, Operator, Requirement
from tidegate.plan.logical import Input, LogicalGraph, derive_carried, order_requirements, upstream_of


def derive_reachable(graph: LogicalGraph) -> LogicalGraph:
    """Returns the part of the graph that leads to a sink."""
    needed = upstream_of(graph, (name for name, node in graph.items() if isinstance(node.operator, SinkOperator)))
    return {name: node for name, node in graph.items() if name in needed}


def derive_planned(graph: LogicalGraph) -> LogicalGraph:
    """Decides, for each operator, what its rows carry, which of its columns are read, and whether it declares when it
    has caught up.

    Works from the sinks upwards. Each operator declares what its ports require and read, given what is read of its own
    outputs. Columns are tracked per output, so two inputs may have columns of the same name.
    """
    carried: defaultdict[OperatorName, set[Requirement]] = defaultdict(set)
    read: defaultdict[OperatorName, dict[str, set[str]]] = defaultdict(dict)
    awaited: set[OperatorName] = set()
    planned: LogicalGraph = {}
    for name in reversed(graph):
        node = graph[name]
        operator = _decide(node.operator, carried[name], read[name], catches_up=name in awaited)
        planned[name] = replace(node, operator=operator)
        for one in node.inputs:
            if name in awaited or operator.input_order(one.port).comes_first:
                awaited.add(one.upstream)
            carried[one.upstream] |= {*derive_carried(operator, one.port)} - _GIVEN
            if one.output != DEAD:
                read[one.upstream].setdefault(one.output, set()).update(operator.reads(one.port))
    return {name: planned[name] for name in graph}


_GIVEN: Final = {Requirement.ROW_KIND}
"""Decided earlier, in `changes.py`, because not every row carries them."""


def _decide(
    operator: Operator, carried: set[Requirement], read: Mapping[str, set[str]], *, catches_up: bool
) -> Operator:
    outputs = {
        output: tuple(column for column, _ in operator.output_columns(output) if column in names)
        for output, names in read.items()
    }
    before = operator.planned
    carries = order_requirements({*before.carries, *carried})
    after = msgspec.structs.replace(before, outputs=outputs, carries=carries, catches_up=catches_up)
    return msgspec.structs.replace(operator, planned=after)


def find_loss(graph: LogicalGraph, inputs: Iterable[Input]) -> OperatorName | None:
    """Returns the nearest operator upstream of these inputs whose rows no longer have the headers of a record."""
    waiting = deque(inputs)
    while waiting:
        one = waiting.popleft()
        node = graph.get(one.upstream)
        if node is None:
            continue
        if not node.operator.preserves_record(one.output):
            return one.upstream
        waiting.extend(before for before in node.inputs if before.port == 0)
    return None
