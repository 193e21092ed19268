"""Differences between a state of two snapshots: added, removed and changed keys, compared per key group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any

import msgspec
import polars as pl

from tidegate.ids import OperatorName, StateName
from tidegate.state.snapshot import Entry
from tidegate.tables.files import GroupEntries, StateFiles, list_states, read_files, read_groups
from tidegate.tables.source import StateSnapshot
from tidegate.tables.table import StateTable


class RowDifference(StrEnum):
    """The kind of difference of a row between the two snapshots."""

    ADDED = "added"
    REMOVED = "removed"
    BEFORE = "before"
    AFTER = "after"


class StateDiff(msgspec.Struct):
    """Counts for one state of one step. A list has no keys, so its values are compared."""

    step: OperatorName
    state: StateName
    added: int = 0
    removed: int = 0
    changed: int = 0
    same: int = 0
    refused: str = ""
    """Reason why the two cannot be compared; nothing is counted then."""


OnRows = Callable[[StateDiff, RowDifference, StateTable, pl.DataFrame], None]
"""Receives the rows that differ. A changed key has a row before and one after, in separate frames in the same order."""


def compare_snapshots(
    one: StateSnapshot, other: StateSnapshot, step: str | None = None, on_rows: OnRows | None = None
) -> Iterator[StateDiff]:
    """Compares each state, or each state of a step, from `one` to `other`.

    A state that only one of them has counts as empty in the other. Raises what `read_files` raises.
    """
    before, after = _states_of(one, step), _states_of(other, step)
    for name in dict.fromkeys((*before, *after)):
        yield _compare((one, before.get(name)), (other, after.get(name)), on_rows)


def _states_of(snapshot: StateSnapshot, step: str | None) -> dict[tuple[str, str], StateFiles]:
    return {(state.operator, state.state): read_files(snapshot, state) for state in list_states(snapshot, step)}


Side = tuple[StateSnapshot, StateFiles | None]


def _compare(one: Side, other: Side, on_rows: OnRows | None) -> StateDiff:
    known = [state for _, state in (one, other) if state is not None]
    diff = StateDiff(known[0].operator, known[0].state)
    diff.refused = _refusal(known)
    if diff.refused:
        return diff
    table = StateTable(known[0].shape)

    def tell(change: RowDifference, group: int, entries: list[Entry]) -> None:
        if on_rows is not None and entries:
            on_rows(diff, change, table, table.make_frame([GroupEntries(group, entries)]))

    for group, left, right in _side_by_side(_groups(one), _groups(other)):
        if known[0].keyed:
            _compare_keys(diff, group, dict(left), dict(right), tell)
        else:
            _compare_values(diff, group, left, right, tell)
    return diff


def _refusal(states: Sequence[StateFiles]) -> str:
    """Returns why the entries of two states cannot be compared; empty if they can."""
    shapes = [state.shape for state in states]
    if len(shapes) < 2 or shapes[0] == shapes[1]:
        return ""
    if shapes[0].max_parallelism != shapes[1].max_parallelism:
        return f"one has {shapes[0].max_parallelism} key groups, the other {shapes[1].max_parallelism}"
    columns = [
        ", ".join(f"{name} {kind}" for name, kind in StateTable(shape, raw=True).schema.items()) for shape in shapes
    ]
    if columns[0] != columns[1]:
        return f"the columns of one are {columns[0]}, of the other {columns[1]}"
    return "" if shapes[0].form == shapes[1].form else f"one is {shapes[0].form}, the other {shapes[1].form}"


def _groups(side: Side) -> Iterator[GroupEntries]:
    snapshot, state = side
    return iter(()) if state is None else read_groups(snapshot, state)


def _side_by_side(
    one: Iterator[GroupEntries], other: Iterator[GroupEntries]
) -> Iterator[tuple[int, Sequence[Entry], Sequence[Entry]]]:
    """Pairs the key groups of two iterators in ascending order."""
    left, right = next(one, None), next(other, None)
    while left is not None or right is not None:
        group = min(part.group for part in (left, right) if part is not None)
        yield (
            group,
            left.entries if left is not None and left.group == group else (),
            right.entries if right is not None and right.group == group else (),
        )
        if left is not None and left.group == group:
            left = next(one, None)
        if right is not None and right.group == group:
            right = next(other, None)


Tell = Callable[[RowDifference, int, list[Entry]], None]


def _compare_keys(diff: StateDiff, group: int, left: dict[Any, Any], right: dict[Any, Any], tell: Tell) -> None:
    added = [entry for entry in right.items() if entry[0] not in left]
    removed = [entry for entry in left.items() if entry[0] not in right]
    changed = [key for key, value in left.items() if key in right and not _same(value, right[key])]
    diff.added += len(added)
    diff.removed += len(removed)
    diff.changed += len(changed)
    diff.same += len(left) - len(removed) - len(changed)
    tell(RowDifference.REMOVED, group, removed)
    tell(RowDifference.BEFORE, group, [(key, left[key]) for key in changed])
    tell(RowDifference.AFTER, group, [(key, right[key]) for key in changed])
    tell(RowDifference.ADDED, group, added)


def _compare_values(diff: StateDiff, group: int, left: Sequence[Entry], right: Sequence[Entry], tell: Tell) -> None:
    """Compares values as a multiset; lists are short."""
    rest = list(right)
    removed = []
    for entry in left:
        at = next((index for index, one in enumerate(rest) if _same(entry[1], one[1])), None)
        if at is None:
            removed.append(entry)
        else:
            del rest[at]
    diff.removed += len(removed)
    diff.added += len(rest)
    diff.same += len(left) - len(removed)
    tell(RowDifference.REMOVED, group, removed)
    tell(RowDifference.ADDED, group, rest)


def _same(one: object, other: object) -> bool:
    """Tells whether two values are equal; one NaN equals another."""
    return one == other or repr(one) == repr(other)
