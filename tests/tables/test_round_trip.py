"""Whatever a state holds is in its table: any types, any history of snapshots, both backends, several subtasks."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.typed_values import KEYS, TYPES, known_values_of, values_of
from tests.tables.snapshots import Written, make_snapshot
from tidegate.coordinator.types import StateKind
from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.formats.columns import plain_values, polars_type
from tidegate.ids import CheckpointId, SlotIndex, StateName
from tidegate.plan.assignment import key_group_range
from tidegate.state.base import KeyedState
from tidegate.state.declaration import StateDeclaration, StateField, StateForm, StateShape, declare_list
from tidegate.state.memory import MemoryState
from tidegate.state.rocks import RocksLimits, RocksState
from tidegate.state.snapshot import encode_snapshot
from tidegate.tables.files import choose_state, read_files
from tidegate.tables.source import StateSnapshot
from tidegate.tables.table import EXPIRES, KEY_GROUP, SUBTASK, StateTable, read_frames

GROUPS = 8
PARALLELISM = 2
Row = tuple[Any, ...]


def group_of(row: Row) -> int:
    return len(repr(row[0])) % GROUPS


def bare(row: Row) -> Any:
    """As states take keys."""
    return row[0] if len(row) == 1 else row


def groups_of(rows: Sequence[Row]) -> list[int]:
    return [group_of(row) for row in rows]


def declare(keys: Sequence[DataType], values: Sequence[DataType], *, expires: bool) -> StateDeclaration:
    shape = StateShape(
        keys=tuple(StateField(f"k{index}", kind) for index, kind in enumerate(keys)),
        values=tuple(StateField(f"v{index}", kind) for index, kind in enumerate(values)),
        key_hash="length of the text",
        max_parallelism=GROUPS,
        expires=expires,
    )
    return StateDeclaration(StateName("totals"), shape)


def open_state(backend: str, declaration: StateDeclaration, directory: Path) -> KeyedState[Written]:
    if backend == "memory":
        return MemoryState("step", declaration, groups_of, 1)
    limits = RocksLimits(cache_bytes=1 << 16, write_buffer_bytes=1 << 16)
    return RocksState("step", declaration, groups_of, 1, parent=directory, limits=limits)


def capture(state: KeyedState[Written], subtask: int, checkpoint: int) -> list[Written]:
    """A completed checkpoint of one subtask: its files, those that it builds on first."""
    taken = state.capture(CheckpointId(checkpoint))
    own = [
        Written(data, subtask, increment=bool(taken.builds_on))
        for data in (() if taken.encode is None else taken.encode())
    ]
    if own:
        state.stored(CheckpointId(checkpoint), own)
    state.completed(CheckpointId(checkpoint))
    return [*taken.builds_on, *own]


def read_rows(snapshot: StateSnapshot, key_groups: range | None = None) -> tuple[StateTable, list[Row]]:
    """The columns of the table, and its rows as plain values."""
    files = read_files(snapshot, choose_state(snapshot, "step", None), key_groups)
    table = StateTable(files.shape, raw=True)
    rows: list[Row] = []
    for frame in read_frames(snapshot, files, table, key_groups):
        assert dict(frame.schema) == {name: polars_type(kind) for name, kind in table.schema.items()}
        rows += zip(*(plain_values(frame[name]) for name in frame.columns), strict=True)
    return table, rows


@st.composite
def histories(draw: st.DrawFn) -> tuple[StateDeclaration, list[list[tuple[Row, Row | None]]]]:
    """Batches of changes between checkpoints; None deletes a key."""
    keys, values = draw(st.lists(KEYS, min_size=1, max_size=2)), draw(st.lists(TYPES, max_size=2))
    expires = draw(st.booleans())
    row = st.tuples(*(known_values_of(kind) | st.none() for kind in keys))
    ends = (st.none() | st.integers(0, 4 * 10**12),) if expires else ()
    value = st.tuples(*map(values_of, values), *ends)
    known = draw(st.lists(row, min_size=1, max_size=6))
    change = st.tuples(st.sampled_from(known), st.none() | value)
    return declare(keys, values, expires=expires), draw(st.lists(st.lists(change, max_size=6), max_size=4))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(history=histories())
def test_a_table_has_what_a_dict_would(
    backend: str, history: tuple[StateDeclaration, list[list[tuple[Row, Row | None]]]]
) -> None:
    declaration, batches = history
    model: dict[Row, Row] = {}
    with tempfile.TemporaryDirectory() as directory:
        states = [open_state(backend, declaration, Path(directory)) for _ in range(PARALLELISM)]
        files: list[list[Written]] = [[], []]
        for number, batch in enumerate(batches, 1):
            for key, value in batch:
                owner = states[group_of(key) * PARALLELISM // GROUPS]
                if value is None:
                    owner.delete_many([bare(key)])
                    model.pop(key, None)
                else:
                    owner.put_many([bare(key)], [value])
                    model[key] = value
            files = [capture(state, subtask, number) for subtask, state in enumerate(states)]
        for state in states:
            state.close()
    snapshot = make_snapshot([file for own in files for file in own], GROUPS, PARALLELISM)
    if not snapshot.checkpoint.states:
        assert not model
        return
    table, rows = read_rows(snapshot)
    shape = declaration.shape
    ends = [EXPIRES] if shape.expires else []
    assert [column.name for column in table.columns] == [
        *(field.name for field in (*shape.keys, *shape.values)),
        *ends,
        KEY_GROUP,
    ]
    expected = {
        key: (*value[: len(shape.values)], *_moment(value, shape), group_of(key)) for key, value in model.items()
    }
    assert {row[: len(shape.keys)]: row[len(shape.keys) :] for row in rows} == expected
    assert len(rows) == len(model)
    parts = [read_rows(snapshot, key_group_range(SlotIndex(slot), 3, GROUPS))[1] for slot in range(3)]
    assert [row for part in parts for row in part] == rows


def _moment(value: Row, shape: StateShape) -> list[int | None]:
    """When it expires, in microseconds."""
    if not shape.expires:
        return []
    return [None if value[-1] is None else value[-1] * 1000]


def test_names_that_are_there_twice_get_a_number() -> None:
    shape = StateShape(
        keys=(StateField("time", BIGINT), StateField("time_ms", STRING)),
        values=(StateField("time_ms", BIGINT),),
        key_hash="",
        max_parallelism=GROUPS,
    )
    assert [column.name for column in StateTable(shape).columns] == ["time", "time_ms", "time_ms_2", KEY_GROUP]


def test_a_list_has_its_subtask() -> None:
    declaration = declare_list("readers", (StateField("name", STRING),), StateForm.SPLIT)
    files = [
        Written(encode_snapshot("step", declaration, {0: [((), (name,)) for name in names]}), subtask, state="readers",
                kind=StateKind.LIST)
        for subtask, names in enumerate(("ab", "c"))
    ]  # fmt: skip
    table, rows = read_rows(make_snapshot(files, 0, 2))
    assert [column.name for column in table.columns] == ["name", SUBTASK]
    assert rows == [("a", 0), ("b", 0), ("c", 1)]
