"""As `planted.py`: bugs of starts and ends, and of what lies between two daemons."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from tidegate.clock import Clock
from tidegate.coordinator.entries import AnyEntry, EndedEntry
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.types import StateHandle
from tidegate.coordinator.upgrade import Definition, Upgrade
from tidegate.ids import OperatorName
from tidegate.journal.journal import Journal
from tidegate.state.declaration import StateDeclaration, StateShape
from tidegate.state.increments import Increments
from tidegate.state.migration import Migration, derive_migration
from tidegate.storage.local import LocalStorage
from tidegate.storage.shared import Proof

Patch = pytest.MonkeyPatch


def ended_output_is_taken_for_none(patch: Patch) -> None:
    """Transactions that are on record as ended: a damaged checkpoint is passed over as if it had had none."""
    real = JournalState.after

    def after(self: JournalState, entry: AnyEntry) -> JournalState:
        state = real(self, entry)
        if not isinstance(entry, EndedEntry):
            return state
        *older, newest = state.retained
        without = msgspec.structs.replace(newest.checkpoint, committables=())
        return msgspec.structs.replace(state, retained=(*older, msgspec.structs.replace(newest, checkpoint=without)))

    patch.setattr(JournalState, "after", after)


def directory_made_durable_by_nobody(patch: Patch) -> None:
    """Whoever made it failed before it was synced into the one above, and whoever finds it relies on it."""
    patch.setattr(LocalStorage, "_sync_above", lambda self: None)


def pipeline_taken_over_whatever_kafka_knows(patch: Patch) -> None:
    """X03: an empty directory starts over, a copy continues next to the original, and nobody ever looks again."""
    patch.setattr("tidegate.daemon.preflight.decide_owner", lambda *_state, **_how: ())
    patch.setattr("tidegate.daemon.ownership.decide_still_owner", lambda *_who: None)


def slots_with_a_directory_of_their_own_are_not_noticed(patch: Patch) -> None:
    """X04: their state is nowhere when it is needed."""
    patch.setattr(Proof, "answer", lambda self, slot, host: None)
    patch.setattr(Proof, "check", lambda self, slot, host: None)


def ends_of_transactions_are_not_on_record(patch: Patch) -> None:
    """X01: a finished pipeline asks a week later for transactions that Kafka has forgotten."""
    patch.setattr(Journal, "append_ended", lambda self, checkpoint, at_ms: None)


def time_limits_by_the_wall_clock(patch: Patch) -> None:
    """X05: somebody sets it by an hour."""

    def wall_ms(clock: Clock) -> int:
        return clock.now_ms()

    patch.setattr("tidegate.daemon.attempt.monotonic_ms", wall_ms)
    patch.setattr("tidegate.daemon.instructions.monotonic_ms", wall_ms)


def state_that_is_reset_is_restored(patch: Patch) -> None:
    """It is decided and written down, and the files are given to the step all the same."""
    real = Upgrade.map_states

    def map_states(self: Upgrade, states: tuple[StateHandle, ...]) -> tuple[StateHandle, ...]:
        return real(msgspec.structs.replace(self, emptied=frozenset()), states)

    patch.setattr(Upgrade, "map_states", map_states)


def words_count_for_ever(patch: Patch) -> None:
    """Each attempt of a daemon resets again."""

    def derive_applied(before: Mapping[OperatorName, tuple[str, ...]], now: Definition, names: object) -> object:
        return dict(before)

    patch.setattr("tidegate.coordinator.upgrade_decision.derive_applied", derive_applied)


def columns_are_told_apart_by_their_types(patch: Patch) -> None:
    """An aggregate that is added takes the place of one that is given up, and continues with what is in it."""

    def derive(written: StateShape, declaration: StateDeclaration) -> Migration | None:
        same = [one.type for one in written.values] == [one.type for one in declaration.shape.values]
        return None if same else derive_migration(written, declaration)

    patch.setattr("tidegate.state.snapshot.derive_migration", derive)


def changes_before_the_first_snapshot_forgotten(patch: Patch) -> None:
    """That snapshot builds on restored files, so it lacks what was changed since the restore."""
    real = Increments.touch

    def touch(self: Increments[Any], keys: Any) -> None:
        if self._newest:
            real(self, keys)

    patch.setattr(Increments, "touch", touch)


def directives_forgotten_by_what_a_recovery_appends(patch: Patch) -> None:
    """It repeats the states of a checkpoint without the directives that were applied to them: they are reset again."""
    for module in ("restore_target", "start_offsets"):
        patch.setattr(f"tidegate.coordinator.{module}.derive_identity", lambda old, now: now)
