"""Continuing from something else than the newest checkpoint: when it is consistent, when it must be asked for."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, committable, completed, handle, on_cluster, positions
from tidegate.committable import Committable
from tidegate.coordinator.entries import Savepoint
from tidegate.coordinator.journal_state import EMPTY, JournalState
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.recovery import (
    Chosen,
    RestoreFacts,
    RestoreRefused,
    decide_chosen,
    decide_restore,
    merge_positions,
)
from tidegate.coordinator.restore_target import (
    RestoreTarget,
    TransactionStatus,
    carry_positions,
    decide_fallback,
    derive_asked,
    derive_candidates,
    derive_chosen,
    derive_newer,
    derive_saved,
    describe_output,
    find_retained,
    refuse_missing_partitions,
    validate_restore_target,
)
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import Attempt, CheckpointId, OperatorName
from tidegate.journal.journal import NOTHING_USED, Journal, Used

FACTS = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 2}}, frozenset({OperatorName("totals")}))


def cut(number: int, first: int, second: int, *committables: Committable) -> CompletedCheckpoint:
    at = [positions("orders", {"orders": {0: first, 1: second}})]
    return completed(number, at=at, states=[handle(number)], committables=committables)


def owned(*checkpoints: CompletedCheckpoint) -> Journal:
    journal = Journal(FakeStorage(), ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    for checkpoint in checkpoints:
        journal.append_checkpoint(checkpoint)
    return journal


def saved(number: int, first: int, second: int) -> RestoreTarget:
    return RestoreTarget("savepoint /s", "savepoint t", cut(number, first, second), IDENTITY, retained=False)


ONE, TWO, THREE = (committable(number, producer_id=100 + number, pool_slot=number) for number in (1, 2, 3))


# Somebody's choice


def test_C32_only_retained_checkpoints_can_be_chosen_and_the_error_lists_them() -> None:
    state = owned(cut(1, 1, 1), cut(2, 2, 2), cut(3, 3, 3), cut(4, 4, 4)).state
    assert find_retained(state, CheckpointId(2)).checkpoint.id == 2
    with pytest.raises(RestoreRefused, match=r"checkpoint 1 is not retained \(there are: 2, 3, 4\)"):
        find_retained(state, CheckpointId(1))
    with pytest.raises(RestoreRefused, match=r"checkpoint 1 does not exist, and neither does any other: .* is mounted"):
        find_retained(EMPTY, CheckpointId(1))


def test_going_back_is_refused_with_the_number_of_records_that_would_be_written_again() -> None:
    state = owned(cut(1, 10, 20), cut(2, 1_010, 525)).state
    target = find_retained(state, CheckpointId(1))
    with pytest.raises(RestoreRefused, match="checkpoint 1 is 1,505 input records before the newest checkpoint, 2"):
        validate_restore_target(state, target, repeat_output=False)
    assert validate_restore_target(state, target, repeat_output=True)


@pytest.mark.parametrize("number", [1, 2])
def test_the_same_cut_is_consistent_without_being_asked_for(number: int) -> None:
    state = owned(cut(1, 10, 20), cut(2, 10, 20)).state
    assert validate_restore_target(state, find_retained(state, CheckpointId(number)), repeat_output=False)


def test_what_is_chosen_is_not_chosen_again_at_the_next_start() -> None:
    journal = owned(cut(1, 10, 20), cut(2, 10, 20))
    target = find_retained(journal.state, CheckpointId(1))
    restore(journal, derive_chosen(target, IDENTITY))
    assert journal.state.origin == "checkpoint 1"
    assert not validate_restore_target(journal.state, target, repeat_output=True)
    journal.append_checkpoint(cut(journal.state.reserved_to, 50, 60))
    later = journal.take_over(IDENTITY, 9)
    assert later.origin == "checkpoint 1"
    assert not validate_restore_target(later, target, repeat_output=True)
    assert validate_restore_target(later, find_retained(later, CheckpointId(2)), repeat_output=True)


def test_a_savepoint_in_a_new_directory_must_be_asked_for() -> None:
    with pytest.raises(RestoreRefused, match="it cannot be known what was committed after it"):
        validate_restore_target(EMPTY, saved(7, 10, 20), repeat_output=False)
    assert validate_restore_target(EMPTY, saved(7, 10, 20), repeat_output=True)


def test_a_savepoint_that_was_made_of_rows_begins_a_pipeline_unasked_on_any_cluster() -> None:
    nowhere = msgspec.structs.replace(IDENTITY, pipeline="other", clusters={}, sources={}, sinks={})
    made = Savepoint(1, "t" * 16, 0, nowhere, cut(1, 10, 20), from_rows=True)
    target = derive_saved("/s", made, IDENTITY)
    assert (target.identity.pipeline, target.origin) == ("shop", f"savepoint {made.token}")
    assert validate_restore_target(EMPTY, target, repeat_output=False)
    elsewhere = msgspec.structs.replace(
        made, identity=msgspec.structs.replace(nowhere, clusters=on_cluster({}, "elsewhere"))
    )
    assert derive_saved("/s", elsewhere, IDENTITY).identity.clusters == on_cluster({}, "elsewhere")
    taken = derive_saved("/s", msgspec.structs.replace(made, from_rows=False), IDENTITY)
    with pytest.raises(RestoreRefused, match="it cannot be known what was committed after it"):
        validate_restore_target(EMPTY, taken, repeat_output=False)
    with pytest.raises(RestoreRefused, match="is 20 input records before the newest checkpoint"):
        validate_restore_target(owned(cut(2, 20, 30)).state, target, repeat_output=False)


@pytest.mark.parametrize(
    ("first", "second", "before", "ahead"),
    [(9, 20, 1, ""), (11, 20, 0, "orders orders[0]"), (9, 21, 1, "orders orders[1]")],
)
def test_a_savepoint_of_another_cut_than_the_newest_must_be_asked_for(
    first: int, second: int, before: int, ahead: str
) -> None:
    """And says what is agreed to: output of records before the newest comes again, that of records after it never."""
    state = owned(cut(8, 10, 20)).state
    with pytest.raises(RestoreRefused, match="--repeat-output") as caught:
        validate_restore_target(state, saved(7, first, second), repeat_output=False)
    assert validate_restore_target(state, saved(7, first, second), repeat_output=True)
    told = describe_output(state, saved(7, first, second))
    assert ("a second time" in caught.value.message) == ("is written again" in told) == bool(before)
    for text in (caught.value.message, told):
        assert (f"is ahead of the newest checkpoint, 8, in {ahead}: the input in" in text) == bool(ahead)
        assert ("is not read" in text) == bool(ahead)
    assert ("is 1 input records before" in caught.value.message) == bool(before)


def test_what_lies_behind_or_cannot_be_compared_is_called_written_again() -> None:
    again = "output after it is written again"
    assert describe_output(EMPTY, saved(7, 10, 20)) == again
    assert describe_output(owned(cut(8, 10, 20)).state, saved(7, 10, 20)) == again
    assert describe_output(owned(cut(8, 30, 40)).state, saved(7, 10, 20)) == again


def test_a_savepoint_ahead_of_the_newest_is_of_no_abandoned_history_and_may_be_asked_for() -> None:
    target = derive_saved("/s", Savepoint(1, "t" * 16, 0, IDENTITY, cut(9, 30, 40)), IDENTITY)
    assert not target.retained
    assert validate_restore_target(owned(cut(1, 10, 20)).state, target, repeat_output=True)


def test_a_source_that_was_added_since_is_read_again_from_its_first_record() -> None:
    added = completed(2, at=[*cut(2, 10, 20).positions, positions("returns", {"returns": {0: 5}})])
    state = owned(cut(1, 10, 20), added).state
    with pytest.raises(RestoreRefused, match="is 5 input records before"):
        validate_restore_target(state, find_retained(state, CheckpointId(1)), repeat_output=False)


def test_topics_that_were_added_since_and_begin_at_the_end_go_on_where_the_newest_checkpoint_is() -> None:
    """Looked up again the end is a later one: what lies in between would be read by nobody."""
    at = [positions("orders", {"orders": {0: 10, 1: 20}, "more": {0: 7}}), positions("returns", {"returns": {0: 5}})]
    newest = completed(2, at=at)
    state = owned(cut(1, 10, 20), newest).state
    old = find_retained(state, CheckpointId(1))
    assert carry_positions(old, None, {OperatorName("orders")}) == old
    assert carry_positions(old, newest, ()) == old
    for sources, added, again in (({"orders", "returns"}, ["more", "returns"], 0), ({"returns"}, ["returns"], 7)):
        target = carry_positions(old, newest, {OperatorName(one) for one in sources})
        assert target.carried == tuple(added)
        assert (
            f"it has no position of {', '.join(added)}, with `start: latest`: continue from checkpoint 2"
            in describe_output(state, target)
        )
        if again:
            with pytest.raises(RestoreRefused, match=f"is {again} input records before"):
                validate_restore_target(state, target, repeat_output=False)
        else:
            assert validate_restore_target(state, target, repeat_output=False)
    there = {OperatorName("orders"): {"orders": 2, "more": 1}, OperatorName("returns"): {"returns": 1}}
    facts = RestoreFacts(IDENTITY, there, frozenset({OperatorName("totals")}))
    target = carry_positions(old, newest, there)
    restored = merge_positions(decide_chosen(state, derive_chosen(target, IDENTITY), facts).positions)
    assert restored == merge_positions(newest.positions)


def test_a_source_that_has_another_name_since_has_added_no_topic() -> None:
    newest = completed(2, at=[positions("sales", {"orders": {0: 30, 1: 40}})])
    old = find_retained(owned(cut(1, 10, 20), newest).state, CheckpointId(1))
    assert carry_positions(old, newest, {OperatorName("sales")}) == old


def test_a_retained_checkpoint_ahead_of_the_newest_is_refused_whatever_is_asked_for() -> None:
    """It belongs to a history that was abandoned; its output may have been aborted."""
    journal = owned(cut(1, 10, 20), cut(2, 30, 40))
    restore(journal, derive_chosen(find_retained(journal.state, CheckpointId(1)), IDENTITY))
    ahead = find_retained(journal.state, CheckpointId(2))
    with pytest.raises(RestoreRefused, match="an abandoned history: in orders orders\\[0\\]"):
        validate_restore_target(journal.state, ahead, repeat_output=True)


def test_what_is_chosen_keeps_its_states_and_their_parallelism_and_lists_no_transactions() -> None:
    old = msgspec.structs.replace(IDENTITY, parallelism=7, clusters=on_cluster({"orders": "id-orders"}))
    target = msgspec.structs.replace(saved(7, 1, 2), identity=old)
    chosen = derive_chosen(target, IDENTITY)
    assert chosen.checkpoint.states == (handle(7),)
    assert chosen.checkpoint.committables == ()
    assert chosen.identity == msgspec.structs.replace(IDENTITY, parallelism=7)
    assert chosen.origin == "savepoint t"


def test_a_savepoint_of_rows_leaves_out_no_partition_of_a_topic_that_it_names() -> None:
    made = Savepoint(1, "t" * 16, 0, IDENTITY, cut(1, 10, 20), from_rows=True)
    target = derive_saved("/s", made, IDENTITY)
    orders = OperatorName("orders")
    fine: list[dict[str, int]] = [{"orders": 2}, {"orders": 1}, {"orders": 2, "other": 3}, {}]
    for there in fine:
        refuse_missing_partitions(target, {orders: there})
    refuse_missing_partitions(target, {})
    with pytest.raises(RestoreRefused, match=r"in some partitions of orders and not in others \(2, 3\)"):
        refuse_missing_partitions(target, {orders: {"orders": 4}})
    second = msgspec.structs.replace(made, checkpoint=completed(1, at=[positions("orders", {"orders": {1: 5}})]))
    refuse_missing_partitions(derive_saved("/s", second, IDENTITY), {orders: {}})  # it has no such topic now
    taken = msgspec.structs.replace(target, from_rows=False)
    refuse_missing_partitions(taken, {orders: {"orders": 4}})  # they were added later


# What is chosen in the journal


def restore(journal: Journal, chosen: Chosen) -> None:
    journal.take_over(IDENTITY, 5)
    journal.append_restored(decide_restore(journal.state, FACTS), chosen, 6)


def test_C32_what_is_chosen_becomes_the_newest_and_is_restored_like_any_other() -> None:
    journal = owned(cut(1, 10, 20), cut(2, 30, 40))
    old = msgspec.structs.replace(IDENTITY, parallelism=3)
    target = msgspec.structs.replace(find_retained(journal.state, CheckpointId(1)), identity=old)
    looked = decide_chosen(journal.state, derive_chosen(target, IDENTITY), FACTS)
    restore(journal, derive_chosen(target, IDENTITY))
    plan = decide_restore(journal.state, FACTS)
    assert plan.checkpoint is not None
    assert journal.state.takeover is not None
    assert plan.checkpoint.id == journal.state.takeover.first_checkpoint
    assert plan.first_checkpoint == plan.checkpoint.id + 1
    assert plan.first_checkpoint <= journal.state.reserved_to
    assert [o for slot in plan.slots for _, o in slot.positions[0].next_offsets] == [10, 20]
    assert plan.slots == looked.slots
    assert Journal(journal._storage, ME, retained=3, id_reserve=5).read() == journal.state


def test_C31_state_that_the_chosen_one_lists_again_outlives_its_first_entry() -> None:
    journal = owned(cut(1, 10, 20), cut(2, 30, 40))
    storage = journal._storage
    for number in (1, 2):
        storage.put(handle(number).path, b"state")
    restore(journal, derive_chosen(find_retained(journal.state, CheckpointId(1)), IDENTITY))
    for number in (20, 21):
        journal.append_checkpoint(cut(number, 50, 60))
    journal.clean_up()
    assert [entry.checkpoint.id for entry in journal.state.retained][1:] == [20, 21]
    assert storage.list("state/") == [handle(1).path]
    journal.append_checkpoint(cut(22, 50, 60))
    journal.clean_up()
    assert storage.list("state/") == []


def test_numbers_begin_above_those_of_the_history_that_a_savepoint_brings() -> None:
    journal = Journal(FakeStorage(), ME, retained=3, id_reserve=5)
    state = journal.take_over(IDENTITY, 1, Used(Attempt(9), CheckpointId(70)))
    assert (state.attempt, state.reserved_to) == (10, 75)
    assert decide_restore(state, FACTS).first_checkpoint == 71
    assert journal.take_over(IDENTITY, 2, NOTHING_USED).attempt == 11


# What is left of damage


def statuses(state: JournalState, index: int, *given: TransactionStatus) -> dict[Key, TransactionStatus]:
    asked = derive_asked(state, state.retained[index], IDENTITY)
    return dict(zip(map(key_of, asked), given, strict=True))


@pytest.mark.parametrize("fate", [TransactionStatus.OPEN, TransactionStatus.ABORTED])
def test_C32_the_checkpoint_before_a_damaged_one_is_consistent_when_nothing_behind_it_was_committed(
    fate: TransactionStatus,
) -> None:
    state = owned(cut(1, 10, 20, ONE), cut(2, 30, 40, TWO)).state
    found = decide_fallback(
        state, state.retained[0], statuses(state, 0, fate, TransactionStatus.COMMITTED), ["broken"], IDENTITY
    )
    assert found.abort == (TWO,)
    assert found.chosen.checkpoint.id == 1
    assert found.chosen.checkpoint.committables == ()


def test_transactions_that_both_list_are_still_committed() -> None:
    state = owned(cut(1, 10, 20, ONE), cut(2, 30, 40, ONE, TWO)).state
    assert derive_newer(state, state.retained[0], IDENTITY) == (TWO,)
    found = decide_fallback(state, state.retained[0], statuses(state, 0, TransactionStatus.OPEN), ["broken"], IDENTITY)
    assert found.chosen.checkpoint.committables == (ONE,)


def test_an_empty_checkpoint_is_always_passed_over() -> None:
    state = owned(cut(1, 10, 20), cut(2, 30, 40)).state
    assert decide_fallback(state, state.retained[0], {}, ["broken"], IDENTITY).abort == ()


@pytest.mark.parametrize("fate", [TransactionStatus.COMMITTED, TransactionStatus.UNKNOWN])
def test_one_committed_or_unknown_transaction_behind_it_is_refused_with_the_choices(fate: TransactionStatus) -> None:
    state = owned(cut(1, 10, 20), cut(2, 30, 40, ONE, TWO)).state
    with pytest.raises(RestoreRefused) as caught:
        decide_fallback(
            state,
            state.retained[0],
            statuses(state, 0, TransactionStatus.OPEN, fate),
            ["checkpoint 2 is damaged: x"],
            IDENTITY,
        )
    for words in ("checkpoint 2 is damaged: x", "1 of 2 transactions", fate.value, "--restore 1 --repeat-output"):
        assert words in caught.value.message
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("fate", [TransactionStatus.OPEN, TransactionStatus.ABORTED, TransactionStatus.UNKNOWN])
def test_output_before_it_that_is_not_committed_is_refused(fate: TransactionStatus) -> None:
    """As after an earlier way back: its own transactions were aborted then."""
    state = owned(cut(1, 10, 20, ONE), cut(2, 30, 40)).state
    with pytest.raises(RestoreRefused, match="output would be lost"):
        decide_fallback(state, state.retained[0], statuses(state, 0, fate), ["broken"], IDENTITY)


def test_C32_output_whose_end_is_on_record_still_lies_after_an_older_cut() -> None:
    """The journal says that the newest checkpoint's transactions are ended, not that there were none."""
    journal = owned(cut(1, 1, 1, ONE), cut(2, 2, 2, TWO))
    journal.append_ended(CheckpointId(2), 9)
    state = journal.state
    assert state.committables == ()
    assert derive_newer(state, state.retained[0], IDENTITY) == (TWO,)
    with pytest.raises(RestoreRefused, match="1 of 1 transactions after it are committed"):
        decide_fallback(
            state,
            state.retained[0],
            statuses(state, 0, TransactionStatus.COMMITTED, TransactionStatus.COMMITTED),
            ["broken"],
            IDENTITY,
        )
    journal.append_checkpoint(cut(3, 3, 3, THREE))
    assert derive_newer(journal.state, journal.state.retained[0], IDENTITY) == (TWO, THREE)


def test_two_damaged_ones_are_passed_over_only_when_neither_was_committed() -> None:
    state = owned(cut(1, 10, 20), cut(2, 30, 40, TWO), cut(3, 50, 60, TWO, THREE)).state
    assert derive_newer(state, state.retained[0], IDENTITY) == (TWO, THREE)
    assert decide_fallback(
        state, state.retained[0], statuses(state, 0, TransactionStatus.OPEN, TransactionStatus.OPEN), [""], IDENTITY
    ).abort == (TWO, THREE)
    with pytest.raises(RestoreRefused):
        decide_fallback(
            state,
            state.retained[0],
            statuses(state, 0, TransactionStatus.COMMITTED, TransactionStatus.OPEN),
            [""],
            IDENTITY,
        )


def test_checkpoints_of_a_history_that_somebody_left_are_no_candidates() -> None:
    journal = owned(cut(1, 10, 20), cut(2, 30, 40))
    assert [entry.checkpoint.id for entry in derive_candidates(journal.state)] == [1]
    restore(journal, derive_chosen(find_retained(journal.state, CheckpointId(1)), IDENTITY))
    assert derive_candidates(journal.state) == ()


def test_what_is_chosen_lists_no_transactions() -> None:
    """They are of another history: whether they were committed is decided, or they are gone."""
    target = find_retained(owned(cut(1, 1, 1, ONE), cut(2, 2, 2)).state, CheckpointId(1))
    chosen = derive_chosen(target, IDENTITY)
    assert chosen.checkpoint == cut(1, 1, 1)
    assert (chosen.identity, chosen.origin) == (IDENTITY, "checkpoint 1")


def test_candidates_are_all_older_ones_of_the_same_history_newest_first() -> None:
    state = owned(cut(1, 1, 1), cut(2, 2, 2), cut(3, 3, 3)).state
    assert [entry.checkpoint.id for entry in derive_candidates(state)] == [2, 1]


def test_a_partition_that_only_one_of_the_two_cuts_knows_counts_from_its_beginning() -> None:
    fewer = completed(1, at=[positions("orders", {"orders": {0: 7}})])
    more = completed(2, at=[positions("orders", {"orders": {0: 7, 1: 1}})])
    with pytest.raises(RestoreRefused, match="is 1 input records before"):
        validate_restore_target(
            owned(fewer, more).state, find_retained(owned(fewer).state, CheckpointId(1)), repeat_output=False
        )
    later = completed(3, at=[positions("orders", {"orders": {0: 7}})])
    with pytest.raises(RestoreRefused, match=r"in orders orders\[1\] it is ahead") as caught:
        validate_restore_target(
            owned(more, later).state, find_retained(owned(more).state, CheckpointId(2)), repeat_output=True
        )
    assert caught.value.fields["target"] == "checkpoint 2"


def renamed(number: int, first: int) -> CompletedCheckpoint:
    return completed(number, at=[positions("purchases", {"orders": {0: first}})])


def test_the_last_checkpoint_before_a_source_was_renamed_can_be_chosen_and_counts_what_was_read_since() -> None:
    """A failed upgrade goes back to the old file, which has the former name."""
    old = completed(1, at=[positions("orders", {"orders": {0: 7}})])
    state = owned(old, renamed(2, 7), renamed(3, 9)).state
    target = find_retained(state, CheckpointId(1))
    with pytest.raises(RestoreRefused, match="is 2 input records before the newest"):
        validate_restore_target(state, target, repeat_output=False)
    assert validate_restore_target(state, target, repeat_output=True)


def test_the_last_checkpoint_before_a_source_was_given_up_can_be_chosen() -> None:
    both = completed(1, at=[positions("orders", {"orders": {0: 7}}), positions("returns", {"returns": {0: 5}})])
    state = owned(both, completed(2, at=[positions("orders", {"orders": {0: 8}})])).state
    assert validate_restore_target(state, find_retained(state, CheckpointId(1)), repeat_output=True)


def test_a_checkpoint_of_an_abandoned_history_stays_refused_when_its_source_was_renamed_later() -> None:
    one, two = completed(1, at=[positions("orders", {"orders": {0: 7}})]), cut(2, 9, 0)
    back = completed(3, at=[positions("orders", {"orders": {0: 7}})])
    journal = Journal(FakeStorage(), ME, retained=4, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    for checkpoint in (one, two, back, renamed(4, 8)):
        journal.append_checkpoint(checkpoint)
    with pytest.raises(RestoreRefused, match=r"abandoned history: in orders orders\[0\]"):
        validate_restore_target(journal.state, find_retained(journal.state, CheckpointId(2)), repeat_output=True)


def test_the_refusal_of_a_damaged_checkpoint_has_its_id_for_programs() -> None:
    state = owned(cut(1, 1, 1), cut(2, 2, 2, ONE), cut(3, 3, 3, ONE)).state
    with pytest.raises(RestoreRefused) as caught:
        decide_fallback(state, state.retained[0], {key_of(ONE): TransactionStatus.COMMITTED}, ["damaged"], IDENTITY)
    assert caught.value.fields["newest"] == 3
