"""The fold of the journal by itself: floors, entries that contradict one another, and which entry a refusal names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.coordinator.values import IDENTITY, ME, completed
from tidegate.coordinator.entries import FORMAT_VERSION, AnyEntry, CheckpointEntry, EndedEntry, JournalRefused, Takeover
from tidegate.coordinator.journal_state import JournalState, derive
from tidegate.ids import Attempt, CheckpointId, JournalSequence
from tidegate.storage.names import journal_name


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
    state = fold(takeover(0), checkpoint(1, 1), checkpoint(2, 2))
    assert [state.floor_with(added, retained) for added, retained in ((0, 0), (0, 1), (1, 2), (1, 1))] == [2, 2, 2, 3]


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
    with pytest.raises(JournalRefused, match="no checkpoint lies behind") as caught:
        derive([(entry.sequence, entry) for entry in entries], [JournalSequence(1), JournalSequence(2)])
    assert caught.value.fields["name"] == journal_name(JournalSequence(2))
