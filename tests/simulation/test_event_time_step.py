"""A step `event_time` in the simulation: absence by times that the source does not know, through faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec
import pytest

from tidegate.simulation.campaign import quiet, tell
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.shapes.joined import LEFT, Quiet
from tidegate.simulation.shapes.registry import SHAPES
from tidegate.simulation.shapes.shape import Step
from tidegate.simulation.timing import Timing
from tidegate.simulation.world import play

FIRST = 5000
PLAYED = 2


class TimedQuiet(Quiet):
    """The source goes by the time of arrival, and the step by that of the record."""

    source: ClassVar[Mapping[str, Any]] = {"metadata": {"timestamp": "arrived"}}
    by_arrival = True

    def event_time_with(self, timing: Timing) -> Mapping[str, Any]:
        return {"event_time": "arrived", "watermark": {"idle": timing.idle}}

    def steps_with(self, timing: Timing | None) -> Sequence[Step]:
        assert timing is not None
        watermark = {"delay": f"{timing.delay_ms}ms"}
        silent, rows = super().steps_with(timing)
        timed = {"name": "timed", "from": LEFT, "event_time": "at", "watermark": watermark}
        return [timed, {**silent, "from": "timed"}, rows]


def seeds() -> list[int]:
    """Those that play absence."""
    found: list[int] = []
    seed = FIRST
    while len(found) < PLAYED:
        if draw_schedule(seed).workload.topology == "quiet":
            found.append(seed)
        seed += 1
    return found


@pytest.mark.slow
def test_absence_by_the_times_of_a_step_is_exact_through_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "timed-quiet", TimedQuiet())
    late = silences = 0
    for seed in seeds():
        schedule = draw_schedule(seed)
        workload = msgspec.structs.replace(schedule.workload, topology="timed-quiet", locations=())
        with quiet():
            result = play(msgspec.structs.replace(schedule, workload=workload))
        assert not result.problems, f"seed {seed}: {tell(result, None)}"
        late += result.reach.get("late rows of joins", 0)
        silences += result.reach.get("rows that wait for the watermark", 0)
    print(f"seeds from {FIRST}: {late} late rows, {silences} results")
    assert silences
