"""Copies of state files on a slot's machine: used when they are whole, never trusted otherwise, bounded, cleaned."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.coordinator.test_stored_parts import NAMES, Ranges, expected, snapshot, stored
from tests.state.driving import GROUPS, make_memory
from tests.waiting import PATIENCE_S
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.types import StateHandle, StateKind
from tidegate.ids import CheckpointId
from tidegate.slot import copies as module
from tidegate.slot.copies import NO_COPIES, PREFIX, Copies, LocalCopies, RestoredFiles, open_copies, sweep_copies
from tidegate.state import parts
from tidegate.state.base import Share
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, StorageError
from tidegate.storage.files import STALE_S

MANY = 1 << 40
ALL = range(GROUPS)


def name(checkpoint: int, subtask: int = 0) -> str:
    return f"state/{checkpoint:012d}-step-{subtask}.totals.state"


def opened(parent: Path, owner: str = "shop", bytes_max: int = MANY, base: tuple[int, ...] = ()) -> LocalCopies:
    return LocalCopies(parent, owner, bytes_max, frozenset(map(CheckpointId, base)))


def complete(copies: Copies, checkpoint: int, *names: str) -> None:
    copies.acknowledged(CheckpointId(checkpoint), names)
    copies.completed(CheckpointId(checkpoint))


def files_of(base: Path) -> list[Path]:
    return sorted(path for path in base.glob(f"{PREFIX}*/*/*") if path.is_file())


def kept(storage: Ranges, base: Path) -> tuple[StateHandle, LocalCopies]:
    """A state file in the storage, and its copy."""
    handle = stored(storage, snapshot())
    copies = opened(base)
    copies.keep(handle.path, storage.shared.objects[handle.path])
    return handle, copies


def restored(files: RestoredFiles, handle: StateHandle, key_groups: range) -> dict[str, int]:
    state = make_memory()
    state.restore(files.read_parts(handle, key_groups), Share(key_groups))
    return dict(zip(names := list(state.keys()), (value[0] for value in state.get_many(names) if value), strict=True))


@pytest.mark.parametrize("key_groups", [ALL, range(3, 9), range(0)])
def test_a_whole_copy_is_read_and_nothing_else(tmp_path: Path, key_groups: range) -> None:
    storage = Ranges()
    handle, copies = kept(storage, tmp_path)
    files = RestoredFiles(storage, copies)
    assert restored(files, handle, key_groups) == expected(key_groups)
    assert (storage.whole, storage.ranged, files.fetched_bytes) == (0, [], 0)
    assert files.copied_bytes > 0


def test_without_a_copy_the_storage_is_read(tmp_path: Path) -> None:
    storage = Ranges()
    handle = stored(storage, snapshot())
    for copies in (opened(tmp_path), NO_COPIES):
        files = RestoredFiles(storage, copies)
        assert restored(files, handle, ALL) == NAMES
        assert files.copied_bytes == 0 < files.fetched_bytes


@pytest.mark.parametrize("key_groups", [ALL, range(3, 9)])
def test_damage_anywhere_in_a_copy_is_found_and_the_rest_comes_from_the_storage(
    tmp_path: Path, key_groups: range, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(parts, "PART_BYTES", 200)  # so that some parts have been given on when the damage is found
    storage = Ranges()
    handle, copies = kept(storage, tmp_path)
    whole = storage.shared.objects[handle.path]
    used = 0
    for place in range(0, len(whole), 41):
        copies.keep(handle.path, whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        files = RestoredFiles(storage, copies)
        assert restored(files, handle, key_groups) == expected(key_groups), place
        used += not files.fetched_bytes
        assert copies.has(handle.path) == (not files.fetched_bytes), "a damaged copy is removed"
    assert (used == 0) == (key_groups == ALL), "damage in key groups that are not read is not looked for"
    assert "is removed, and memory is read instead" in caplog.text


@pytest.mark.parametrize("left", [0, 1, 200])
def test_a_copy_that_was_cut_short_or_is_another_file_is_not_used(tmp_path: Path, left: int) -> None:
    storage = Ranges()
    handle, copies = kept(storage, tmp_path)
    for content in (storage.shared.objects[handle.path][:left], b"x" * left, snapshot({"other": 1})):
        copies.keep(handle.path, content)
        assert restored(RestoredFiles(storage, copies), handle, ALL) == NAMES
        assert not copies.has(handle.path)


def test_rows_in_flight_are_read_from_copies_too(tmp_path: Path) -> None:
    storage = Ranges()
    handle = stored(storage, b"rows in flight", StateKind.INPUT)
    copies = opened(tmp_path)
    copies.keep(handle.path, storage.shared.objects[handle.path])
    files = RestoredFiles(storage, copies)
    assert files.read_state(handle) == b"rows in flight"
    assert storage.whole == 0
    copies.keep(handle.path, b"rows in flood!")
    assert files.read_state(handle) == b"rows in flight"
    assert storage.whole == 1


def test_a_damaged_copy_hides_no_damage_in_the_storage(tmp_path: Path) -> None:
    storage = Ranges()
    handle, copies = kept(storage, tmp_path)
    copies.keep(handle.path, b"damaged")
    storage.shared.objects[handle.path] = b"damaged, too"
    with pytest.raises(ObjectCorrupt, match=r"memory/state/1/f is not the file that the checkpoint wrote"):
        restored(RestoredFiles(storage, copies), handle, ALL)


def test_what_a_slot_wrote_goes_when_the_newest_completed_checkpoint_does_not_list_it(tmp_path: Path) -> None:
    copies = opened(tmp_path)
    for checkpoint in (7, 8, 9, 10):
        copies.keep(name(checkpoint), b"data")
    complete(copies, 7, name(7))
    complete(copies, 9, name(7), name(9))
    copies.keep(name(11), b"data")  # the next write cleans
    assert [checkpoint for checkpoint in range(7, 12) if copies.has(name(checkpoint))] == [7, 9, 10, 11]


def test_what_other_slots_wrote_in_this_attempt_stays(tmp_path: Path) -> None:
    ours, theirs = opened(tmp_path), opened(tmp_path)
    theirs.keep(name(7, 1), b"data")
    theirs.keep(name(8, 1), b"data")
    ours.keep(name(7), b"data")
    complete(ours, 7, name(7))
    complete(ours, 9, name(9))
    ours.keep(name(9), b"data")
    assert theirs.has(name(7, 1)) and ours.has(name(8, 1))
    assert not ours.has(name(7))


def test_what_earlier_attempts_wrote_goes_with_the_first_checkpoint_of_the_next(tmp_path: Path) -> None:
    before = opened(tmp_path)
    before.keep(name(5), b"data")
    before.keep(name(6, 1), b"data")  # of a slot that is elsewhere now
    before.close()
    now = opened(tmp_path)
    now.keep(name(7), b"data")
    assert now.has(name(5)) and now.has(name(6, 1)), "they may be wanted until then"
    complete(now, 7, name(7))
    now.keep(name(8), b"data")
    assert not now.has(name(5)) and not now.has(name(6, 1))
    assert now.has(name(7)) and now.has(name(8))


def test_restored_files_that_snapshots_build_on_stay(tmp_path: Path) -> None:
    before = opened(tmp_path)
    for checkpoint, subtask in ((3, 0), (4, 0), (5, 0), (5, 1)):
        before.keep(name(checkpoint, subtask), b"data")
    before.close()
    ours, theirs = opened(tmp_path, base=(3, 5)), opened(tmp_path, base=(3, 5))
    ours.restored([name(3), name(5)])
    theirs.restored([name(5, 1)])
    ours.keep(name(7), b"data")
    complete(ours, 7, name(3), name(7))
    ours.keep(name(8), b"data")
    assert not ours.has(name(4)), "of an earlier attempt, and not restored"
    assert not ours.has(name(5)), "restored, and not listed any more"
    assert ours.has(name(3)) and theirs.has(name(5, 1))


def test_acknowledged_checkpoints_that_never_complete_are_forgotten(tmp_path: Path) -> None:
    copies = opened(tmp_path)
    for checkpoint in range(module.ACKED_MAX * 3):
        copies.acknowledged(CheckpointId(checkpoint), [name(checkpoint)])
    assert len(copies._acked) == module.ACKED_MAX


def test_deleted_objects_have_no_copy(tmp_path: Path) -> None:
    copies = opened(tmp_path)
    copies.keep(name(7), b"data")
    copies.drop(name(7))
    copies.drop(name(7))
    assert not copies.has(name(7))
    with pytest.raises(ObjectMissing):
        copies.get(name(7))


def test_all_copies_together_are_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ours, theirs = opened(tmp_path, bytes_max=1000), opened(tmp_path, bytes_max=1000)
    theirs.keep(name(7, 1), bytes(600))
    ours.keep(name(7), bytes(500))
    ours.keep(name(8), bytes(500))
    ours.keep(name(9), bytes(400))
    assert [ours.has(one) for one in (name(7), name(8), name(9))] == [False, False, True]
    assert caplog.text.count("copies of state use 1,000 bytes on this machine") == 1, "once is enough"


def test_another_slot_may_remove_a_copy_while_they_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = opened(tmp_path), opened(tmp_path)
    theirs.keep(name(7, 1), b"data")
    walk = ours._walk

    def walk_slowly() -> Iterator[os.DirEntry[str]]:
        entries = list(walk())
        theirs.drop(name(7, 1))
        yield from entries

    monkeypatch.setattr(ours, "_walk", walk_slowly)
    ours.keep(name(7), b"data")
    assert ours.has(name(7))
    assert not ours.has(name(7, 1))
    assert caplog.text == ""


def test_a_tenth_of_the_disk_stays_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copies = opened(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=10_000, used=8_900, free=1_100))
    copies.keep(name(7), bytes(101))
    copies.keep(name(8), bytes(100))
    assert (copies.has(name(7)), copies.has(name(8))) == (False, True)
    assert "is nearly full" in caplog.text


def test_a_failing_disk_costs_copies_and_nothing_else(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    copies = opened(tmp_path)
    copies.keep(name(7), b"data")
    shutil.rmtree(tmp_path / f"{PREFIX}{os.geteuid()}")
    for checkpoint in (8, 9):
        copies.keep(name(checkpoint), b"data")
    copies.drop(name(7))
    copies.close()
    assert caplog.text.count("could not be kept") == 1


def test_a_writer_that_was_killed_leaves_nothing_that_is_read(tmp_path: Path) -> None:
    script = f"""
        import os, pathlib, signal
        from tidegate.slot import copies
        copies.write_all = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
        copies.LocalCopies(pathlib.Path({str(tmp_path)!r}), "shop", 1 << 40).keep({name(7)!r}, b"data")
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False, timeout=PATIENCE_S)
    assert ended.returncode == -9
    assert len(files_of(tmp_path)) == 1, "the planned death left something"
    copies = opened(tmp_path)
    assert not copies.has(name(7))
    complete(copies, 8, name(8))
    copies.keep(name(8), b"data")
    assert len(files_of(tmp_path)) == 1, "it was removed with its attempt"


def test_pipelines_have_folders_of_their_own_for_their_user_alone(tmp_path: Path) -> None:
    one, other = opened(tmp_path, "shop"), opened(tmp_path, "bank")
    one.keep(name(7), b"data")
    assert not other.has(name(7))
    (path,) = files_of(tmp_path)
    assert [place.stat().st_mode & 0o777 for place in (path, *list(path.parents)[:2])] == [0o600, 0o700, 0o700]


def test_a_directory_of_somebody_else_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / f"{PREFIX}{os.geteuid()}"
    (tmp_path / "elsewhere").mkdir()
    root.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="not a directory of this user alone"):
        opened(tmp_path)
    root.unlink()
    root.mkdir()
    root.chmod(0o777)
    with pytest.raises(StorageError, match="not a directory of this user alone"):
        opened(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert open_copies("shop", MANY) is NO_COPIES
    root.chmod(0o700)
    assert isinstance(open_copies("shop", MANY), LocalCopies)


def test_folders_that_nobody_uses_are_removed_after_a_day(tmp_path: Path) -> None:
    used, left, fresh = (opened(tmp_path, owner) for owner in ("used", "left", "fresh"))
    for copies in (used, left, fresh):
        copies.keep(name(7), b"data")
    long_ago = SYSTEM_CLOCK.now_ms() / 1000 - STALE_S - 60
    left.close()
    fresh.close()
    for copies in (used, left):
        os.utime(copies._folder, (long_ago, long_ago))
    assert sweep_copies(tmp_path) == [left._folder]
    assert sweep_copies(tmp_path) == []
    assert used.has(name(7)) and fresh.has(name(7))
    assert sweep_copies(tmp_path / "nowhere") == []


def test_a_folder_that_is_removed_while_it_is_taken_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed: list[Path] = []

    def remove(descriptor: int, how: int) -> None:
        if not removed:
            removed.append(Path(f"/proc/self/fd/{descriptor}").readlink())
            removed[0].rmdir()
        real(descriptor, how)

    real = fcntl.flock
    monkeypatch.setattr(fcntl, "flock", remove)
    copies = opened(tmp_path)
    assert removed == [copies._folder]
    copies.keep(name(7), b"data")
    assert copies.has(name(7))
