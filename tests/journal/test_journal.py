"""The journal: takeovers, decisions, unknown outcomes, clean-up, and everything that is refused when it is read."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from tests.coordinator.fake_storage import FakeStorage, Fault, SharedObjects
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, handle
from tidegate.coordinator.entries import (
    FORMAT_VERSION,
    CheckpointEntry,
    JournalRefused,
    Takeover,
    Writer,
    decode_entry,
    encode_entry,
)
from tidegate.coordinator.journal_state import EMPTY, derive
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_restore
from tidegate.coordinator.upgrade import Upgrade
from tidegate.errors import Superseded
from tidegate.ids import Attempt, CheckpointId, JournalSequence, OperatorName
from tidegate.journal.journal import AppendUnsettled, Journal
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, StorageError
from tidegate.storage.checksum import seal
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import journal_name, journal_sequence

FACTS = RestoreFacts(IDENTITY, {}, frozenset({OperatorName("totals")}))


def journal(storage: FakeStorage | LocalStorage, writer: Writer = ME, retained: int = 2) -> Journal:
    return Journal(storage, writer, retained=retained, id_reserve=5)


def owned(storage: FakeStorage | LocalStorage, writer: Writer = ME, retained: int = 2) -> Journal:
    one = journal(storage, writer, retained)
    one.take_over(IDENTITY, 1)
    return one


def entries(storage: FakeStorage) -> list[str]:
    return storage.list("journal/")


def test_an_empty_directory_has_no_state() -> None:
    assert journal(FakeStorage()).read() == EMPTY


def test_C10_every_takeover_is_a_new_attempt_above_all_ids_ever_used() -> None:
    storage = FakeStorage()
    first = owned(storage)
    assert (first.state.attempt, first.state.reserved_to) == (1, 5)
    first.append_checkpoint(completed(1))
    assert first.state.reserved_to == 6
    state = owned(storage, OTHER).state
    assert (state.attempt, state.reserved_to) == (2, 11)
    assert decide_restore(state, FACTS).first_checkpoint == 7


def test_C03_C16_what_was_appended_is_read_back_by_another_daemon(tmp_path: Path) -> None:
    done = completed(1, states=[handle(1)], committables=[committable(1)])
    owned(LocalStorage(str(tmp_path))).append_checkpoint(done)
    state = journal(LocalStorage(str(tmp_path)), OTHER).read()
    assert state.newest_checkpoint == done
    assert state.committables == (committable(1),)
    assert state.identity == IDENTITY
    assert not state.final


def test_entries_are_readable_text(tmp_path: Path) -> None:
    owned(LocalStorage(str(tmp_path)))
    lines = (tmp_path / "journal/000000000000.json").read_text().splitlines()
    assert lines[0].startswith("tidegate-sealed 1 ")
    assert ' "entry": "takeover",' in lines


def test_only_the_append_makes_a_permit() -> None:
    done = completed(1, committables=[committable(1)])
    permit = owned(FakeStorage()).append_checkpoint(done).permit
    assert (permit.checkpoint, permit.committables) == (1, (committable(1),))
    with pytest.raises(TypeError, match="comes from the journal"):
        CommitPermit(CheckpointId(1), (), object())
    with pytest.raises(AttributeError, match="does not change"):
        permit.committables = ()


def test_nothing_is_decided_before_the_takeover() -> None:
    with pytest.raises(RuntimeError, match="take_over comes first"):
        journal(FakeStorage()).append_checkpoint(completed(1))


def test_recovery_has_the_permit_of_the_newest_checkpoint_after_its_own_takeover() -> None:
    storage = FakeStorage()
    owned(storage).append_checkpoint(completed(1, committables=[committable(1)]))
    second = journal(storage, OTHER)
    plan = decide_restore(second.read(), FACTS)
    with pytest.raises(RuntimeError, match="does not own"):
        second.recovery_permit(plan)
    plan = decide_restore(second.take_over(IDENTITY, 2), FACTS)
    permit = second.recovery_permit(plan)
    assert permit is not None
    assert (permit.checkpoint, permit.committables) == (1, (committable(1),))


def test_recovery_without_committables_has_nothing_to_commit() -> None:
    storage = FakeStorage()
    owned(storage).append_checkpoint(completed(1))
    second = journal(storage, OTHER)
    assert second.recovery_permit(decide_restore(second.take_over(IDENTITY, 2), FACTS)) is None


def test_a_plan_of_an_older_checkpoint_has_no_permit() -> None:
    one = owned(FakeStorage())
    one.append_checkpoint(completed(1))
    stale = RestorePlan(one.state.attempt, completed(9), (), CheckpointId(1))
    with pytest.raises(RuntimeError, match="another checkpoint"):
        one.recovery_permit(stale)


def test_the_older_daemon_is_superseded_and_told_by_whom() -> None:
    storage = FakeStorage()
    older = owned(storage)
    owned(storage, OTHER)
    with pytest.raises(Superseded, match="process 22 on host-b, attempt 2") as caught:
        older.append_checkpoint(completed(1))
    assert caught.value.fields == {"attempt": 2, "host": "host-b", "pid": 22}
    with pytest.raises(RuntimeError, match="does not own the journal"):
        older.append_checkpoint(completed(1))


class FailingReads(FakeStorage):
    """`get` answers so many times, then it raises."""

    def __init__(self, shared: SharedObjects, answers: int, error: StorageError) -> None:
        super().__init__(shared)
        self._answers = answers
        self._error = error

    def get(self, name: str) -> bytes:
        self._answers -= 1
        if self._answers < 0:
            raise self._error
        return super().get(name)


@pytest.mark.parametrize("answers", [0, 1, 2])
def test_the_older_daemon_is_superseded_when_the_other_ones_entry_is_cleaned_up_meanwhile(answers: int) -> None:
    shared = SharedObjects()
    storage = FailingReads(shared, answers, ObjectMissing("memory: cleaned up"))
    older = owned(storage)
    owned(FakeStorage(shared), OTHER)
    with pytest.raises(Superseded):
        older.append_checkpoint(completed(1))


def test_a_place_that_was_taken_by_nobody_knows_whom_leaves_only_a_takeover() -> None:
    shared = SharedObjects()
    older = owned(FailingReads(shared, 1, StorageError("memory: input/output error")))
    owned(FakeStorage(shared), OTHER)
    with pytest.raises(AppendUnsettled, match="it could not be determined by whom: memory: input/output error"):
        older.append_checkpoint(completed(1))


def test_a_takeover_that_meets_another_entry_reads_again() -> None:
    shared = SharedObjects()
    running, late = owned(FakeStorage(shared)), FakeStorage(shared)
    raced: list[str] = []

    def race(name: str) -> None:
        if not raced:
            raced.append(name)
            running.append_checkpoint(completed(1))

    late.before_put = race
    state = journal(late, OTHER).take_over(IDENTITY, 2)
    assert raced == ["journal/000000000001.json"]
    assert (state.newest_checkpoint, state.attempt, state.next_sequence) == (completed(1), 2, 3)


def test_a_removed_entry_that_a_zombie_creates_again_decides_nothing() -> None:
    shared = SharedObjects()
    zombie = owned(FakeStorage(shared))
    newer = owned(FakeStorage(shared), OTHER, retained=1)
    for number in (6, 7, 8):
        newer.append_checkpoint(completed(number, attempt=2))
        newer.clean_up()
    assert journal_name(JournalSequence(1)) not in shared.objects
    with pytest.raises(Superseded, match="host-b"):
        zombie.append_checkpoint(completed(1))
    assert journal_name(JournalSequence(1)) in shared.objects
    state = journal(FakeStorage(shared)).read()
    assert state.newest_checkpoint == completed(8, attempt=2)
    newer.append_checkpoint(completed(9, attempt=2))
    newer.clean_up()
    assert entries(FakeStorage(shared)) == [journal_name(JournalSequence(5))]


@pytest.mark.parametrize("fault", [Fault.REFUSED, Fault.UNKNOWN])
def test_an_append_without_an_answer_is_settled_by_trying_again(fault: Fault) -> None:
    storage = FakeStorage()
    one = owned(storage)
    storage.faults = [fault]
    assert one.append_checkpoint(completed(1)).sequence == 1
    assert storage.happened == [fault]
    assert journal(storage).read().newest_checkpoint == completed(1)


def test_a_failed_append_leaves_the_place_to_the_next_one() -> None:
    storage = FakeStorage()
    one = owned(storage)
    storage.faults = [Fault.REFUSED, Fault.REFUSED]
    with pytest.raises(StorageError):
        one.append_checkpoint(completed(1))
    assert one.append_checkpoint(completed(2)).sequence == 1
    assert one.state.newest_checkpoint == completed(2)


@pytest.mark.parametrize("fault", [Fault.UNKNOWN, Fault.LATE])
def test_an_append_that_worked_after_all_is_noticed_by_the_next(fault: Fault) -> None:
    storage = FakeStorage()
    one = owned(storage)
    storage.faults = [fault, fault]
    with pytest.raises(StorageError):
        one.append_checkpoint(completed(1))
    storage.shared.land()
    with pytest.raises(AppendUnsettled, match="has succeeded"):
        one.append_checkpoint(completed(2))
    state = one.take_over(IDENTITY, 5)
    assert state.newest_checkpoint == completed(1)


def test_an_append_that_cannot_be_confirmed_is_unsettled_until_a_takeover() -> None:
    storage = FakeStorage()
    one = owned(storage)
    storage.faults = [Fault.BLIND]
    with pytest.raises(AppendUnsettled, match="could not be determined whether it still counts"):
        one.append_checkpoint(completed(1))
    with pytest.raises(RuntimeError, match="does not own the journal"):
        one.append_checkpoint(completed(2))
    assert one.take_over(IDENTITY, 5).newest_checkpoint == completed(1)


def test_C31_the_newest_are_retained_and_the_rest_is_deleted_afterwards() -> None:
    storage = FakeStorage()
    one = owned(storage, retained=2)
    for number in (1, 2, 3):
        storage.put(handle(number).path, b"x")
        one.append_checkpoint(completed(number, states=[handle(number)]))
        assert handle(max(1, number - 1)).path in storage.shared.objects
        one.clean_up()
    assert storage.list("state/") == [handle(2).path, handle(3).path]
    assert entries(storage) == [journal_name(JournalSequence(2)), journal_name(JournalSequence(3))]
    assert [entry.checkpoint.id for entry in journal(storage).read().retained] == [2, 3]


def test_C31_a_crash_between_adding_and_removing_leaves_one_too_many() -> None:
    storage = FakeStorage()
    one = owned(storage, retained=1)
    one.append_checkpoint(completed(1))
    one.append_checkpoint(completed(2))
    assert len(entries(storage)) == 3
    state = journal(storage, OTHER).read()
    assert state.newest_checkpoint == completed(2)
    second = owned(storage, OTHER, retained=1)
    second.clean_up()
    assert entries(storage) == [journal_name(JournalSequence(2)), journal_name(JournalSequence(3))]


def test_C31_the_newest_checkpoint_survives_any_number_of_takeovers() -> None:
    storage = FakeStorage()
    owned(storage, retained=1).append_checkpoint(completed(1))
    again = journal(storage, retained=1)
    for _ in range(5):
        again.take_over(IDENTITY, 2)
        again.clean_up()
    assert again.state.newest_checkpoint == completed(1)
    assert journal(storage).read() == again.state


def test_state_that_a_retained_checkpoint_shares_is_kept() -> None:
    storage = FakeStorage()
    one = owned(storage, retained=1)
    storage.put(handle(1).path, b"x")
    one.append_checkpoint(completed(1, states=[handle(1)]))
    one.append_checkpoint(completed(2, states=[handle(1), handle(2)]))
    one.clean_up()
    assert handle(1).path in storage.shared.objects


def test_C30_a_crash_between_state_and_journal_leaves_garbage_that_recovery_sweeps() -> None:
    storage = FakeStorage()
    one = owned(storage)
    storage.put(handle(1).path, b"kept")
    one.append_checkpoint(completed(1, states=[handle(1)]))
    storage.put(handle(2).path, b"garbage")
    second = owned(storage, OTHER)
    storage.put(handle(second.state.reserved_to).path, b"of the new attempt")
    assert second.state.newest_checkpoint == completed(1, states=[handle(1)])
    assert second.sweep_orphans() == 1
    assert storage.list("state/") == [handle(1).path, handle(second.state.reserved_to).path]


def test_C30_what_this_daemon_has_left_itself_is_swept_once_its_attempts_have_ended() -> None:
    storage = FakeStorage()
    one = owned(storage)
    last = one.state.reserved_to
    for number in (last, last + 1):
        storage.put(handle(number).path, b"garbage")
    assert one.sweep_orphans() == 0
    assert one.sweep_orphans(own=True) == 1
    assert storage.list("state/") == [handle(last + 1).path]


def test_what_the_attempt_has_taken_over_is_in_the_entries_of_its_checkpoints() -> None:
    storage, step = FakeStorage(), OperatorName("totals")
    one = owned(storage)
    one.adopt(Upgrade(applied_directives={step: ("keep",)}, begun={step: {"y": CheckpointId(7)}}))
    one.append_checkpoint(completed(1))
    identity = journal(storage).read().identity
    assert identity is not None
    assert (identity.applied_directives, identity.begun) == ({step: ("keep",)}, {step: {"y": 7}})


def test_a_takeover_ends_the_restore_of_a_daemon_that_died_at_it() -> None:
    """Else its savepoint could never be deleted without --force."""
    storage = FakeStorage()
    storage.put("restoring/1234", b"file:///savepoint")
    owned(storage).sweep_orphans()
    assert storage.list("restoring/") == []


def test_F12_after_a_completion_recovery_never_goes_back_behind_it() -> None:
    storage = FakeStorage()
    one = owned(storage)
    one.append_checkpoint(completed(1))
    one.append_checkpoint(completed(2))
    for _ in range(3):
        assert owned(storage, OTHER).state.newest_checkpoint == completed(2)


def test_checkpoint_ids_cannot_go_back() -> None:
    one = owned(FakeStorage())
    one.append_checkpoint(completed(4))
    with pytest.raises(JournalRefused, match="checkpoint 4 does not follow checkpoint 4"):
        one.append_checkpoint(completed(4))


def test_a_swapped_entry_is_refused() -> None:
    storage = FakeStorage()
    owned(storage).append_checkpoint(completed(1))
    storage.put(journal_name(JournalSequence(1)), storage.get(journal_name(JournalSequence(0))))
    with pytest.raises(ObjectCorrupt, match=r"journal/000000000001.json holds entry 0"):
        journal(storage).read()


def test_an_unknown_format_version_is_refused_by_name() -> None:
    body = b'{"entry":"takeover","format_version":2,"new":"field"}'
    with pytest.raises(JournalRefused, match=r"journal/000000000007.json has format version 2"):
        decode_entry(JournalSequence(7), seal(body))


def test_sealed_bytes_that_are_no_entry_are_refused() -> None:
    with pytest.raises(ObjectCorrupt, match="not a journal entry"):
        decode_entry(JournalSequence(0), seal(b'{"format_version":1}'))
    with pytest.raises(ObjectCorrupt, match="not a journal entry"):
        decode_entry(JournalSequence(0), seal(b"\xff"))


def takeover(sequence: int, attempt: int, reserved_to: int = 5) -> Takeover:
    return Takeover(
        format_version=FORMAT_VERSION,
        sequence=JournalSequence(sequence),
        floor=JournalSequence(0),
        attempt=Attempt(attempt),
        writer=ME,
        reserved_to=CheckpointId(reserved_to),
        identity=IDENTITY,
        at_ms=1,
        journal="token-me",
        first_checkpoint=CheckpointId(1),
    )


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (takeover(1, 1), "taken a second time"),
        (takeover(1, 0), "attempt 1 had begun"),
        (takeover(1, 2, reserved_to=4), "ids go back from 5 to 4"),
    ],
)
def test_entries_that_contradict_one_another_are_refused(second: Takeover, problem: str) -> None:
    with pytest.raises(JournalRefused, match=problem):
        derive([(JournalSequence(0), takeover(0, 1)), (JournalSequence(1), second)])


def test_the_order_of_reading_does_not_matter() -> None:
    pair = [(JournalSequence(0), takeover(0, 1)), (JournalSequence(1), takeover(1, 2))]
    assert derive(pair) == derive(pair[::-1])
    assert derive(pair).attempt == 2


def test_an_entry_survives_its_bytes() -> None:
    assert decode_entry(JournalSequence(0), encode_entry(takeover(0, 1))) == takeover(0, 1)


def test_of_many_daemons_on_one_directory_only_one_decides_at_each_place(tmp_path: Path) -> None:
    start = threading.Barrier(4)
    decided: list[tuple[JournalSequence, str]] = []

    def contend(number: int) -> None:
        writer = Writer(f"token-{number}", "host", number)
        one = journal(LocalStorage(str(tmp_path)), writer, retained=100)
        start.wait(timeout=60)
        for _ in range(10):
            with contextlib.suppress(Superseded):
                state = one.take_over(IDENTITY, 1)
                first = decide_restore(state, FACTS).first_checkpoint
                appended = one.append_checkpoint(completed(first, attempt=state.attempt))
                decided.append((appended.sequence, writer.token))

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    storage = LocalStorage(str(tmp_path))
    recorded = {}
    for name in storage.list("journal/"):
        sequence = journal_sequence(name)
        assert sequence is not None
        entry = decode_entry(sequence, storage.get(name))
        if isinstance(entry, CheckpointEntry):
            recorded[sequence] = entry.writer.token
    assert decided
    assert len({sequence for sequence, _ in decided}) == len(decided)
    assert dict(decided).items() <= recorded.items()


@pytest.mark.parametrize(("retained", "reserve"), [(0, 1), (1, 0)])
def test_a_journal_that_keeps_nothing_is_refused(retained: int, reserve: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Journal(FakeStorage(), ME, retained=retained, id_reserve=reserve)


def test_a_superseded_daemon_does_not_take_the_pipeline_back() -> None:
    """Its attempt fails when its slots are gone; a takeover then would turn two daemons into a game of ping-pong."""
    storage = FakeStorage()
    older = owned(storage)
    newer = owned(storage, OTHER)
    with pytest.raises(Superseded, match="superseded by"):
        older.take_over(IDENTITY, 2)
    newer.append_checkpoint(completed(1, attempt=newer.state.attempt))
    assert newer.take_over(IDENTITY, 3).attempt == 3


def test_X07_files_of_two_directories_do_not_make_one_journal() -> None:
    here, there = FakeStorage(), FakeStorage()
    for storage, writer in ((here, ME), (there, OTHER)):
        journal = Journal(storage, writer, retained=2, id_reserve=5)
        journal.take_over(IDENTITY, 1)
        journal.append_checkpoint(completed(1))
        journal.append_checkpoint(completed(2))
    name = journal_name(JournalSequence(2))
    here.shared.objects[name] = there.shared.objects[name]
    with pytest.raises(JournalRefused, match="it is of journal token-ot, but this is token-me"):
        Journal(here, ME, retained=2, id_reserve=5).read()
