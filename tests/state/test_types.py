"""Entries of every type: kept, found in order, written, restored by either backend, dealt out by key group."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.formats.typed_values import KEYS, TYPES, values_of
from tests.state.driving import in_memory
from tidegate.datatypes import BIGINT, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, decimal_of, map_of
from tidegate.formats.columns import make_column
from tidegate.ids import CheckpointId, StateName
from tidegate.state.base import KeyedState, Share
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH, key_group_of, key_groups_of_keys
from tidegate.state.memory import MemoryState
from tidegate.state.rocks import RocksLimits, RocksState
from tidegate.state.snapshot import Value, encode_snapshot, read_entries
from tidegate.state.verdict import Fit, judge

pytestmark = pytest.mark.slow

GROUPS = 4
ALL = Share(range(GROUPS))
PRICE = decimal_of(10, 2)
Table = tuple[list[DataType], list[DataType], dict[tuple[Any, ...], Value]]


@st.composite
def tables(draw: st.DrawFn) -> Table:
    keys = draw(st.lists(KEYS, min_size=1, max_size=2))
    values = draw(st.lists(TYPES, min_size=1, max_size=2))
    entries = st.dictionaries(st.tuples(*map(values_of, keys)), st.tuples(*map(values_of, values)), max_size=5)
    return keys, values, draw(entries)


def declare(keys: Sequence[DataType], values: Sequence[DataType]) -> StateDeclaration:
    shape = StateShape(
        keys=tuple(StateField(f"k{index}", kind) for index, kind in enumerate(keys)),
        values=tuple(StateField(f"v{index}", kind) for index, kind in enumerate(values)),
        key_hash=KEY_HASH,
        max_parallelism=GROUPS,
    )
    return StateDeclaration(StateName("s"), shape)


def open_all(table: Table, directory: Path) -> list[KeyedState[Any]]:
    keys, values, _ = table
    declaration = declare(keys, values)

    def groups_of(rows: Sequence[tuple[Any, ...]]) -> Sequence[int]:
        return key_groups_of_keys(rows, keys, GROUPS)

    limits = RocksLimits(cache_bytes=1 << 16, write_buffer_bytes=1 << 16)
    rocks: KeyedState[Any] = RocksState("o", declaration, groups_of, 1, parent=directory, limits=limits)
    return [MemoryState("o", declaration, groups_of, 1), in_memory("o", declaration, groups_of), rocks]


def scanned(state: KeyedState[Any]) -> str:
    """Everything in it, group by group in the order of the keys, with the digits of decimals."""
    return repr([list(state.scan(group)) for group in range(GROUPS)])


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_F17_entries_of_any_type_are_the_same_in_both_backends_and_after_a_restore(
    tmp_path: Path, table: Table
) -> None:
    keys, _, entries = table
    single = len(keys) == 1
    opened = [*open_all(table, tmp_path), *open_all(table, tmp_path)]
    try:
        for written, restored in ((opened[0], opened[4]), (opened[1], opened[5]), (opened[2], opened[3])):
            written.put_many([key[0] for key in entries] if single else list(entries), list(entries.values()))
            capture = written.capture(CheckpointId(1))
            assert capture.encode is not None
            restored.restore(list(capture.encode()), ALL)
        assert len({scanned(state) for state in opened}) == 1
        assert len(opened[0]) == len(entries)
    finally:
        for state in opened:
            state.close()


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables())
def test_columns_hold_entries_of_any_type(tmp_path: Path, table: Table) -> None:
    keys, values, entries = table
    parts = [
        list(zip(*part, strict=True)) or [()] * len(kinds)
        for part, kinds in ((entries, keys), (entries.values(), values))
    ]
    key_columns, columns = (
        [make_column("", kind, part) for kind, part in zip(kinds, found, strict=True)]
        for kinds, found in zip((keys, values), parts, strict=True)
    )
    opened = open_all(table, tmp_path)
    try:
        for state in opened:
            state.put_columns(state.number_keys(key_columns), columns)
            exists, found = state.get_columns(state.number_keys(key_columns))
            assert exists.all()
            assert all(
                one.equals(other, check_dtypes=True, null_equal=True) for one, other in zip(found, columns, strict=True)
            )
            rows = [key[0] for key in entries] if len(keys) == 1 else list(entries)
            assert repr(state.get_many(rows)) == repr(list(entries.values()))
    finally:
        for state in opened:
            state.close()


@settings(max_examples=50)
@given(tables())
def test_a_file_holds_entries_of_any_type(table: Table) -> None:
    keys, values, entries = table
    declaration = declare(keys, values)
    data = encode_snapshot("o", declaration, {0: list(entries.items())})
    (read,) = read_entries(data, range(1), "o", declaration)
    assert repr(read) == repr(list(entries.items()))


@settings(max_examples=50)
@given(tables())
def test_a_row_and_its_key_in_the_state_are_in_the_same_group(table: Table) -> None:
    keys, _, entries = table
    columns = list(zip(*entries, strict=True)) or [()] * len(keys)
    named = enumerate(zip(keys, columns, strict=True))
    frame = pl.DataFrame([make_column(f"k{index}", kind, column) for index, (kind, column) in named])
    groups = key_group_of(frame, frame.columns, GROUPS).to_list()
    assert groups == list(key_groups_of_keys(list(entries), keys, GROUPS))


def test_the_group_of_a_decimal_never_changes() -> None:
    """A change would lose state that was written before."""
    keys = [(Decimal("12.50"),), (Decimal("-0.05"),), (None,)]
    assert list(key_groups_of_keys(keys, [PRICE], 32768)) == [17950, 24301, 22318]


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (PRICE, decimal_of(10, 3)),
        (PRICE, BIGINT),
        (BIGINT, PRICE),
        (TIMESTAMP, TIMESTAMP_NTZ),
        (map_of(STRING, BIGINT), DataType("array", element=BIGINT)),
    ],
)
def test_another_type_is_refused_with_both_names(written: DataType, wanted: DataType) -> None:
    verdict = judge(declare([STRING], [written]).shape, declare([STRING], [wanted]))
    assert verdict.fit is Fit.INCOMPATIBLE
    assert verdict.reason == f"v0 was {written} and is {wanted}"
