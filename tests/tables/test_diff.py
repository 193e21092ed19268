"""What differs between two snapshots, key by key; and what cannot be compared."""

from __future__ import annotations

import random
from typing import Any

import polars as pl
import pytest

from tests.tables.snapshots import Written, make_snapshot
from tidegate.datatypes import BIGINT, DOUBLE, STRING, DataType
from tidegate.ids import StateName
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.snapshot import encode_snapshot
from tidegate.tables.diff import RowDifference, StateDiff, compare_snapshots
from tidegate.tables.source import StateSnapshot
from tidegate.tables.table import StateTable

GROUPS = 8


def snapshot(
    held: dict[str, Any], *, groups: int = GROUPS, kind: DataType = DOUBLE, step: str = "step"
) -> StateSnapshot:
    shape = StateShape((StateField("k", STRING),), (StateField("v", kind),), "length", groups)
    entries: dict[int, list[Any]] = {}
    for key, value in held.items():
        entries.setdefault(len(key) % groups, []).append(((key,), (value,)))
    declaration = StateDeclaration(StateName("totals"), shape)
    return make_snapshot([Written(encode_snapshot(step, declaration, entries), step=step)], groups)


@pytest.mark.parametrize("seed", range(5))
def test_counts_and_rows_are_those_of_two_dicts(seed: int) -> None:
    draw = random.Random(seed)
    one, other = (
        {"x" * draw.randint(0, 40): draw.choice((None, 1.0, float("nan"))) for _ in range(30)} for _ in range(2)
    )
    rows: dict[RowDifference, dict[str, Any]] = {change: {} for change in RowDifference}

    def note(diff: StateDiff, change: RowDifference, table: StateTable, frame: pl.DataFrame) -> None:
        rows[change] |= dict(frame.select("k", "v").rows())

    (found,) = compare_snapshots(snapshot(one), snapshot(other), None, note)
    changed = {key for key in one.keys() & other if repr(one[key]) != repr(other[key])}
    assert rows[RowDifference.ADDED].keys() == other.keys() - one
    assert rows[RowDifference.REMOVED].keys() == one.keys() - other
    assert list(rows[RowDifference.BEFORE]) == list(rows[RowDifference.AFTER])
    assert {key: repr(value) for key, value in rows[RowDifference.BEFORE].items()} == {
        key: repr(one[key]) for key in changed
    }
    assert {key: repr(value) for key, value in rows[RowDifference.AFTER].items()} == {
        key: repr(other[key]) for key in changed
    }
    counts = (found.added, found.removed, found.changed)
    assert counts == (len(other.keys() - one), len(one.keys() - other), len(changed))
    assert found.same + found.changed == len(one.keys() & other)


def test_a_state_that_only_one_has_is_empty_in_the_other() -> None:
    one, other = snapshot({"a": 1.0}, step="old"), snapshot({"a": 1.0, "b": 2.0}, step="new")
    found = {diff.step: (diff.added, diff.removed) for diff in compare_snapshots(one, other)}
    assert found == {"old": (0, 1), "new": (2, 0)}
    assert [diff.step for diff in compare_snapshots(one, other, "old")] == ["old"]


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (snapshot({}, groups=16), "one has 8 key groups, the other 16"),
        (snapshot({}, kind=BIGINT), "the columns of one are k string, v double"),
    ],
)
def test_what_cannot_be_compared_says_why(other: StateSnapshot, words: str) -> None:
    (diff,) = compare_snapshots(snapshot({"a": 1.0}), other)
    assert words in diff.refused
    assert (diff.added, diff.removed, diff.changed, diff.same) == (0, 0, 0, 0)
