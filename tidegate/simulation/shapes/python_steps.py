"""Steps in Python with state and timers, whose code travels in the plan; `simulation/python_steps.py` judges them.

One record in four fails in the step after it has written to its state, and becomes a dead letter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from typing_extensions import override

from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.shapes.shape import (
    LATE_TOPIC,
    TIMED_SCHEMA,
    Content,
    ContentShape,
    Expected,
    OnTimeShape,
    Step,
)
from tidegate.simulation.timing import Timing

if TYPE_CHECKING:
    from tidegate.simulation.workload import InputRecord

CODE: Final = Path(__file__).parents[1] / "user_code"
"""The directory of the users' modules."""
FAILS_OF: Final = 8
PAUSE_MS: Final = 60
NUMBERS: Final = "numbers"
AGAIN: Final = "again"
SILENT: Final = "silent"


class PythonShape(ContentShape):
    """Records that a step numbers per key; some fail."""

    outputs: ClassVar[tuple[str, ...]] = (NUMBERS,)
    failing: ClassVar[frozenset[int]]
    """Which of every `FAILS_OF` records fail."""
    exactly_once = True
    growing = False
    bounded = False
    letters = True

    def fails(self, record: InputRecord) -> bool:
        """Returns whether the step fails for a record."""
        return record.id % FAILS_OF in self.failing

    @override
    def name_of(self, topic: str, content: Content) -> Hashable:
        row = content.row
        assert row is not None
        return (row["sku"], row["last_ms"]) if topic == SILENT else row["id"]


class PythonBatches(PythonShape):
    """A step that processes batches, with state. Its rows keep their records."""

    failing = frozenset({3})
    steps: ClassVar[Sequence[Step]] = [
        {
            "name": "numbered",
            "from": "orders",
            "key": "sku",
            "python": "visits:Numbers",
            "per": "batch",
            "rows": "same",
            "with": {"fails_of": FAILS_OF},
            "output": {"id": "bigint", "sku": "string", "number": "bigint"},
        }
    ]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_numbers": {"topic": NUMBERS, "from": "numbered", "key": "sku", "headers": {"pass": "all"}}
    }

    @override
    def dress(self, record: InputRecord, now_ms: int) -> Record:
        return Record(record.customer.encode(), record.value, now_ms, (("id", str(record.id).encode()),))


class PythonVisits(PythonShape, OnTimeShape):
    """A step with all kinds of state, timers in event time and by the clock, and a timer that fails once per key."""

    outputs = (NUMBERS, AGAIN, SILENT, LATE_TOPIC)
    schema = TIMED_SCHEMA
    failing = frozenset({3, 6})
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_numbers": {"topic": NUMBERS, "from": "visits", "key": "sku"},
        "to_again": {"topic": AGAIN, "from": "visits.again", "key": "sku"},
        "to_silent": {"topic": SILENT, "from": "visits.silent", "key": "sku"},
        "to_late": {"topic": LATE_TOPIC, "from": "visits.behind"},
    }

    @override
    def steps_with(self, timing: Timing | None) -> Sequence[Step]:
        assert timing is not None, "silence has a time"
        return [
            {
                "name": "visits",
                "from": "orders",
                "key": "sku",
                "python": "visits:Visits",
                "with": {"gap": f"{timing.size_ms}ms", "pause": f"{PAUSE_MS}ms", "fails_of": FAILS_OF},
                "output": {"id": "bigint", "sku": "string", "number": "bigint"},
                "outputs": {
                    "again": {"id": "bigint", "sku": "string"},
                    "silent": {"sku": "string", "last_ms": "bigint", "records": "bigint"},
                    "behind": {"id": "bigint"},
                },
            }
        ]

    @override
    def derive(self, records: Sequence[InputRecord], timing: Timing) -> list[Expected]:
        """Returns the silences after these records, which are those that the step has counted."""
        by_sku: dict[str, list[InputRecord]] = defaultdict(list)
        for one in sorted(records, key=lambda record: record.event_ms):
            by_sku[one.sku].append(one)
        return [row for of_key in by_sku.values() for row in _silences(of_key, timing.size_ms)]

    @override
    def due_of(self, content: Content, records: Sequence[InputRecord], timing: Timing) -> int | None:
        row = content.row
        return int(row["last_ms"]) + timing.size_ms if row is not None and "last_ms" in row else None


def _silences(records: Sequence[InputRecord], gap_ms: int) -> Iterator[Expected]:
    """Yields the silences of one key, whose records are in the order of their event times."""
    visit: list[InputRecord] = []
    for one, after in zip(records, [*records[1:], None], strict=True):
        visit.append(one)
        last_ms = one.event_ms
        if after is not None and after.event_ms - last_ms <= gap_ms:
            continue
        row = {"sku": one.sku, "last_ms": last_ms, "records": len(visit)}
        causes = frozenset(other.id for other in visit)
        yield Expected(SILENT, (one.sku, last_ms), causes, last_ms + gap_ms, Content(one.sku.encode(), row))
        visit = []
