"""What a sink writes of rows that are added and taken back."""

from __future__ import annotations

import polars as pl
import pytest

from tests.operators.driven import drive
from tidegate.datatypes import BIGINT, BOOLEAN
from tidegate.formats.row_kinds import DELETE, INSERT, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.ids import OperatorName
from tidegate.operators.builtin.upsert import UpsertOperator

COLUMNS = (("k", BIGINT), ("v", BIGINT), ("gone", BOOLEAN))
Row = tuple[int, int, int | None, int]
"""Kind, offset of the record, key, value."""


def written(rows: list[Row], *, tombstones: bool = True) -> list[tuple[int | None, int | None]]:
    """Keys and values; None for a tombstone."""
    frame = pl.DataFrame(
        {
            "k": [key for _, _, key, _ in rows],
            "v": [value for *_, value in rows],
            "gone": [kind == DELETE for kind, *_ in rows],
            ROW_KIND: pl.Series([kind for kind, *_ in rows], dtype=pl.Int8),
            "__tidegate_partition": [0] * len(rows),
            "__tidegate_offset": [offset for _, offset, *_ in rows],
        },
        schema_overrides={"k": pl.Int64},
    )
    operator = UpsertOperator(OperatorName("u"), COLUMNS, ("k",), "gone" if tombstones else None)
    found = drive(operator).process(frame)
    return [] if found is None else [(k, None if gone else v) for k, v, gone, *_ in found.rows()]


BEFORE, AFTER = (UPDATE_BEFORE, 7, 1, 10), (UPDATE_AFTER, 7, 1, 11)
CASES: dict[str, tuple[list[Row], list[tuple[int | None, int | None]]]] = {
    "the new row replaces the old one": ([BEFORE, AFTER], [(1, 11)]),
    "what goes to another key leaves a tombstone": ([BEFORE, (UPDATE_AFTER, 7, 2, 11)], [(1, None), (2, 11)]),
    "what goes nowhere leaves a tombstone": ([BEFORE], [(1, None)]),
    "the new row of another record is another update": ([BEFORE, (UPDATE_AFTER, 8, 1, 11)], [(1, None), (1, 11)]),
    "an insert is no half of an update": ([BEFORE, (INSERT, 7, 1, 11)], [(1, None), (1, 11)]),
    "no key is a key": ([(UPDATE_BEFORE, 7, None, 1), (UPDATE_AFTER, 7, None, 2)], [(None, 2)]),
    "a delete is one": ([(INSERT, 1, 1, 5), (DELETE, 2, 1, 5)], [(1, 5), (1, None)]),
    "several rows of a record go by their keys": (
        [BEFORE, (UPDATE_BEFORE, 7, 2, 10), (UPDATE_AFTER, 7, 2, 11), (UPDATE_AFTER, 7, 3, 11)],
        [(1, None), (2, 11), (3, 11)],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_records_of_a_topic_of_upserts(case: str) -> None:
    rows, expected = CASES[case]
    assert written(rows) == expected


@pytest.mark.parametrize("named", [True, False])
def test_records_of_two_topics_at_one_offset_are_two_updates(named: bool) -> None:
    """Where the topic is not among the columns there is only one."""
    halves = pl.DataFrame(
        {
            "k": [1, 1],
            "v": [10, 11],
            "gone": [False, False],
            ROW_KIND: pl.Series([UPDATE_BEFORE, UPDATE_AFTER], dtype=pl.Int8),
            **({"__tidegate_topic": ["a", "b"]} if named else {}),
            "__tidegate_partition": [0, 0],
            "__tidegate_offset": [7, 7],
        }
    )
    found = drive(UpsertOperator(OperatorName("u"), COLUMNS, ("k",), "gone")).process(halves)
    assert found is not None
    assert found.select("v", "gone").rows() == ([(10, True), (11, False)] if named else [(11, False)])


def test_a_log_has_no_rows_that_updates_take_back() -> None:
    rows: list[Row] = [BEFORE, AFTER, (DELETE, 8, 1, 11), (UPDATE_BEFORE, 9, 2, 1)]
    assert written(rows, tombstones=False) == [(1, 11), (1, None)], "the delete is a row that says so"


def test_a_row_that_goes_to_another_topic_leaves_a_tombstone_in_the_old_one() -> None:
    frame = pl.DataFrame({"k": [1, 1], "v": [5, 6], "gone": [False, False], "__tidegate_offset": [7, 7]}).with_columns(
        pl.Series(ROW_KIND, [UPDATE_BEFORE, UPDATE_AFTER], dtype=pl.Int8)
    )
    found = drive(UpsertOperator(OperatorName("u"), COLUMNS, ("k", "v"), "gone")).process(frame)
    assert found is not None
    assert found["gone"].to_list() == [True, False]


def test_a_key_may_have_any_name() -> None:
    frame = pl.DataFrame({"row": [1, 1], "gone": [False, False], "__tidegate_offset": [7, 7]}).with_columns(
        pl.Series(ROW_KIND, [UPDATE_BEFORE, UPDATE_AFTER], dtype=pl.Int8)
    )
    columns = (("row", BIGINT), ("gone", BOOLEAN))
    found = drive(UpsertOperator(OperatorName("u"), columns, ("row",), "gone")).process(frame)
    assert found is not None
    assert found["gone"].to_list() == [False]


def test_rows_without_kinds_pass() -> None:
    frame = pl.DataFrame({"k": [1], "v": [2], "gone": [False]})
    found = drive(UpsertOperator(OperatorName("u"), COLUMNS, ("k",), "gone")).process(frame)
    assert found is not None
    assert found.rows() == frame.rows()
