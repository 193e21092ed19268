"""A batch that raises is narrowed down to the rows that make it raise (X13)."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.exceptions import ComputeError, PanicException

from tidegate.errors import AttemptFailed
from tidegate.formats.bisection import REASON_CHARACTERS_MAX, evaluate_rows, internal_failure
from tidegate.formats.failures import FailureKind, RecordFailure


def raising_at(rows: Collection[int], seen: list[tuple[int, int]] | None = None) -> Callable[[int, int], list[int]]:
    def evaluate(start: int, end: int) -> list[int]:
        if any(start <= row < end for row in rows):
            raise ComputeError("invalid utf8")
        if seen is not None:
            seen.append((start, end))
        return list(range(start, end))

    return evaluate


def test_the_good_path_is_one_call() -> None:
    seen: list[tuple[int, int]] = []
    assert evaluate_rows(4, raising_at((), seen)) == ([(0, [0, 1, 2, 3])], [])
    assert seen == [(0, 4)]


@given(st.integers(1, 40), st.sets(st.integers(0, 39)))
def test_X13_exactly_the_raising_rows_are_left_out_and_the_others_are_evaluated_once_in_order(
    height: int, bad: set[int]
) -> None:
    bad = {row for row in bad if row < height}
    seen: list[tuple[int, int]] = []
    results, raising = evaluate_rows(height, raising_at(bad, seen))
    assert [row for row, _ in raising] == sorted(bad)
    assert [row for _, part in results for row in part] == [row for row in range(height) if row not in bad]
    assert all(part[0] == start for start, part in results)
    done = [row for start, end in seen for row in range(start, end)]
    assert done == [row for row in range(height) if row not in bad]


def test_X13_one_row_among_many_costs_few_calls() -> None:
    calls = 0

    def evaluate(start: int, end: int) -> None:
        nonlocal calls
        calls += 1
        if start <= 3_333 < end:
            raise ValueError

    _, raising = evaluate_rows(5_000, evaluate)
    assert [row for row, _ in raising] == [3_333]
    assert calls < 32


@pytest.mark.parametrize("error", [MemoryError("all gone"), AttemptFailed("the disk is full"), KeyboardInterrupt()])
def test_what_no_row_causes_is_raised(error: BaseException) -> None:
    calls: list[int] = []

    def evaluate(start: int, end: int) -> None:
        calls.append(end - start)
        raise error

    with pytest.raises(type(error)):
        evaluate_rows(4, evaluate)
    assert calls == [4]


def test_lack_of_memory_in_a_part_is_raised() -> None:
    def evaluate(start: int, end: int) -> None:
        if end - start == 4:
            raise ValueError
        if end - start:
            raise MemoryError

    with pytest.raises(MemoryError):
        evaluate_rows(4, evaluate)


def test_a_mistake_that_needs_no_rows_is_raised_and_skips_nothing() -> None:
    def evaluate(start: int, end: int) -> None:
        raise KeyError("no column x")

    with pytest.raises(KeyError, match="no column x"):
        evaluate_rows(4, evaluate)


def test_a_panic_of_the_engine_counts_as_an_error_of_the_row() -> None:
    def evaluate(start: int, end: int) -> None:
        if start <= 1 < end:
            raise PanicException("attempt to subtract with overflow")

    _, raising = evaluate_rows(3, evaluate)
    assert [internal_failure(*one) for one in raising] == [
        RecordFailure(1, FailureKind.INTERNAL_ERROR, "PanicException: attempt to subtract with overflow")
    ]


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert internal_failure(7, ValueError("first\nsecond")).message == "ValueError: first"
    assert internal_failure(7, ValueError()).message == "ValueError: "
    assert len(internal_failure(7, ValueError("x" * 10_000_000)).message) <= REASON_CHARACTERS_MAX + 20
