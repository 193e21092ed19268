"""Known protocol bugs, planted one at a time: the state machine test must find each, or it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.coordinator.test_machine import World
from tidegate.committable import Committable
from tidegate.coordinator import restore_target as choice
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.entries import AnyEntry, CheckpointEntry, Identity, encode_entry
from tidegate.coordinator.events import DiscardStates
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ledger import Key, StateLedger, TransactionLedger, key_of
from tidegate.coordinator.restore_target import Fallback, TransactionStatus
from tidegate.coordinator.types import StateHandle
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId, JournalSequence, TransactionalId
from tidegate.journal.journal import Journal
from tidegate.storage.names import journal_name

Patch = Callable[[pytest.MonkeyPatch], None]


def drop_carried_committables(patch: pytest.MonkeyPatch) -> None:
    real = TransactionLedger.due

    def due(self: TransactionLedger, checkpoint: CheckpointId) -> tuple[Committable, ...]:
        return tuple(one for one in real(self, checkpoint) if one.checkpoint == checkpoint)

    patch.setattr(TransactionLedger, "due", due)


def release_ids_that_the_journal_still_lists(patch: pytest.MonkeyPatch) -> None:
    def take_released(self: TransactionLedger, completed: CheckpointId) -> frozenset[TransactionalId]:
        released = frozenset(key[0] for key in self._unreleased)
        self._unreleased.clear()
        return released

    patch.setattr(TransactionLedger, "take_released", take_released)


def discard_whatever_an_ack_names(patch: pytest.MonkeyPatch) -> None:
    def discard(self: Coordinator, handles: Iterable[StateHandle]) -> None:
        self._out.append(DiscardStates(tuple(handles)))

    patch.setattr(Coordinator, "_discard", discard)


def take_a_failed_append_for_absent(patch: pytest.MonkeyPatch) -> None:
    """Its state is discarded at once, although the entry may be there."""
    patch.setattr(StateLedger, "doubt", lambda self, handles: None)


def take_a_lost_race_for_won(patch: pytest.MonkeyPatch) -> None:
    def create(self: Journal, entry: AnyEntry) -> bool:
        self._storage.put_if_absent(journal_name(entry.sequence), encode_entry(entry))
        return True

    patch.setattr(Journal, "_create", create)


def do_not_look_for_later_entries(patch: pytest.MonkeyPatch) -> None:
    def settled(self: Journal, entry: AnyEntry) -> list[JournalSequence]:
        return [entry.sequence]

    patch.setattr(Journal, "_settled_sequences", settled)


def overwrite_entries(patch: pytest.MonkeyPatch) -> None:
    def create(self: Journal, entry: AnyEntry) -> bool:
        self._storage.put(journal_name(entry.sequence), encode_entry(entry))
        return True

    patch.setattr(Journal, "_create", create)


def skip_the_commit_at_recovery(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "recovery_permit", lambda self, plan: None)


def forget_the_newest_checkpoint_at_a_takeover(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(JournalState, "floor_with", lambda self, added, retained: self.next_sequence)


def sweep_state_that_is_retained(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Journal, "_referenced", lambda self: set())


def reserve_one_id_at_a_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidegate.coordinator.triggers.CheckpointPolicy.id_reserve", property(lambda self: 1))


def complete_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionLedger, "all_ended", lambda self, committables: True)


def append_two_at_a_time(patch: pytest.MonkeyPatch) -> None:
    real = Coordinator._start_append

    def start(self: Coordinator, now_ms: int) -> None:
        self._appending = None
        real(self, now_ms)

    patch.setattr(Coordinator, "_start_append", start)


def complete_with_files_that_nobody_retains(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidegate.coordinator.ledger.decide_gone", lambda checkpoint, handles, retained: ())


def count_a_savepoint_before_its_output_is_committed(patch: pytest.MonkeyPatch) -> None:
    real = Coordinator._write_savepoints

    def write(self: Coordinator, now_ms: int) -> None:
        self._newest_ended = CheckpointId(10**9)
        real(self, now_ms)

    patch.setattr(Coordinator, "_write_savepoints", write)


def let_savepoints_use_up_the_ids(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidegate.coordinator.triggers.CheckpointPolicy.checkpoint_ids", property(lambda self: 0))


def drop_the_state_of_a_savepoint_with_everything_it_shares(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidegate.coordinator.ledger.decide_garbage", lambda handles, needed: tuple(handles))


def go_back_although_the_damaged_one_was_committed(patch: pytest.MonkeyPatch) -> None:
    real = choice.decide_fallback

    def decide(
        state: JournalState,
        entry: CheckpointEntry,
        statuses: Mapping[Key, TransactionStatus],
        damage: Sequence[str],
        now: Identity,
    ) -> Fallback:
        own = {key_of(one) for one in entry.checkpoint.committables}
        return real(
            state,
            entry,
            {key: TransactionStatus.COMMITTED if key in own else TransactionStatus.OPEN for key in statuses},
            damage,
            now,
        )

    patch.setattr("tests.coordinator.world.decide_fallback", decide)


def go_back_to_what_was_aborted_itself(patch: pytest.MonkeyPatch) -> None:
    real = choice.decide_fallback

    def decide(
        state: JournalState,
        entry: CheckpointEntry,
        statuses: Mapping[Key, TransactionStatus],
        damage: Sequence[str],
        now: Identity,
    ) -> Fallback:
        own = {key_of(one): TransactionStatus.COMMITTED for one in entry.checkpoint.committables}
        return real(state, entry, {**statuses, **own}, damage, now)

    patch.setattr("tests.coordinator.world.decide_fallback", decide)


def forget_what_a_chosen_checkpoint_has_still_to_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tidegate.coordinator.restore_target._own", lambda state, entry: ((), ()))


BUGS: list[Patch] = [
    complete_with_files_that_nobody_retains,
    count_a_savepoint_before_its_output_is_committed,
    let_savepoints_use_up_the_ids,
    drop_the_state_of_a_savepoint_with_everything_it_shares,
    go_back_although_the_damaged_one_was_committed,
    go_back_to_what_was_aborted_itself,
    forget_what_a_chosen_checkpoint_has_still_to_commit,
    drop_carried_committables,
    release_ids_that_the_journal_still_lists,
    discard_whatever_an_ack_names,
    take_a_failed_append_for_absent,
    take_a_lost_race_for_won,
    do_not_look_for_later_entries,
    overwrite_entries,
    skip_the_commit_at_recovery,
    forget_the_newest_checkpoint_at_a_takeover,
    sweep_state_that_is_retained,
    reserve_one_id_at_a_time,
    complete_before_the_commit,
    append_two_at_a_time,
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("plant", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(plant: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, TidegateError, pytest.fail.Exception)):
        run_state_machine_as_test(
            World,
            settings=settings(
                max_examples=1000,  # it stops at the first that finds the bug
                stateful_step_count=60,
                deadline=None,
                derandomize=True,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
