"""Whose a pipeline is: a lost directory, a second one, an old copy, each against what Kafka remembers."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, completed
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.journal_state import EMPTY, JournalState
from tidegate.coordinator.ownership import (
    Known,
    OwnerRecord,
    OwnershipConflict,
    decide_owner,
    decide_still_owner,
    derive_newest_record,
    derive_record,
    encode_record,
    refuse_repeated,
)
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.restore_target import RestoreTarget, derive_chosen
from tidegate.errors import Superseded
from tidegate.ids import Attempt, CheckpointId, TransactionalId
from tidegate.journal.journal import NOTHING_USED, Journal, Used

PLACE = "file:///checkpoints"
THIRD = Writer("third-third-third", "host-c", 33)


def daemon(
    storage: FakeStorage, writer: Writer = ME, above: Used = NOTHING_USED, replaced: tuple[str, ...] = ()
) -> Journal:
    """One that has taken its directory over."""
    journal = Journal(storage, writer, retained=2, id_reserve=5)
    journal.take_over(IDENTITY, 1, above, replaced)
    return journal


def after(checkpoints: int, storage: FakeStorage | None = None, writer: Writer = ME) -> JournalState:
    """A directory in which so many checkpoints were completed."""
    journal = daemon(storage or FakeStorage(), writer)
    first = journal.state.reserved_to - 4
    for number in range(first, first + checkpoints):
        journal.append_checkpoint(completed(number, attempt=journal.state.attempt))
    return journal.state


def known(record: OwnerRecord | None) -> Known:
    return Known(record=record, mirrored=record is not None)


def replace(record: OwnerRecord, **changes: object) -> OwnerRecord:
    return msgspec.structs.replace(record, **changes)


def test_a_name_that_kafka_does_not_know_is_new() -> None:
    assert decide_owner(EMPTY, Known(), place=PLACE, consent=False) == ()


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            known(derive_record(after(3))),
            "the record of journal token-me, attempt 1, checkpoint 3, process 11 on host-a",
        ),
        (Known(mirrored=True), "its consumer group has offsets"),
        (
            Known(ids=(TransactionalId("shop.out.0.1-j.0"),), journals=("j",)),
            r"transactional ids of it \(shop.out.0.1-j.0\)",
        ),
    ],
    ids=["record", "offsets", "ids"],
)
def test_X03_an_empty_directory_of_a_pipeline_that_kafka_knows_is_refused(found: Known, told: str) -> None:
    with pytest.raises(OwnershipConflict, match=told) as refused:
        decide_owner(EMPTY, found, place=PLACE, consent=False)
    assert refused.value.exit_code == 4
    for part in (PLACE, "mount the volume", "--restore PATH --repeat-output", "--begin-anew"):
        assert part in refused.value.message
    decide_owner(EMPTY, found, place=PLACE, consent=True)


def test_the_own_record_is_no_hindrance_however_old_it_is() -> None:
    state = after(3)
    now = derive_record(state)
    for record in (now, replace(now, checkpoint=CheckpointId(1)), replace(now, attempt=Attempt(0), writer="another")):
        assert decide_owner(state, known(record), place=PLACE, consent=False) == ()


def test_X03_an_old_copy_of_the_directory_is_refused() -> None:
    """Restored from a backup, or copied while the pipeline ran on."""
    newest = derive_record(after(5))
    with pytest.raises(OwnershipConflict, match=r"old copy.*--restore ID --repeat-output"):
        decide_owner(after(3), known(newest), place=PLACE, consent=False)
    decide_owner(after(3), known(newest), place=PLACE, consent=True)


def test_X03_a_copy_that_went_its_own_way_is_refused() -> None:
    """Both have the same journal and the same number of attempts."""
    first, copy = FakeStorage(), FakeStorage()
    after(2, first)
    copy.shared.objects.update(first.shared.objects)
    ours, theirs = after(1, first, OTHER), after(1, copy, THIRD)
    assert (ours.journal, ours.attempt) == (theirs.journal, theirs.attempt)
    with pytest.raises(OwnershipConflict, match="old copy"):
        decide_owner(ours, known(derive_record(theirs)), place=PLACE, consent=False)


def test_X03_a_directory_whose_pipeline_went_on_elsewhere_is_refused() -> None:
    elsewhere = derive_record(after(1, writer=OTHER))
    with pytest.raises(OwnershipConflict, match=r"continued from another checkpoint directory.*host-b"):
        decide_owner(after(3), known(elsewhere), place=PLACE, consent=False)
    assert decide_owner(after(3), known(elsewhere), place=PLACE, consent=True) == (elsewhere.journal,)


def test_X03_who_begins_anew_is_known_as_the_follower_and_the_first_one_stops() -> None:
    """Its numbers continue above the others, so that its record is the newest whatever partitions still say."""
    first = derive_record(after(7))
    replaced = decide_owner(EMPTY, known(first), place=PLACE, consent=True)
    anew = daemon(FakeStorage(), OTHER, Used(first.attempt, first.checkpoint), replaced).state
    second = derive_record(anew)
    assert second.attempt > first.attempt
    assert decide_owner(anew, known(first), place=PLACE, consent=False) == ()
    decide_still_owner(second, anew.replaces, first)
    with pytest.raises(Superseded, match=r"another checkpoint directory.*host-b") as stopped:
        decide_still_owner(first, (), second)
    assert stopped.value.exit_code == 5
    assert derive_newest_record([encode_record(first), "", encode_record(second)]) == second


def test_X03_what_is_replaced_is_remembered_by_later_entries_and_daemons() -> None:
    storage = FakeStorage()
    journal = daemon(storage, OTHER, replaced=("aaaa", "bbbb"))
    for number in range(journal.state.reserved_to - 4, journal.state.reserved_to):
        journal.append_checkpoint(completed(number, attempt=1))
        journal.clean_up()
    assert Journal(storage, ME, retained=2, id_reserve=5).read().replaces == ("aaaa", "bbbb")
    assert daemon(storage, ME).state.replaces == ("aaaa", "bbbb")


def test_while_running_only_a_stranger_or_a_newer_attempt_ends_it() -> None:
    own = derive_record(after(3))
    for fine in (None, own, replace(own, attempt=Attempt(0), writer="x"), replace(own, checkpoint=CheckpointId(99))):
        decide_still_owner(own, (), fine)
    for other in (replace(own, attempt=Attempt(2)), replace(own, writer="x"), replace(own, journal="other")):
        with pytest.raises(Superseded):
            decide_still_owner(own, (), other)


def test_without_a_record_open_transactions_of_another_directory_are_a_running_daemon() -> None:
    """The consumer group may not be read: then nobody fences the other in turns."""
    state = after(3)
    running = Known(open_journals=(state.journal, "0a1b2c3d"), journals=("0a1b2c3d", state.journal))
    with pytest.raises(OwnershipConflict, match=r"journal 0a1b2c3d.*does another daemon run\?"):
        decide_owner(state, running, place=PLACE, consent=False)
    assert decide_owner(state, running, place=PLACE, consent=True) == ("0a1b2c3d",)
    mine = msgspec.structs.replace(running, open_journals=(state.journal,))
    assert decide_owner(state, mine, place=PLACE, consent=False) == ()


# A wish that a supervisor repeats at every start


SAVED = RestoreTarget("savepoint /s", "savepoint t", completed(1), IDENTITY, retained=False)


def begun_from(target: RestoreTarget, writer: Writer = ME) -> JournalState:
    """A directory whose pipeline has continued from this one."""
    journal = daemon(FakeStorage(), writer)
    restore = decide_restore(journal.state, RestoreFacts(IDENTITY, {}, frozenset()))
    journal.append_restored(restore, derive_chosen(target, IDENTITY), 5)
    return journal.state


def test_the_record_says_by_what_the_history_was_begun() -> None:
    assert derive_record(begun_from(SAVED)).origin == "savepoint t"


@pytest.mark.parametrize(
    ("state", "told"),
    [(EMPTY, f"{PLACE} is empty, but"), (after(1), f"{PLACE} has no record of it, but")],
    ids=["empty", "another"],
)
def test_X03_a_savepoint_is_not_taken_twice_by_directories_that_know_nothing_of_each_other(
    state: JournalState, told: str
) -> None:
    record = derive_record(begun_from(SAVED, OTHER))
    with pytest.raises(OwnershipConflict) as refused:
        refuse_repeated(state, known(record), SAVED, place=PLACE)
    assert refused.value.message.startswith(f"{told} the pipeline has continued from savepoint /s before: its consumer")
    assert str(record) in refused.value.message
    assert refused.value.fields["place"] == PLACE


def test_a_wish_is_not_refused_by_its_own_directory_nor_by_the_record_of_another_wish() -> None:
    state = begun_from(SAVED)
    record = derive_record(state)
    refuse_repeated(state, known(record), SAVED, place=PLACE)
    for found in (None, replace(record, origin=""), replace(record, origin="checkpoint 1")):
        refuse_repeated(EMPTY, known(found), SAVED, place=PLACE)


@pytest.mark.parametrize("text", ["", "x", "{}", '{"tidegate":{"journal":1}}', '{"tidegate":null}', "\x00"])
def test_texts_of_others_are_no_records(text: str) -> None:
    assert derive_newest_record([text]) is None


def test_a_directory_without_a_checkpoint_claims_none_and_knows_less_than_one_that_has_the_first() -> None:
    state = daemon(FakeStorage()).state
    assert derive_record(state).checkpoint == 0
    with pytest.raises(OwnershipConflict, match="further along"):
        decide_owner(state, known(replace(derive_record(state), checkpoint=1)), place=PLACE, consent=False)
