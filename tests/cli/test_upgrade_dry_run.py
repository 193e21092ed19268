"""`tidegate upgrade --migrate-dry-run`, damage, and what CI reads."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.cli.test_upgrade import Directory
from tests.coordinator.values import handle
from tests.testing.changed_pipeline import Life
from tests.testing.test_changed_pipelines import ORDERS, RENAMED, TOTALS
from tidegate.checks.upgrade_check import FREE_TIMES, ScratchTooSmall, restore_into_scratch
from tidegate.cli.main import run_command
from tidegate.journal.savepoint import write_savepoint
from tidegate.storage.local import LocalStorage

CHECK = ["upgrade"]
DRY = [*CHECK, "--migrate-dry-run"]


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    begun = Life(TOTALS)
    begun.produce("orders", *ORDERS)
    return Directory(tmp_path, begun.checkpoint())


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_state_is_restored_into_the_backend_of_the_file_and_nothing_stays(
    directory: Directory,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before = directory.content()
    file = directory.file(f"state: {{backend: {backend}}}\n{RENAMED}")
    assert run_command([*DRY, file]) == 0
    assert f"dry run: totals.totals: 3 entries restored into {backend} from " in capsys.readouterr().out
    assert run_command([*DRY, "--format", "json", file]) == 0
    (migrated,) = json.loads(capsys.readouterr().out)["migrated"]
    assert (migrated["entries"], migrated["backend"]) == (3, backend)
    assert migrated["read_bytes"] == sum(state.size_bytes for state in directory.checkpoint.states)
    assert directory.content() == before
    assert not list(scratch.iterdir())


def test_a_disk_without_room_is_refused_before_anything_is_restored(tmp_path: Path) -> None:
    state, scratch = handle(1), tmp_path / "scratch"
    scratch.mkdir()
    found = restore_into_scratch(
        LocalStorage(str(tmp_path / "storage")),
        [state],
        {},
        "rocksdb",
        parent=scratch,
        free=lambda _: FREE_TIMES * state.size_bytes - 1,
    )
    with pytest.raises(ScratchTooSmall, match="make room, or set TMPDIR") as refused:
        next(found)
    assert f"needs {FREE_TIMES * state.size_bytes:,} bytes on the disk of {scratch}" in refused.value.message
    assert not list(scratch.iterdir())


def test_a_damaged_savepoint_is_to_be_copied_again(directory: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    write_savepoint(
        directory.storage, LocalStorage(str(directory.path / "saved")), "one", directory.checkpoint,
        directory.identity, "t",
    )  # fmt: skip
    place = directory.path / "saved" / "one"
    (damaged, *_) = [path for path in sorted(place.rglob("*")) if path.suffix == ".state"]
    data = bytearray(damaged.read_bytes())
    data[-3] ^= 0xFF
    damaged.write_bytes(data)
    assert run_command([*DRY, "--from", str(place), directory.file(RENAMED)]) == 4
    told = capsys.readouterr().out
    assert "copy the whole folder again" in told
    assert "begin-anew" not in told
    assert "dry run: totals.totals: cannot be restored, see below\n" in told
    assert run_command(["state", "read", str(place), "sums"]) != 0
    assert "copy the whole folder again" in capsys.readouterr().err


def test_a_step_that_is_gone_is_listed_with_its_keys(directory: Directory, capsys: pytest.CaptureFixture[str]) -> None:
    text = TOTALS.replace("sums,", "fresh,").replace("from: sums", "from: fresh")
    assert run_command([*CHECK, directory.file(text)]) == 4
    told = capsys.readouterr().out
    assert "no directive applies to it" in told
    assert "readable nobody" not in told


def test_what_is_refused_for_its_meaning_says_so_above_bytes_that_can_be_read(
    directory: Directory, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command([*CHECK, directory.file(TOTALS.replace("amount > 1", "amount > 2"))]) == 4
    told = capsys.readouterr().out
    assert "refused: its state would have another meaning" in told
    assert "readable as is" in told


@pytest.mark.parametrize(("place", "code"), [("99", 4), ("/nope", 2)])
def test_what_is_not_there_has_the_exit_codes_of_the_help(
    directory: Directory, capsys: pytest.CaptureFixture[str], place: str, code: int
) -> None:
    assert run_command([*CHECK, "--from", place, directory.file(RENAMED)]) == code
    assert place in capsys.readouterr().err
