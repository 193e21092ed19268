"""The storage in a directory: whole or not at all, durable when a call returns, clear when it fails."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.storage.forbidden import forbid
from tests.support.descriptors import no_descriptors_left
from tidegate.storage.base import ObjectMissing, StorageError, StorageUnsupported, is_lasting
from tidegate.storage.files import FileTools
from tidegate.storage.local import DESCRIPTOR_PAUSE_S, STALE_AFTER_S, UNFINISHED, LocalStorage
from tidegate.storage.open import open_storage


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(f"file://{tmp_path}/a/b")


def unfinished(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "a/b" / UNFINISHED).iterdir())


def test_what_was_put_is_read_back(storage: LocalStorage) -> None:
    storage.put("state/7/totals", b"one")
    assert storage.get("state/7/totals") == b"one"


def test_put_replaces(storage: LocalStorage) -> None:
    storage.put("x", b"one")
    storage.put("x", b"two")
    assert storage.get("x") == b"two"


def test_nothing_is_put_into_a_directory_that_has_come_in_place_of_the_one_that_was_opened(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path / "a"), stays=True)
    storage.put("state/1/totals", b"one")
    (tmp_path / "a").rename(tmp_path / "volume")
    LocalStorage(str(tmp_path / "a"))
    with pytest.raises(StorageError, match="cannot write state/2/totals: the directory is not the one that was opened"):
        storage.put("state/2/totals", b"two")
    (tmp_path / "a").rename(tmp_path / "empty")
    (tmp_path / "volume").rename(tmp_path / "a")
    storage.put("state/2/totals", b"two")
    assert storage.get("state/2/totals") == b"two"


def test_put_if_absent_never_replaces(storage: LocalStorage) -> None:
    assert storage.put_if_absent("journal/0", b"one")
    assert not storage.put_if_absent("journal/0", b"two")
    assert storage.get("journal/0") == b"one"


def test_missing_object_is_told_by_name(storage: LocalStorage) -> None:
    with pytest.raises(ObjectMissing, match="there is no journal/9"):
        storage.get("journal/9")


def test_a_pipe_in_the_place_of_an_object_is_not_waited_for(storage: LocalStorage, tmp_path: Path) -> None:
    """Nobody writes into it: until now a command without a daemon hung."""
    storage.put("journal/1", b"one")
    os.mkfifo(tmp_path / "a/b/journal/2")
    assert storage.get("journal/2") == b""
    assert storage.get_range("journal/2", 0, 10) == b""


def test_list_never_shows_unfinished_writes(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "a/b" / UNFINISHED / "half").write_bytes(b"ha")
    assert storage.list("") == []


def test_a_folder_that_may_not_be_read_is_named_among_everything_and_an_error_elsewhere(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the journal and of state nothing may be left out."""
    for name in ("journal/1", "lost+found/x", "state/7/a", "state/8/b"):
        storage.put(name, b"")
    forbid(monkeypatch, tmp_path / "a/b/lost+found", tmp_path / "a/b/state/8")
    assert storage.list("") == ["journal/1", "lost+found/", "state/7/a", "state/8/"]
    for prefix in ("state/", "state/8/", "lost"):
        with pytest.raises(StorageError, match=f"cannot list {prefix}: Permission denied"):
            storage.list(prefix)
    forbid(monkeypatch, tmp_path / "a/b")
    with pytest.raises(StorageError, match="cannot list everything: Permission denied"):
        storage.list("")


def test_delete_is_idempotent_and_removes_empty_folders(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put("state/7/totals", b"one")
    storage.delete("state/7/totals")
    storage.delete("state/7/totals")
    assert storage.list("") == []
    assert not (tmp_path / "a/b/state/7").exists()


def test_delete_keeps_folders_with_other_objects(storage: LocalStorage) -> None:
    storage.put("state/7/a", b"one")
    storage.put("state/7/b", b"two")
    storage.delete("state/7/a")
    assert storage.list("") == ["state/7/b"]


@pytest.mark.parametrize("name", ["", "/x", "x/", "a//b", "../x", "a/../b", ".unfinished/x", "a/.b", "a\0b"])
def test_bad_names_are_refused(storage: LocalStorage, name: str) -> None:
    with pytest.raises(ValueError, match="not an object name"):
        storage.put(name, b"")


class RepeatingServer:
    """`os` over a network file system whose server has lost the answer to a link, and is asked again."""

    def __init__(self, done: int) -> None:
        self._done = done
        """Links that were made before the answer was lost; the others are somebody else's."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def link(self, path: Path, other: Path) -> None:
        self._done -= 1
        if self._done >= 0:
            os.link(path, other)
        else:
            other.write_bytes(b"another")
        raise FileExistsError(errno.EEXIST, "File exists")


def test_a_link_that_was_made_before_its_answer_was_lost_has_created_the_object(tmp_path: Path) -> None:
    """link(2): on NFS the answer may say that it exists because the same request, sent before, has made it."""
    tools = FileTools()
    tools.calls = RepeatingServer(done=1)
    storage = LocalStorage(str(tmp_path / "a/b"), tools=tools)
    assert storage.put_if_absent("journal/0", b"ours")
    assert not storage.put_if_absent("journal/1", b"ours")
    assert (storage.get("journal/0"), storage.get("journal/1")) == (b"ours", b"another")
    assert unfinished(tmp_path) == []


def test_probe_leaves_nothing(storage: LocalStorage) -> None:
    storage.probe()
    assert storage.list("") == []


def test_one_of_many_concurrent_creators_wins(storage: LocalStorage, tmp_path: Path) -> None:
    start = threading.Barrier(8)
    won: list[int] = []

    def create(number: int) -> None:
        own = LocalStorage(f"{tmp_path}/a/b")
        start.wait(timeout=120)
        won.extend(n for n in range(20) if own.put_if_absent(f"journal/{n}", b"%d" % number))

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(won) == list(range(20))
    assert unfinished(tmp_path) == []


def test_a_folder_pruned_during_a_write_is_made_again(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody deletes the last other object of the folder between its creation and the link."""
    pruned: list[Path] = []
    make = storage._make_folder

    def make_and_lose(folder: Path) -> None:
        make(folder)
        if len(pruned) < 3:
            folder.rmdir()
            pruned.append(folder)

    monkeypatch.setattr(storage, "_make_folder", make_and_lose)
    assert storage.put_if_absent("state/7/totals", b"x")
    assert pruned == [tmp_path / "a/b/state/7"] * 3
    assert storage.get("state/7/totals") == b"x"


def test_a_write_gives_up_when_its_folder_vanishes_for_ever(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "_make_folder", lambda folder: None)
    with pytest.raises(StorageError, match="ENOENT"):
        storage.put("state/7/totals", b"x")
    assert unfinished(tmp_path) == []


def test_stale_unfinished_files_are_swept_and_fresh_ones_kept(storage: LocalStorage, tmp_path: Path) -> None:
    folder = tmp_path / "a/b" / UNFINISHED
    (folder / "stale").write_bytes(b"x")
    (folder / "fresh").write_bytes(b"x")
    old = (folder / "stale").stat().st_mtime - STALE_AFTER_S - 10
    os.utime(folder / "stale", (old, old))
    LocalStorage(f"{tmp_path}/a/b")
    assert [path.name for path in unfinished(tmp_path)] == ["fresh"]


@pytest.mark.parametrize("wrong_s", [-2 * STALE_AFTER_S, 2 * STALE_AFTER_S])
def test_what_is_stale_is_decided_by_the_clock_that_stamps_the_files(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong_s: float
) -> None:
    """A machine whose wall clock is hours ahead removes nothing that another one is writing."""
    (tmp_path / "a/b" / UNFINISHED / "fresh").write_bytes(b"x")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + wrong_s)
    LocalStorage(f"{tmp_path}/a/b")
    assert [path.name for path in unfinished(tmp_path)] == ["fresh"]


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EACCES, "permission"),
        (errno.ENOSPC, "free space"),
        (errno.EIO, "check the disk"),
        (errno.EROFS, "read-write"),
        (errno.EDOM, "check the directory"),
    ],
)
def test_a_failed_sync_is_an_error_and_nothing_appears(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, remedy: str
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match=remedy) as caught:
        storage.put_if_absent("journal/0", b"one")
    monkeypatch.undo()
    assert caught.value.fields["errno"] == errno.errorcode[code]
    assert "journal/0" in caught.value.message
    assert str(tmp_path) in caught.value.message
    assert storage.list("") == []
    assert unfinished(tmp_path) == []


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_without_hard_links_is_called_that(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """link(2): EPERM is the kernel's answer for FAT, and ENOSYS or EPERM that of most buckets that are mounted."""

    def fail(path: Path, other: Path) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", fail)
    with pytest.raises(StorageError, match=f"{os.strerror(code)}.*the file system cannot make hard links") as caught:
        storage.probe()
    assert is_lasting(caught.value)
    assert unfinished(tmp_path) == []


def test_content_and_every_folder_are_synced_before_the_call_returns(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    storage.put_if_absent("state/7/totals", b"one")
    root = str(tmp_path / "a/b")
    assert synced[0].startswith(f"{root}/{UNFINISHED}/")
    assert synced[-3:] == [f"{root}/state/7", f"{root}/state", root]
    del synced[:]
    storage.put_if_absent("state/8", b"two")
    assert synced[1:] == [f"{root}/state"], "its own name is durable by now"


def test_a_probe_makes_the_directory_itself_durable(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever made it, or one above it, may have died before it was synced into the one above."""
    synced: list[str] = []
    real = os.fsync

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(str(path))
        if path == tmp_path.parent:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))  # not ours, so not made by us
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    storage.probe()
    assert {str(tmp_path / "a"), str(tmp_path)} <= set(synced)
    assert "/" not in synced


def test_a_probe_syncs_nothing_above_the_file_system_of_the_directory(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a mount point whose file system knows no fsync of a folder (/proc, /sys, autofs): EINVAL."""
    mount_point, real, real_stat = tmp_path / "a", os.fsync, os.stat
    synced: list[Path] = []

    def sync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append(path)
        if not path.is_relative_to(mount_point):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        real(descriptor)

    def stat(path: Path) -> object:
        found = real_stat(path)
        device = int(path.is_relative_to(mount_point))
        return SimpleNamespace(st_mode=found.st_mode, st_dev=device, st_ino=found.st_ino)

    monkeypatch.setattr(storage, "_calls", SimpleNamespace(**{**vars(os), "stat": stat, "fsync": sync}))
    storage.probe()
    assert mount_point in synced


def test_losing_the_race_also_syncs_what_the_winner_made(
    storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put_if_absent("journal/0", b"one")
    synced: list[str] = []
    monkeypatch.setattr(storage, "_sync_folder", lambda folder: synced.append(str(folder)))
    assert not storage.put_if_absent("journal/0", b"two")
    assert str(tmp_path / "a/b/journal") in synced


def test_a_file_where_the_directory_should_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError, match="a part of the path is a file") as caught:
        LocalStorage(f"file://{tmp_path}/file/checkpoints")
    assert caught.value.retriable


def test_a_host_in_the_file_address_is_refused() -> None:
    with pytest.raises(StorageError, match="three slashes"):
        LocalStorage("file://tmp/checkpoints")


def test_escapes_in_the_file_address_are_resolved(tmp_path: Path) -> None:
    LocalStorage(f"file://{tmp_path}/a%20b").put("x", b"")
    assert (tmp_path / "a b/x").exists()


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(
        StorageUnsupported, match=r"storage at ftp:// is not supported; there are .*file:///var/lib"
    ) as caught:
        open_storage("ftp://user:secret@host/x")
    assert "secret" not in caught.value.message
    assert (caught.value.exit_code, caught.value.retriable) == (2, False)


def test_a_plain_path_is_a_directory(tmp_path: Path) -> None:
    open_storage(str(tmp_path / "plain")).put("x", b"1")
    assert (tmp_path / "plain/x").read_bytes() == b"1"


def modes(root: Path) -> dict[str, int]:
    """Of everything below, and of the root itself."""
    return {str(path.relative_to(root)): path.stat().st_mode & 0o7777 for path in (root, *sorted(root.rglob("*")))}


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_X36_what_is_created_is_its_owners_alone(tmp_path: Path) -> None:
    made = LocalStorage(f"{tmp_path}/new/checkpoints")
    made.put("state/7/totals", b"one")
    made.put_if_absent("journal/0", b"{}")
    assert modes(tmp_path / "new") == {
        ".": 0o700,
        "checkpoints": 0o700,
        "checkpoints/.unfinished": 0o700,
        "checkpoints/journal": 0o700,
        "checkpoints/journal/0": 0o600,
        "checkpoints/state": 0o700,
        "checkpoints/state/7": 0o700,
        "checkpoints/state/7/totals": 0o600,
    }


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("mode", [0o755, 0o777, 0o770, 0o2750])
def test_X36_a_directory_that_is_there_keeps_its_mode_and_shares_nothing(tmp_path: Path, mode: int) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there").chmod(mode)
    LocalStorage(f"{tmp_path}/there").put("state/totals", b"one")
    found = modes(tmp_path / "there")
    assert (found["."], found["state/totals"]) == (mode, 0o600)
    assert found["state"] & 0o777 == 0o700


@pytest.mark.usefixtures("umask")
def test_X36_a_directory_that_is_shared_with_a_group_stays_shared(tmp_path: Path) -> None:
    """For executors that run as another user: rwx for the group, and setgid."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o2770)
    LocalStorage(f"{tmp_path}/shared/checkpoints").put("state/7/totals", b"one")
    found = modes(tmp_path / "shared")
    assert {name: mode for name, mode in found.items() if name.endswith("totals")} == {
        "checkpoints/state/7/totals": 0o660
    }
    assert {mode for name, mode in found.items() if not name.endswith("totals")} == {0o2770}


def test_X30_no_descriptor_left_is_waited_out(storage: LocalStorage) -> None:
    """As while strangers flood a port: neither an append nor a state file fails for it."""
    storage.put("state/1", b"old")
    done: list[object] = []
    calls: list[Callable[[], object]] = [
        lambda: storage.put_if_absent("journal/0", b"{}"),
        lambda: storage.get("state/1"),
        lambda: storage.list("state/"),
        lambda: storage.put("other/2", b"new"),
    ]
    threads = [threading.Thread(target=lambda call=call: done.append(call())) for call in calls]
    with no_descriptors_left():
        for thread in threads:
            thread.start()
        threads[0].join(3 * DESCRIPTOR_PAUSE_S)
        assert done == []
    for thread in threads:
        thread.join(60)
    assert sorted(map(str, done)) == ["None", "True", "['state/1']", "b'old'"]


def test_X30_no_descriptor_for_long_is_told_with_the_remedy(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.storage.local.DESCRIPTOR_WAIT_S", 0.0)
    with no_descriptors_left(), pytest.raises(StorageError, match=r"Too many open files.*ulimit -n"):
        storage.get("state/1")


def test_X35_a_path_with_a_nul_byte_is_no_directory(tmp_path: Path) -> None:
    for url in (f"{tmp_path}/a\0b", f"file://{tmp_path}/a%00b"):
        with pytest.raises(StorageError, match="a path cannot hold a NUL byte"):
            LocalStorage(url)
