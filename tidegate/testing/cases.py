"""Runs a case twice: once as it is, and once with a restart in the middle, which must not change the output."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from tidegate.config.cases import CaseSettings, ExpectedSet
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SourceSettings
from tidegate.errors import TidegateError
from tidegate.ids import OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.early_event_times import derive_remedy, describe_early
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import Requirement
from tidegate.operators.waiting import WAITING_ROWS, WAITING_UNTIL
from tidegate.plan.gates import derive_turns
from tidegate.plan.graph import Plan
from tidegate.task.report import OperatorCounts
from tidegate.testing.compare import Difference, Record, compare, compare_runs, derive_expected, derive_records
from tidegate.testing.feed import FeedEvent, derive_ends, derive_events, plain_key_options, plain_options
from tidegate.testing.flow_text import render_moment
from tidegate.testing.harness import Harness, HarnessSnapshot
from tidegate.testing.log import Log
from tidegate.testing.parts import VirtualClock, WrittenRecord

SKIPPED_SHOWN: Final = 5
Output = Mapping[OperatorName, Sequence[WrittenRecord]]


class CaseFailure(msgspec.Struct, frozen=True):
    """One reason why a case fails. `difference` is set if records differ; `sink` is empty if no sink is concerned."""

    message: str
    sink: str = ""
    difference: Difference | None = None


class CaseResult(msgspec.Struct, frozen=True):
    """The result of a case. It has passed if there are no failures."""

    case: CaseSettings
    failures: tuple[CaseFailure, ...]
    seconds: float
    output: dict[str, list[Record]]
    """Sink -> its records in readable form; empty if the pipeline stopped."""

    @property
    def passed(self) -> bool:
        """True if the case has passed."""
        return not self.failures


def expects_nothing(case: CaseSettings) -> bool:
    """Returns whether the case states no expectation."""
    return not case.expect and not case.model_fields_set & {"bad_records", "late", "fails"}


class CaseRunner:
    """Runs the cases of one file. `parallelism` applies to cases that do not set their own."""

    def __init__(self, loaded: LoadedPipeline, plan: Plan, parallelism: int | None = None) -> None:
        self._sources = loaded.settings.sources
        self._plan = plan
        self._options, self._key_options = plain_options(plan), plain_key_options(plan)
        self._turns = derive_turns(plan)
        self._parallelism = parallelism
        sinks = {sink.name: sink for sink in plan.operators(SinkOperator)}
        self._sinks = {name: sinks[name] for name in map(OperatorName, loaded.settings.sinks)}

    def run(self, case: CaseSettings) -> CaseResult:
        """Runs a case with and without a restart. Compares the output with the expectations, and the two runs."""
        started = time.perf_counter()
        try:
            written, failures = self._judge(case)
        except TidegateError as error:
            failures = self._judge_stop(case, error)
            return CaseResult(case, tuple(failures), time.perf_counter() - started, {})
        output: dict[str, list[Record]] = {
            name: derive_records(written.get(sink.name, ()), sink) for name, sink in self._sinks.items()
        }
        return CaseResult(case, tuple(failures), time.perf_counter() - started, output)

    def _judge(self, case: CaseSettings) -> tuple[Output, list[CaseFailure]]:
        events = derive_events(case.given, self._sources, self._options, self._key_options, self._turns)
        skipped: list[str] = []
        run = _Run(self._plan_of(case), case, events, self._sources.values(), skipped.append)
        played = run.play()
        if case.fails is not None:
            return played.written, [CaseFailure(f"the pipeline did not fail; expected a message with {case.fails!r}")]
        failures = [
            *self._compare(case, played.written),
            *_judge_counts("bad records", case.bad_records, played.bad, skipped),
            *_judge_counts("late records", case.late, played.late, ()),
        ]
        if played.notes and any(one.difference is not None for one in failures):
            failures.append(CaseFailure("\n".join(["by the way:", *played.notes])))
        if not failures:
            failures += self._compare_restarted(case, played.written, run)
        return played.written, failures

    def _plan_of(self, case: CaseSettings) -> Plan:
        given = "parallelism" in case.model_fields_set or self._parallelism is None
        slots = case.parallelism if given else self._parallelism
        assert slots is not None
        return msgspec.structs.replace(self._plan, parallelism=min(slots, self._plan.max_parallelism))

    def _compare(self, case: CaseSettings, written: Output) -> list[CaseFailure]:
        failures: list[CaseFailure] = []
        if expects_nothing(case):
            failures.append(CaseFailure("nothing is expected: write `expect`; `SINK: []` shows what comes out"))
        for name, expected in case.expect.items():
            sink = self._sinks[OperatorName(name)]
            ordered = not isinstance(expected, ExpectedSet)
            wanted = expected.set_ if isinstance(expected, ExpectedSet) else expected
            actual = derive_records(written.get(sink.name, ()), sink)
            difference = compare([derive_expected(one) for one in wanted], actual, ordered=ordered)
            if difference is not None:
                failures.append(CaseFailure(_describe(len(wanted), len(actual)), name, difference))
        return failures

    def _compare_restarted(self, case: CaseSettings, plain: Output, run: _Run) -> list[CaseFailure]:
        try:
            restarted = run.play_with_restart()
        except TidegateError as error:
            return [CaseFailure(f"with a restart in the middle of the case the pipeline fails: {error.message}")]
        failures: list[CaseFailure] = []
        for name, sink in self._sinks.items():
            before = derive_records(plain.get(name, ()), sink)
            after = derive_records(restarted.get(name, ()), sink)
            ordered = not isinstance(case.expect.get(name), ExpectedSet)
            difference = compare_runs(before, after, ordered=ordered)
            if difference is not None:
                message = "a restart changes the result: - is without, + with a restart in the middle of the case"
                failures.append(CaseFailure(message, name, difference))
        return failures

    @staticmethod
    def _judge_stop(case: CaseSettings, error: TidegateError) -> list[CaseFailure]:
        if case.fails is not None and case.fails in error.message:
            return []
        expected = "" if case.fails is None else f"; expected a message with {case.fails!r}"
        return [CaseFailure(f"the pipeline fails: {error.message}{expected}")]


def _describe(wanted: int, actual: int) -> str:
    came = f"{actual} record{'s' if actual != 1 else ''} came out"
    return f"{came}, {wanted} expected" if actual != wanted else f"{came}, as many as expected, but not the same"


def _judge_counts(
    what: str, wanted: int | Mapping[str, int] | None, came: Mapping[str, int], lines: Sequence[str]
) -> list[CaseFailure]:
    """Compares counts: `wanted` in total, or by kind or step; None is not compared.

    `lines` describe individual records.
    """
    total = sum(came.values())
    if wanted is None or (wanted == total if isinstance(wanted, int) else _counted(wanted) == _counted(came)):
        return []
    text = [f"{what}: {total}{f' ({_counts_text(came)})' if came else ''}, expected {_counts_text(wanted)}"]
    text += lines[:SKIPPED_SHOWN]
    if len(lines) > SKIPPED_SHOWN:
        text.append(f"and {len(lines) - SKIPPED_SHOWN} more")
    return [CaseFailure("\n".join(text))]


def _counted(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


def _counts_text(counts: int | Mapping[str, int]) -> str:
    return str(counts) if isinstance(counts, int) else ", ".join(f"{kind}: {n}" for kind, n in sorted(counts.items()))


def _describe_time(plan: Plan, counts: Mapping[OperatorName, OperatorCounts]) -> Iterator[str]:
    """Yields notes on late records and, for steps that use event time, on what they hold and their watermarks."""
    remedies = {source.name: derive_remedy(source) for source in plan.operators(SourceOperator)}
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
            yield f"{name}: {', '.join([*held, f'its watermark is {_moment(one.watermark_ms)}'])}"
        if one.before_1971:
            yield describe_early(name, one.before_1971, remedies[name])
    for name, one in counts.items() if timed else ():
        if one.held_back_by:
            yield f"{name}: its watermark is {_moment(one.watermark_ms)}, held back by {one.held_back_by}"


def describe_waiting(plan: Plan, counts: Mapping[OperatorName, OperatorCounts]) -> Iterator[str]:
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


class _Played(msgspec.Struct, frozen=True):
    """The outcome of a run without a restart."""

    written: Output
    bad: dict[str, int]
    late: dict[str, int]
    notes: list[str]
    """Notes that may explain missing records."""


class _Run:
    """Plays the events of a case on new harnesses."""

    def __init__(
        self,
        plan: Plan,
        case: CaseSettings,
        events: Sequence[FeedEvent],
        sources: Iterable[SourceSettings],
        on_skipped: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._case = case
        self._events = events
        self._ends = derive_ends((one.record for one in events if one.record is not None), sources)
        self._on_skipped = on_skipped

    def play(self) -> _Played:
        """Plays the case without a restart."""
        log, clock = Log(self._ends), VirtualClock(self._case.begins_ms)
        harness = Harness(self._plan, log, clock, self._on_skipped)
        try:
            for event in self._events:
                self._happen(harness, log, event)
                harness.settle()
            harness.settle()
            bad = {str(kind): count for kind, count in harness.bad_records().items()}
            counts = harness.counts()
            late = {str(name): one.late for name, one in counts.items() if one.late}
            notes = [*_describe_time(self._plan, counts), *describe_waiting(self._plan, counts)]
            return _Played(harness.written(), bad, late, notes)
        finally:
            harness.close()

    def play_with_restart(self) -> Output:
        """Plays the case with a restart after half of the events, while the last of them is in flight."""
        middle = max(0, (len(self._events) - 1) // 2)
        log, clock = Log(self._ends), VirtualClock(self._case.begins_ms)
        snapshot = self._play_until(middle, log, clock)
        harness = Harness(self._plan, log, clock, _ignore, snapshot)
        try:
            harness.settle()
            for event in self._events[middle + 1 :]:
                self._happen(harness, log, event)
                harness.settle()
            harness.settle()
            return harness.written()
        finally:
            harness.close()

    def _play_until(self, middle: int, log: Log, clock: VirtualClock) -> HarnessSnapshot:
        harness = Harness(self._plan, log, clock, _ignore)
        try:
            for event in self._events[:middle]:
                self._happen(harness, log, event)
                harness.settle()
            for event in self._events[middle : middle + 1]:
                self._happen(harness, log, event)
            harness.turn()
            return harness.snapshot()
        finally:
            harness.close()

    def _happen(self, harness: Harness, log: Log, event: FeedEvent) -> None:
        at_ms = self._case.begins_ms + event.after_ms
        if at_ms > harness.clock.time_ms:
            harness.settle()
            harness.advance(at_ms)
        if event.watermark_ms is not None:
            harness.settle()
            harness.watermark(OperatorName(event.source), event.watermark_ms)
        if event.record is not None:
            one = event.record
            at_ms = at_ms if one.timestamp_ms is None else one.timestamp_ms
            log.append(one.partition, one.key, one.value, at_ms, one.headers)


def _ignore(where: str) -> None:
    """Ignores a bad record, which the run without a restart has already reported."""
