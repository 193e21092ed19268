"""Which lines the log has in steady state, and what has a line at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.events import CheckpointFailure, CheckpointReport, NotifyAborted, NotifyCompleted
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions
from tidegate.daemon.instructions import InstructionExecutor
from tidegate.daemon.progress_lines import CheckpointLines, ProgressLine, ProgressLines, carries
from tidegate.daemon.status import PipelineState, Status
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId

PART = TopicPartition("orders", 0)
OUT = OperatorName("out")


def completed(number: int = 2, next_offset: int = 17, records: int = 0) -> CompletedCheckpoint:
    positions = (SourcePositions(OperatorName("orders"), ((PART, next_offset),)),)
    written = (WrittenRange(TopicPartition("out", 0), 0, records, records),) if records else ()
    transactional_id = TransactionalId("t")
    one = Committable(OUT, SlotIndex(0), Attempt(1), CheckpointId(number), transactional_id, 1, 0, written, 0, 60_000)
    return CompletedCheckpoint(CheckpointId(number), Attempt(1), 1000, 1100, positions, (), (one,))


BEFORE = completed(1)


@pytest.mark.parametrize(
    ("checkpoint", "before", "expected"),
    [
        pytest.param(completed(), BEFORE, False, id="nothing-new"),
        pytest.param(completed(next_offset=18), BEFORE, True, id="records-read"),
        pytest.param(completed(records=1), BEFORE, True, id="records-written"),
        pytest.param(completed(), None, False, id="first-without-records"),
        pytest.param(completed(records=1), None, True, id="first-with-records"),
    ],
)
def test_whether_a_checkpoint_carries_records(
    checkpoint: CompletedCheckpoint, before: CompletedCheckpoint | None, expected: bool
) -> None:
    assert carries(checkpoint, before) is expected


# -- checkpoints that have a line at once ------------------------------------------------------------------------------


def notes(durations_s: Iterable[float], every_s: float = 1.0) -> dict[int, str]:
    """What is notable about checkpoints with these durations, by number, from 1 on; each has records."""
    lines = CheckpointLines()
    found = {}
    for number, duration_s in enumerate(durations_s, 1):
        note = lines.decide(completed(number, records=5), duration_s, number * every_s, ordered=False)
        if note is not None:
            found[number] = note
    return found


def test_in_steady_state_only_the_first_checkpoint_has_a_line() -> None:
    assert notes([0.1, 0.2, 0.15] * 200) == {1: "the first of the attempt"}


def test_the_first_checkpoint_with_records_has_a_line() -> None:
    lines = CheckpointLines()
    found = [lines.decide(completed(one, next_offset=17), 0.1, one, ordered=False) for one in (1, 2, 3)]
    found += [lines.decide(completed(one, next_offset=one), 0.1, one, ordered=False) for one in (20, 21, 22)]
    assert found == ["the first of the attempt", None, None, "the first with records", None, None]


def test_an_ordered_and_a_final_checkpoint_have_a_line() -> None:
    lines = CheckpointLines()
    lines.decide(BEFORE, 0.1, 1.0, ordered=False)
    assert lines.decide(completed(2), 0.1, 2.0, ordered=True) == "requested"
    assert lines.decide(msgspec.structs.replace(completed(3), final=True), 0.1, 3.0, ordered=False) == ""


def test_the_first_checkpoint_after_some_that_were_given_up_has_a_line() -> None:
    lines = CheckpointLines()
    lines.decide(BEFORE, 0.1, 1.0, ordered=False)
    lines.given_up("a subtask declined it")
    lines.given_up("a subtask declined it")
    assert lines.decide(completed(4), 0.1, 4.0, ordered=False) == "after 2 checkpoints that did not complete"
    assert lines.decide(completed(5), 0.1, 5.0, ordered=False) is None


def test_of_checkpoints_that_fail_in_a_row_the_first_one_for_each_reason_has_a_line() -> None:
    """With an interval of a second, a full disk wrote 40 lines in 45 s, which differed in the names of files."""
    lines = CheckpointLines()
    reasons = ["declined", "declined", "expired", "declined", "expired"]
    assert [lines.given_up(reason) for reason in reasons] == [True, False, True, False, False]
    lines.decide(completed(6), 0.1, 6.0, ordered=False)
    assert lines.given_up("declined")


def test_a_checkpoint_that_takes_much_longer_than_usual_has_a_line() -> None:
    found = notes([0.4] * 10 + [1.21] + [0.4] * 10)
    assert found == {1: "the first of the attempt", 11: "usually 400 ms"}


def test_less_than_a_second_is_never_slow() -> None:
    assert notes([0.01] * 10 + [1.0]) == {1: "the first of the attempt"}


def test_nothing_is_usual_before_the_fifth_checkpoint() -> None:
    assert notes([0.1] * 4 + [9.0]) == {1: "the first of the attempt"}
    assert notes([0.1] * 5 + [9.0])[6] == "usually 100 ms"


def test_what_stays_slow_has_one_line_and_becomes_usual() -> None:
    found = notes([0.1] * 30 + [9.0] * 300, every_s=10.0)
    assert list(found) == [1, 31, 37], "one a minute, until the slow ones are the median"


def test_slow_ones_among_others_have_one_line_a_minute() -> None:
    found = notes(([0.1] * 9 + [9.0]) * 30)
    assert list(found) == [1, 10, 70, 130, 190, 250]


# -- one line a minute -------------------------------------------------------------------------------------------------


def status(records: int = 0, state: PipelineState = PipelineState.RUNNING, **more: Any) -> Status:
    """As many records in as out and half of them more."""
    plain: dict[str, Any] = {
        "pipeline": "shop",
        "version": "1",
        "reason": "",
        "attempt": Attempt(1),
        "uptime_seconds": 1.0,
        "records_in": records,
        "records_out": records * 3 // 2,
        "records_in_per_second": 0.0,
        "records_out_per_second": 0.0,
        "records_committed": 0,
        "bad_records": 0,
        "lag_records": 12,
        "lag_age_seconds": 1.0,
        "lag_seconds": 0.25,
        "last_checkpoint": None,
        "failed_checkpoints": 0,
        "restarts": 0,
    }
    return Status(**{**plain, **more, "state": state})


def _in_state(state: PipelineState, _: int) -> Status:
    return status(state=state)


def play(
    progress: ProgressLines, until_s: int, of: Callable[[int], Status], begin_s: int = 0
) -> list[tuple[int, ProgressLine]]:
    """A look each second, and a checkpoint after each, whose duration grows by a millisecond."""
    found = []
    for now_s in range(begin_s, until_s):
        now = of(now_s)
        if progress.is_due(now.state, float(now_s)):
            line = progress.take(now, float(now_s))
            if line is not None:
                found.append((now_s, line))
        if now.state is PipelineState.RUNNING:
            progress.completed(completed(now_s), 0.1 + now_s / 1000, float(now_s))
    return found


def test_a_line_says_which_source_is_on_hold() -> None:
    held = SimpleNamespace(name="orders", on_hold="until `customer` of `enriched` has caught up")
    reads = SimpleNamespace(name="customers", on_hold="")
    ((_, line),) = play(ProgressLines(), 70, lambda now_s: status(now_s, operators=(held, reads)))
    assert line.text.endswith("; orders is on hold until `customer` of `enriched` has caught up")


def test_a_line_a_minute_has_rates_lag_and_checkpoints() -> None:
    found = play(ProgressLines(), 190, lambda now_s: status(2000 * now_s))
    assert [at for at, _ in found] == [60, 120, 180]
    assert found[0][1].text == (
        "in 2,000 records/s, out 3,000 records/s, lag 12 records (250 ms); 60 checkpoints in 130 ms on average, "
        "159 ms at most, state 0 B"
    )
    assert found[1][1].fields == {
        "records_in_per_second": 2000.0,
        "records_out_per_second": 3000.0,
        "lag_records": 12.0,
        "lag_seconds": 0.25,
        "checkpoints": 60,
        "checkpoint_seconds": 0.189,
        "checkpoint_seconds_max": 0.219,
        "state_bytes": 0,
    }


def test_a_slow_and_an_idle_pipeline_have_the_same_line() -> None:
    assert (
        "in 0.5 records/s, out 0.8 records/s, "
        in play(ProgressLines(), 61, lambda now_s: status(now_s // 2))[0][1].text
    )
    assert "in 0 records/s, out 0 records/s, " in play(ProgressLines(), 61, lambda _: status())[0][1].text


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param({"lag_records": None}, "lag unknown;", id="never-measured"),
        pytest.param({"lag_age_seconds": 11.0}, "lag unknown;", id="old"),
        pytest.param({"lag_seconds": None}, "lag 12 records;", id="no-time"),
        pytest.param({"lag_records": 1, "lag_seconds": 0.0}, "lag 1 record;", id="no-lag"),
    ],
)
def test_a_lag_that_is_not_known_is_not_shown(more: dict[str, Any], expected: str) -> None:
    assert expected in play(ProgressLines(), 61, lambda _: status(**more))[0][1].text


def test_with_a_long_interval_the_last_checkpoint_is_shown() -> None:
    progress = ProgressLines()
    assert progress.is_due(PipelineState.RUNNING, 0.0)
    assert progress.take(status(), 0.0) is None
    line = progress.take(status(), 60.0)
    assert line is not None
    assert line.text.endswith("; no checkpoint yet")
    progress.completed(completed(7), 0.5, 70.0)
    assert progress.take(status(), 120.0) == ProgressLine(
        "in 0 records/s, out 0 records/s, lag 12 records (250 ms); 1 checkpoint in 500 ms, state 0 B",
        {
            "records_in_per_second": 0.0,
            "records_out_per_second": 0.0,
            "lag_records": 12.0,
            "lag_seconds": 0.25,
            "checkpoints": 1,
            "checkpoint_seconds": 0.5,
            "checkpoint_seconds_max": 0.5,
            "state_bytes": 0,
        },
    )
    line = progress.take(status(), 180.0)
    assert line is not None
    assert line.text.endswith("; last checkpoint 7 110.0 s ago in 500 ms, state 0 B")


def test_while_nothing_flows_the_line_says_why_and_nothing_of_records() -> None:
    """It said `idle` while the brokers were away."""

    def of(now_s: int) -> Status:
        if now_s < 90:
            return status(10 * now_s)
        if now_s < 220:
            return status(900, PipelineState.WAITING, reason=f"no broker answers at b (for {now_s - 88} s)")
        return status(900 + 10 * (now_s - 220))

    found = [(at, line.text.partition(", out")[0]) for at, line in play(ProgressLines(), 300, of)]
    assert found == [
        (60, "in 10 records/s"),
        (150, "waiting: no broker answers at b (for 62 s)"),
        (210, "waiting: no broker answers at b (for 122 s)"),
        (280, "in 10 records/s"),
    ]


def test_a_long_restore_is_told_and_a_stop_is_not() -> None:
    progress = ProgressLines()
    assert [line.text for _, line in play(progress, 61, lambda _: status(state=PipelineState.RESTORING))] == [
        "still restoring"
    ]
    for state in (PipelineState.STARTING, PipelineState.STOPPING, PipelineState.FINISHED, PipelineState.FAILED):
        assert play(progress, 200, partial(_in_state, state)) == []


def test_what_readers_do_not_see_is_part_of_the_line() -> None:
    text = play(ProgressLines(), 61, lambda _: status(state=PipelineState.DEGRADED, reason="out is blocked"))[0][1].text
    assert text.startswith("degraded: out is blocked; in 0 records/s, ")


# -- the edge ----------------------------------------------------------------------------------------------------------


def test_each_checkpoint_has_a_line_at_debug_and_few_at_info(caplog: pytest.LogCaptureFixture) -> None:
    """One a second for 150 s, as its monotonic clock has it; one was given up, and the last is the final one."""
    now_s = 0.0

    async def journal_thread(call: Callable[[], Any]) -> None:
        """Nothing is cleaned up."""

    cleaning: Callable[[Callable[[], Any]], Awaitable[None]] = journal_thread
    services = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: now_s),
        metrics=SimpleNamespace(checkpoint_completed=lambda *_: None, checkpoint_failed=lambda *_: None),
        journal=None,
        in_journal_thread=cleaning,
        progress=ProgressLines(),
    )

    async def scene() -> None:
        nonlocal now_s
        nothing = cast("Any", None)
        executor = InstructionExecutor(
            "shop", cast("Any", services), lambda _: [], nothing, nothing, nothing, lambda _: None
        )
        for number in range(1, 151):
            now_s = float(number)
            if number == 100:
                expired = NotifyAborted(Attempt(1), CheckpointId(number), CheckpointFailure.EXPIRED, "")
                executor.execute([expired])
                continue
            one = msgspec.structs.replace(completed(number, next_offset=number), final=number == 150)
            report = CheckpointReport(one.id, 1000, 1100, 1100, 1100, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
            executor.execute([NotifyCompleted(Attempt(1), one, frozenset(), report)])
        await executor.close()

    caplog.set_level(logging.DEBUG, "tidegate.daemon.instructions")
    asyncio.run(scene())
    written = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert [(line.partition(" in ")[0], line.rpartition("transaction")[2]) for line in written] == [
        ("checkpoint 1 completed", " (the first of the attempt)"),
        ("checkpoint 2 completed", " (the first with records)"),
        ("checkpoint 101 completed", " (after 1 checkpoint that did not complete)"),
        ("checkpoint 150 completed", ", final"),
    ]
    assert sum(" completed in " in record.getMessage() for record in caplog.records) == 149
