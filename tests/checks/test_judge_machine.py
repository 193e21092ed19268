"""What is said of the machine, one change of a sound one at a time."""

from __future__ import annotations

import resource
from pathlib import Path

import msgspec
import pytest

from tests.checks.deployments import MACHINE, bad, of_machine, only
from tests.daemon.small_pipeline import pipeline
from tidegate.checks.facts import Room
from tidegate.checks.findings import Severity
from tidegate.checks.judge_machine import derive_files_needed
from tidegate.checks.machine import read_machine
from tidegate.config.load import LoadedPipeline, parse_pipeline
from tidegate.plan.build import build_plan
from tidegate.storage.base import StorageError, StorageUnsupported
from tidegate.storage.open import open_storage

WARNING, PROBLEM = Severity.WARNING, Severity.PROBLEM
MIB = 1 << 20


def changed(text: str) -> LoadedPipeline:
    """With one more line at the top of the file."""
    loaded = parse_pipeline(text + "\n" + pipeline().source, "p.yaml", {})
    assert loaded.problems == ()
    return loaded


def rooms(**changes: object) -> tuple[Room, ...]:
    """The checkpoint directory's is another one."""
    return (msgspec.structs.replace(MACHINE.rooms[0], **changes), MACHINE.rooms[1])


def test_a_sound_machine_is_ok() -> None:
    assert bad(of_machine()) == []


def test_a_directory_that_fails_its_trial_is_a_problem_in_the_storages_words() -> None:
    one = only(of_machine(storage_trouble=StorageError("cannot write"), rooms=()))
    assert (one.check, one.severity, one.value) == ("checkpoint-directory", PROBLEM, "cannot write")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StorageError("away", errno="ESTALE"), 1),
        (StorageError("not yours", errno="EACCES"), 2),
        (StorageUnsupported("what is ftp://"), 2),
    ],
)
def test_a_problem_of_the_directory_or_its_disk_may_pass(error: StorageError, code: int) -> None:
    assert only(of_machine(storage_trouble=error, rooms=())).exit_code == code
    assert only(of_machine(rooms=rooms(free_bytes=1))).exit_code == 1
    assert only(of_machine(rooms=rooms(system="tmpfs"))).exit_code == 2


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_directory_in_memory_is_a_problem(kind: str) -> None:
    one = only(of_machine(rooms=rooms(system=kind)))
    assert (one.check, one.severity, one.subject) == ("checkpoint-directory", PROBLEM, "/data")


def test_a_local_disk_is_a_warning_where_executors_are_elsewhere() -> None:
    standalone = changed("spark: {master: 'spark://host:7077', spark.authenticate.secret: abcdefgh}")
    one = only(of_machine(standalone))
    assert (one.check, one.severity) == ("checkpoint-directory", WARNING)
    assert "spark://host:7077" in one.remedy
    assert bad(of_machine(standalone, rooms=rooms(system="nfs4"))) == []


@pytest.mark.parametrize(
    ("changes", "level"),
    [
        ({"free_bytes": 100 * MIB - 1}, PROBLEM),
        ({"free_bytes": 100 * MIB}, WARNING),
        ({"free_bytes": 1024 * MIB - 1}, WARNING),
        ({"free_bytes": 1024 * MIB}, Severity.OK),
        ({"free_bytes": 1024 * MIB, "used_bytes": 400 * MIB}, WARNING),
        ({"free_inodes": 999}, PROBLEM),
        ({"free_inodes": None}, Severity.OK),
    ],
)
def test_disk_space_is_compared_with_what_the_directory_holds(changes: dict[str, int], level: Severity) -> None:
    one = next(one for one in of_machine(rooms=rooms(**changes)) if one.check == "disk-space")
    assert (one.severity, one.subject) == (level, "/data")


def test_open_files() -> None:
    loaded = pipeline()
    needed = derive_files_needed(loaded.settings, build_plan(loaded), 1)
    assert needed >= 300
    assert only(of_machine(open_files=needed - 1)).severity is PROBLEM
    assert only(of_machine(open_files=needed)).severity is WARNING
    assert bad(of_machine(open_files=2 * needed)) == []
    assert bad(of_machine(open_files=None)) == []
    rocks = changed("state: {backend: rocksdb}")
    assert derive_files_needed(rocks.settings, build_plan(rocks), 1) > needed


def test_memory_and_processors_of_slots_that_run_here() -> None:
    many = changed("parallelism: 9")
    assert {(one.check, one.severity) for one in bad(of_machine(many, memory_bytes=500 * MIB))} == {
        ("memory", WARNING),
        ("cpus", WARNING),
    }
    assert bad(of_machine(changed("parallelism: 8"), memory_bytes=None)) == []


def test_this_machine_is_read(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "object").write_bytes(b"x" * 5000)
    facts = read_machine(f"file://{tmp_path}/checkpoints", open_storage)
    here, temporary = facts.rooms
    assert (facts.storage_trouble, here.directory) == (None, f"{tmp_path}/checkpoints")
    assert here.used_bytes == 5000
    assert here.free_bytes > 0
    assert here.system
    assert temporary.place == ()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert facts.open_files == (None if hard == resource.RLIM_INFINITY else hard)
    assert facts.cpus >= 1
    assert facts.memory_bytes is not None
    (tmp_path / "file").touch()
    trouble = read_machine(f"file://{tmp_path}/file", open_storage).storage_trouble
    assert trouble is not None
    assert "a part of the path is a file" in trouble.message


def test_a_directory_whose_trial_has_just_failed_is_not_tried_again(tmp_path: Path) -> None:
    """A store that is away is tried for half a minute, and the second text would have another object's name."""
    known = StorageError("away", errno="ESTALE")
    assert read_machine(f"file://{tmp_path}/checkpoints", open_storage, known).storage_trouble is known
    assert not (tmp_path / "checkpoints").exists()
