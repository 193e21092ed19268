"""Only what is needed: columns that nobody reads are neither computed nor sent (a source checks them all the same), and
event time and headers are carried only where an operator needs them.
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
    """The part of the graph that leads to a sink."""
    needed = upstream_of(graph, (name for name, node in graph.items() if isinstance(node.operator, SinkOperator)))
    return {name: node for name, node in graph.items() if name in needed}


def derive_planned(graph: LogicalGraph) -> LogicalGraph:
    """The same graph with what is decided about each operator: what its rows carry, and which columns are read.

    From the sinks upwards. An operator says what each of its ports requires and reads, given what is read of its own
    outputs. Columns are told apart by the output that they are of, so two inputs may have equal names.
    """
    carried: defaultdict[OperatorName, set[Requirement]] = defaultdict(set)
    read: defaultdict[OperatorName, dict[str, set[str]]] = defaultdict(dict)
    planned: LogicalGraph = {}
    for name in reversed(graph):
        node = graph[name]
        operator = _decide(node.operator, carried[name], read[name])
        planned[name] = replace(node, operator=operator)
        for one in node.inputs:
            carried[one.upstream] |= {*derive_carried(operator, one.port)} - _GIVEN
            if one.output != DEAD:
                read[one.upstream].setdefault(one.output, set()).update(operator.reads(one.port))
    return {name: planned[name] for name in graph}


_GIVEN: Final = {Requirement.ROW_KIND, Requirement.TOPIC}
"""What `changes.py` and `dead_letters.py` have decided before: these do not go with every row."""


def _decide(operator: Operator, carried: set[Requirement], read: Mapping[str, set[str]]) -> Operator:
    outputs = {
        output: tuple(column for column, _ in operator.output_columns(output) if column in names)
        for output, names in read.items()
    }
    before = operator.planned
    carries = order_requirements({*before.carries, *carried})
    return msgspec.structs.replace(operator, planned=msgspec.structs.replace(before, outputs=outputs, carries=carries))


def find_loss(graph: LogicalGraph, inputs: Iterable[Input]) -> OperatorName | None:
    """The first operator upstream of these inputs, nearest first, whose rows have no headers of a record any more."""
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
