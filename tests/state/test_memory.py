"""Keyed state in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from tests.state.driving import make_memory
from tidegate.ids import CheckpointId
from tidegate.state.memory import MemoryState


def encoded(state: MemoryState[str]) -> list[bytes]:
    capture = state.capture(CheckpointId(1), full=True)
    assert capture.encode is not None
    return list(capture.encode())


def test_batch_access() -> None:
    state = make_memory()
    state.put_many(["a", "b", "a"], [(1,), (2,), (3,)])
    assert state.get_many(["b", "a", "c", None]) == [(2,), (3,), None, None]
    assert len(state) == 2


def test_F23_a_capture_does_not_see_later_updates() -> None:
    state = make_memory()
    state.put_many(["a", "b"], [(1,), (2,)])
    capture = state.capture(CheckpointId(1))
    state.put_many(["a", "c"], [(10,), (30,)])
    restored = make_memory()
    assert capture.encode is not None
    restored.restore(capture.encode(), range(16))
    assert restored.get_many(["a", "b", "c"]) == [(1,), (2,), None]


def test_F23_state_that_changes_while_it_is_encoded_on_another_thread() -> None:
    state = make_memory()
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
    encode = state.capture(CheckpointId(1)).encode
    assert encode is not None
    thread = threading.Thread(target=lambda: files.extend(encode()))
    thread.start()
    assert encoding.wait(30)
    state.put_many(names, [(1,)] * len(names))
    state.put_many(["new"], [(1,)])
    changed.set()
    thread.join(30)
    restored = make_memory()
    restored.restore(files, range(16))
    assert len(restored) == len(names)
    assert set(restored.get_many(names)) == {(0,)}


def test_several_files_are_joined_for_a_range_of_key_groups() -> None:
    files = []
    for names in (["a", "b", "c"], ["q", "bb"]):  # key groups 1, 2, 3 and 1, 4
        state = make_memory()
        state.put_many(names, [(len(name),) for name in names])
        files += encoded(state)
    restored = make_memory()
    restored.restore(files, range(2, 4))
    assert restored.get_many(["a", "b", "c", "q", "bb"]) == [None, (1,), (1,), None, None]
    assert len(restored) == 2


def test_keys_of_several_columns_and_null() -> None:
    state = make_memory(2)
    state.put_many([("a", None), (None, "b")], [(1,), (2,)])
    restored = make_memory(2)
    restored.restore(encoded(state), range(16))
    assert restored.get_many([("a", None), (None, "b"), (None, None)]) == [(1,), (2,), None]


def test_empty_state_has_a_file_too() -> None:
    restored = make_memory()
    restored.restore(encoded(make_memory()), range(16))
    assert len(restored) == 0
