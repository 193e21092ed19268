"""What entries say together: floors, contradictions and whom a refusal names, and what each has to say again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, handle
from tidegate.coordinator.entries import FORMAT_VERSION, AnyEntry, CheckpointEntry, EndedEntry, JournalRefused, Takeover
from tidegate.coordinator.journal_state import JournalState, derive
from tidegate.coordinator.recovery import Chosen, RestoreFacts, decide_restore
from tidegate.errors import Superseded
from tidegate.ids import Attempt, CheckpointId, JournalSequence, OperatorName
from tidegate.journal.journal import Journal, JournalLost
from tidegate.storage.names import journal_name

FACTS = RestoreFacts(IDENTITY, {}, frozenset({OperatorName("totals")}))


def common(sequence: int, floor: int, attempt: int = 1) -> dict[str, Any]:
    return {
        "format_version": FORMAT_VERSION,
        "sequence": JournalSequence(sequence),
        "floor": JournalSequence(floor),
        "attempt": Attempt(attempt),
        "writer": ME,
        "reserved_to": CheckpointId(9),
        "identity": IDENTITY,
        "at_ms": 1,
        "journal": "j",
    }


def takeover(sequence: int, floor: int = 0, attempt: int = 1) -> Takeover:
    return Takeover(**common(sequence, floor, attempt), first_checkpoint=CheckpointId(1))


def checkpoint(sequence: int, number: int, floor: int = 0) -> CheckpointEntry:
    return CheckpointEntry(**common(sequence, floor), checkpoint=completed(number))


def ended(sequence: int, number: int, floor: int = 0) -> EndedEntry:
    return EndedEntry(**common(sequence, floor), ended=CheckpointId(number))


def fold(*entries: AnyEntry) -> JournalState:
    return derive([(entry.sequence, entry) for entry in entries])


def test_C31_the_floor_never_leaves_the_newest_checkpoint_behind() -> None:
    state = fold(takeover(0), checkpoint(1, 1), checkpoint(2, 2), checkpoint(3, 3))
    assert [state.floor_with(added, retained) for added, retained in ((0, 0), (0, 1), (1, 2), (1, 1))] == [3, 3, 3, 4]


@pytest.mark.parametrize("retained", [1, 2, 3])
def test_the_end_of_the_newest_checkpoint_is_recorded_at_any_floor_up_to_it(retained: int) -> None:
    entries = takeover(0), checkpoint(1, 1), checkpoint(2, 2), checkpoint(3, 3)
    state = fold(*entries, ended(4, 3, floor=4 - retained))
    assert (state.ended, len(state.retained)) == (3, retained)


@pytest.mark.parametrize("wrong", [ended(3, 1), ended(3, 3), ended(3, 2, floor=3)])
def test_what_ends_another_checkpoint_or_leaves_the_newest_behind_is_refused(wrong: EndedEntry) -> None:
    with pytest.raises(JournalRefused, match="which is not the newest") as caught:
        fold(takeover(0), checkpoint(1, 1), checkpoint(2, 2), wrong)
    assert caught.value.fields["name"] == journal_name(JournalSequence(3))


def test_what_ends_a_checkpoint_before_there_is_one_is_refused() -> None:
    with pytest.raises(JournalRefused, match="which is not the newest"):
        fold(takeover(0), ended(1, 1))


def test_a_refusal_names_the_newest_entry_that_cannot_be_read() -> None:
    entries = [takeover(0), takeover(3, attempt=2)]
    with pytest.raises(JournalRefused, match="there is no checkpoint after") as caught:
        derive([(entry.sequence, entry) for entry in entries], [JournalSequence(1), JournalSequence(2)])
    assert caught.value.fields["name"] == journal_name(JournalSequence(2))


def test_each_entry_says_again_what_later_ones_need() -> None:
    """Older entries are removed, so what only they said would be forgotten."""
    one = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    plan = decide_restore(one.take_over(IDENTITY, 1, replaced=["older"]), FACTS)
    one.append_restored(plan, Chosen(completed(1, committables=[committable(1)]), IDENTITY, "savepoint t"), 2)
    one.append_ended(CheckpointId(1), 3)
    state = one.state
    assert isinstance(state.newest, EndedEntry)
    assert (state.newest.replaces, state.newest.origin) == (("older",), "savepoint t")
    assert (state.replaces, state.origin, state.journal) == (("older",), "savepoint t", ME.token)


def test_C31_the_end_of_transactions_costs_no_retained_checkpoint() -> None:
    one = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    one.take_over(IDENTITY, 1)
    for number in (1, 2, 3):
        one.append_checkpoint(completed(number, committables=[committable(number)]))
    one.append_ended(CheckpointId(3), 3)
    assert [entry.checkpoint.id for entry in one.state.retained] == [2, 3]


def test_the_end_of_a_checkpoint_is_not_recorded_once_it_is_no_longer_the_newest() -> None:
    """The transactions of a newer one are not ended."""
    one = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    one.take_over(IDENTITY, 1)
    for number in (1, 2):
        one.append_checkpoint(completed(number, committables=[committable(number)]))
    one.append_ended(CheckpointId(1), 3)
    assert one.state.committables == (committable(2),)


def test_the_permit_for_leaving_is_of_what_the_newest_checkpoint_has_open() -> None:
    one = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    assert one.release_permit() is None
    one.take_over(IDENTITY, 1)
    assert one.release_permit() is None
    one.append_checkpoint(completed(1, committables=[committable(1)]))
    permit = one.release_permit()
    assert permit is not None
    assert (permit.checkpoint, permit.committables) == (1, (committable(1),))
    one.append_ended(CheckpointId(1), 2)
    assert one.release_permit() is None


def test_who_has_lost_the_journal_has_no_permit_any_more() -> None:
    storage = FakeStorage()
    one = Journal(storage, ME, retained=2, id_reserve=5)
    one.take_over(IDENTITY, 1)
    one.append_checkpoint(completed(1, committables=[committable(1)]))
    plan = decide_restore(one.state, FACTS)
    Journal(storage, OTHER, retained=2, id_reserve=5).take_over(IDENTITY, 2)
    with pytest.raises(Superseded):
        one.append_checkpoint(completed(2))
    assert one.release_permit() is None
    with pytest.raises(RuntimeError, match="does not own"):
        one.recovery_permit(plan)


def test_the_salvage_repeats_the_newest_of_several_checkpoints_with_its_own_stamps() -> None:
    one = Journal(FakeStorage(), ME, retained=3, id_reserve=5)
    one.take_over(IDENTITY, 1)
    for number in (1, 2, 3):
        one.append_checkpoint(completed(number, states=[handle(number)]))
    plan = decide_restore(one.take_over(IDENTITY, 2), FACTS)
    one.append_salvaged(plan, (), 99)
    again = one.state.newest_checkpoint
    assert again is not None
    assert (again.states, again.triggered_at_ms, again.completed_at_ms) == ((handle(3),), 99, 99)


def test_C30_a_sweep_takes_state_up_to_the_last_id_of_older_attempts_and_none_of_its_own() -> None:
    storage = FakeStorage()
    Journal(storage, ME, retained=2, id_reserve=5).take_over(IDENTITY, 1)
    storage.put(handle(5).path, b"of the last id that was reserved")
    other = Journal(storage, OTHER, retained=2, id_reserve=5)
    assert other.clean_up() == 0
    other.take_over(IDENTITY, 2)
    storage.put(handle(6).path, b"of the first id of this attempt")
    assert other.sweep_orphans() == 1
    assert storage.list("state/") == [handle(6).path]


@pytest.mark.parametrize("pending", [True, False])
def test_C31_a_clean_up_keeps_what_a_pending_checkpoint_lists(pending: bool) -> None:
    storage, shared = FakeStorage(), handle(1)
    one = Journal(storage, ME, retained=1, id_reserve=5)
    one.take_over(IDENTITY, 1)
    storage.put(shared.path, b"the base of an increment")
    one.append_checkpoint(completed(1, states=[shared]))
    one.append_checkpoint(completed(2))
    one.clean_up(frozenset({shared.path} if pending else ()))
    assert storage.list("state/") == ([shared.path] if pending else [])


class Vanishing(FakeStorage):
    """A directory that is gone as soon as something was written, as when a volume is unmounted."""

    def put_if_absent(self, name: str, data: bytes) -> bool:
        created = super().put_if_absent(name, data)
        self.shared.objects.clear()
        return created


def test_X03_an_append_behind_which_nothing_is_left_decides_nothing() -> None:
    storage = FakeStorage()
    Journal(storage, OTHER, retained=2, id_reserve=5).take_over(IDENTITY, 1)
    with pytest.raises(Superseded):
        Journal(Vanishing(storage.shared), ME, retained=2, id_reserve=5).take_over(IDENTITY, 2)


def test_X03_the_second_entry_needs_the_first_one() -> None:
    storage = FakeStorage()
    one = Journal(storage, ME, retained=2, id_reserve=5)
    one.take_over(IDENTITY, 1)
    storage.delete(journal_name(JournalSequence(0)))
    with pytest.raises(JournalLost):
        one.append_checkpoint(completed(1))


class CleanedUp(FakeStorage):
    """The newest entry is replaced by a newer one between a listing and the reading of what was listed."""

    after_listing: Callable[[], object] | None = None

    def list(self, prefix: str) -> list[str]:
        found = super().list(prefix)
        act, self.after_listing = self.after_listing, None
        if act is not None:
            act()
        return found


def test_entries_that_are_cleaned_up_while_they_are_read_make_it_read_again() -> None:
    storage = FakeStorage()
    newer = Journal(storage, OTHER, retained=1, id_reserve=5)
    newer.take_over(IDENTITY, 1)

    def go_on() -> None:
        newer.append_checkpoint(completed(1))
        newer.clean_up()

    slow = CleanedUp(storage.shared)
    slow.after_listing = go_on
    assert Journal(slow, ME, retained=1, id_reserve=5).read().newest == newer.state.newest


def test_a_journal_that_begins_while_it_is_looked_for_is_read() -> None:
    storage = FakeStorage()
    newer = Journal(storage, OTHER, retained=1, id_reserve=5)

    def begin() -> None:
        newer.take_over(IDENTITY, 1)
        storage.put(handle(1).path, b"of the other daemon")

    slow = CleanedUp(storage.shared)
    slow.after_listing = begin
    assert Journal(slow, ME, retained=1, id_reserve=5).read().newest == newer.state.newest


def test_the_plan_of_a_restore_names_the_journal_for_transactional_ids() -> None:
    state = Journal(FakeStorage(), ME, retained=1, id_reserve=5).take_over(IDENTITY, 1)
    assert decide_restore(state, FACTS).journal == state.journal == ME.token
