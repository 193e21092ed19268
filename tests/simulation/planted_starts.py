"""As `planted.py`: bugs of starts and ends, and of what lies between two daemons."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.coordinator.entries import AnyEntry, EndedEntry
from tidegate.coordinator.journal_state import JournalState
from tidegate.storage.local import LocalStorage

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
