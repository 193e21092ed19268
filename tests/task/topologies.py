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
from tidegate.plan.graph import (
    AggregateOperator,
    Columns,
    Edge,
    FilterOperator,
    Node,
    Plan,
    SinkOperator,
    SourceOperator,
    Vertex,
)

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
    return Node(spec, **ways)


def filter_node(name: str, bad_records: BadRecordPolicy = BadRecordPolicy.FAIL, **ways: tuple[int, ...]) -> Node:
    return Node(FilterOperator(OperatorName(name), Literal(True, BOOLEAN), KEYED, bad_records), **ways)


def totals_node(name: str, **ways: tuple[int, ...]) -> Node:
    return Node(AggregateOperator(OperatorName(name), ("k",), (), "each", KEYED, BadRecordPolicy.FAIL), **ways)


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
