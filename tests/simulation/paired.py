"""Run in a process of its own: the kind `cogroup` of `tests/operators/kinds` under the simulation's faults.

Two topics with different schemas, keyed state on both sides. Every pair comes out once, whatever the interleaving, the
kills and the rescales are. Some schedules have a gate (one side catches up before the other one is read), in the others
one side is far ahead of the other in event time, and may not be.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import pytest

import tests.operators.more_kinds  # noqa: F401  # before anything has looked which kinds there are
from tests.simulation.own_shapes import play_seeds
from tidegate.coordinator.gating import Gating
from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.shapes.registry import SHAPES
from tidegate.simulation.shapes.shape import TIMED_SCHEMA, Content, DerivedShape, Produced, Step
from tidegate.simulation.workload import InputRecord
from tidegate.simulation.world import Schedule
from tidegate.task.vertex import VertexTask

AHEAD_MS: Final = 300
FAR_MS: Final = 2_000
"""Payments have event times so much after orders."""
SKUS: Final = 40
EVENT_TIME: Final = {"event_time": "at", "watermark": {"delay": "150ms", "idle": "caught-up"}}
TAKE: Final = {"asked": "left.id", "paid": "right.payment"}


def steps_of(**more: Any) -> Sequence[Step]:
    return [{"name": "pairs", "key": "sku", "cogroup": {"left": "orders", "right": "payments", "take": TAKE, **more}}]


class Paired(DerivedShape):
    """Pairs of orders and payments by sku."""

    inputs = ("orders", "payments")
    outputs = ("pairs",)
    schema = TIMED_SCHEMA
    source = EVENT_TIME
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "payments": {"schema": {"payment": "bigint", "sku": "string", "at": "bigint"}}
    }
    steps = steps_of()
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {"to_pairs": {"topic": "pairs", "from": "pairs", "key": "sku"}}
    exactly_once = True

    def time_of(self, number: int, now_ms: int) -> int:
        return now_ms - number * 7919 % 97

    def dress(self, record: InputRecord, now_ms: int) -> Record:
        if record.place.topic == "orders":
            return super().dress(record, now_ms)
        assert record.at is not None
        row = {"payment": record.id, "sku": record.sku, "at": record.at + FAR_MS}
        return Record(record.customer.encode(), msgspec.json.encode(row), now_ms)

    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        sides: dict[str, dict[str, list[int]]] = {topic: defaultdict(list) for topic in self.inputs}
        for one in records:
            sides[one.place.topic][one.sku].append(one.id)
        return [
            Produced(
                "pairs",
                (asked, paid),
                (asked, paid),
                frozenset({asked, paid}),
                Content(sku.encode(), {"sku": sku, "asked": asked, "paid": paid}),
            )
            for sku, orders in sides["orders"].items()
            for asked in orders
            for paid in sides["payments"].get(sku, ())
        ]

    def name_of(self, topic: str, content: Content) -> Hashable:
        assert content.row is not None
        return content.row["asked"], content.row["paid"]

    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        return {"pairs": len(produced)}


class Gated(Paired):
    """Payments come first."""

    steps = steps_of(first="right")


class Leading(Paired):
    """Payments are far ahead, and may not be."""

    steps = steps_of(ahead_ms=AHEAD_MS)


class Outer(Paired):
    """Orders without a sku skip the exchange: an edge by key and a forward edge feed one port."""

    steps = steps_of(outer="left")

    def dress(self, record: InputRecord, now_ms: int) -> Record:
        made = super().dress(record, now_ms)
        if not is_unmatched(record):
            return made
        assert made.value is not None
        value = msgspec.json.encode({**msgspec.json.decode(made.value), "sku": None})
        return msgspec.structs.replace(made, value=value)

    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        unmatched = [one for one in records if is_unmatched(one)]
        alone = [
            Produced(
                "pairs",
                (one.id, None),
                (one.id, None),
                frozenset({one.id}),
                Content(None, {"sku": None, "asked": one.id, "paid": None}),
            )
            for one in unmatched
        ]
        return [*super().derive([one for one in records if not is_unmatched(one)]), *alone]

    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        alone = sum(len(one.causes) == 1 for one in produced)
        return {"pairs": len(produced) - alone, "orders without a key": alone}


def is_unmatched(record: InputRecord) -> bool:
    return record.place.topic == "orders" and record.id % 5 == 0


FLOORS: Final = {
    "pairs": 500,
    "sources put on hold": 20,
    "sources that read on": 10,
    "orders without a key": 20,
    "schedules: gated": 3,
    "schedules: leading": 3,
    "schedules: outer": 3,
    "checkpoints with rows in flight": 5,
    "fault: rescale": 1,
}
"""For the seeds of the test: what is reached more rarely is not tested."""


def _never_opens(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Gating, "on_caught_up", lambda self, vertex, port, slot: ())


def _no_barrier_on_hold(patch: pytest.MonkeyPatch) -> None:
    trigger = VertexTask.trigger
    patch.setattr(VertexTask, "trigger", lambda self, barrier: None if self.on_hold else trigger(self, barrier))


def _one_edge_by_key_is_enough(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidegate.slot.subtasks.may_overtake", lambda edges: any(edge.keys for edge in edges))


BUGS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {
    "gate never opens": _never_opens,
    "no barrier on hold": _no_barrier_on_hold,
    "one edge by key is enough": _one_edge_by_key_is_enough,
}


SHAPES_HERE: Final = {"paired": Paired(), "gated": Gated(), "leading": Leading(), "outer": Outer()}


def main(first: int, seeds: int, bug: str = "") -> int:
    """Plays so many seeds of the shapes in turn."""
    SHAPES.update(SHAPES_HERE)
    return play_seeds(range(first, first + seeds), _change, FLOORS, 12, BUGS[bug] if bug else None)


def _change(seed: int, schedule: Schedule) -> Schedule:
    workload = msgspec.structs.replace(
        schedule.workload,
        topology=[*SHAPES_HERE][seed % len(SHAPES_HERE)],
        locations=(),
        timing=None,
        exactly_once=True,
        skus=SKUS,
        backlog=max(schedule.workload.backlog, 20),
        from_latest=False,
        renamed=False,  # of steps that read by `from`
        changed="",
    )
    return msgspec.structs.replace(schedule, workload=workload)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
