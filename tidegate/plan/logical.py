"""The graph before it is cut into vertices: one node per operator, with the names of those it reads."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.ids import OperatorName
from tidegate.plan.graph import Operator


@dataclass(frozen=True, slots=True)
class LogicalNode:
    """An operator and its inputs. With `keys` the input is re-partitioned by them."""

    operator: Operator
    inputs: tuple[OperatorName, ...] = ()
    keys: tuple[str, ...] = ()


LogicalGraph = dict[OperatorName, LogicalNode]
"""Nodes in topological order."""


def consumers_of(graph: LogicalGraph) -> dict[OperatorName, list[OperatorName]]:
    """Who reads each operator, in topological order."""
    consumers: dict[OperatorName, list[OperatorName]] = {name: [] for name in graph}
    for name, node in graph.items():
        for upstream in node.inputs:
            consumers[upstream].append(name)
    return consumers
