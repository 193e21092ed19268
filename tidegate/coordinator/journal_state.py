"""The state of a pipeline according to its journal: a pure function of the entries."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.entries import AnyEntry, CheckpointEntry, EndedEntry, Identity, JournalRefused, Takeover
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import Attempt, CheckpointId, JournalSequence
from tidegate.storage.names import journal_name


class JournalState(msgspec.Struct, frozen=True):
    """State derived from the entries; `EMPTY` before the first."""

    next_sequence: JournalSequence = JournalSequence(0)
    attempt: Attempt = Attempt(0)
    """Highest ever; 0 before the first."""
    reserved_to: CheckpointId = CheckpointId(0)
    """Highest checkpoint id that may ever have been used."""
    newest: AnyEntry | None = None
    takeover: Takeover | None = None
    """The newest one among the entries that are still needed."""
    retained: tuple[CheckpointEntry, ...] = ()
    """Entries of the retained checkpoints, oldest first, as they were appended.

    They list the transactions after an older checkpoint, whether these have ended or not.
    """
    ended: CheckpointId = CheckpointId(0)
    """The newest checkpoint whose transactions are all recorded as ended; 0 if there is none."""
    journal: str = ""
    """Token of this journal, as in JournalEntry."""
    replaces: tuple[str, ...] = ()
    """Tokens of replaced journals, as in JournalEntry."""
    origin: str = ""
    """The choice that this history began from, as in JournalEntry."""

    @property
    def newest_checkpoint(self) -> CompletedCheckpoint | None:
        """The checkpoint that a recovery starts from (F01).

        It lists no transactions once they are recorded as ended.
        """
        if not self.retained:
            return None
        newest = self.retained[-1].checkpoint
        return msgspec.structs.replace(newest, committables=()) if newest.id == self.ended else newest

    @property
    def identity(self) -> Identity | None:
        """The identity of the newest checkpoint. That of a takeover is not trusted: it may have been refused."""
        return self.retained[-1].identity if self.retained else None

    @property
    def committables(self) -> tuple[Committable, ...]:
        """Transactions that are decided and not known to have ended."""
        checkpoint = self.newest_checkpoint
        return () if checkpoint is None else checkpoint.committables

    @property
    def final(self) -> bool:
        """True if the newest checkpoint is a final one."""
        checkpoint = self.newest_checkpoint
        return checkpoint is not None and checkpoint.final

    @property
    def ended_well(self) -> bool:
        """True if the newest attempt ended with a final checkpoint of its own, not one that it began from."""
        if not self.retained:
            return False
        newest = self.retained[-1]
        return newest.checkpoint.final and newest.attempt == self.attempt and not newest.again

    def floor_with(self, added: int, retained: int) -> JournalSequence:
        """Returns the floor of the next entry, which adds `added` checkpoints (0 or 1), so that `retained` are kept.

        The newest checkpoint is always kept (C31).
        """
        kept = self.retained[max(0, len(self.retained) + added - retained) :]
        if not kept and not added and self.retained:
            kept = self.retained[-1:]
        return kept[0].sequence if kept else self.next_sequence

    def after(self, entry: AnyEntry) -> JournalState:
        """Returns the state with one more entry. Raises JournalRefused if the entry contradicts it."""
        _check_follows(self, entry)
        kept = tuple(old for old in self.retained if old.sequence >= entry.floor)
        takeover, ended = self.takeover, self.ended
        match entry:
            case CheckpointEntry():
                kept = (*kept, entry)
            case EndedEntry():
                ended = entry.ended
            case Takeover():
                takeover = entry
        return JournalState(
            next_sequence=JournalSequence(entry.sequence + 1),
            attempt=entry.attempt,
            reserved_to=entry.reserved_to,
            newest=entry,
            takeover=takeover,
            retained=kept,
            ended=ended,
            journal=entry.journal,
            replaces=entry.replaces,
            origin=entry.origin,
        )


EMPTY = JournalState()


class EntryMissing(JournalRefused):
    """A gap: an entry was removed by hand, or the newer entries that would show that it is not needed were removed."""


def derive(
    entries: Sequence[tuple[JournalSequence, AnyEntry]], passed_over: Collection[JournalSequence] = ()
) -> JournalState:
    """Folds the entries, in any order. Those below the floor of the newest one are ignored.

    A superseded writer can re-create an entry that a cleanup removed; such an entry is always below the floor.
    Unreadable entries may be `passed_over`, with everything older, if a checkpoint follows them: every entry repeats
    all that counts, so only older restore points are lost. Raises EntryMissing for a gap at or above the floor,
    JournalRefused for entries that contradict one another, or if only a takeover would remain.
    """
    if not entries:
        return EMPTY
    by_sequence = dict(entries)
    newest = by_sequence[max(by_sequence)]
    begin = max((newest.floor, *(JournalSequence(sequence + 1) for sequence in passed_over)))
    state = EMPTY
    for number in range(newest.floor, newest.sequence + 1):
        sequence = JournalSequence(number)
        if sequence not in by_sequence and sequence not in passed_over:
            name, by = journal_name(sequence), journal_name(newest.sequence)
            raise EntryMissing(f"{name} is missing, but {by} still needs it", name=name)
        if sequence >= begin:
            state = state.after(by_sequence[sequence])
    if begin > newest.floor and not state.retained:
        name = journal_name(JournalSequence(begin - 1))
        raise JournalRefused(f"there is no checkpoint after {name}, which cannot be read", name=name)
    return state


def _check_follows(state: JournalState, entry: AnyEntry) -> None:
    name = journal_name(entry.sequence)
    newest = state.newest_checkpoint
    problem = ""
    if entry.floor > entry.sequence:
        problem = f"its floor {entry.floor} is above it"
    elif state.newest is not None and entry.sequence != state.next_sequence:
        problem = f"entry {state.next_sequence} was expected"
    elif state.journal and entry.journal != state.journal:
        problem = f"it is of journal {entry.journal}, but this is {state.journal}"
    elif entry.attempt < state.attempt:
        problem = f"it belongs to attempt {entry.attempt}, but attempt {state.attempt} had begun"
    elif isinstance(entry, Takeover) and entry.attempt == state.attempt:
        problem = f"attempt {entry.attempt} is taken a second time"
    elif entry.reserved_to < state.reserved_to:
        problem = f"checkpoint ids go back from {state.reserved_to} to {entry.reserved_to}"
    elif not isinstance(entry, Takeover) and state.newest is not None and entry.attempt != state.attempt:
        problem = f"it belongs to attempt {entry.attempt}, which has no takeover entry"
    elif isinstance(entry, EndedEntry):
        if newest is None or entry.ended != newest.id or entry.floor > state.retained[-1].sequence:
            problem = f"it ends the transactions of checkpoint {entry.ended}, which is not the newest"
    elif isinstance(entry, CheckpointEntry) and newest is not None and entry.checkpoint.id <= newest.id:
        problem = f"checkpoint {entry.checkpoint.id} does not follow checkpoint {newest.id}"
    if problem:
        raise JournalRefused(f"{name} contradicts the journal: {problem}", name=name)
