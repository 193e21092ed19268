"""As `planted.py`: bugs of starts and ends, and of what lies between two daemons."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.clock import Clock
from tidegate.coordinator.entries import AnyEntry, EndedEntry
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.journal_state import JournalState
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
    """X03: an empty directory starts over, a copy continues beside the original, and nobody ever looks again."""
    patch.setattr("tidegate.daemon.looking.decide_owner", lambda *_state, **_how: ())
    patch.setattr("tidegate.daemon.owning.decide_still_owner", lambda *_who: None)


def slots_with_a_directory_of_their_own_are_not_noticed(patch: Patch) -> None:
    """X04: their state is nowhere when it is needed."""
    patch.setattr(Proof, "answer", lambda self, slot, host: None)
    patch.setattr(Proof, "check", lambda self, slot, host: None)


def ends_of_transactions_are_not_on_record(patch: Patch) -> None:
    """X01: a finished pipeline asks a week later for transactions that Kafka has forgotten."""
    patch.setattr(Journal, "append_ended", lambda self, at_ms: None)


def time_limits_by_the_wall_clock(patch: Patch) -> None:
    """X05: somebody sets it by an hour."""

    def wall_ms(clock: Clock) -> int:
        return clock.now_ms()

    patch.setattr("tidegate.daemon.attempt.monotonic_ms", wall_ms)
    patch.setattr("tidegate.daemon.instructions.monotonic_ms", wall_ms)
