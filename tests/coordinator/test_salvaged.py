"""The restored checkpoint repeated in the journal with other transactions: what stays, what changes, who may."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, handle, positions
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_repeated, decide_restore
from tidegate.errors import Superseded
from tidegate.ids import CheckpointId, OperatorName
from tidegate.journal.journal import Journal

FACTS = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 2}}, frozenset({OperatorName("totals")}))
AT = (positions("orders", {"orders": {0: 7, 1: 8}}),)
STATES = (handle(2, subtask=0), handle(2, subtask=1))
LOST, AGAIN = committable(2), committable(7, producer_id=200, pool_slot=900)


def restoring(storage: FakeStorage, facts: RestoreFacts = FACTS) -> tuple[Journal, RestorePlan]:
    """A daemon that has taken over the journal of another one."""
    first = Journal(storage, ME, retained=2, id_reserve=5)
    first.take_over(IDENTITY, 1)
    first.append_checkpoint(completed(1, at=AT))
    first.append_checkpoint(completed(2, at=AT, states=STATES, committables=[LOST]))
    one = Journal(storage, OTHER, retained=2, id_reserve=5)
    return one, decide_restore(one.take_over(facts.identity, 2), facts)


def test_F01_a_salvage_repeats_positions_and_states_under_an_unused_id() -> None:
    storage = FakeStorage()
    one, plan = restoring(storage)
    before = one.state.reserved_to
    appended = one.append_salvaged(plan, (AGAIN,), 99)
    again = one.read().newest_checkpoint
    assert again is not None
    assert (again.positions, again.states, again.final) == (AT, STATES, False)
    assert (again.id, again.attempt, again.committables) == (plan.first_checkpoint, 2, (AGAIN,))
    assert (appended.permit.checkpoint, appended.permit.committables) == (again.id, (AGAIN,))
    assert 2 < again.id <= before < appended.reserved_to


def test_C10_the_attempt_goes_on_behind_the_id_of_the_salvage() -> None:
    one, plan = restoring(FakeStorage())
    one.append_salvaged(plan, (AGAIN,), 99)
    again = one.state.newest_checkpoint
    assert again is not None
    going_on = decide_repeated(plan, one.state)
    assert going_on.first_checkpoint == plan.first_checkpoint + 1 <= one.state.reserved_to
    assert (going_on.checkpoint, going_on.slots) == (again, plan.slots)


def test_the_salvage_of_a_rescaled_pipeline_still_says_how_its_state_was_dealt_out() -> None:
    """The state files are those of the old parallelism, whoever reads the entry next."""
    storage = FakeStorage()
    wider = msgspec.structs.replace(IDENTITY, parallelism=4)
    facts = msgspec.structs.replace(FACTS, identity=wider)
    one, plan = restoring(storage, facts)
    one.append_salvaged(plan, (AGAIN,), 99)
    assert one.state.identity == IDENTITY
    next_plan = decide_restore(one.take_over(wider, 3), facts)
    assert [slot.states for slot in next_plan.slots] == [slot.states for slot in plan.slots]


def test_state_that_the_salvage_repeats_is_not_cleaned_up() -> None:
    storage = FakeStorage()
    one, plan = restoring(storage)
    for state in STATES:
        storage.put_if_absent(state.path, b"state")
    one.append_salvaged(plan, (AGAIN,), 99)
    one.append_checkpoint(completed(20, attempt=2, at=AT))
    one.clean_up()
    one.sweep_orphans()
    assert {storage.get(state.path) for state in STATES} == {b"state"}


def test_a_salvage_pushes_out_no_checkpoint_that_somebody_may_go_back_to() -> None:
    """`--accept-gone --restore N` salvages before it goes back; the next checkpoint of its own trims."""
    one, plan = restoring(FakeStorage())
    again = plan.first_checkpoint
    one.append_salvaged(plan, (AGAIN,), 99)
    assert [entry.checkpoint.id for entry in one.read().retained] == [1, 2, again]
    one.append_ended(again, 100)
    assert [entry.checkpoint.id for entry in one.read().retained] == [1, 2, again]
    one.append_checkpoint(completed(20, attempt=2, at=AT))
    assert [entry.checkpoint.id for entry in one.read().retained] == [again, 20]


def test_a_salvage_of_another_checkpoint_is_refused() -> None:
    one, plan = restoring(FakeStorage())
    with pytest.raises(RuntimeError, match="another checkpoint"):
        one.append_salvaged(msgspec.structs.replace(plan, checkpoint=completed(1)), (AGAIN,), 99)


def test_a_salvage_counts_only_once() -> None:
    one, plan = restoring(FakeStorage())
    one.append_salvaged(plan, (AGAIN,), 99)
    with pytest.raises(RuntimeError, match="another checkpoint"):
        one.append_salvaged(plan, (AGAIN,), 99)


def test_a_daemon_that_was_taken_over_cannot_decide_a_salvage() -> None:
    storage = FakeStorage()
    one, plan = restoring(storage)
    Journal(storage, ME, retained=2, id_reserve=5).take_over(IDENTITY, 3)
    with pytest.raises(Superseded):
        one.append_salvaged(plan, (AGAIN,), 99)


def test_a_checkpoint_that_is_no_repetition_is_refused() -> None:
    one, plan = restoring(FakeStorage())
    one.append_checkpoint(completed(20, attempt=2, at=(positions("orders", {"orders": {0: 9, 1: 9}}),)))
    with pytest.raises(ValueError, match="does not repeat"):
        decide_repeated(plan, one.state)


def test_X02_what_is_ended_is_not_asked_for_by_anybody_again() -> None:
    """The entry that says so: this attempt continues as before, the next one has nothing to end."""
    storage = FakeStorage()
    one, plan = restoring(storage)
    one.append_ended(CheckpointId(2), 99)
    assert one.recovery_permit(decide_repeated(plan, one.state)) is None
    again = Journal(storage, ME, retained=2, id_reserve=5)
    next_plan = decide_restore(again.take_over(IDENTITY, 3), FACTS)
    assert again.recovery_permit(next_plan) is None
    assert next_plan.checkpoint is not None
    assert (next_plan.checkpoint.id, next_plan.checkpoint.positions, next_plan.checkpoint.states) == (2, AT, STATES)


def test_X02_nothing_is_written_where_nothing_was_listed() -> None:
    one, _ = restoring(FakeStorage())
    one.append_ended(CheckpointId(2), 99)
    before = one.state
    one.append_ended(CheckpointId(2), 100)
    assert one.state == before
