"""Keyed state in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tidegate.datatypes import BIGINT, STRING
from tidegate.state.memory import MemoryState
from tidegate.state.snapshot import StateField, StateShape


def make_state(keys: int = 1) -> MemoryState:
    """Keys are strings whose lengths are their groups."""
    shape = StateShape(
        keys=tuple(StateField(f"k{i}", STRING) for i in range(keys)),
        values=(StateField("n", BIGINT, nullable=False),),
        key_hash="length",
        max_parallelism=16,
    )
    return MemoryState("step", "totals", shape, lambda rows: [len(row[0] or "") for row in rows])


def test_batch_access() -> None:
    state = make_state()
    state.put_many(["a", "b", "a"], [(1,), (2,), (3,)])
    assert state.get_many(["b", "a", "c", None]) == [(2,), (3,), None, None]
    assert len(state) == 2


def test_F23_a_capture_does_not_see_later_updates() -> None:
    state = make_state()
    state.put_many(["a", "b"], [(1,), (2,)])
    encode = state.capture()
    state.put_many(["a", "c"], [(10,), (30,)])
    restored = make_state()
    restored.restore([encode()], range(16))
    assert restored.get_many(["a", "b", "c"]) == [(1,), (2,), None]


def test_F23_state_that_changes_while_it_is_encoded_on_another_thread() -> None:
    state = make_state()
    names = [f"key-{i}" for i in range(1000)]
    state.put_many(names, [(0,)] * len(names))
    encoding, changed = threading.Event(), threading.Event()
    hashed = state._groups_of

    def groups_of(rows: list[tuple[str, ...]]) -> Sequence[int]:
        encoding.set()
        assert changed.wait(30)
        return hashed(rows)

    state._groups_of = groups_of
    files: list[bytes] = []
    encode = state.capture()
    thread = threading.Thread(target=lambda: files.append(encode()))
    thread.start()
    assert encoding.wait(30)
    state.put_many(names, [(1,)] * len(names))
    state.put_many(["new"], [(1,)])
    changed.set()
    thread.join(30)
    restored = make_state()
    restored.restore(files, range(16))
    assert len(restored) == len(names)
    assert set(restored.get_many(names)) == {(0,)}


def test_several_files_are_joined_for_a_range_of_key_groups() -> None:
    files = []
    for names in (["a", "bb", "ccc"], ["d", "ee"]):
        state = make_state()
        state.put_many(names, [(len(name),) for name in names])
        files.append(state.capture()())
    restored = make_state()
    restored.restore(files, range(2, 4))
    assert sorted(restored.get_many(["a", "bb", "ccc", "d", "ee"]), key=str) == [(2,), (2,), (3,), None, None]
    assert len(restored) == 3


def test_keys_of_several_columns_and_null() -> None:
    state = make_state(2)
    state.put_many([("a", None), (None, "b")], [(1,), (2,)])
    restored = make_state(2)
    restored.restore([state.capture()()], range(16))
    assert restored.get_many([("a", None), (None, "b"), (None, None)]) == [(1,), (2,), None]


def test_empty_state_has_a_file_too() -> None:
    restored = make_state()
    restored.restore([make_state().capture()()], range(16))
    assert len(restored) == 0
