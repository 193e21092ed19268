"""Run in a process of its own: dead letters that are replayed, under the simulation's faults.

Half of the records are in the retry topic, as `tidegate dead-letters replay` writes them. Their rows return to a step
in the vertex of a source, to the head of a vertex by key, and to a node inside of it. Each comes out once, and only
behind the step that it returns to, whatever the interleaving, the kills, the rescales and the renamings are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import pytest

from tests.simulation.own_shapes import play_seeds
from tidegate.formats import dead_letters as letters
from tidegate.ids import MAIN_CLUSTER
from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.shapes.registry import SHAPES
from tidegate.simulation.shapes.shape import Content, DerivedShape, Produced, Step
from tidegate.simulation.workload import PIPELINE, InputRecord
from tidegate.simulation.world import Schedule
from tidegate.task.input_gate import InputGate
from tidegate.task.vertex import VertexTask

TARGETS: Final = ("rows", "counted", "shown", "to_copies")
"""Where the row of a record in the retry topic returns to, by its number."""
TYPES: Final[Mapping[str, str]] = {"id": "bigint", "customer": "string", "seen": "bigint"}


class Retried(DerivedShape):
    """A copy, and totals by a key that each record has alone: a second time would be seen in both."""

    inputs = ("orders", "again")
    outputs = ("copies", "totals")
    letters = True
    retry = "again"
    growing = False
    bounded = False
    steps: ClassVar[Sequence[Step]] = [
        {"name": "rows", "from": "orders", "select": {"id": "id", "customer": "customer"}},
        {"name": "counted", "from": "rows", "key": "id", "aggregate": {"seen": "count(*)"}},
        {"name": "shown", "from": "counted", "select": {"id": "id", "seen": "seen"}},
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_copies": {"topic": "copies", "from": "rows", "key": "customer"},
        "to_totals": {"topic": "totals", "from": "shown", "key": "id"},
    }

    def dress(self, record: InputRecord, now_ms: int) -> Record:
        if record.place.topic != self.retry:
            return super().dress(record, now_ms)
        row = {"id": record.id, "customer": record.customer, "seen": 1}
        about = {
            letters.KIND: "X",
            letters.PIPELINE: PIPELINE,
            letters.STEP: TARGETS[record.id % len(TARGETS)],
            letters.TOPIC: "orders",
            letters.PARTITION: "0",
            letters.OFFSET: "0",
            letters.BYTES: letters.ORIGINAL,
            letters.ROW: msgspec.json.encode(row).decode(),
            letters.ROW_TYPES: msgspec.json.encode(TYPES).decode(),
            letters.PORT: "0",
            letters.HEADERS: "0",
        }
        headers = tuple((name, value.encode()) for name, value in about.items())
        return Record(record.customer.encode(), record.value, now_ms, headers)

    def derive(self, records: Sequence[InputRecord]) -> list[Produced]:
        return [one for record in records for one in self._derive(record)]

    def _derive(self, record: InputRecord) -> Iterator[Produced]:
        target = TARGETS[record.id % len(TARGETS)] if record.place.topic == self.retry else "rows"
        causes = frozenset({record.id})
        if target in ("rows", "to_copies"):
            row = {"id": record.id, "customer": record.customer}
            lane = (record.customer, record.place, target)
            yield Produced("copies", record.id, lane, causes, Content(record.customer.encode(), row))
        if target != "to_copies":
            content = Content(str(record.id).encode(), {"id": record.id, "seen": 1})
            yield Produced("totals", record.id, record.id, causes, content)

    def name_of(self, topic: str, content: Content) -> Hashable:
        assert content.row is not None
        return int(content.row["id"])

    def count(self, records: Sequence[InputRecord], produced: Sequence[Produced]) -> Mapping[str, int]:
        again = [one for one in records if one.place.topic == self.retry]
        return {
            f"rows back at {TARGETS[one]}": sum(each.id % len(TARGETS) == one for each in again) for one in range(4)
        }


FLOORS: Final = {
    **{f"rows back at {target}": 100 for target in TARGETS},
    "checkpoints with rows in flight": 5,
    "fault: rescale": 1,
}
"""For the seeds of the test: what is reached more rarely is not tested."""


def _barrier_passes_rows(patch: pytest.MonkeyPatch) -> None:
    """The source of a vertex takes its barrier from the trigger, as if no rows were on their way to it."""
    trigger = VertexTask.trigger

    def inject(self: VertexTask, barrier: Any) -> None:
        inputs, self.inputs = self.inputs, None
        trigger(self, barrier)
        self.inputs = inputs

    patch.setattr(VertexTask, "trigger", inject)
    control = InputGate.on_control
    patch.setattr(
        InputGate,
        "on_control",
        lambda self, channel, one, now: control(self, channel, one, now) if self._timed_channels else [],
    )


BUGS: Final[Mapping[str, Callable[[pytest.MonkeyPatch], None]]] = {"barrier passes rows": _barrier_passes_rows}


def main(first: int, seeds: int, bug: str = "") -> int:
    """Plays so many seeds of the shape."""
    SHAPES["retried"] = Retried()
    return play_seeds(range(first, first + seeds), _change, FLOORS, 6, BUGS[bug] if bug else None)


def _change(_: int, schedule: Schedule) -> Schedule:
    workload = msgspec.structs.replace(
        schedule.workload,
        topology="retried",
        timing=None,
        exactly_once=True,
        growing=False,
        bounded=False,
        from_latest=False,
        changed="",
        locations=(),
    )
    faults = tuple(msgspec.structs.replace(fault, cluster=MAIN_CLUSTER) for fault in schedule.faults)
    return msgspec.structs.replace(schedule, workload=workload, faults=faults)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
