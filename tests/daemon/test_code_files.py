"""Files of `code:` in the life of a pipeline: every attempt and daemon has its own, whatever another one deletes."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.loopback import Loopback, plan_of, play
from tidegate.user_code.files import LocalFile, read_code_file
from tidegate.user_code.shipping import CodeFileChanged

ROWS = {partition: [(number % 3, number) for number in range(6)] for partition in range(2)}


@pytest.fixture(autouse=True)
def _own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "machine").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "machine"))


def model(directory: Path, content: bytes) -> LocalFile:
    directory.mkdir(exist_ok=True)
    path = directory / "model.bin"
    path.write_bytes(content)
    return read_code_file(path)


def seen(world: Loopback) -> set[bytes]:
    """What the slots find under the name."""
    return {world.slot(slot).deployment.subtasks.code.path("model.bin").read_bytes() for slot in range(2)}


def stored(world: Loopback) -> set[str]:
    return {name.split("/")[1] for name in world.storage.list("code/")}


def world_of(files: Sequence[LocalFile], before: Loopback | None = None) -> Loopback:
    return Loopback(plan_of("totals"), ROWS, files=files, before=before)


def test_another_attempt_puts_back_what_a_superseded_daemon_has_deleted(tmp_path: Path) -> None:
    """The file next to the pipeline may be another one by then: it is not needed while the storage has its content."""
    one = model(tmp_path / "first", b"one")

    async def scene(world: Loopback) -> None:
        assert seen(world) == {b"one"}
        assert stored(world) == {one.file.sha256}
        world.storage.delete_all(world.storage.list("code/"))
        await world.kill(0)
        assert stored(world) == {one.file.sha256}
        one.path.write_bytes(b"the next release")
        await world.kill(1)
        assert seen(world) == {b"one"}
        await world.drain()
        await world.stop()
        assert len(world.kafka.output) == 12

    play(world_of([one]), scene)


def test_the_next_daemon_has_other_files_and_removes_the_former(tmp_path: Path) -> None:
    one, two = model(tmp_path / "first", b"one"), model(tmp_path / "second", b"two")
    first = world_of([one])

    async def begin(world: Loopback) -> None:
        await world.checkpoint()

    async def other(world: Loopback) -> None:
        assert seen(world) == {b"two"}
        assert stored(world) == {two.file.sha256}

    async def without(world: Loopback) -> None:
        assert stored(world) == set()
        await world.drain()
        await world.stop()
        assert len(world.kafka.output) == 12

    play(first, begin)
    second = world_of([two], before=first)
    play(second, other)
    play(world_of([], before=second), without)


def test_a_file_that_is_gone_from_everywhere_ends_the_daemon(tmp_path: Path) -> None:
    one = model(tmp_path / "first", b"one")

    async def scene(world: Loopback) -> None:
        world.storage.delete_all(world.storage.list("code/"))
        one.path.unlink()
        seat = world.seats[0]
        seat.end()
        world.seats[1].end()
        world.job_ended("the executor is gone")
        error = await world.failure()
        assert isinstance(error, CodeFileChanged)

    play(world_of([one]), scene)
