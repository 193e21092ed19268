"""Directories for state on local disk: what is swept, what is left alone, and who can look inside."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegate.state.local_directory import LocalDirectory, sweep


def make_left(parent: Path, name: str) -> Path:
    """What a killed process has left. They are swept in the order of their names; `~` comes after all others."""
    left = parent / f"tidegate-state-{name}"
    left.mkdir()
    (left / "lock").touch()
    (left / "db").touch()
    return left


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_lives_stays(tmp_path: Path) -> None:
    living = LocalDirectory(tmp_path)
    left = [make_left(tmp_path, name) for name in ("!", "~")]
    unfinished = tmp_path / "tidegate-state-new"
    unfinished.mkdir()
    assert sweep(tmp_path) == left
    assert sorted(tmp_path.iterdir()) == sorted([living.path, unfinished])
    living.close()
    assert list(tmp_path.iterdir()) == [unfinished]


class Killed(BaseException):
    """The process is gone at this call."""


@pytest.mark.parametrize("calls", range(5))
def test_what_a_process_left_that_was_killed_while_it_removed_it_is_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """An attempt that ends removes its state when Spark kills the slot: the lock went first, and the rest stayed."""
    dying = LocalDirectory(tmp_path)
    (dying.path / "db").mkdir()
    for name in ("000004.sst", "000005.sst"):
        (dying.path / "db" / name).touch()
    left = calls

    def counted(call: Callable[..., None]) -> Callable[..., None]:
        def until_killed(*arguments: object, **more: object) -> None:
            nonlocal left
            if not left:
                raise Killed
            left -= 1
            call(*arguments, **more)

        return until_killed

    with monkeypatch.context() as patched:
        for name in ("unlink", "rmdir"):
            patched.setattr(os, name, counted(getattr(os, name)))
        with pytest.raises(Killed):
            dying.close()
    os.close(dying._lock)
    sweep(tmp_path)
    assert [entry for entry in tmp_path.rglob("*") if entry != dying.path] == []


def test_X36_what_is_no_directory_of_this_user_is_not_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "lock").touch()
    (tmp_path / "tidegate-state-link").symlink_to(tmp_path / "mine")
    assert sweep(tmp_path) == []
    make_left(tmp_path, "theirs")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert sweep(tmp_path) == []
    assert (tmp_path / "mine" / "lock").exists()


def place_linked_directory(parent: Path) -> Path:
    (parent / "elsewhere").mkdir()
    (parent / "elsewhere" / "lock").touch()
    link = parent / "tidegate-state-link"
    link.symlink_to(parent / "elsewhere")
    return link


def place_linked_lock(parent: Path) -> Path:
    (parent / "elsewhere").touch()
    linked = parent / "tidegate-state-link"
    linked.mkdir()
    (linked / "lock").symlink_to(parent / "elsewhere")
    return linked


@pytest.mark.parametrize("place", [place_linked_directory, place_linked_lock])
def test_X36_no_link_is_followed_and_the_sweep_goes_on_after_it(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    link = place(tmp_path)
    left = [make_left(tmp_path, name) for name in ("a", "z")]
    assert sweep(tmp_path) == left
    assert sorted(tmp_path.iterdir()) == [tmp_path / "elsewhere", link]
    assert (link / "lock").exists()


def test_a_directory_that_cannot_be_removed_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may remove it at the same time."""
    living = LocalDirectory(tmp_path)
    (living.path / "db").mkdir()
    left = [make_left(tmp_path, name) for name in ("!", "~")]

    def refuse(path: object, **_: object) -> None:
        raise PermissionError(path)

    monkeypatch.setattr(os, "rmdir", refuse)
    sweep(tmp_path)
    assert not any((one / "db").exists() for one in left)
    living.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(living._lock)


def test_a_lock_is_of_a_file_that_only_its_user_can_open(tmp_path: Path) -> None:
    living = LocalDirectory(tmp_path)
    assert stat.S_IMODE((living.path / "lock").stat().st_mode) == 0o600
    living.close()


def test_locks_are_of_files_open_for_writing_as_nfs_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flock = fcntl.flock

    def lock_on_nfs(file: int, operation: int) -> None:
        if fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "an exclusive lock needs a file open for writing")
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", lock_on_nfs)
    left = make_left(tmp_path, "left")
    living = LocalDirectory(tmp_path)  # sweeps first
    assert not left.exists()
    living.close()
