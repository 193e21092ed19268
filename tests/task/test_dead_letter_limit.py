"""The limit of dead letters per minute: of one slot, and of all that report."""

from __future__ import annotations

import pytest

from tidegate.formats.failures import FailureKind
from tidegate.ids import OperatorName
from tidegate.task.bad_records import DeadLetterCount, DeadLetterRateLimit, TooManyDeadLetters

ONE, OTHER = OperatorName("one"), OperatorName("other")
KIND, ELSE = FailureKind.WRONG_TYPE, FailureKind.DIVIDE_BY_ZERO


def test_more_than_the_limit_within_a_minute_stop_with_the_counts_by_kind() -> None:
    count = DeadLetterCount(3)
    count.add(ONE, KIND, 0.0)
    count.add(ONE, KIND, 30_000.0)
    count.add(OTHER, ELSE, 59_000.0)
    with pytest.raises(TooManyDeadLetters) as stop:
        count.add(ONE, KIND, 59_900.0)
    assert "more than 3 dead letters" in stop.value.message
    assert "3 WRONG_TYPE in one, 1 DIVIDE_BY_ZERO in other" in stop.value.message
    assert "Nothing was lost" in stop.value.message
    assert (stop.value.exit_code, stop.value.retriable) == (4, False)


def test_what_is_a_minute_old_does_not_count() -> None:
    count = DeadLetterCount(2)
    for second in range(0, 600, 31):
        count.add(ONE, KIND, second * 1000.0)


def test_a_letter_counts_for_60_seconds() -> None:
    count = DeadLetterCount(1)
    count.add(ONE, KIND, 500.0)
    count.add(ONE, KIND, 60_000.0)
    with pytest.raises(TooManyDeadLetters):
        count.add(ONE, KIND, 119_999.0)


def test_what_is_a_minute_old_takes_nothing_else_with_it() -> None:
    count = DeadLetterCount(5)
    count.add(ONE, KIND, 0.0, 4)
    count.add(ONE, KIND, 59_000.0)
    count.add(ONE, KIND, 60_000.0, 4)
    with pytest.raises(TooManyDeadLetters):
        count.add(ONE, KIND, 61_000.0)


def test_what_is_remembered_of_a_minute_does_not_grow_with_its_letters() -> None:
    count = DeadLetterCount(5000)
    for number in range(1000):
        count.add(ONE, KIND, 2.0 * number)
    assert len(count._found) == 2


@pytest.mark.parametrize(("kinds", "rest"), [(10, ""), (11, ", and others")])
def test_the_error_names_ten_kinds_of_letters(kinds: int, rest: str) -> None:
    count = DeadLetterCount(kinds - 1)
    with pytest.raises(TooManyDeadLetters) as stop:
        for number in range(kinds):
            count.add(OperatorName(f"step{number}"), KIND, 0.0)
    named = ", ".join(f"1 WRONG_TYPE in step{number}" for number in range(10))
    assert f": {named}{rest}. Nothing was lost" in stop.value.message


def test_without_a_limit_nothing_stops() -> None:
    count = DeadLetterCount(None)
    for _ in range(5000):
        count.add(ONE, KIND, 0.0)


def test_slots_are_counted_together_by_what_is_new_in_their_reports() -> None:
    watch = DeadLetterRateLimit(10)
    for now_ms in (0.0, 1000.0, 2000.0):
        watch.on_report(0, {ONE: {KIND: 4}}, now_ms)
        watch.on_report(1, {ONE: {KIND: 6}}, now_ms)
    with pytest.raises(TooManyDeadLetters, match="10 WRONG_TYPE in one, 1 DIVIDE_BY_ZERO in other"):
        watch.on_report(1, {ONE: {KIND: 6}, OTHER: {ELSE: 1}}, 3000.0)
