"""Batches in parts: every row is processed once or fails alone, in order, and in few calls."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.depth import DEPTH
from tidegate.operators.kinds.python.running.batches import CallRaised, PartwiseCalls

HEIGHT = 4000


class Calls:
    """Counts the calls and rows that it takes to process rows of which some raise."""

    def __init__(self, raises: Callable[[int], bool]) -> None:
        self.raises = raises
        self.calls = 0
        self.rows = 0
        self.processed: list[int] = []

    def attempt(self, start: int, end: int) -> int:
        assert start < end
        self.calls += 1
        self.rows += end - start
        for row in range(start, end):
            if self.raises(row):
                raise CallRaised from ValueError(f"row {row}")
        self.processed += range(start, end)
        return end - start


@pytest.mark.parametrize("height", [1, 2, 3, 7, 64, 1000])
def test_each_row_that_raises_fails_alone_and_the_others_are_processed_once_and_in_order(height: int) -> None:
    draw = random.Random(height)
    for _ in range(20 * DEPTH):
        share = draw.choice([0, 0.01, 0.3, 0.9, 1])
        calls = PartwiseCalls(str)
        for _ in range(3):
            bad = {row for row in range(height) if draw.random() < share}
            seen = Calls(bad.__contains__)
            results, failed = calls.process(height, seen.attempt)
            assert failed == [(row, f"row {row}") for row in sorted(bad)]
            assert seen.processed == [row for row in range(height) if row not in bad]
            assert [row for start, rows in results for row in range(start, start + rows)] == seen.processed


def test_a_batch_in_which_nothing_raises_is_one_call_again_after_a_while() -> None:
    calls = PartwiseCalls(str)
    calls.process(HEIGHT, Calls(lambda row: row % 100 == 0).attempt)
    counts = []
    for _ in range(3):
        seen = Calls(lambda _: False)
        calls.process(HEIGHT, seen.attempt)
        counts.append(seen.calls)
    assert counts[0] <= 8
    assert counts[1:] == [1, 1]


def test_one_row_in_a_hundred_takes_eight_calls_each_and_three_times_the_rows() -> None:
    draw = random.Random(1)
    calls = PartwiseCalls(str)
    costs = []
    for _ in range(12):
        bad = {row for row in range(HEIGHT) if draw.random() < 0.01}
        seen = Calls(bad.__contains__)
        calls.process(HEIGHT, seen.attempt)
        costs.append((len(bad), seen.calls, seen.rows))
    later = costs[2:]
    failed, made, rows = (sum(column) for column in zip(*later, strict=True))
    assert made < 10 * failed
    assert rows < 4 * HEIGHT * len(later)
    assert costs[0][2] < 8 * HEIGHT, "the first batch, before anything is known"


def test_rows_that_all_raise_are_called_once_each_as_soon_as_that_is_known() -> None:
    calls = PartwiseCalls(str)
    calls.process(HEIGHT, Calls(lambda _: True).attempt)
    seen = Calls(lambda _: True)
    calls.process(HEIGHT, seen.attempt)
    assert seen.calls == seen.rows == HEIGHT


def test_where_a_failure_ends_everything_rows_after_the_first_one_are_not_tried() -> None:
    seen = Calls(lambda _: True)
    _, failed = PartwiseCalls(str, to_first_failure=True).process(HEIGHT, seen.attempt)
    assert failed == [(0, "row 0")]
    assert seen.calls == 13


def test_code_that_raises_only_sometimes_fails_rows_only_if_they_raise_alone() -> None:
    draw = random.Random(2)
    alone: list[int] = []

    def attempt(start: int, end: int) -> range:
        if draw.random() < 0.3:
            alone.extend(range(start, end) if end - start == 1 else ())
            raise CallRaised from ValueError("now and then")
        return range(start, end)

    results, failed = PartwiseCalls(str).process(300, attempt)
    assert [row for row, _ in failed] == alone
    assert sorted([*alone, *(row for _, rows in results for row in rows)]) == list(range(300))


def test_other_exceptions_are_passed_on() -> None:
    def attempt(start: int, end: int) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        PartwiseCalls(str).process(10, attempt)
