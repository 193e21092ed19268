"""The daemon and a slot see one directory, or the attempt does not begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sinks.leaping import LeapingClock
from tidegate.ids import Attempt, SlotIndex
from tidegate.storage.local import LocalStorage
from tidegate.storage.shared import Proof, StorageNotShared, StorageReplaced

SLOT = SlotIndex(1)


def proof(directory: Path, secret: str = "secret", attempt: int = 7) -> Proof:
    return Proof(LocalStorage(str(directory)), Attempt(attempt), secret, LeapingClock())


def test_one_directory_is_proven_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    daemon, slot = proof(tmp_path), proof(tmp_path)
    daemon.write_daemons()
    slot.answer(SLOT, "host-b")
    daemon.check(SLOT, "host-b")
    daemon.remove()
    assert LocalStorage(str(tmp_path)).list("") == []


def test_X04_an_executor_with_a_disk_of_its_own_is_refused_by_name_and_path(tmp_path: Path) -> None:
    daemon, slot = proof(tmp_path / "here"), proof(tmp_path / "there")
    daemon.write_daemons()
    with pytest.raises(StorageNotShared, match=rf"slot 1 on host-b cannot read .*{tmp_path}/there") as refused:
        slot.answer(SLOT, "host-b")
    assert refused.value.exit_code == 2
    assert "mount it on that host" in refused.value.message


def test_X04_what_only_the_slot_sees_is_refused_by_the_daemon(tmp_path: Path) -> None:
    """The daemon's file is there, by a copy made at some time; what the slot writes is not seen."""
    daemon = proof(tmp_path / "here")
    daemon.write_daemons()
    with pytest.raises(
        StorageNotShared, match=rf"the daemon cannot read the object that slot 1 on host-b .*{tmp_path}/here"
    ):
        daemon.check(SLOT, "host-b")


def test_X04_files_of_an_earlier_start_prove_nothing(tmp_path: Path) -> None:
    earlier, daemon = proof(tmp_path, "earlier"), proof(tmp_path)
    earlier.write_daemons()
    earlier.answer(SLOT, "host-b")
    with pytest.raises(StorageNotShared):
        daemon.check(SLOT, "host-b")


def test_X04_an_older_daemon_removes_no_proof_of_a_newer_one(tmp_path: Path) -> None:
    """It may not know yet that it is superseded; the newer one would blame the slot's disk."""
    oldest, older, newer = (proof(tmp_path, attempt=attempt) for attempt in (9, 10, 11))
    for one in (oldest, older, newer):
        one.write_daemons()
        one.answer(SLOT, "host-b")
    older.remove()
    newer.check(SLOT, "host-b")
    names = LocalStorage(str(tmp_path)).list("")
    assert len(names) == 2
    assert all("11-" in name for name in names)


def test_X04_a_slot_is_not_blamed_where_the_daemon_does_not_see_its_own_file_any_more(tmp_path: Path) -> None:
    """A volume was not mounted when the daemon wrote it, and is now: the next attempt finds out what is there."""
    daemon, slot = proof(tmp_path), proof(tmp_path / "there")
    daemon.write_daemons()
    with pytest.raises(StorageNotShared) as refused:
        slot.answer(SLOT, "host-b")
    assert daemon.derive_cause(refused.value) is refused.value
    daemon.remove()
    exchanged = daemon.derive_cause(refused.value)
    assert isinstance(exchanged, StorageReplaced)
    assert exchanged.retriable
    assert f"{tmp_path} no longer exists: was its volume unmounted" in exchanged.message
