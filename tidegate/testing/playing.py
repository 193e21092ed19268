"""Plays an input on new harnesses: as it is, and with a restart in its middle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import polars as pl

from tidegate.config.load import LoadedPipeline
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_source import SourceOperator, derive_early_remedy, describe_early
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import Requirement
from tidegate.operators.waiting import WAITING_ROWS, WAITING_UNTIL
from tidegate.plan.graph import Plan
from tidegate.task.report import OperatorCounts
from tidegate.testing.compare import render_moment
from tidegate.testing.feed import Copies, Ends, FeedEvent, Log, open_log
from tidegate.testing.harness import Harness, HarnessSnapshot
from tidegate.testing.parts import VirtualClock, WrittenRecord
from tidegate.user_code.files import NO_FILES, CodeFiles, isolate_wheels
from tidegate.user_code.modules import isolate_modules
from tidegate.user_code.shipping import local_code

Output = Mapping[OperatorName, Sequence[WrittenRecord]]


class PlayedInput(msgspec.Struct, frozen=True):
    """What is played."""

    events: Sequence[FeedEvent]
    ends: Ends
    begins_ms: int
    """The time of the clock at the beginning."""
    at_once: int = 1
    """Number of records that arrive before the pipeline runs; more take less time."""
    copies: Copies | None = None
    """Copies of a registry's schemas, whose ids the records have."""


class Played(msgspec.Struct, frozen=True):
    """The outcome of a run without a restart."""

    written: Output
    rows: Mapping[OperatorName, Sequence[pl.DataFrame]]
    """The rows that each sink has written, if they were asked for."""
    bad: dict[str, int]
    late: dict[str, int]
    notes: list[str]
    """Notes that may explain missing records."""


class Run:
    """Plays one input on a plan. `on_skipped` receives a line for each bad record that is skipped."""

    def __init__(
        self, plan: Plan, given: PlayedInput, on_skipped: Callable[[str], None], code: CodeFiles = NO_FILES
    ) -> None:
        self.plan = plan
        self._given = given
        middle = max(0, (len(given.events) - 1) // 2)
        self._parts = (given.events[:middle], given.events[middle : middle + 1], given.events[middle + 1 :])
        """The events before the one that is in flight at a restart, that one, and those after it."""
        self.user_code = [node.operator.name for node in plan.nodes if node.operator.user_code() is not None]
        """The steps that run user code."""
        self._on_skipped = on_skipped
        self._code = code

    def play(self, *, rows: bool = False) -> Played:
        """Plays the input without a restart. `rows`: keeps the rows that sinks write."""
        log, clock = self._begin()
        with self._attempt(log, clock, self._on_skipped) as harness:
            if rows:
                harness.keep_rows()
            for part in self._parts:  # as with a restart: what arrives together is read by partition
                self._feed(harness, log, part)
            bad = {str(kind): count for kind, count in harness.bad_records().items()}
            counts = harness.counts()
            late = {str(name): one.late for name, one in counts.items() if one.late}
            notes = [*_describe_time(self.plan, counts), *_describe_waiting(self.plan, counts)]
            return Played(harness.written(), harness.rows(), bad, late, notes)

    def play_with_restart(self) -> Output:
        """Plays the input with a restart after half of the events, while the last of them is in flight."""
        log, clock = self._begin()
        snapshot = self._play_until_restart(log, clock)
        with self._attempt(log, clock, _ignore, snapshot) as harness:
            harness.settle()
            self._feed(harness, log, self._parts[-1])
            return harness.written()

    def _begin(self) -> tuple[Log, VirtualClock]:
        given = self._given
        return open_log(given.ends, given.copies), VirtualClock(given.begins_ms)

    def _play_until_restart(self, log: Log, clock: VirtualClock) -> HarnessSnapshot:
        before, in_flight, _ = self._parts
        with self._attempt(log, clock, _ignore) as harness:
            self._feed(harness, log, before)
            for event in in_flight:
                self._happen(harness, log, event)
            harness.turn()
            return harness.snapshot()

    @contextmanager
    def _attempt(
        self, log: Log, clock: VirtualClock, on_skipped: Callable[[str], None], snapshot: HarnessSnapshot | None = None
    ) -> Iterator[Harness]:
        """Opens a harness, and imports the user's modules for it anew."""
        with isolate_wheels(self._code.wheels), isolate_modules(self.plan.modules):
            harness = Harness(self.plan, log, clock, on_skipped, snapshot, self._code)
            try:
                yield harness
            finally:
                harness.close()

    def _feed(self, harness: Harness, log: Log, events: Sequence[FeedEvent]) -> None:
        for number, event in enumerate(events, 1):
            self._happen(harness, log, event)
            if number % self._given.at_once == 0:
                harness.settle()
        harness.settle()

    def _happen(self, harness: Harness, log: Log, event: FeedEvent) -> None:
        at_ms = self._given.begins_ms + event.after_ms
        if at_ms > harness.clock.time_ms:
            harness.settle()
            harness.advance(at_ms)
        if event.watermark_ms is not None:
            harness.settle()
            harness.watermark(OperatorName(event.source), event.watermark_ms)
        if event.record is not None:
            one = event.record
            at_ms = at_ms if one.timestamp_ms is None else one.timestamp_ms
            log.of(one.cluster).append(one.partition, one.key, one.value, at_ms, one.headers)


def open_code(loaded: LoadedPipeline) -> CodeFiles:
    """Opens the files of `code` where they are on this machine."""
    return NO_FILES if loaded.code is None else local_code(loaded.code.files)


def _ignore(where: str) -> None:
    """Ignores a bad record, which the run without a restart has already reported."""


def _describe_time(plan: Plan, counts: Mapping[OperatorName, OperatorCounts]) -> Iterator[str]:
    """Yields notes on late records and, for steps that use event time, on what they hold and their watermarks."""
    remedies = {source.name: derive_early_remedy(source) for source in plan.operators(SourceOperator)}
    timed = {node.operator.name for node in plan.nodes if Requirement.EVENT_TIME in node.operator.requires()}
    for name, one in counts.items():
        if one.late:
            yield f"{name}: {one.late} record{'s' if one.late != 1 else ''} came too late"
        if name in timed:
            held = [
                f"{number} {_gauge_text(gauge, number)}"
                for gauge, number in one.gauges.items()
                if number and gauge not in (WAITING_ROWS, WAITING_UNTIL)
            ]
            if held or one.watermark_ms != END_OF_TIME:
                yield f"{name}: {', '.join([*held, f'its watermark is {_moment(one.watermark_ms)}'])}"
        if one.before_1971:
            yield describe_early(name, one.before_1971, remedies[name])
    for name, one in counts.items() if timed else ():
        if one.held_back_by:
            yield f"{name}: its watermark is {_moment(one.watermark_ms)}, held back by {one.held_back_by}"


def _describe_waiting(plan: Plan, counts: Mapping[OperatorName, OperatorCounts]) -> Iterator[str]:
    """Yields, for each step that keeps rows until another input has rows for them, what waits for what."""
    for node in plan.nodes:
        waits = node.operator.waits()
        text = "" if waits is None else waits.describe(counts[node.operator.name].gauges, render_moment)
        if text:
            yield f"{node.operator.name}: {text}"


def _gauge_text(gauge: str, number: int) -> str:
    words = gauge.replace("_", " ")
    return words.removesuffix("s") if number == 1 else words


def _moment(watermark_ms: int | None) -> str:
    if watermark_ms is None:
        return "not there yet"
    return "the end of time" if watermark_ms == END_OF_TIME else str(render_moment(watermark_ms))
