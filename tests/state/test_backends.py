"""What every state backend keeps: the same tests for all of them (F17)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import polars as pl
import pytest

from tests.state.driving import ALL, GROUPS, Backend, Files, content, declare, encoded, groups_of, make_memory, put
from tests.state.histories import play_history
from tidegate.datatypes import BIGINT, BINARY, BOOLEAN, DOUBLE, STRING, DataType
from tidegate.ids import CheckpointId, StateName
from tidegate.state import grouping, memory
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.errors import StateUnreadable
from tidegate.state.snapshot import read_entries, read_header

NAMES = ("memory", "rocksdb")
OTHER = {"memory": "columns", "columns": "rocksdb", "rocksdb": "memory"}


@pytest.fixture(params=OTHER)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    opened = Backend(request.param, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def other(backend: Backend, tmp_path: Path) -> Iterator[Backend]:
    opened = Backend(OTHER[backend.name], tmp_path)
    yield opened
    opened.close()


def test_F17_a_backend_is_chosen_by_its_name_and_its_directories_are_where_they_are_wanted(tmp_path: Path) -> None:
    kinds = []
    for name in NAMES:
        state = choose_backend(name, 1, tmp_path)("step", declare(), groups_of)
        kinds.append((type(state).__name__, len(list(tmp_path.iterdir()))))
        state.close()
    assert kinds == [("MemoryState", 0), ("RocksState", 1)]
    with pytest.raises(ValueError, match="unknown state backend 'disk'"):
        choose_backend("disk", retained=1)


@pytest.mark.parametrize("name", NAMES)
def test_F28_a_chosen_backend_builds_on_a_checkpoint_while_as_many_are_retained(name: str) -> None:
    for retained, increments in ((1, [True, False]), (2, [True, True])):
        state, files = choose_backend(name, retained=retained)("step", declare(), groups_of), Files()
        put(state, {f"key-{i}": i for i in range(20)})
        files.complete(state, 1)
        captures = []
        for checkpoint in (2, 3):
            put(state, {"key-1": checkpoint})
            captures.append(state.capture(CheckpointId(checkpoint)))
        assert [capture.increment for capture in captures] == increments
        state.close()


def test_F17_batch_access(backend: Backend) -> None:
    state = backend()
    state.put_many(["a", "b", "a"], [(1,), (2,), (3,)])
    assert state.get_many(["b", "a", "c", None]) == [(2,), (3,), None, None]
    assert len(state) == 2
    state.put_many(["c", "b"], [(4,), (5,)])
    assert state.get_many(["a", "b", "c"]) == [(3,), (5,), (4,)]
    assert len(state) == 3


def test_F17_values_come_back_as_they_were(backend: Backend) -> None:
    shape = StateShape(
        keys=(StateField("k", STRING), StateField("b", BINARY), StateField("vip", BOOLEAN)),
        values=(StateField("n", BIGINT), StateField("x", DOUBLE), StateField("raw", BINARY), StateField("t", STRING)),
        key_hash="sum of bytes",
        max_parallelism=GROUPS,
    )
    entries = {
        ("ä", b"\xff\x00", True): (2**63 - 1, -0.0, b"", ""),
        ("", None, False): (-(2**63), 1e300, b"\x00" * 300, "☃"),
        (None, b"", None): (None, None, None, None),
    }
    declaration = StateDeclaration(StateName("totals"), shape)
    state, restored = backend(declaration=declaration), backend(declaration=declaration)
    state.put_many(list(entries), list(entries.values()))
    restored.restore(encoded(state), ALL)
    for one in (state, restored):
        assert repr(one.get_many(list(entries))) == repr(list(entries.values()))
        assert len(one) == 3


def test_keys_of_a_batch_are_numbered_as_they_first_occur(backend: Backend) -> None:
    state = backend(declaration=declare(2))
    columns = [pl.Series(["b", "a", "b", None, "a", None]), pl.Series(["x", None, "x", "", None, ""])]
    keys = state.number_keys(columns)
    assert keys.numbers.dtype == pl.UInt32
    assert keys.numbers.to_list() == [0, 1, 0, 2, 1, 2]
    assert keys.count == 3
    nothing = state.number_keys([column.head(0) for column in columns])
    assert (nothing.count, len(nothing.numbers)) == (0, 0)
    exists, values = state.get_columns(nothing)
    assert (len(exists), [len(column) for column in values]) == (0, [0])
    state.put_columns(nothing, values)
    assert len(state) == 0


def test_values_in_columns_are_those_in_rows(backend: Backend) -> None:
    state, files = backend(), Files()
    put(state, {"a": 1, "b": 2, "": 3})
    state.delete("b")
    files.complete(state, 1)
    keys = state.number_keys([pl.Series(["c", "a", "a", "b", None, ""])])
    exists, values = state.get_columns(keys)
    assert exists.to_list() == [False, True, False, False, True]
    assert [column.to_list() for column in values] == [[None, 1, None, None, 3]]
    state.put_columns(keys, [pl.Series([10, 11, 12, 13, 14])])
    assert state.get_many(["a", "b", "c", None, "", "never"]) == [(11,), (12,), (10,), (13,), (14,), None]
    assert len(state) == 5
    exists, values = state.get_columns(state.number_keys([pl.Series([None, "a"])]))
    assert (exists.to_list(), [column.to_list() for column in values]) == ([True, True], [[13, 11]])
    files.complete(state, 2)
    assert files.read(2) == {"a": 11, "b": 12, "c": 10, None: 13, "": 14}


def test_a_put_of_columns_is_in_the_next_increment(backend: Backend) -> None:
    state, files = backend(), Files()
    put(state, {f"key-{i}": i for i in range(20)})
    files.complete(state, 1)
    state.put_columns(state.number_keys([pl.Series(["key-3", "new"])]), [pl.Series([-3, 7])])
    assert files.complete(state, 2) == ("1.0", "2.0")
    header, _ = read_header(files.data["2.0"])
    assert sum(part.entries for part in header.groups) == 2
    assert files.read(2) == {f"key-{i}": i for i in range(20)} | {"key-3": -3, "new": 7}


def test_columns_of_a_state_that_expires_end_with_the_time_when_entries_do(backend: Backend) -> None:
    shape = msgspec.structs.replace(declare().shape, values=(), expires=True)
    state = backend(declaration=StateDeclaration(StateName("totals"), shape))
    keys = state.number_keys([pl.Series(["a", "b"])])
    state.put_columns(keys, [pl.Series([7, None], dtype=pl.Int64)])
    assert state.get_many(["a", "b"]) == [(7,), (None,)]
    exists, (ends,) = state.get_columns(state.number_keys([pl.Series(["c", "b", "a"])]))
    assert (exists.to_list(), ends.to_list()) == ([False, True, True], [None, None, 7])


def test_F23_a_capture_does_not_see_later_updates(backend: Backend) -> None:
    state = backend()
    state.put_many(["a", "b"], [(1,), (2,)])
    capture = state.capture(CheckpointId(1))
    state.put_many(["a", "c"], [(10,), (30,)])
    restored = backend()
    assert capture.encode is not None
    restored.restore(capture.encode(), ALL)
    assert restored.get_many(["a", "b", "c"]) == [(1,), (2,), None]


def test_F23_an_increment_does_not_see_later_updates(backend: Backend) -> None:
    state, files = backend(), Files()
    put(state, {f"key-{i}": 0 for i in range(20)})
    files.complete(state, 1)
    put(state, {"key-1": 1})
    capture = state.capture(CheckpointId(2))
    put(state, {"key-1": 2, "key-2": 2})
    assert capture.increment
    assert capture.encode is not None
    restored = backend()
    restored.restore([*files.of(1), *capture.encode()], ALL)
    assert restored.get_many(["key-1", "key-2"]) == [(1,), (0,)]


def test_F23_state_that_changes_while_it_is_encoded_on_another_thread(backend: Backend) -> None:
    state, encoding, changed = backend(), threading.Event(), threading.Event()
    names = [f"key-{i}" for i in range(1000)]
    state.put_many(names, [(0,)] * len(names))
    files: list[bytes] = []
    encode = state.capture(CheckpointId(1)).encode
    assert encode is not None

    def run() -> None:
        encoding.set()
        assert changed.wait(30)
        files.extend(encode())

    thread = threading.Thread(target=run)
    thread.start()
    assert encoding.wait(30)
    state.put_many(names, [(1,)] * len(names))
    state.put_many(["new"], [(1,)])
    changed.set()
    thread.join(30)
    restored = backend()
    restored.restore(files, ALL)
    assert len(restored) == len(names)
    assert set(restored.get_many(names)) == {(0,)}


def test_several_files_are_joined_for_a_range_of_key_groups(backend: Backend) -> None:
    files = []
    for names in (["a", "b", "c"], ["q", "bb"]):  # key groups 1, 2, 3 and 1, 4
        state = backend()
        state.put_many(names, [(len(name),) for name in names])
        files += encoded(state)
    restored = backend()
    restored.restore(files, Share(range(2, 4)))
    assert restored.get_many(["a", "b", "c", "q", "bb"]) == [None, (1,), (1,), None, None]
    assert len(restored) == 2


def test_keys_of_several_columns_and_null(backend: Backend) -> None:
    state, restored = backend(declaration=declare(2)), backend(declaration=declare(2))
    state.put_many([("a", None), (None, "b")], [(1,), (2,)])
    restored.restore(encoded(state), ALL)
    assert restored.get_many([("a", None), (None, "b"), (None, None)]) == [(1,), (2,), None]


def test_empty_state_has_a_file_too(backend: Backend) -> None:
    files = encoded(backend())
    assert len(files) == 1
    restored = backend()
    restored.restore(files, ALL)
    assert len(restored) == 0


def test_what_was_encoded_for_another_shape_is_refused(backend: Backend) -> None:
    files = encoded(backend())
    with pytest.raises(StateUnreadable, match="now needs"):
        backend(declaration=declare(2)).restore(files, ALL)


@pytest.mark.parametrize("full", [True, False])
def test_F17_a_snapshot_of_one_backend_is_restored_by_the_other(backend: Backend, other: Backend, full: bool) -> None:
    """So a pipeline may change its backend, with a savepoint or without."""
    state, files = backend(), Files()
    put(state, {f"key-{i}": i for i in range(300)})
    files.complete(state, 1)
    put(state, {f"key-{i}": -i for i in range(20)})
    names = files.take(state, 2, full=full)
    assert (len(names) == 1) is full
    restored = other()
    restored.restore(files.of(2), ALL)
    assert content(restored) == content(state)
    assert len(restored) == 300
    put(restored, {"key-1": 7, "more": 8})
    assert files.complete(restored, 3) == ("3.0",)
    assert files.read(3) == content(restored)


def test_F28_F29_both_write_the_same_increments(backend: Backend, other: Backend) -> None:
    sizes = []
    for state in (backend(), other()):
        files = Files()
        put(state, {f"customer-{i:05}": i for i in range(1000)})
        files.complete(state, 1)
        put(state, {f"customer-{i:05}": -i for i in range(0, 1000, 50)})
        assert files.complete(state, 2) == ("1.0", "2.0")
        assert files.complete(state, 3) == ("1.0", "2.0")
        assert files.read(3) == content(state)
        header, _ = read_header(files.data["2.0"])
        sizes.append([(part.group, part.entries) for part in header.groups])
    assert sizes[0] == sizes[1]
    assert sum(entries for _, entries in sizes[0]) == 20


def test_deleted_keys_are_gone_and_may_come_back(backend: Backend) -> None:
    state = backend()
    put(state, {"a": 1, "b": 2, "c": 3})
    state.delete_many(["a", "b", "a", "never"])
    state.delete("never")
    assert state.get_many(["a", "b", "c"]) == [None, None, (3,)]
    assert len(state) == 1
    state.get("b")
    state.put("b", (4,))
    assert (state.get("b"), len(state)) == ((4,), 2)
    state.delete("b")
    assert content(state) == {"c": 3}


def test_F28_an_increment_holds_a_tombstone_for_each_deleted_key_and_a_full_snapshot_none(backend: Backend) -> None:
    state, files = backend(), Files()
    put(state, {f"key-{i:02}": i for i in range(40)})
    files.complete(state, 1)
    state.delete_many(["key-01", "key-02", "never"])
    put(state, {"key-02": -2, "key-03": -3})
    capture = state.capture(CheckpointId(2))
    put(state, {"key-01": 7})
    assert capture.increment
    assert capture.encode is not None
    (increment,) = capture.encode()
    entries = {
        key[0]: value for part in read_entries(increment, range(GROUPS), "step", declare()) for key, value in part
    }
    assert entries == {"key-01": None, "key-02": (-2,), "key-03": (-3,)}
    (full,) = encoded(state)
    assert None not in [value for part in read_entries(full, range(GROUPS), "step", declare()) for _, value in part]
    restored = backend()
    restored.restore([*files.of(1), increment], ALL)
    assert restored.get_many(["key-01", "key-02", "key-03"]) == [None, (-2,), (-3,)]
    assert len(restored) == 39


def test_F28_when_most_is_deleted_the_next_snapshot_is_full(backend: Backend) -> None:
    state, files = backend(), Files()
    put(state, {f"key-{i:02}": i for i in range(40)})
    files.complete(state, 1)
    state.delete_many([f"key-{i:02}" for i in range(1, 40)])
    assert files.complete(state, 2) == ("2.0",)
    assert files.read(2) == {"key-00": 0}
    state.delete("key-00")
    assert files.complete(state, 3) == ("3.0",)
    assert files.read(3) == {}


def test_a_scan_is_in_the_order_of_the_keys_and_sees_the_moment_of_its_call(backend: Backend) -> None:
    state = backend(declaration=declare(2))
    rows = [("a", None), ("a", ""), ("a", "b"), ("a\x00", "a"), (None, "x"), ("q", "a")]  # q has the key group of a
    state.put_many(rows[::-1], [(number,) for number in range(6)])
    assert [row for row, _ in state.scan(97 % GROUPS)] == [*rows[:4], rows[5]]
    under_way = state.scan(97 % GROUPS, ("a",))
    state.delete(("a", ""))
    state.put_many([("a", "aa"), ("a", "b")], [(9,), (9,)])
    assert list(under_way) == [(("a", None), (5,)), (("a", ""), (4,)), (("a", "b"), (3,))]
    assert list(state.scan(97 % GROUPS, ("a",), backwards=True)) == [
        (("a", "b"), (9,)),
        (("a", "aa"), (9,)),
        (("a", None), (5,)),
    ]
    in_order = [(("a", None), (5,)), (("a", "aa"), (9,)), (("a", "b"), (9,))]
    for limit in range(4):
        assert list(state.scan(97 % GROUPS, ("a",), limit=limit)) == in_order[:limit]
        assert list(state.scan(97 % GROUPS, ("a",), limit=limit, backwards=True)) == in_order[::-1][:limit]
        assert list(state.scan(97 % GROUPS, ("a", "b"), limit=limit)) == in_order[2:][:limit]
    state.put(("a", "bc"), (9,))
    assert list(state.scan(97 % GROUPS, ("a", "b"))) == [(("a", "b"), (9,))]
    assert [list(state.scan(group, ("a", "b"))) for group in (0, 2)] == [[], []]
    with pytest.raises(ValueError, match="state totals has 2 key columns, not 3"):
        state.scan(0, ("a", "b", "c"))


def test_the_key_group_is_that_of_the_columns_that_count() -> None:
    asked: list[tuple[str, ...]] = []

    def note(rows: Sequence[tuple[str, ...]]) -> list[int]:
        asked.extend(rows)
        return [3] * len(rows)

    keys = tuple(StateField(name, STRING) for name in "tku")
    for prefix, suffix, counted in ((0, 0, ("t", "k", "u")), (1, 0, ("k", "u")), (0, 1, ("t", "k")), (1, 1, ("k",))):
        shape = msgspec.structs.replace(declare().shape, keys=keys, prefix=prefix, suffix=suffix)
        state = memory.MemoryState[str]("step", StateDeclaration(StateName("totals"), shape), note)
        assert state.groups_of([("t", "k", "u")]) == [3]
        assert asked.pop() == counted


def test_all_keys_are_those_of_the_moment_of_the_call(backend: Backend) -> None:
    state = backend()
    put(state, {"a": 1, "b": 2, "c": 3})
    keys = state.keys()
    state.delete_many(["a", "b"])
    put(state, {"d": 4})
    assert sorted(keys) == ["a", "b", "c"]
    assert sorted(state.keys()) == ["c", "d"]


def test_a_scan_from_a_key_on(backend: Backend) -> None:
    state = backend(declaration=declare(2))
    rows = [("a", None), ("a", ""), ("a", "b"), ("a\x00", "a"), ("q", "a")]
    state.put_many(rows, [(number,) for number in range(5)])
    group = 97 % GROUPS
    for start, first in ((("a",), 0), (("a", ""), 1), (("a", "a"), 2), (("a\x00",), 3), (("b",), 4), (("r",), 5)):
        assert [row for row, _ in state.scan(group, start=start)] == rows[first:]
    assert list(state.scan(group, start=("a", ""), limit=1)) == [(("a", ""), (1,))]
    for wrong in ({"prefix": ("a",)}, {"backwards": True}):
        with pytest.raises(ValueError, match="a scan from a key on has no prefix and goes forwards"):
            state.scan(group, start=("a",), **wrong)


def test_values_of_nested_types_and_the_expiry_slot_come_back_as_they_were(backend: Backend, other: Backend) -> None:
    inner = DataType("struct", fields=(("city", STRING), ("codes", DataType("array", element=BIGINT))))
    shape = msgspec.structs.replace(
        declare().shape, values=(StateField("places", DataType("array", element=inner)),), expires=True
    )
    declaration = StateDeclaration(StateName("totals"), shape)
    values = [((("rome", (1, None)), (None, None), None), 1_700_000_000_000), ((), None), (None, 7)]
    state, restored = backend(declaration=declaration), other(declaration=declaration)
    state.put_many(["a", "b", "c"], values)
    restored.restore(encoded(state), ALL)
    assert restored.get_many(["a", "b", "c"]) == state.get_many(["a", "b", "c"]) == values


def test_what_was_written_before_entries_could_expire_is_restored_with_no_expiry(backend: Backend) -> None:
    state = backend()
    put(state, {"a": 1, "b": 2})
    expiring = StateDeclaration(StateName("totals"), msgspec.structs.replace(declare().shape, expires=True))
    restored = backend(declaration=expiring)
    restored.restore(encoded(state), ALL)
    assert restored.get_many(["a", "b"]) == [(1, None), (2, None)]
    again = backend()
    again.restore(encoded(restored), ALL)
    assert again.get_many(["a", "b"]) == [(1,), (2,)]


@pytest.mark.parametrize("seed", range(4))
def test_F28_F01_random_histories_restore_exactly_what_was_there(backend: Backend, seed: int) -> None:
    play_history(backend, seed, retained=1 + seed % 3, steps=240)


def test_a_snapshot_in_memory_comes_in_files_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "FILE_BYTES", 1000)
    monkeypatch.setattr(memory, "_ENCODED_AT_ONCE", 50)
    state, restored = make_memory(), make_memory()
    put(state, {f"key-{i:04}": i for i in range(1000)})
    files = encoded(state)
    assert len(files) > 10
    assert max(map(len, files)) < 2500  # with its header
    restored.restore(reversed(files), ALL)
    assert content(restored) == content(state)
    assert len(restored) == 1000


def test_F23_an_increment_of_many_keys_has_their_values_of_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_COPIED_AT_ONCE", 9)
    monkeypatch.setattr(memory, "_ENCODED_AT_ONCE", 4)
    state, files = make_memory(), Files()
    put(state, {f"key-{i}": i for i in range(100)})
    files.complete(state, 1)
    put(state, {f"key-{i}": -i for i in range(8)})
    state.delete_many(["key-8", "key-9"])
    then = content(state)
    capture = state.capture(CheckpointId(2))
    put(state, {"key-1": 100, "key-8": 100})
    state.delete("key-2")
    assert capture.increment
    assert capture.encode is not None
    restored = make_memory()
    restored.restore([*files.of(1), *capture.encode()], ALL)
    assert content(restored) == then
