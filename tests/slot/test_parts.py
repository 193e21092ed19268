"""A slot that ends leaves nothing on its disk, whatever keeps state in it."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.testing.changed_pipeline import Life
from tests.testing.test_changed_pipelines import MANY, timed
from tidegate.slot.parts import SlotParts
from tidegate.state.local_directory import PREFIX


def test_every_state_on_disk_is_closed_once_and_its_directory_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    life = Life(MANY, backend="rocksdb")
    life.produce("orders", *timed(0, 50))
    assert len(list(tmp_path.iterdir())) > 8, "states of five steps in two slots"
    life.checkpoint()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_a_killed_slot_has_left_is_removed_whatever_keeps_state_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{PREFIX}left"
    left.mkdir()
    (left / "lock").touch()
    SlotParts().choose_backend("memory", 1)
    assert not left.exists()
