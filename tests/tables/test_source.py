"""Which checkpoint or savepoint a text names, and what is said where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from tidegate.coordinator.entries import CheckpointEntry, decode_entry, encode_entry
from tidegate.ids import CheckpointId, JournalSequence
from tidegate.storage.base import ObjectMissing
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import journal_name
from tidegate.tables.files import SnapshotGone, StateUnknown, choose_state, list_states, read_files
from tidegate.tables.source import SourceRefused, open_snapshot

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"
CHECKPOINTS = GOLDEN / "checkpoints"
SAVEPOINT = GOLDEN / "savepoints" / "savepoint-golden"


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    return shutil.copytree(CHECKPOINTS, tmp_path / "checkpoints")


def open_text(source: object, checkpoint: str | None = None) -> tuple[int, bool]:
    found = open_snapshot(str(source), checkpoint, os.environ)
    return found.checkpoint.id, found.retained


def test_directories_files_and_savepoints_are_told_apart(tmp_path: Path) -> None:
    assert open_text(CHECKPOINTS) == (14, True)
    assert open_text(CHECKPOINTS, "newest") == open_text(f"{CHECKPOINTS}@newest") == (14, True)
    assert open_text(CHECKPOINTS, "12") == open_text(f"{CHECKPOINTS}@12") == open_text(f"{CHECKPOINTS}@12", "12")
    assert open_text(f"file://{CHECKPOINTS}@12") == (12, True)
    assert open_text(SAVEPOINT)[1] is False
    at = shutil.copytree(SAVEPOINT, tmp_path / "mine@7")
    assert open_text(at) == open_text(SAVEPOINT)


@pytest.mark.parametrize(
    ("source", "checkpoint", "words"),
    [
        (CHECKPOINTS, "13", "does not retain checkpoint 13 (it has: 12, 14)"),
        (CHECKPOINTS, "last", "'last' is not a checkpoint"),
        (f"{CHECKPOINTS}@12", "14", "names checkpoint 12, --from names 14"),
        (SAVEPOINT, "3", "is a savepoint, which has no checkpoints to choose from"),
        (GOLDEN / "nowhere", None, "there is no such file or directory"),
    ],
)
def test_what_cannot_be_read_is_refused(source: object, checkpoint: str | None, words: str) -> None:
    with pytest.raises(SourceRefused) as caught:
        open_text(source, checkpoint)
    assert words in caught.value.message
    assert caught.value.exit_code == 2


def test_a_directory_that_is_neither_says_what_it_is() -> None:
    for checkpoint in (None, "3"):
        with pytest.raises(SourceRefused, match="has no checkpoints and is not a savepoint"):
            open_text(GOLDEN, checkpoint)


def test_unknown_steps_and_states_list_those_that_there_are() -> None:
    snapshot = open_snapshot(str(SAVEPOINT), None, {})
    with pytest.raises(StateUnknown, match="no state of a step 'sums'; it has: best, closing, early"):
        choose_state(snapshot, "sums", None)
    with pytest.raises(StateUnknown, match=r"no state 'groups' in savepoint .*; it has: totals"):
        choose_state(snapshot, "totals", "groups")


def change(path: Path, at: Callable[[Path], None]) -> None:
    for file in (path / "state").rglob("*totals*"):
        at(file)


def test_a_checkpoint_that_is_removed_while_it_is_read_is_reported_as_that(copied: Path) -> None:
    snapshot = open_snapshot(str(copied), None, {})
    (state,) = list_states(snapshot, "totals")
    newest = copied / journal_name(JournalSequence(4))
    entry = decode_entry(JournalSequence(4), newest.read_bytes())
    assert isinstance(entry, CheckpointEntry)
    later = msgspec.structs.replace(entry.checkpoint, id=CheckpointId(15))  # the pipeline has moved on
    newest.write_bytes(encode_entry(msgspec.structs.replace(entry, checkpoint=later)))
    change(copied, Path.unlink)
    with pytest.raises(SnapshotGone) as caught:
        read_files(snapshot, state)
    assert f"checkpoint 14 of {copied} was removed while it was read" in caught.value.message


def test_files_that_are_missing_although_the_checkpoint_is_retained_are_damage(copied: Path) -> None:
    snapshot = open_snapshot(str(copied), None, {})
    (state,) = list_states(snapshot, "totals")
    change(copied, Path.unlink)
    with pytest.raises(ObjectMissing):
        read_files(snapshot, state)


def test_reading_changes_nothing(copied: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in copied.rglob("*")}
    snapshot = open_snapshot(str(copied), None, {})
    for state in list_states(snapshot):
        read_files(snapshot, state)
    assert {path: path.stat().st_mtime_ns for path in copied.rglob("*")} == before
    assert isinstance(snapshot.storage, LocalStorage)
