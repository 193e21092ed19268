"""The progress of processing the input of windows, and windows that come out too early, observed as they happen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.simulation.lateness import ObservedWatermark
from tidegate.simulation.on_time import OnTimeOracle
from tidegate.simulation.python_steps import WatermarkFacts, derive_watermark_facts
from tidegate.simulation.shapes.python_steps import SILENT, PythonVisits
from tidegate.simulation.shapes.shape import DEAD_TOPIC, LATE_TOPIC, OnTimeShape
from tidegate.simulation.windows import WINDOW_TOPICS, Name, WindowOracle, name_of, names_in, read_ms

if TYPE_CHECKING:
    from tidegate.ids import TopicPartition
    from tidegate.simulation.timing import Timing
    from tidegate.simulation.world import World

EARLY_MAX: Final = 3
"""Maximum number of early windows that are reported."""


class Progress:
    """The progress of one world with windows."""

    def __init__(self, world: World, timing: Timing) -> None:
        self.all_read = False
        """The newest committed checkpoint is after everything that has arrived."""
        self._world = world
        self._timing = timing
        self._settled: dict[int, int] = {}
        self._next: dict[TopicPartition, int] = {}
        """Number of settled records per partition."""
        self._early = 0
        self._parallelism = 0
        """Parallelism of the last attempt."""
        self.sizes: dict[str, dict[Name, list[int]]] = defaultdict(lambda: defaultdict(list))
        """Topic -> window -> the number of records in each of its results, in order."""
        self._restored: frozenset[int] = frozenset()
        """Records before the positions with which the last attempt began."""
        self._rescaled = False
        """The last attempt has another parallelism than the one before it."""
        self._open: dict[str, set[Name]] = {}
        """Topic -> windows that were open at a restore."""

    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Notes that a checkpoint is committed."""
        feed, offsets = self._world.feed, self._world.clusters.merge_offsets(checkpoint.positions)
        self.all_read = all(offsets.get(place, 0) > ids[-1][0] for place, ids in feed.places.items())
        if checkpoint.inflight_bytes:
            self.all_read = False
        else:
            for place, offset in offsets.items():
                self._settle(place, offset)
        self._world.account.outputs.read(self._world.kernel.clock.now_ms())

    def on_recovered(self, checkpoint: CompletedCheckpoint, parallelism: int) -> None:
        """Notes that an attempt begins with a checkpoint."""
        reach = self._world.reach
        rescaled, self._parallelism = self._parallelism not in (0, parallelism), parallelism
        if any(part.watermarks for part in checkpoint.positions):
            reach.note("restores with watermarks")
        self._rescaled, self._restored = rescaled, frozenset(self._find_processed(checkpoint))
        processed, records = self._find_processed(checkpoint), self._world.feed.records
        for topic in [topic for topic in self._world.schedule.workload.shape.outputs if topic in WINDOW_TOPICS]:
            begun = {name for number in processed for name in names_in(topic, records[number], self._timing)}
            self._open[topic] = names = {name for name in begun if name not in self._world.account.outputs.ever[topic]}
            reach.note("restores with open windows", int(bool(names)))
            reach.note("restores with open windows at another parallelism", int(bool(names) and rescaled))

    def go_back(self, done: frozenset[int]) -> None:
        """Forgets everything after `done`, which will be processed again."""
        self._settled = {number: arrived for number, arrived in self._settled.items() if number in done}
        for place, ids in self._world.feed.places.items():
            self._next[place] = sum(number in done for _, number in ids)
        self.all_read = False
        self.sizes.clear()

    def oracle(self, skipped: frozenset[int]) -> WindowOracle:
        """Returns the oracle of windows for what is known now."""
        return WindowOracle(self._world.schedule.workload, self._timing, self._read(skipped))

    def oracle_on_time(self, shape: OnTimeShape, skipped: frozenset[int]) -> OnTimeOracle:
        """Returns the oracle of joins and absence for what is known now."""
        return OnTimeOracle(shape, self._world.schedule.workload, self._timing, self._read(skipped))

    def timed(self, skipped: frozenset[int]) -> WatermarkFacts:
        """Returns what is known now of the watermarks, for the oracle of steps in Python."""
        return derive_watermark_facts(self._world.schedule.workload, self._timing, self._read(skipped))

    def _read(self, skipped: frozenset[int]) -> ObservedWatermark:
        clocks_set = any(fault.kind == "clock" for fault in self._world.faults.fired)
        return ObservedWatermark(self._world.feed.records, skipped, self._settled, clocks_set)

    def on_row(self, topic: str, row: Mapping[str, Any]) -> None:
        """Checks a window that has come out. At most the records that have arrived by now can be known."""
        if topic not in WINDOW_TOPICS:
            self._check_on_time(topic, row)
            return
        open_then, name = self._open.get(topic, set()), name_of(topic, row)
        if name in open_then:
            open_then.remove(name)
            self._world.reach.note("windows closed after a restore")
        self.sizes[topic][name].append(row["orders"])
        if self._world.schedule.workload.bounded or self._timing.by_clock:
            return
        last_ms = read_ms(row["window_end"]) - 1
        if self._timing.early_ms:
            last_ms = self._first_due_ms(topic, read_ms(row["window_start"])) - 1
        passed = self._passed_ms()
        if (passed is None or last_ms > passed) and self._early < EARLY_MAX:
            self._early += 1
            self._world.problems.append(f"{topic}: {row} came out before its end was passed, at {passed}")

    def _check_on_time(self, topic: str, content: Any) -> None:
        """Checks that a row has not come out before the watermark can have reached its time, and counts it."""
        world, shape = self._world, self._world.schedule.workload.shape
        if not isinstance(shape, OnTimeShape) or topic in (LATE_TOPIC, DEAD_TOPIC):
            return
        due_ms, passed = shape.due_of(content, world.feed.records, self._timing), self._passed_ms()
        if due_ms is not None and (passed is None or due_ms > passed) and self._early < EARLY_MAX:
            self._early += 1
            world.problems.append(f"{topic}: {content.row} came out before {due_ms}, at {passed}")
        if isinstance(shape, PythonVisits) and topic == SILENT and self._is_restored(content.row):
            world.reach.note("timers of Python steps that fire after a restore")
            world.reach.note("timers of Python steps that fire after a rescale", self._rescaled)
        known = [number in self._restored for number in shape.causes_of(content)]
        if any(known) and not (len(known) > 1 and all(known)):
            what = "pairs across a restart" if len(known) > 1 else "unmatched rows after a restart"
            world.reach.note(what)
            world.reach.note(f"{what} with another parallelism", int(self._rescaled))

    def _is_restored(self, row: Mapping[str, Any]) -> bool:
        """Returns whether the timer of a silence was set before the positions with which the last attempt began."""
        records = self._world.feed.records
        key = row["sku"], row["last_ms"]
        return any((records[number].sku, records[number].at) == key for number in self._restored)

    def _first_due_ms(self, topic: str, start_ms: int) -> int:
        """Returns when the first early result is due. Sessions have them at multiples of the interval."""
        every_ms = self._timing.early_ms
        return start_ms + every_ms - (start_ms % every_ms if WINDOW_TOPICS[topic].sessions else 0)

    def _passed_ms(self) -> int | None:
        """Returns an upper bound of any watermark.

        If nothing is ever idle, the watermark does not exceed that of any partition that existed at the start.
        """
        world, highest = self._world, self._world.feed.highest
        if self._timing.idle != "never":
            return max(highest.values(), default=0) - self._timing.delay_ms - 1
        times = [highest.get(place) for place in world.feed.first_places]
        known = [time for time in times if time is not None]
        return min(known) - self._timing.delay_ms - 1 if len(known) == len(times) else None

    def _find_processed(self, checkpoint: CompletedCheckpoint) -> list[int]:
        offsets = self._world.clusters.merge_offsets(checkpoint.positions)
        return [
            number
            for place, ids in self._world.feed.places.items()
            for offset, number in ids
            if offset < offsets.get(place, 0)
        ]

    def _settle(self, place: TopicPartition, offset: int) -> None:
        ids = self._world.feed.places.get(place, [])
        count, arrived = self._next.get(place, 0), len(self._world.feed.records)
        while count < len(ids) and ids[count][0] < offset:
            self._settled[ids[count][1]] = arrived
            count += 1
        self._next[place] = count
