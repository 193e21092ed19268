"""A subtask takes only so much at a time as what it makes of it has room (X15)."""

from __future__ import annotations

import polars as pl
import pytest

from tests.task.fakes import FakeTotals
from tests.task.rig import Rig
from tests.task.small_rigs import barrier, batch, receiver, totals, turn
from tests.task.test_unaligned_steps import inflight, overtaking, uploaded
from tests.task.test_unaligned_steps import receiver as unaligned_receiver
from tidegate.coordinator.types import StateKind
from tidegate.operators.runtime import ROWS_MAX, BatchTooLarge, Out
from tidegate.plan.growth import BatchLimits
from tidegate.task.channels import InputChannel
from tidegate.task.elements import BYTES_MAX, Batch

ROWS = [(1, 10), (2, 20), (1, 30), (2, 40), (1, 50)]


def text_batch(*sizes: int) -> Batch:
    frame = pl.DataFrame({"s": ["x" * size for size in sizes]})
    return Batch(frame, sum(sizes))


def heights(channel: InputChannel, rows_max: int, bytes_max: int) -> list[int]:
    found = []
    while len(channel):
        element = channel.pop(rows_max, bytes_max)
        assert isinstance(element, Batch)
        found.append(element.frame.height)
    return found


def test_X15_a_batch_is_taken_by_rows_and_by_the_bytes_that_they_have() -> None:
    channel = InputChannel()
    for rows_max, bytes_max, expected in (
        (ROWS_MAX, BYTES_MAX, [5]),
        (2, BYTES_MAX, [2, 2, 1]),
        (ROWS_MAX, 1000, [3, 1, 1]),
        (ROWS_MAX, 1, [1, 1, 1, 1, 1]),
    ):
        channel.push(text_batch(10, 10, 10, 5000, 10))
        assert heights(channel, rows_max, bytes_max) == expected
        assert channel.queued_bytes == 0


def test_X15_a_subtask_keeps_to_its_limits_and_to_the_order() -> None:
    rig = receiver(parallelism=1)
    slot = rig.slots[0]
    task = slot.loop.tasks[1]
    task.chain.limits = BatchLimits(2, BYTES_MAX)
    slot.inputs[0, 0].push(batch(*ROWS))
    turn(rig, 1)
    assert totals(rig).seen == ROWS[:2]
    slot.inputs[0, 0].push(barrier(1))
    turn(rig, 2)
    assert totals(rig).seen == ROWS
    assert slot.trace.events == []
    turn(rig, 1)
    assert ("barrier", 1) in slot.trace.events or ("capture",) in slot.trace.events


class TooMuch:
    """Makes `process` of the totals refuse more than so many rows; `asked` are the heights that it was asked for."""

    def __init__(self, rig: Rig, rows_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        plain = FakeTotals.process

        def process(operator: FakeTotals, port: int, batch: pl.DataFrame, out: Out) -> None:
            self.asked.append(batch.height)
            if batch.height > rows_max:
                raise BatchTooLarge("too much")
            plain(operator, port, batch, out)

        monkeypatch.setattr(FakeTotals, "process", process)


def test_X15_what_has_no_room_is_processed_in_halves_each_row_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = receiver(parallelism=1)
    slot = rig.slots[0]
    asked = TooMuch(rig, 1, monkeypatch).asked
    slot.inputs[0, 0].push(batch(*ROWS))
    slot.inputs[0, 0].push(batch((3, 60)))
    turn(rig, 1)
    assert (totals(rig).seen, asked) == (ROWS[:1], [5, 2, 1])
    turn(rig, 12)
    assert totals(rig).seen == [*ROWS, (3, 60)]
    assert slot.sinks["write"].open == [*ROWS, (3, 60)]


def test_X15_the_rest_of_a_batch_is_in_flight_for_an_unaligned_barrier(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = unaligned_receiver()
    slot = rig.slots[0]
    TooMuch(rig, 2, monkeypatch)
    slot.sinks["write"].free = ROWS_MAX
    slot.inputs[0, 0].push(batch(*ROWS))
    turn(rig, 1)
    assert totals(rig).seen == ROWS[:2]
    slot.sinks["write"].free = 0
    for sender in (0, 1):
        slot.inputs[sender, 0].push(overtaking(1))
    turn(rig, 1)
    uploaded(rig)
    assert inflight(rig, 1)[StateKind.INPUT] == [number for _, number in ROWS[2:]]
    slot.sinks["write"].free = ROWS_MAX
    turn(rig, 8)
    assert totals(rig).seen == ROWS
