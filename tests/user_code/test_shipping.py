"""The way of the files of `code:`: put into the storage once, fetched once per machine, never trusted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Barrier, get_ident

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.storage.stores import provided
from tests.user_code.made_wheels import make_wheel
from tests.waiting import PATIENCE_S
from tidegate.storage.base import ObjectMissing, Storage, StorageError
from tidegate.storage.files import STALE_S
from tidegate.storage.local import LocalStorage
from tidegate.user_code import shipping
from tidegate.user_code.files import CodeFile, CodeFiles, LocalFile, read_code_file
from tidegate.user_code.shipping import (
    PREFIX,
    CodeDirectory,
    CodeDirectoryFull,
    CodeFileChanged,
    CodeFileDamaged,
    fetch_code,
    local_code,
    put_code,
    read_code,
)

TEXT = b"0123456789" * 5


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipping, "PART_BYTES", 20)


@pytest.fixture
def model(tmp_path: Path) -> LocalFile:
    path = tmp_path / "model.bin"
    path.write_bytes(TEXT)
    return read_code_file(path)


def objects(storage: Storage) -> list[str]:
    return storage.list("code/")


class Executor:
    """A machine with slots."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.base.mkdir()
        self.opened = ExitStack()

    def fetch(self, storage: Storage, *files: CodeFile) -> CodeFiles:
        """As a slot does."""
        found = fetch_code(storage, files, self.base)
        self.opened.callback(found.close)
        return found


@pytest.fixture
def executor(tmp_path: Path) -> Iterator[Executor]:
    machine = Executor(tmp_path / "executor")
    with machine.opened:
        yield machine


@pytest.mark.parametrize("kind", ["directory", "server"])
def test_a_file_reaches_a_slot_by_any_storage(kind: str, model: LocalFile, tmp_path: Path, executor: Executor) -> None:
    with provided(kind, tmp_path) as opened:
        storage = opened(create=True)
        assert put_code(storage, [model]) == len(TEXT)
        assert objects(storage) == [f"code/{model.file.sha256}/{part:06d}" for part in range(3)]
        files = executor.fetch(opened(create=False), model.file)
        path = files.path("model.bin")
        assert (path.name, path.read_bytes()) == ("model.bin", TEXT)
        assert put_code(storage, [model]) == 0
        assert put_code(storage, []) == 0
        assert objects(storage) == []


def test_an_empty_file_is_a_file(tmp_path: Path, executor: Executor) -> None:
    path = tmp_path / "empty"
    path.touch()
    storage, one = FakeStorage(), read_code_file(path)
    put_code(storage, [one])
    assert executor.fetch(storage, one.file).path("empty").read_bytes() == b""


def test_what_the_plan_does_not_name_is_deleted(model: LocalFile, tmp_path: Path) -> None:
    storage = FakeStorage()
    put_code(storage, [model])
    model.path.write_bytes(b"other")
    other = read_code_file(model.path)
    put_code(storage, [other])
    assert objects(storage) == [f"code/{other.file.sha256}/000000"]


def test_a_daemon_killed_at_any_call_leaves_nothing_that_is_taken_for_a_file(model: LocalFile, tmp_path: Path) -> None:
    for calls in range(4):
        storage = Mortal()
        storage.calls_left = calls
        with pytest.raises(StorageError, match="dead"):
            put_code(storage, [model])
        storage.calls_left = -1
        with pytest.raises(ObjectMissing):
            list(read_code(storage, model.file))
        put_code(storage, [model])
        assert b"".join(read_code(storage, model.file)) == TEXT


def test_a_file_that_changes_while_the_daemon_runs_is_never_put_under_its_former_name(
    model: LocalFile, executor: Executor
) -> None:
    storage = FakeStorage()
    model.path.write_bytes(TEXT.replace(b"9", b"8"))
    with pytest.raises(CodeFileChanged, match=r"model.bin has changed since the start.*start the daemon again"):
        put_code(storage, [model])
    with pytest.raises(ObjectMissing):
        executor.fetch(storage, model.file).path("model.bin")
    model.path.unlink()
    with pytest.raises(CodeFileChanged, match="can no longer be read"):
        put_code(storage, [model])
    model.path.write_bytes(TEXT)
    put_code(storage, [model])
    model.path.write_bytes(b"the next version, for the next start")
    assert put_code(storage, [model]) == 0
    assert executor.fetch(storage, model.file).path("model.bin").read_bytes() == TEXT


def test_two_daemons_with_different_files_heal_at_the_next_attempt(
    model: LocalFile, tmp_path: Path, executor: Executor
) -> None:
    """The former daemon deletes what its successor has just put there; the slot's error is retriable."""
    storage = FakeStorage()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "model.bin").write_bytes(b"new model")
    new = read_code_file(tmp_path / "new" / "model.bin")
    put_code(storage, [new])
    put_code(storage, [model])
    with pytest.raises(StorageError) as failed:
        executor.fetch(storage, new.file)
    assert failed.value.retriable
    put_code(storage, [new])
    assert executor.fetch(storage, new.file).path("model.bin").read_bytes() == b"new model"


def test_a_copy_on_the_machine_is_used_if_it_is_intact_and_replaced_otherwise(
    model: LocalFile, executor: Executor
) -> None:
    storage = FakeStorage()
    put_code(storage, [model])
    path = executor.fetch(storage, model.file).path("model.bin")
    reads = len(storage.read)
    assert executor.fetch(storage, model.file).path("model.bin") == path
    assert len(storage.read) == reads
    for damage in (TEXT[:-1], TEXT.replace(b"5", b"6"), b""):
        path.write_bytes(damage)
        assert executor.fetch(storage, model.file).path("model.bin").read_bytes() == TEXT
    assert len(storage.read) == reads + 3 * 3


def test_a_damaged_object_is_refused_with_what_to_do(model: LocalFile, executor: Executor) -> None:
    storage = FakeStorage()
    put_code(storage, [model])
    storage.put(f"code/{model.file.sha256}/000001", b"x" * 20)
    with pytest.raises(CodeFileDamaged, match=f"delete the folder code/{model.file.sha256}") as refused:
        executor.fetch(storage, model.file)
    assert not refused.value.retriable
    storage.delete_all(objects(storage))
    put_code(storage, [model])
    assert executor.fetch(storage, model.file).path("model.bin").read_bytes() == TEXT


def test_files_of_one_content_have_their_own_names(tmp_path: Path, executor: Executor) -> None:
    files = []
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_bytes(TEXT)
        files.append(read_code_file(tmp_path / name))
    storage = FakeStorage()
    put_code(storage, files)
    found = executor.fetch(storage, *(one.file for one in files))
    assert [found.path(name).name for name in ("a.json", "b.json")] == ["a.json", "b.json"]
    assert len(objects(storage)) == 3


def test_an_unknown_name_is_an_error_that_names_the_files(model: LocalFile, executor: Executor) -> None:
    files = local_code([model], executor.base)
    executor.opened.callback(files.close)
    assert files.path("model.bin") == model.path
    with pytest.raises(FileNotFoundError, match=r"no data file `modle\.bin`; it lists `model\.bin`"):
        files.path("modle.bin")
    with pytest.raises(FileNotFoundError, match="it lists no data files"):
        local_code([]).path("model.bin")


def test_a_wheel_is_unpacked_once_and_again_if_it_was_changed(tmp_path: Path, executor: Executor) -> None:
    storage = FakeStorage()
    wheel = read_code_file(make_wheel(tmp_path, {"shop_scores.py": "FACTOR = 3\n"}))
    put_code(storage, [wheel])
    (directory,) = executor.fetch(storage, wheel.file).wheels
    assert (directory / "shop_scores.py").read_text("utf-8") == "FACTOR = 3\n"
    inode = directory.stat().st_ino
    assert executor.fetch(storage, wheel.file).wheels[0].stat().st_ino == inode
    (directory / "shop_scores.py").write_bytes(b"")
    assert (executor.fetch(storage, wheel.file).wheels[0] / "shop_scores.py").read_bytes()
    with pytest.raises(FileNotFoundError):
        executor.fetch(storage, wheel.file).path(wheel.file.name)


def test_many_slots_of_a_machine_fetch_a_file_once(model: LocalFile, tmp_path: Path, executor: Executor) -> None:
    """Slots are threads here: their locks are those of processes."""
    storage, begin, fetches = LocalStorage(str(tmp_path / "storage")), Barrier(6), []
    put_code(storage, [model])

    def read() -> Iterator[bytes]:
        fetches.append(get_ident())
        return read_code(storage, model.file)

    def fetch(_: int) -> bytes:
        with closing(CodeDirectory(executor.base)) as directory:
            begin.wait(PATIENCE_S)
            return directory.fetch(model.file, read).read_bytes()

    with ThreadPoolExecutor(6) as slots:
        assert list(slots.map(fetch, range(6))) == [TEXT] * 6
    assert len(fetches) == 1


def test_files_in_use_stay_and_old_ones_are_removed(model: LocalFile, executor: Executor) -> None:
    storage = FakeStorage()
    put_code(storage, [model])
    files = executor.fetch(storage, model.file)
    folder = files.path("model.bin").parents[1]
    long_ago = folder.stat().st_mtime - STALE_S - 60
    os.utime(folder, (long_ago, long_ago))
    CodeDirectory(executor.base)
    assert files.path("model.bin").is_file()
    files.close()
    CodeDirectory(executor.base)
    assert not folder.exists()


def test_a_machine_without_room_is_named(model: LocalFile, executor: Executor) -> None:
    storage = FakeStorage()
    put_code(storage, [model])
    (executor.base / f"{PREFIX}{os.geteuid()}").write_text("a file where the folder would be", "utf-8")
    with pytest.raises(CodeDirectoryFull, match=r"cannot be kept below the temporary directory .*tidegate-code-"):
        executor.fetch(storage, model.file)


class Mortal(FakeStorage):
    """A storage whose user dies after some calls."""

    calls_left = -1

    def _live(self) -> None:
        if self.calls_left == 0:
            raise StorageError("dead")
        self.calls_left -= 1

    def list(self, prefix: str) -> list[str]:
        self._live()
        return super().list(prefix)

    def put(self, name: str, data: bytes) -> None:
        self._live()
        super().put(name, data)
