"""Failures of records: gathered from parts of a batch, and what policies make together."""

from __future__ import annotations

import pytest

from tidegate.formats.failures import (
    BadRecordPolicy,
    FailureKind,
    RecordFailure,
    combine_policies,
    gather_failures,
)

FAIL, SKIP = BadRecordPolicy.FAIL, BadRecordPolicy.SKIP


def wrong(row: int) -> RecordFailure:
    return RecordFailure(row, FailureKind.WRONG_TYPE, "a text")


def internal(row: int) -> RecordFailure:
    return RecordFailure(row, FailureKind.INTERNAL_ERROR, "ValueError")


def test_failures_of_parts_count_from_the_begin_of_the_batch_and_come_in_its_order() -> None:
    gathered = gather_failures([internal(3), internal(0)], [(1, [wrong(0), wrong(1)]), (4, [wrong(2)])])
    assert gathered == [internal(0), wrong(1), wrong(2), internal(3), wrong(6)]


def test_a_failure_is_shown_as_kind_and_text() -> None:
    assert str(wrong(1)) == "WRONG_TYPE: a text"


@pytest.mark.parametrize(
    ("policies", "together"), [((), FAIL), ((SKIP,), SKIP), ((SKIP, SKIP), SKIP), ((SKIP, FAIL), FAIL), ((FAIL,), FAIL)]
)
def test_records_are_skipped_only_if_all_their_sources_say_so(
    policies: tuple[BadRecordPolicy, ...], together: BadRecordPolicy
) -> None:
    assert combine_policies(policies) is together
