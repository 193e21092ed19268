"""Shapes with windows, whose sizes and event times the schedule's timing draws; `simulation/windows.py` judges them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from tidegate.simulation.shapes.running import PAID_SINK, paid_steps
from tidegate.simulation.shapes.shape import TIMED_SCHEMA, Shape, Step

if TYPE_CHECKING:
    from tidegate.simulation.timing import Timing

WIDE: Final = 3
"""Size factor of windows over windows."""

_OF_RECORDS: Final = {
    "orders": "count(*)",
    "revenue_cents": "sum(quantity * price_cents)",
    "id_sum": "sum(id)",
    "first_id": "min(id)",
    "last_id": "max(id)",
}
_OF_TOTALS: Final = {**_OF_RECORDS, "revenue_cents": "sum(cents)"}
_OF_WINDOWS: Final = {
    "parts": "count(*)",
    "orders": "sum(orders)",
    "revenue_cents": "sum(revenue_cents)",
    "id_sum": "sum(id_sum)",
    "first_id": "min(first_id)",
    "last_id": "max(last_id)",
}


class _Windowed(Shape):
    schema = TIMED_SCHEMA
    windowed = True

    @override
    def steps_with(self, timing: Timing | None) -> Sequence[Step]:
        assert timing is not None, "windows have a size"
        return self._steps(timing)

    def _steps(self, timing: Timing) -> Sequence[Step]:
        raise NotImplementedError


class Windows(_Windowed):
    """Tumbling or sliding windows, perhaps with corrections or early results."""

    outputs: ClassVar[tuple[str, ...]] = ("windows",)
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "windows": {"from": "per_sku", "topic": "windows", "key": "sku"}
    }

    def _steps(self, timing: Timing) -> Sequence[Step]:
        return [_per_sku(timing, "orders")]


class UnionWindows(Windows):
    """Windows over two topics, next to rows of one record each."""

    inputs = ("orders", "returns")
    outputs = ("paid", "windows")
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paid": PAID_SINK, **Windows.sinks}

    def _steps(self, timing: Timing) -> Sequence[Step]:
        both = list(self.inputs)
        return [*paid_steps(both), _per_sku(timing, both)]


class ChainWindows(_Windowed):
    """Windows after another exchange."""

    outputs = ("visited",)
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "visited": {"from": "per_customer", "topic": "visited", "key": "customer"}
    }

    def _steps(self, timing: Timing) -> Sequence[Step]:
        each = {"id": "last(id)", "customer": "last(customer)", "cents": "last(quantity * price_cents)"}
        late = _late(timing)
        return [
            {"name": "each", "from": "orders", "key": "sku", "aggregate": each},
            {
                "name": "per_customer",
                "from": "each",
                "key": "customer",
                "window": _window(timing),
                "aggregate": _OF_TOTALS,
                **late,
            },
        ]


class WideWindows(_Windowed):
    """Windows over windows."""

    outputs = ("parts", "wide")
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "parts": {"from": "per_both", "topic": "parts", "key": "sku"},
        "wide": {"from": "per_part", "topic": "wide", "key": "customer"},
    }

    def _steps(self, timing: Timing) -> Sequence[Step]:
        wide = {"tumbling": f"{WIDE * timing.size_ms}ms"}
        return [
            {
                "name": "per_both",
                "from": "orders",
                "key": ["sku", "customer"],
                "window": _window(timing),
                "aggregate": _OF_RECORDS,
            },
            {"name": "per_part", "from": "per_both", "key": "customer", "window": wide, "aggregate": _OF_WINDOWS},
        ]


class SessionWindows(_Windowed):
    """Sessions, perhaps with early results."""

    outputs = ("sessions",)
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "sessions": {"from": "per_session", "topic": "sessions", "key": "sku"}
    }

    def _steps(self, timing: Timing) -> Sequence[Step]:
        return [
            {
                "name": "per_session",
                "from": "orders",
                "key": "sku",
                "window": {"session": f"{timing.size_ms}ms"},
                "aggregate": _OF_RECORDS,
                **_early(timing),
            }
        ]


def _per_sku(timing: Timing, inputs: str | list[str]) -> Step:
    return {
        "name": "per_sku",
        "from": inputs,
        "key": "sku",
        "window": _window(timing),
        "aggregate": _OF_RECORDS,
        **_late(timing),
        **_early(timing),
    }


def _window(timing: Timing) -> Mapping[str, str]:
    if timing.zone:
        return {"tumbling": "1d", "time_zone": timing.zone}
    size = f"{timing.size_ms}ms"
    return {"tumbling": size} if timing.every_ms is None else {"sliding": size, "every": f"{timing.every_ms}ms"}


def _late(timing: Timing) -> Mapping[str, str]:
    return {"allowed_lateness": f"{timing.allowed_ms}ms"} if timing.allowed_ms else {}


def _early(timing: Timing) -> Mapping[str, Any]:
    return {"emit": {"every": f"{timing.early_ms}ms"}} if timing.early_ms else {}
