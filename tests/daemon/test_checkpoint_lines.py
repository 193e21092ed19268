"""Which completed checkpoints are worth a line of the log, and how the idle ones are reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tidegate.coordinator.events import CheckpointReport, NotifyCompleted
from tidegate.coordinator.types import (
    Committable,
    CompletedCheckpoint,
    SourcePositions,
    StateHandle,
    StateKind,
    WrittenRange,
)
from tidegate.daemon.checkpoint_lines import IDLE_REPORT_S, CheckpointLines, carries
from tidegate.daemon.instructions import InstructionExecutor
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId

PART = TopicPartition("orders", 0)
OUT = OperatorName("out")


def completed(number: int = 2, next_offset: int = 17, records: int = 0) -> CompletedCheckpoint:
    positions = (SourcePositions(OperatorName("orders"), ((PART, next_offset),)),)
    written = (WrittenRange(TopicPartition("out", 0), 0, records, records),) if records else ()
    transactional_id = TransactionalId("t")
    one = Committable(OUT, SlotIndex(0), Attempt(1), CheckpointId(number), transactional_id, 1, 0, written, 0, 60_000)
    return CompletedCheckpoint(CheckpointId(number), Attempt(1), 1000, 1100, positions, (), (one,))


IDLE = completed()
BEFORE = completed(1)
IN_FLIGHT = StateHandle(OUT, SlotIndex(0), "a", 100, "x", kind=StateKind.INPUT)


def test_a_checkpoint_without_new_records_is_idle() -> None:
    assert not carries(IDLE, BEFORE)


@pytest.mark.parametrize(
    ("checkpoint", "before"),
    [
        pytest.param(completed(next_offset=18), BEFORE, id="records-read"),
        pytest.param(completed(records=1), BEFORE, id="records-written"),
        pytest.param(msgspec.structs.replace(IDLE, final=True), BEFORE, id="final"),
        pytest.param(msgspec.structs.replace(IDLE, states=(IN_FLIGHT,)), BEFORE, id="rows-in-flight"),
        pytest.param(IDLE, None, id="first-of-an-attempt"),
    ],
)
def test_what_carries_something_has_its_line(checkpoint: CompletedCheckpoint, before: CompletedCheckpoint) -> None:
    assert carries(checkpoint, before)


def test_a_checkpoint_that_was_ordered_has_its_line() -> None:
    lines = CheckpointLines()
    assert lines.deserves_line(BEFORE, ordered=False)
    assert lines.deserves_line(completed(2), ordered=True)
    assert not lines.deserves_line(completed(3), ordered=False)


def reports(times_s: Iterable[float]) -> list[tuple[float, str]]:
    """What is reported of one idle checkpoint at each of these times, after a first one that is not idle."""
    lines = CheckpointLines()
    lines.deserves_line(completed(1), ordered=False)
    found = []
    for number, now_s in enumerate(times_s, 2):
        assert not lines.deserves_line(completed(number), ordered=False)
        line = lines.idle_line(now_s)
        if line is not None:
            found.append((now_s, line))
    return found


def test_idle_checkpoints_are_counted_in_one_line_a_minute() -> None:
    assert reports(range(1000, 1125)) == [
        (1060, "idle: 61 checkpoints without new records in 60.0 s"),
        (1120, "idle: 60 checkpoints without new records in 60.0 s"),
    ]


def test_with_a_long_interval_no_idle_checkpoint_is_lost() -> None:
    assert reports([0.0, 3600.0, 7200.0]) == [
        (3600.0, "idle: 2 checkpoints without new records in 3600.0 s"),
        (7200.0, "idle: 1 checkpoint without new records in 3600.0 s"),
    ]


def test_less_than_a_minute_is_not_reported() -> None:
    assert reports([5.0, 5.0 + IDLE_REPORT_S - 0.01]) == []


def test_the_daemon_writes_lines_of_those_that_carried_something_and_the_others_at_debug(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One a second for 150 s, as its monotonic clock has it; records come with the first and the hundredth."""
    now_s = 0.0

    async def journal_thread(call: Callable[[], Any]) -> None:
        """Nothing is cleaned up."""

    cleaning: Callable[[Callable[[], Any]], Awaitable[None]] = journal_thread
    services = SimpleNamespace(
        clock=SimpleNamespace(monotonic=lambda: now_s),
        metrics=SimpleNamespace(checkpoint_completed=lambda *_: None),
        journal=None,
        in_journal_thread=cleaning,
    )

    async def scene() -> None:
        nonlocal now_s
        nothing = cast("Any", None)
        executor = InstructionExecutor(
            "shop", cast("Any", services), lambda _: [], nothing, nothing, nothing, lambda _: None
        )
        for number in range(1, 151):
            now_s = float(number)
            one = completed(number, next_offset=17 if number < 100 else 18)
            report = CheckpointReport(one.id, False, 1000, 1100, 1100, 1100, 0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
            executor.execute([NotifyCompleted(Attempt(1), one, frozenset(), report)])
        await executor.close()

    caplog.set_level(logging.DEBUG, "tidegate.daemon.instructions")
    asyncio.run(scene())
    written = [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]
    assert [line.partition(" in ")[0] for line in written] == [
        "checkpoint 1 completed",
        "idle: 61 checkpoints without new records",
        "checkpoint 100 completed",
        "idle: 59 checkpoints without new records",
    ]
    assert sum(" completed in " in record.getMessage() for record in caplog.records) == 150
