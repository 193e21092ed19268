"""State in columns: the same values, files and refusals as in rows, whatever the types and the files are."""

from __future__ import annotations

import gc
import random
import resource
import zlib
from collections.abc import Iterator
from typing import Any
from unittest import SkipTest

import msgspec
import polars as pl
import pytest

from tests.depth import DEPTH
from tests.state.any_entries import (
    GROUPS,
    STEP,
    Entries,
    damage,
    draw_declaration,
    draw_entries,
    groups_of,
    write_entries,
)
from tests.state.driving import Files, content, declare, encoded, in_memory, put
from tests.state.driving import groups_of as groups_of_text
from tests.state.histories import play_history
from tidegate.datatypes import BIGINT, DOUBLE, STRING, DataType, decimal_of
from tidegate.ids import CheckpointId
from tidegate.native.library import Library, loaded
from tidegate.state import columns
from tidegate.state.backends import choose_backend
from tidegate.state.base import KeyedState, Share
from tidegate.state.columns import ColumnState, fits_columns
from tidegate.state.declaration import StateDeclaration, StateField
from tidegate.state.errors import StateUnreadable
from tidegate.state.memory import MemoryState
from tidegate.state.snapshot import GroupIndex, SnapshotHeader, read_encoded, read_entries, write_file

ALL = Share(range(GROUPS))
UNFIT = "do not fit its types"
"""Rows keep a number in the file that is too large for its type; columns refuse it."""


@pytest.fixture
def library() -> Library:
    found = loaded()
    if found is None:
        raise SkipTest("the native library is not used")
    return found


def open_columns(library: Library, declaration: StateDeclaration) -> ColumnState[str]:
    return ColumnState(STEP, declaration, groups_of, library=library)


def entries_of(state: KeyedState[str], declaration: StateDeclaration) -> dict[str, str]:
    """All entries of a full snapshot, so that NaNs are equal."""
    capture = state.capture(CheckpointId(10**9), full=True)
    assert capture.encode is not None
    return {
        repr(key): repr(value)
        for data in capture.encode()
        for part in read_entries(data, range(GROUPS), STEP, declaration)
        for key, value in part
    }


def put_entries(state: KeyedState[str], entries: Entries) -> None:
    keys = [key[0] for key in entries] if len(state.declaration.shape.keys) == 1 else list(entries)
    state.put_many(keys, [value for value in entries.values() if value is not None])


def draw(seed: int) -> Iterator[tuple[random.Random, StateDeclaration, Entries]]:
    print(f"seed {seed}")
    for number in range(40 * DEPTH):
        rnd = random.Random(f"{seed}/{number}")
        declaration = draw_declaration(rnd)
        yield rnd, declaration, draw_entries(rnd, declaration, rnd.choice((1, 5, 40)))


def test_a_state_is_in_columns_where_its_operator_uses_them_and_its_types_allow_it(library: Library) -> None:
    plain = declare()
    shape = plain.shape
    nested = StateField("v", DataType("array", element=BIGINT))
    others = [
        msgspec.structs.replace(shape, values=(nested,)),
        msgspec.structs.replace(shape, values=(StateField("v", decimal_of(10, 2)),)),
        msgspec.structs.replace(shape, keys=(StateField("k", decimal_of(10, 2)),)),
        msgspec.structs.replace(shape, keys=(*shape.keys, StateField("t", BIGINT)), prefix=1),
        msgspec.structs.replace(shape, keys=(*shape.keys, StateField("t", BIGINT)), suffix=1),
        msgspec.structs.replace(shape, values=tuple(StateField(f"v{index}", BIGINT) for index in range(200))),
    ]
    for other in others:
        assert not fits_columns(msgspec.structs.replace(plain, shape=other))
        state = in_memory(STEP, msgspec.structs.replace(plain, shape=other), groups_of)
        assert isinstance(state, MemoryState)
    assert fits_columns(plain)
    assert isinstance(in_memory(STEP, plain, groups_of), ColumnState)
    assert isinstance(choose_backend("memory", 1)(STEP, plain, groups_of), MemoryState)


@pytest.mark.parametrize("seed", range(1, 3))
def test_entries_are_encoded_as_msgspec_does(library: Library, seed: int) -> None:
    for _, declaration, entries in draw(seed):
        state = open_columns(library, declaration)
        put_entries(state, entries)
        assert len(state) == len(entries)
        written = {
            (group, repr(key), value)
            for data in encoded(state)
            for group, keys, values in read_encoded(data, range(GROUPS), STEP, declaration)
            for key, value in zip(keys, values, strict=True)
        }
        encode = msgspec.msgpack.Encoder().encode
        groups = groups_of(list(entries))
        expected = zip(groups, entries.items(), strict=True)
        assert written == {(group, repr(key), encode(value)) for group, (key, value) in expected}
        keys = list(entries)
        rows = [key[0] for key in keys] if len(declaration.shape.keys) == 1 else keys
        assert repr(state.get_many(rows)) == repr(list(entries.values()))
        assert sorted(map(repr, state.keys())) == sorted(map(repr, rows))


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_file_and_an_increment_restore_the_same_in_columns_and_rows(library: Library, seed: int) -> None:
    for rnd, declaration, entries in draw(seed):
        newer: Entries = {key: rnd.choice((None, value)) for key, value in entries.items() if rnd.random() < 0.5}
        newer |= draw_entries(rnd, declaration, 5)
        files = [write_entries(declaration, part) for part in (entries, newer)]
        own = range(rnd.randrange(GROUPS), GROUPS)
        found = []
        for state in (open_columns(library, declaration), MemoryState[str](STEP, declaration, groups_of)):
            state.restore(files, Share(own))
            found.append((len(state), entries_of(state, declaration)))
        assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(1, 3))
def test_a_damaged_file_is_refused_or_restored_as_in_rows(library: Library, seed: int) -> None:
    refused = taken = 0
    for rnd, declaration, entries in draw(seed):
        if any(field.type.kind == "float" for field in declaration.shape.values):
            continue  # damage makes doubles of them, which rows keep
        good = write_entries(declaration, entries)
        for _ in range(5):
            data = damage(rnd, good)
            expected: Any = None
            rows, state = MemoryState[str](STEP, declaration, groups_of), open_columns(library, declaration)
            try:
                rows.restore([data], ALL)
                expected = sorted(map(repr, zip(rows.keys(), rows.get_many(list(rows.keys())), strict=True)))
            except StateUnreadable as error:
                with pytest.raises(StateUnreadable) as raised:
                    state.restore([data], ALL)
                assert str(raised.value) == str(error) or UNFIT in str(raised.value)
                refused += 1
                continue
            try:
                state.restore([data], ALL)
            except StateUnreadable as error:
                assert UNFIT in str(error)
                refused += 1
                continue
            taken += 1
            assert sorted(map(repr, zip(state.keys(), state.get_many(list(state.keys())), strict=True))) == expected
    assert min(refused, taken) > 10


def test_keys_that_are_not_in_their_shortest_form_are_the_same_keys(library: Library) -> None:
    shape = msgspec.structs.replace(declare().shape, keys=(StateField("k", BIGINT),))
    declaration = msgspec.structs.replace(declare(), shape=shape)
    body = b"\x92" + b"\x92\x91\xcc\x05\x91\xd0\x01" + b"\x92\x91\x07\x91\x02"
    index = (GroupIndex(0, 0, len(body), 2, zlib.crc32(body)),)
    state = open_columns(library, declaration)
    state.restore([write_file(SnapshotHeader(STEP, declaration.name, shape, index), [body])], ALL)
    assert (state.get_many([5, 7]), len(state)) == ([(1,), (2,)], 2)


def test_what_was_numbered_before_a_change_is_refused(library: Library) -> None:
    state = in_memory("step", declare(), groups_of_text)
    keys = state.number_keys([pl.Series(["a", "b"])])
    values = [pl.Series([1, 2])]
    state.put_columns(keys, values)
    state.put_columns(keys, values)
    with pytest.raises(ValueError, match="2 keys have values in"):
        state.put_columns(keys, [pl.Series([1, 2, 3])])
    state.delete("a")
    for use in (lambda: state.get_columns(keys), lambda: state.put_columns(keys, values)):
        with pytest.raises(RuntimeError, match="has changed since the keys of this batch were numbered"):
            use()
    assert state.get_many(["a", "b"]) == [None, (2,)]


def test_columns_of_other_types_are_cast_or_refused(library: Library) -> None:
    state = in_memory("step", declare(), groups_of_text)
    keys = state.number_keys([pl.Series(["a"])])
    state.put_columns(keys, [pl.Series([7], dtype=pl.Int16)])
    assert state.get("a") == (7,)
    with pytest.raises(pl.exceptions.InvalidOperationError):
        state.put_columns(state.number_keys([pl.Series(["a"])]), [pl.Series(["many"])])


def test_columns_in_parts_and_slices_are_read_as_they_are(library: Library) -> None:
    state = in_memory("step", declare(), groups_of_text)
    column = pl.Series([None, "x", "é" * 20, "y" * 40])
    parts = pl.concat([column[1:], column[:2]], rechunk=False)
    keys = state.number_keys([parts])
    assert keys.numbers.to_list() == [0, 1, 2, 3, 0]
    state.put_columns(keys, [pl.Series(range(10))[3:7]])
    assert state.get_many(["x", "é" * 20, "y" * 40, None]) == [(3,), (4,), (5,), (6,)]


@pytest.mark.parametrize("seed", range(3))
def test_F23_F28_large_increments_are_encoded_later(
    library: Library, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(columns, "_ENCODED_AT_ONCE", 2)
    play_history(
        lambda retained: in_memory("step", declare(), groups_of_text, retained), seed, retained=1 + seed, steps=240
    )


def test_a_snapshot_in_columns_comes_in_files_of_bounded_size(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "FILE_BYTES", 1000)
    state, restored = (in_memory("step", declare(), groups_of_text) for _ in range(2))
    put(state, {f"key-{i:04}": i for i in range(1000)})
    files = encoded(state)
    assert len(files) > 10
    assert max(map(len, files)) < 2500  # with its header
    restored.restore(reversed(files), Share(range(16)))
    assert content(restored) == content(state)
    assert len(restored) == 1000


def test_texts_that_grow_shrink_and_vanish_stay_what_they_are(library: Library) -> None:
    shape = msgspec.structs.replace(declare().shape, values=(StateField("t", STRING), StateField("x", DOUBLE)))
    state = in_memory("step", msgspec.structs.replace(declare(), shape=shape), groups_of_text)
    rnd, expected = random.Random(5), {}
    for turn in range(150):
        keys = [f"key-{rnd.randrange(150)}" for _ in range(10)]
        for key in keys:
            expected[key] = (rnd.choice((None, "", "x" * rnd.randrange(100), "é" * rnd.choice((3, 5_000)))), turn / 2)
        state.put_many(keys, [expected[key] for key in keys])
        gone = rnd.sample(sorted(expected), min(3, len(expected)))
        state.delete_many(gone)
        for key in gone:
            del expected[key]
    assert state.get_many(list(expected)) == list(expected.values())
    assert len(state) == len(expected)


def test_memory_stays_what_it_is_over_many_checkpoints(library: Library) -> None:
    state, files = in_memory("step", declare(), groups_of_text), Files()
    names = [f"key-{i}" for i in range(2_000)]

    def play(first: int, last: int) -> int:
        for number in range(first, last):
            put(state, dict.fromkeys(names[number % 7 :: 7], number))
            state.delete_many(names[number % 11 :: 11])
            files.complete(state, number)
            files.data.clear()
        gc.collect()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = play(1, 100)
    assert play(100, 300) - before < 4_000
