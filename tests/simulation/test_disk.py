"""The simulated disk: what a power cut leaves, and that storages which do not sync are found by schedules with cuts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tidegate.simulation.campaign import quiet
from tidegate.simulation.disk import Disk, File, Node, sync
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.faults import Fault
from tidegate.simulation.world import play
from tidegate.storage.local import LocalStorage

ROOT = Path("/d")
CUTS = tuple(Fault(kind="power-cut", at_s=at_s) for at_s in (0.7, 1.2, 1.7, 2.2, 2.7, 3.2))
BUDGET = 60
"""Seeds in which a storage that does not sync is found."""


@pytest.fixture
def disk() -> Disk:
    made = Disk()
    made.mkdir(ROOT, 0.0, 0o700)
    sync(made.find(Path("/")))
    return made


def put(disk: Disk, name: str, data: bytes, *, content: bool, folder: bool) -> None:
    file = disk.create(ROOT / name, 0.0, 0o600)
    file.data = data
    if content:
        sync(file)
    if folder:
        sync(disk.find(ROOT))


def left(disk: Disk) -> dict[str, bytes]:
    return {name: file.data for name, file in disk.walk(ROOT)}


@pytest.mark.parametrize("keeps", [False, True])
def test_what_is_synced_outlives_a_power_cut(disk: Disk, keeps: bool) -> None:
    put(disk, "a", b"whole", content=True, folder=True)
    disk.cut_power(lambda: keeps)
    assert left(disk) == {"a": b"whole"}


def test_a_name_or_a_content_that_is_not_synced_may_be_lost(disk: Disk) -> None:
    put(disk, "content", b"whole", content=False, folder=True)
    put(disk, "name", b"whole", content=True, folder=False)
    disk.cut_power(lambda: False)
    assert left(disk) == {"content": b"wh"}


def test_a_rename_and_a_removal_that_are_not_synced_may_be_undone(disk: Disk) -> None:
    put(disk, "old", b"1", content=True, folder=True)
    put(disk, "gone", b"2", content=True, folder=True)
    put(disk, "new", b"3", content=True, folder=True)
    disk.replace(ROOT / "new", ROOT / "old")
    disk.unlink(ROOT / "gone")
    assert left(disk) == {"old": b"3"}
    disk.cut_power(lambda: False)
    assert left(disk) == {"old": b"1", "gone": b"2", "new": b"3"}


def test_a_second_name_is_the_same_file(disk: Disk) -> None:
    put(disk, "a", b"1", content=True, folder=True)
    disk.link(ROOT / "a", ROOT / "b")
    found: list[Node] = [disk.find(ROOT / name) for name in "ab"]
    assert found[0] is found[1]
    assert isinstance(found[0], File)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda disk: disk.create(ROOT / "a", 0.0, 0o600), errno.EEXIST),
        (lambda disk: disk.link(ROOT / "a", ROOT / "f"), errno.EEXIST),
        (lambda disk: disk.replace(ROOT / "a", ROOT / "f"), errno.EISDIR),
        (lambda disk: disk.replace(ROOT / "none", ROOT / "b"), errno.ENOENT),
        (lambda disk: disk.unlink(ROOT / "f"), errno.EISDIR),
        (lambda disk: disk.unlink(ROOT / "none"), errno.ENOENT),
        (lambda disk: disk.rmdir(ROOT), errno.ENOTEMPTY),
        (lambda disk: disk.rmdir(ROOT / "a"), errno.ENOTDIR),
        (lambda disk: disk.mkdir(ROOT / "f", 0.0, 0o700), errno.EEXIST),
        (lambda disk: disk.find(ROOT / "a" / "b"), errno.ENOTDIR),
    ],
)
def test_calls_fail_as_the_systems_do(disk: Disk, call: Callable[[Disk], object], code: int) -> None:
    put(disk, "a", b"1", content=True, folder=True)
    disk.mkdir(ROOT / "f", 0.0, 0o700)
    with pytest.raises(OSError) as caught:
        call(disk)
    assert caught.value.errno == code


def no_sync_of_contents(patch: pytest.MonkeyPatch) -> None:
    real = LocalStorage._write_synced

    def write(self: LocalStorage, path: Path, data: bytes) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(self._calls, "fsync", lambda descriptor: None)
            real(self, path, data)

    patch.setattr(LocalStorage, "_write_synced", write)


def no_sync_of_folders(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalStorage, "_sync_folder", lambda self, folder: None)


def written_in_place(patch: pytest.MonkeyPatch) -> None:
    """Under its own name, before it is whole."""

    def publish(self: LocalStorage, target: Path, data: bytes, appear: Callable[[Path], bool]) -> bool:
        self._make_folder(target.parent)
        try:
            self._write_synced(target, data)
        except FileExistsError:
            return False
        self._sync_up(target.parent)
        return True

    patch.setattr(LocalStorage, "_publish", publish)


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        no_sync_of_contents,
        pytest.param(no_sync_of_folders, marks=pytest.mark.deep),
        pytest.param(written_in_place, marks=pytest.mark.deep),
    ],
)
def test_a_storage_that_is_not_durable_is_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    with quiet():
        for seed in range(1, BUDGET + 1):
            schedule = draw_schedule(seed)
            schedule = msgspec.structs.replace(schedule, faults=schedule.faults + CUTS)
            with pytest.MonkeyPatch.context() as patch:
                plant(patch)
                found = play(schedule).problems
            if found and not play(schedule).problems:
                print(f"seed {seed}: {found[0][-300:]}")
                return
    raise AssertionError(f"not found in {BUDGET} seeds")
