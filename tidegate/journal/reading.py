"""Reads the journal entries in storage and detects damaged and missing ones. Decides and changes nothing.

What entries mean together is in `coordinator/journal_state.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.coordinator.entries import AnyEntry, CheckpointEntry, JournalRefused, decode_entry
from tidegate.coordinator.journal_state import EntryMissing, JournalState, derive
from tidegate.errors import BEGIN_ANEW, TidegateError
from tidegate.ids import CheckpointId, JournalSequence
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage
from tidegate.storage.names import JOURNAL_PREFIX, STATE_PREFIX, journal_name, journal_sequence


def list_entries(storage: Storage) -> list[JournalSequence]:
    """Lists the sequences of all entries, ascending. Raises StorageError."""
    found = (journal_sequence(name) for name in storage.list(JOURNAL_PREFIX))
    return sorted(sequence for sequence in found if sequence is not None)


def read_entry(storage: Storage, sequence: JournalSequence) -> AnyEntry:
    """Reads one entry. Raises ObjectMissing, ObjectCorrupt, JournalRefused, StorageError."""
    try:
        return decode_entry(sequence, storage.get(journal_name(sequence)))
    except JournalRefused as refused:
        place = storage.location.rstrip("/")
        raise JournalRefused(f"{place}/{refused.message}", **refused.fields) from refused


def read_listed(
    storage: Storage, sequences: Sequence[JournalSequence], *, may_repeat: bool, known: Sequence[JournalState] = ()
) -> tuple[JournalState, tuple[str, ...]]:
    """Derives the state from these entries, and lists problems of entries that a newer checkpoint makes unnecessary.

    `may_repeat` is as in Journal. `known` are states read earlier without damage: if nothing was appended since, one of
    them is returned and only the newest entry is read. Raises ObjectCorrupt and JournalRefused with the choices,
    ObjectMissing for an entry that was cleaned up after it was listed, StorageError.
    """
    try:
        newest = read_entry(storage, sequences[-1])
    except ObjectCorrupt as damage:
        before = _checkpoint_before(storage, sequences[:-1])
        raise ObjectCorrupt(
            _advise(storage.location, damage, before, "move this file away and "), **damage.fields
        ) from damage
    missing = {JournalSequence(s) for s in range(newest.floor, newest.sequence)} - set(sequences)
    for state in known:
        if state.newest == newest and not missing:
            return state, ()
    entries: list[tuple[JournalSequence, AnyEntry]] = [(newest.sequence, newest)]
    damages: dict[JournalSequence, ObjectCorrupt] = {}
    for sequence in sequences[:-1]:
        if sequence >= newest.floor:
            try:
                entries.append((sequence, read_entry(storage, sequence)))
            except ObjectCorrupt as damage:
                damages[sequence] = damage
    try:
        state = derive(entries, damages.keys() | (missing if may_repeat else ()))
    except EntryMissing as gap:
        before = _checkpoint_before(storage, sequences)
        raise EntryMissing(_advise(storage.location, gap, before, ""), **gap.fields) from gap
    except JournalRefused as refused:
        if not damages:
            raise JournalRefused(_advise(storage.location, refused, None, ""), **refused.fields) from refused
        worst = damages[max(damages)]
        raise ObjectCorrupt(_advise(storage.location, worst, None, ""), **worst.fields) from worst
    return state, tuple(_find_problem(damage) for damage in damages.values())


def journal_gone(storage: Storage) -> JournalRefused:
    """Returns the error for a journal without entries in a directory that has state files."""
    name, left = JOURNAL_PREFIX.rstrip("/"), STATE_PREFIX.rstrip("/")
    gone = JournalRefused(f"{name} has no entries, but {left} has files of checkpoints", name=name)
    return JournalRefused(_advise(storage.location, gone, None, ""), **gone.fields)


def _checkpoint_before(storage: Storage, sequences: Sequence[JournalSequence]) -> CheckpointId | None:
    """Returns the newest checkpoint that can be read, when newer or older entries cannot."""
    for sequence in reversed(sequences):
        try:
            entry = read_entry(storage, sequence)
        except (ObjectCorrupt, ObjectMissing, JournalRefused):
            return None
        if isinstance(entry, CheckpointEntry):
            return entry.checkpoint.id
    return None


def _advise(location: str, trouble: TidegateError, before: CheckpointId | None, first: str) -> str:
    """Describes the problem, its consequences, and every way out.

    `before` is the newest readable checkpoint; `first` is what the user must do before going back to it.
    """
    place = location.rstrip("/")
    way = (
        f"if no other daemon runs this pipeline and repeated output is acceptable, {first}start with --restore "
        f"{before} --repeat-output; "
    )
    return (
        f"{place}/{_find_problem(trouble)}. Without it, committed output cannot be determined, so nothing was "
        f"started. The choices: restore the whole folder {place}/journal from a backup of this directory; "
        f"{way if before else ''}restore a savepoint into a new `checkpoints.directory` (--restore PATH "
        f"--repeat-output); or use `start` of the sources, with {BEGIN_ANEW}"
    )


def _find_problem(trouble: TidegateError) -> str:
    """Returns the file and its problem, without the advice that applies to every file."""
    if "problem" not in trouble.fields:
        return trouble.message
    return f"{trouble.fields['name']} is corrupt: {trouble.fields['problem']}"
