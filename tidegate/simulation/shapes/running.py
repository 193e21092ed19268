"""Shapes with one row per record and with running totals; `simulation/oracle.py` judges their outputs by topic.

The order in which records of several partitions meet in a total is not guaranteed, so their output is not derived in
advance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from tidegate.simulation.shapes.shape import Shape, Step

HALVES: Final = {"even": 0, "odd": 1}
"""Topics of one sink, and the remainder of the ids in each."""

PAID_SINK: Final = {"from": "priced", "topic": "paid", "key": "customer"}
_SUMS_SINK: Final = {"from": "totals", "topic": "sums", "key": "sku"}


def paid_steps(inputs: str | list[str]) -> list[Step]:
    """Returns the steps for paid records with their price."""
    return [
        {"name": "good", "from": inputs, "where": "status = 'paid'"},
        {
            "name": "priced",
            "from": "good",
            "select": {"id": "id", "customer": "customer", "total_cents": "quantity * price_cents"},
        },
    ]


def _totals_step(inputs: str | list[str]) -> Step:
    return {
        "name": "totals",
        "from": inputs,
        "key": "sku",
        "aggregate": {
            "orders": "count(*)",
            "revenue_cents": "sum(quantity * price_cents)",
            "last_id": "last(id)",
            "customer": "last(customer)",
        },
    }


class Stateless(Shape):
    """A filter and a projection."""

    outputs: ClassVar[tuple[str, ...]] = ("paid",)
    steps: ClassVar[Sequence[Step]] = paid_steps("orders")
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paid": PAID_SINK}


class Letters(Stateless):
    """`Stateless` with records that fail, at the source or in the projection."""

    source: ClassVar[Mapping[str, Any]] = {"bad_records": "dead-letter"}
    bad: ClassVar[Mapping[int, str]] = {3: "source", 5: "step"}


class Halves(Stateless):
    """`Stateless` with one sink that writes to two topics."""

    outputs = tuple(HALVES)
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "even": {
            "from": "priced",
            "topic": {"expression": "if(id % 2 = 0, 'even', 'odd')", "allow": list(HALVES)},
            "key": "customer",
        }
    }


class Totals(Shape):
    """Running totals."""

    outputs = ("sums",)
    steps: ClassVar[Sequence[Step]] = [_totals_step("orders")]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"sums": _SUMS_SINK}


class Both(Shape):
    """Rows and running totals from one source."""

    outputs = ("paid", "sums")
    steps: ClassVar[Sequence[Step]] = [*paid_steps("orders"), _totals_step("orders")]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paid": PAID_SINK, "sums": _SUMS_SINK}


class Union(Both):
    """Rows and running totals from two sources."""

    inputs = ("orders", "returns")
    steps: ClassVar[Sequence[Step]] = [
        *paid_steps(["orders", "returns"]),
        _totals_step(["orders", "returns"]),
    ]


class Chain(Shape):
    """Running totals of running totals, after a second exchange."""

    outputs = ("sums", "customers")
    steps: ClassVar[Sequence[Step]] = [
        _totals_step("orders"),
        {
            "name": "visits",
            "from": "totals",
            "key": "customer",
            "aggregate": {"orders": "count(*)", "last_id": "last(last_id)"},
        },
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sums": _SUMS_SINK,
        "customers": {"from": "visits", "topic": "customers", "key": "customer"},
    }
