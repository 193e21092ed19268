"""Plans for tests, in terms of named nodes: `shuffle_plan` aligns, `parallel_plan` never does."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.datatypes import BIGINT, BOOLEAN
from tidegate.expressions.expression import Literal
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import (
    OperatorName,
    VertexId,
)
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.kinds.filter import FilterOperator
from tidegate.operators.spec import Columns, Operator
from tidegate.plan.graph import Edge, Node, Plan, Vertex

KEYED: Columns = (("k", BIGINT), ("n", BIGINT))
MAX_PARALLELISM = 128


def source_node(name: str, **ways: tuple[int, ...]) -> Node:
    spec = SourceOperator(
        name=OperatorName(name),
        topics=(name,),
        format="json",
        schema=KEYED,
        output=KEYED,
        start="earliest",
        until="never",
        bad_records=BadRecordPolicy.FAIL,
        kafka={},
    )
    return _node(spec, **ways)


def _node(operator: Operator, children: tuple[int, ...] = (), edges: tuple[int, ...] = ()) -> Node:
    return Node(operator, children, edges)


def filter_node(name: str, bad_records: BadRecordPolicy = BadRecordPolicy.FAIL, **ways: tuple[int, ...]) -> Node:
    return _node(FilterOperator(OperatorName(name), Literal(True, BOOLEAN), KEYED, bad_records), **ways)


def totals_node(name: str, **ways: tuple[int, ...]) -> Node:
    return _node(AggregateOperator(OperatorName(name), ("k",), (), "each", KEYED, BadRecordPolicy.FAIL), **ways)


def sink_node(name: str) -> Node:
    return Node(SinkOperator(OperatorName(name), name, "json", KEYED, None, None, BadRecordPolicy.FAIL, {}))


def vertex(*nodes: Node) -> Vertex:
    return Vertex(VertexId(nodes[0].operator.name), nodes)


def edge(index: int, upstream: str, downstream: str, *keys: str) -> Edge:
    return Edge(index, VertexId(upstream), VertexId(downstream), keys, KEYED)


def plan_of(
    parallelism: int, vertices: Sequence[Vertex], edges: Sequence[Edge] = (), *, exactly_once: bool = True
) -> Plan:
    return Plan("p", parallelism, MAX_PARALLELISM, exactly_once, tuple(vertices), tuple(edges))


def shuffle_plan(parallelism: int, *, exactly_once: bool = True) -> Plan:
    """read -> (hash by k) -> total -> write: the exchange aligns."""
    return plan_of(
        parallelism,
        [vertex(source_node("read", edges=(0,))), vertex(totals_node("total", children=(1,)), sink_node("write"))],
        [edge(0, "read", "total", "k")],
        exactly_once=exactly_once,
    )


def parallel_plan(parallelism: int, *, exactly_once: bool = True) -> Plan:
    """read -> pass -> (forward) -> total -> write: every subtask has one input channel."""
    return plan_of(
        parallelism,
        [
            vertex(source_node("read", children=(1,)), filter_node("pass", edges=(0,))),
            vertex(totals_node("total", children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total")],
        exactly_once=exactly_once,
    )
