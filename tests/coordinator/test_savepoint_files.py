"""The files of a savepoint: whole or not there, verified, movable, imported under new names."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, committable, completed, handle, positions
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.ids import CheckpointId
from tidegate.journal.savepoint import (
    METADATA,
    SavepointRefused,
    check_whole,
    import_states,
    read_savepoint,
    remove_written,
    savepoint_folder,
    write_savepoint,
)
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, StorageError
from tidegate.storage.checksum import seal
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import checkpoint_of_state

TOKEN = "0123456789abcdef"


def stored(storage: FakeStorage, checkpoint: int, subtask: int, data: bytes) -> StateHandle:
    made = handle(checkpoint, subtask=subtask, size=len(data))
    storage.put(made.path, data)
    return msgspec.structs.replace(made, sha256=hashlib.sha256(data).hexdigest())


@pytest.fixture
def origin() -> FakeStorage:
    return FakeStorage()


@pytest.fixture
def checkpoint(origin: FakeStorage) -> CompletedCheckpoint:
    """Two subtasks, one of them with a base of an older checkpoint."""
    states = [stored(origin, 3, 0, b"base"), stored(origin, 7, 0, b"more"), stored(origin, 7, 1, b"other")]
    return completed(7, states=states, committables=[committable(7)], at=[positions("orders", {"orders": {0: 5}})])


def write(origin: FakeStorage, directory: Path, checkpoint: CompletedCheckpoint) -> Path:
    folder = savepoint_folder("shop", checkpoint.id, TOKEN)
    write_savepoint(origin, LocalStorage(str(directory)), folder, checkpoint, IDENTITY, TOKEN)
    return directory / folder


def test_C16_C29_a_savepoint_holds_metadata_states_and_positions_and_can_be_moved(
    origin: FakeStorage, checkpoint: CompletedCheckpoint, tmp_path: Path
) -> None:
    path = write(origin, tmp_path / "mine", checkpoint)
    assert path.name == "savepoint-shop-7-01234567"
    moved = Path(shutil.move(path, tmp_path / "moved"))
    found = read_savepoint(LocalStorage(str(moved), create=False))
    assert (found.identity, found.token) == (IDENTITY, TOKEN)
    assert (found.checkpoint.id, found.checkpoint.positions) == (7, checkpoint.positions)
    assert found.checkpoint.committables == ()
    assert [(moved / state.path).read_bytes() for state in found.checkpoint.states] == [b"base", b"more", b"other"]
    assert len({state.path for state in found.checkpoint.states}) == 3


def test_C29_the_metadata_is_written_last(origin: FakeStorage, checkpoint: CompletedCheckpoint) -> None:
    target = FakeStorage()
    puts: list[str] = []
    put = target.put

    def noted(name: str, data: bytes) -> None:
        puts.append(name)
        put(name, data)

    target.put = noted  # type: ignore[method-assign]  # a spy
    write_savepoint(origin, target, "s", checkpoint, IDENTITY, TOKEN)
    assert puts[-1] == f"s/{METADATA}"
    assert len(puts) == 4


@pytest.mark.parametrize("failing", range(4))
def test_C29_a_savepoint_that_cannot_be_finished_leaves_nothing(
    origin: FakeStorage, checkpoint: CompletedCheckpoint, failing: int
) -> None:
    target = FakeStorage()
    put, count = target.put, 0

    def fail(name: str, data: bytes) -> None:
        nonlocal count
        count += 1
        put(name, data)
        if count == failing + 1:
            raise StorageError("memory: full")

    target.put = fail  # type: ignore[method-assign]  # fails after its effect
    with pytest.raises(StorageError, match="full"):
        write_savepoint(origin, target, "s", checkpoint, IDENTITY, TOKEN)
    assert target.list("") == []


def test_a_state_object_that_was_changed_is_found_before_it_is_copied(
    origin: FakeStorage, checkpoint: CompletedCheckpoint
) -> None:
    target = FakeStorage()
    origin.put(checkpoint.states[1].path, b"mare")
    with pytest.raises(ObjectCorrupt, match="is not the file that the checkpoint wrote"):
        write_savepoint(origin, target, "s", checkpoint, IDENTITY, TOKEN)
    origin.delete(checkpoint.states[1].path)
    with pytest.raises(ObjectMissing):
        write_savepoint(origin, target, "s", checkpoint, IDENTITY, TOKEN)
    assert target.list("") == []


def test_imported_states_belong_to_the_new_checkpoint_and_are_verified(
    origin: FakeStorage, checkpoint: CompletedCheckpoint, tmp_path: Path
) -> None:
    path = write(origin, tmp_path, checkpoint)
    folder, target = LocalStorage(str(path), create=False), FakeStorage()
    states = import_states(read_savepoint(folder), folder, target, CheckpointId(50))
    assert [checkpoint_of_state(state.path) for state in states] == [50, 50, 50]
    assert all(state.path.count("state/") == 1 for state in states)
    assert [target.get(state.path) for state in states] == [b"base", b"more", b"other"]
    assert [(s.operator, s.subtask, s.sha256) for s in states] == [
        (s.operator, s.subtask, s.sha256) for s in checkpoint.states
    ]
    damaged = next((path / "state").iterdir())
    damaged.write_bytes(b"")
    with pytest.raises(ObjectCorrupt, match=damaged.name):
        import_states(read_savepoint(folder), folder, target, CheckpointId(51))


def test_what_is_no_savepoint_is_refused_with_the_path(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SavepointRefused, match=f"{path} is not a savepoint") as caught:
            read_savepoint(LocalStorage(str(path), create=False))
        assert caught.value.exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_savepoint(tmp_path: Path) -> None:
    (tmp_path / METADATA).write_bytes(b"")
    with pytest.raises(SavepointRefused, match=f"{METADATA} is not a savepoint: it is a file"):
        read_savepoint(LocalStorage(str(tmp_path / METADATA), create=False))


def test_C29_of_what_was_written_the_last_is_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be the metadata: what is left must not look like a savepoint."""
    deleted: list[str] = []
    target = FakeStorage()
    monkeypatch.setattr(target, "delete", deleted.append)
    remove_written(target, ["state/0", "state/1", METADATA])
    assert deleted == [METADATA, "state/0", "state/1"]


def test_a_savepoint_that_was_killed_half_way_is_told_as_what_it_is(
    origin: FakeStorage, checkpoint: CompletedCheckpoint, tmp_path: Path
) -> None:
    path = write(origin, tmp_path, checkpoint)
    (path / METADATA).unlink()
    (path / "state" / "00002-totals-1.state").unlink()
    with pytest.raises(SavepointRefused, match=r"is incomplete \(it has 2 files of state.*can be deleted"):
        read_savepoint(LocalStorage(str(path), create=False))


def test_a_checkpoint_directory_is_told_as_what_it_is(tmp_path: Path) -> None:
    LocalStorage(str(tmp_path)).put("journal/000000000000.json", b"entry")
    with pytest.raises(SavepointRefused, match=r"is a checkpoint directory.* by number"):
        read_savepoint(LocalStorage(str(tmp_path), create=False))


def test_a_savepoint_that_was_copied_in_parts_is_found_before_anything_is_restored(
    origin: FakeStorage, checkpoint: CompletedCheckpoint, tmp_path: Path
) -> None:
    path = write(origin, tmp_path, checkpoint)
    folder = LocalStorage(str(path), create=False)
    check_whole(read_savepoint(folder), folder)
    (path / "state" / "00001-totals-0.state").unlink()
    with pytest.raises(ObjectCorrupt, match=r"is damaged: .* there is no state/00001-totals-0.state. Copy the whole"):
        check_whole(read_savepoint(folder), folder)
    (path / "state" / "00001-totals-0.state").write_bytes(b"mare")
    with pytest.raises(ObjectCorrupt, match=r"expected \d+ bytes with \w{12}\. Copy the whole folder again") as caught:
        check_whole(read_savepoint(folder), folder)
    assert "--begin-anew" not in caught.value.message  # another savepoint may be whole


@pytest.mark.parametrize(
    ("body", "error", "told"),
    [
        (b'{"format_version": 2}', SavepointRefused, "format version 2"),
        (b'{"format_version": 1}', ObjectCorrupt, "not a savepoint"),
        (b"[]", ObjectCorrupt, "not a savepoint"),
    ],
)
def test_other_metadata_is_refused(tmp_path: Path, body: bytes, error: type[Exception], told: str) -> None:
    (tmp_path / METADATA).write_bytes(seal(body))
    with pytest.raises(error, match=told):
        read_savepoint(LocalStorage(str(tmp_path), create=False))


def test_damaged_metadata_is_found(origin: FakeStorage, checkpoint: CompletedCheckpoint, tmp_path: Path) -> None:
    path = write(origin, tmp_path, checkpoint)
    data = bytearray((path / METADATA).read_bytes())
    data[len(data) // 2] ^= 1
    (path / METADATA).write_bytes(bytes(data))
    told = f"{path}/{METADATA} is corrupt: its content does not match its checksum; copy the whole folder again"
    with pytest.raises(ObjectCorrupt, match=f"^{told}"):
        read_savepoint(LocalStorage(str(path), create=False))


@pytest.mark.parametrize("fits", range(3))
def test_C29_a_restore_that_does_not_fit_leaves_nothing(
    origin: FakeStorage, checkpoint: CompletedCheckpoint, tmp_path: Path, fits: int
) -> None:
    """Each attempt copies under another number: what is left would fill the disk that somebody has made room on."""
    folder = LocalStorage(str(write(origin, tmp_path, checkpoint)), create=False)
    target = FakeStorage()
    put, puts = target.put, list[str]()

    def run_full(name: str, data: bytes) -> None:
        puts.append(name)
        if len(puts) > fits:
            raise StorageError("memory: no space left")
        put(name, data)

    target.put = run_full  # type: ignore[method-assign]  # the disk
    with pytest.raises(StorageError, match="no space left"):
        import_states(read_savepoint(folder), folder, target, CheckpointId(40))
    assert len(puts) == fits + 1
    assert target.list("") == []
