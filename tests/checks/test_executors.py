"""What a slot sees of the checkpoint directory, and what is said of it. Spark itself is tests/spark's matter."""

from __future__ import annotations

from pathlib import Path

from tidegate.checks.executors import SeenSlot, judge_executors, make_trial
from tidegate.checks.findings import Severity
from tidegate.clock import SYSTEM_CLOCK
from tidegate.ids import Attempt, SlotIndex
from tidegate.storage.base import NO_OPTIONS
from tidegate.storage.local import LocalStorage
from tidegate.storage.open import Opener
from tidegate.storage.shared import Proof


def test_a_slot_reads_what_the_daemon_has_written_and_the_daemon_what_it_writes(tmp_path: Path) -> None:
    address = f"file://{tmp_path}/shared"
    proof = Proof(LocalStorage(address), Attempt(0), "secret", SYSTEM_CLOCK)
    proof.write_daemons()
    slot = make_trial(Opener(address, NO_OPTIONS), address, "secret")(3)
    assert (slot.slot, slot.trouble) == (3, "")
    proof.check(SlotIndex(3), slot.host)
    proof.remove()
    assert LocalStorage(address).list("") == []


def test_a_slot_with_a_disk_of_its_own_sees_another_directory(tmp_path: Path) -> None:
    here, there = f"file://{tmp_path}/here", f"file://{tmp_path}/there"
    Proof(LocalStorage(here), Attempt(0), "secret", SYSTEM_CLOCK).write_daemons()
    slot = make_trial(Opener(there, NO_OPTIONS), there, "secret")(0)
    assert "cannot read the object that the daemon has written" in slot.trouble
    (one,) = judge_executors([slot], slot.version)
    assert (one.check, one.severity) == ("executors", Severity.PROBLEM)
    assert "mount it on that host" in one.remedy


def test_all_slots_are_one_finding_and_other_versions_of_tidegate_are_named() -> None:
    slots = [SeenSlot(slot, f"host-{slot % 2}", "1.0") for slot in range(4)]
    (one,) = judge_executors(slots, "1.0")
    assert (one.severity, one.value) == (Severity.OK, "4 slots on host-0, host-1, with the same checkpoint directory")
    (other,) = judge_executors(slots, "1.1")
    assert other.severity is Severity.PROBLEM
    assert "1.0 on host-0" in other.value
