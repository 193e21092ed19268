"""The journal in storage: taking over, appending decisions, and cleaning up.

The content of entries is defined in `entries.py`, reading in `reading.py`, and what entries mean together in
`journal_state.py`. The daemon that creates entry n has decided. A daemon that finds it taken by another one is
superseded and stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.committable import Committable
from tidegate.coordinator.clusters import adopt_clusters, name_committables
from tidegate.coordinator.entries import (
    FORMAT_VERSION,
    AnyEntry,
    CheckpointEntry,
    EndedEntry,
    Identity,
    Takeover,
    Writer,
    encode_entry,
)
from tidegate.coordinator.journal_state import EMPTY, JournalState
from tidegate.coordinator.ledger import decide_garbage, listed_paths
from tidegate.coordinator.permit import CommitPermit, issue_permit
from tidegate.coordinator.recovery import Chosen, RestorePlan
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.coordinator.upgrade import Upgrade
from tidegate.errors import AttemptFailed, PipelineStopped, Superseded
from tidegate.ids import Attempt, CheckpointId, JournalSequence
from tidegate.journal.reading import journal_gone, list_entries, read_entry, read_listed
from tidegate.storage.base import ObjectMissing, Storage, StorageError
from tidegate.storage.names import (
    JOURNAL_PREFIX,
    RESTORING_PREFIX,
    STATE_PREFIX,
    checkpoint_of_state,
    journal_name,
)

TAKEOVER_TRIES: Final = 20
READ_TRIES: Final = 20
PUT_TRIES: Final = 2
JOURNAL_TOKEN_LENGTH: Final = 8
REPLACED_MAX: Final = 16
SWEPT_MAX: Final = 10_000
DROPPED_MAX: Final = 100


class AppendUnsettled(AttemptFailed):
    """It is unknown whether an entry exists; only a new takeover, which reads the journal again, may continue."""

    code = "journal-unsettled"


class JournalLost(PipelineStopped):
    """The journal of this daemon has disappeared: it was deleted, or its volume is no longer mounted."""

    code = "journal-lost"


class Used(msgspec.Struct, frozen=True):
    """The highest attempt and checkpoint id already used."""

    attempt: Attempt
    checkpoint: CheckpointId


NOTHING_USED: Final = Used(Attempt(0), CheckpointId(0))


class Appended(msgspec.Struct, frozen=True):
    """A durable decision and what it permits."""

    sequence: JournalSequence
    permit: CommitPermit
    reserved_to: CheckpointId


class Journal:
    """Appends decisions to storage. One instance per daemon, used by one thread at a time.

    `retained` completed checkpoints are kept (at least 1); `id_reserve` is the number of checkpoint ids that may be
    used between two entries (C10). The journal decides nothing before `take_over`. `may_repeat` means that the user
    allows output to be written again: then entries before a checkpoint may be missing.
    """

    def __init__(
        self, storage: Storage, writer: Writer, *, retained: int, id_reserve: int, may_repeat: bool = False
    ) -> None:
        if retained < 1 or id_reserve < 1:
            raise ValueError(f"retained ({retained}) and id_reserve ({id_reserve}) must be at least 1")
        self._storage = storage
        self._writer = writer
        self._retained = retained
        self._id_reserve = id_reserve
        self._may_repeat = may_repeat
        self.passed_over: tuple[str, ...] = ()
        """Problems of older entries in the last read, which the newest checkpoint makes unnecessary."""
        self._identity: Identity | None = None
        self._state = EMPTY
        self._last_read = EMPTY
        self._used_before = CheckpointId(0)
        self._dropped: list[CompletedCheckpoint] = []
        self.doubtful: CompletedCheckpoint | None = None  # its append may have left an entry; settled by the next entry
        self._seen = False  # whether any entry was ever seen

    @property
    def state(self) -> JournalState:
        """The state after this daemon's last takeover or append."""
        return self._state

    @property
    def last_read(self) -> JournalState:
        """The state as last read, whoever wrote it. Nothing is decided by it, because another thread may be reading."""
        return self._last_read

    @property
    def identity(self) -> Identity | None:
        """The identity of this daemon's entries; None before its takeover."""
        return self._identity

    def read(self) -> JournalState:
        """Reads the current state without deciding anything. If nothing was appended since, only one entry is read.

        Raises StorageError, ObjectCorrupt, JournalRefused; JournalLost when entries that were seen before are gone.
        """
        for _ in range(READ_TRIES):
            sequences = list_entries(self._storage)
            if not sequences:
                if self._seen or self._state.newest is not None:
                    raise self._vanished()
                if not self._storage.list(STATE_PREFIX):
                    return EMPTY
                if not list_entries(self._storage):  # otherwise another daemon has just begun
                    raise journal_gone(self._storage)
                continue
            self._seen = True
            known = () if self.passed_over else (self._state, self._last_read)
            try:
                self._last_read, self.passed_over = read_listed(
                    self._storage, sequences, may_repeat=self._may_repeat, known=known
                )
            except ObjectMissing:
                continue  # cleaned up between listing and reading: there is a newer entry
            return self._last_read
        raise StorageError(
            f"{self._storage.location}: the journal changed {READ_TRIES} times while it was read; another daemon runs "
            "this pipeline: stop one of the two",
            location=self._storage.location,
        )

    def read_own(self) -> JournalState:
        """Reads like `read`; raises Superseded if another daemon has taken over since this one did."""
        state = self.read()
        if self._state.newest and state.newest and state.newest.writer.token != self._writer.token:
            raise self._superseded(state.newest.sequence)
        return state

    def take_over(
        self, identity: Identity, at_ms: int, above: Used = NOTHING_USED, replaced: Sequence[str] = ()
    ) -> JournalState:
        """Begins a new attempt, after which no other daemon can decide. The returned state ends with the new entry.

        Attempt and checkpoint ids will be greater than those of `above`, which another journal has used. `replaced` are
        tokens of other journals that this one replaces.

        Only the first takeover of a daemon supersedes others. Later ones follow a failed attempt. If another daemon has
        decided in the meantime, this one is older and raises Superseded. Raises JournalLost like `read`.
        """
        self._identity = None
        for _ in range(TAKEOVER_TRIES):
            state = self.read_own()
            entry = Takeover(
                format_version=FORMAT_VERSION,
                sequence=state.next_sequence,
                floor=state.floor_with(0, self._retained),
                attempt=Attempt(max(state.attempt, above.attempt) + 1),
                writer=self._writer,
                reserved_to=CheckpointId(max(state.reserved_to, above.checkpoint) + self._id_reserve),
                identity=identity,
                at_ms=at_ms,
                journal=state.journal or self._writer.token[:JOURNAL_TOKEN_LENGTH],
                replaces=tuple(dict.fromkeys((*state.replaces, *replaced)))[-REPLACED_MAX:],
                origin=state.origin,
                first_checkpoint=CheckpointId(max(state.reserved_to, above.checkpoint) + 1),
            )
            if self._create(entry):
                self._state = state.after(entry)
                self.doubtful = None
                self._identity = identity
                self._used_before = CheckpointId(entry.first_checkpoint - 1)
                return self._state
        raise StorageError(
            f"{self._storage.location}: others appended to the journal {TAKEOVER_TRIES} times during the takeover; "
            "several daemons run this pipeline: stop all but one",
            location=self._storage.location,
        )

    def append_checkpoint(self, checkpoint: CompletedCheckpoint) -> Appended:
        """Decides: when this returns, the checkpoint is complete and its transactions must be committed.

        Raises Superseded if another daemon has taken over; StorageError if the storage failed and, as far as known,
        nothing was appended (the next append settles it); AppendUnsettled if only a takeover may continue.
        """
        return self._append(checkpoint, self._owned())

    def adopt(self, upgrade: Upgrade) -> None:
        """Adds the upgrade's directives and begun aggregates to the identity of later checkpoints.

        Call after `take_over`.
        """
        self._identity = msgspec.structs.replace(
            self._owned(), applied_directives=upgrade.applied_directives, begun=upgrade.begun
        )

    def append_salvaged(self, plan: RestorePlan, committables: tuple[Committable, ...], at_ms: int) -> Appended:
        """Appends the restored checkpoint again, under the attempt's next id, with other transactions in its list.

        Called between the takeover and the attempt, when all listed transactions have ended or are lost. Its identity
        is kept, except for names of clusters: positions and states are still distributed as they were written. It
        displaces no older checkpoint, which a user may still want to restore. Raises what `append_checkpoint` raises.
        """
        self._check_restored(plan)
        restored = self._state.retained[-1]
        checkpoint = msgspec.structs.replace(restored.checkpoint, committables=committables)
        identity = adopt_clusters(restored.identity, self._owned())  # the names of the new transactions' clusters
        return self._append_again(plan, Chosen(checkpoint, identity), at_ms, added=0)

    def append_restored(self, plan: RestorePlan, chosen: Chosen, at_ms: int) -> Appended:
        """Appends the checkpoint to continue from as the newest; it is then restored like any other.

        Called between the takeover and the attempt, when no transaction that it does not list can be committed any
        more. `plan` restores the newest. Raises what `append_checkpoint` raises.
        """
        self._check_restored(plan)
        return self._append_again(plan, chosen, at_ms)

    def _append_again(self, plan: RestorePlan, chosen: Chosen, at_ms: int, added: int = 1) -> Appended:
        again = msgspec.structs.replace(
            chosen.checkpoint,
            id=plan.first_checkpoint,
            attempt=plan.attempt,
            triggered_at_ms=at_ms,
            completed_at_ms=at_ms,
        )
        return self._append(again, chosen.identity, chosen.origin, added, again=True)

    def _append(
        self,
        checkpoint: CompletedCheckpoint,
        identity: Identity,
        origin: str = "",
        added: int = 1,
        *,
        again: bool = False,
    ) -> Appended:
        entry = CheckpointEntry(
            format_version=FORMAT_VERSION,
            sequence=self._state.next_sequence,
            floor=self._state.floor_with(added, self._retained),
            attempt=self._state.attempt,
            writer=self._writer,
            reserved_to=CheckpointId(max(self._state.reserved_to, checkpoint.id + self._id_reserve)),
            identity=identity,
            at_ms=checkpoint.completed_at_ms,
            journal=self._state.journal,
            replaces=self._state.replaces,
            origin=origin or self._state.origin,
            checkpoint=checkpoint,
            again=again,
        )
        after = self._state.after(entry)
        before, self.doubtful = self.doubtful, checkpoint
        try:
            self._check_before(entry)
        except StorageError:
            self.doubtful = before  # nothing was written
            raise
        self._create_or_lose(entry)
        dropped = [old.checkpoint for old in self._state.retained if old.sequence < entry.floor]
        self._dropped = [*self._dropped, *dropped][-DROPPED_MAX:]
        self._state = after
        self.doubtful = None  # last, so that another thread always finds it in one of the two
        return Appended(entry.sequence, issue_permit(checkpoint.id, checkpoint.committables), entry.reserved_to)

    def append_ended(self, checkpoint: CheckpointId, at_ms: int) -> None:
        """Records that every transaction of a checkpoint has a definite end and need not be queried again.

        Raises what `append_checkpoint` raises. Appends nothing if the checkpoint is no longer the newest, or lists no
        transactions.
        """
        identity, newest = self._owned(), self._state.newest_checkpoint
        if newest is None or newest.id != checkpoint or not newest.committables:
            return
        entry = EndedEntry(
            format_version=FORMAT_VERSION,
            sequence=self._state.next_sequence,
            floor=self._state.floor_with(0, len(self._state.retained)),  # keeps what a salvage has kept
            attempt=self._state.attempt,
            writer=self._writer,
            reserved_to=self._state.reserved_to,
            identity=identity,
            at_ms=at_ms,
            journal=self._state.journal,
            replaces=self._state.replaces,
            origin=self._state.origin,
            ended=newest.id,
        )
        after = self._state.after(entry)
        self._check_before(entry)
        self._create_or_lose(entry)
        self.doubtful = None
        self._state = after

    @property
    def maybe_listed(self) -> tuple[Committable, ...]:
        """Transactions that the journal lists, as far as known, or that an append of unknown outcome may have listed.

        May be read while another thread appends.
        """
        doubtful = () if self.doubtful is None else self.doubtful.committables
        return (*self._state.committables, *doubtful)

    def release_permit(self) -> CommitPermit | None:
        """Returns the newest checkpoint's permit after an attempt.

        None if nothing is left to end or this daemon does not own the journal.
        """
        newest, listed = self._state.newest_checkpoint, self._state.identity
        if self._identity is None or newest is None or not newest.committables or listed is None:
            return None
        return issue_permit(newest.id, name_committables(newest.committables, listed, self._identity))

    def recovery_permit(self, plan: RestorePlan) -> CommitPermit | None:
        """Returns the restored checkpoint's permit, after the takeover; None if nothing is left to end."""
        self._check_restored(plan)
        return self.release_permit()

    def _owned(self) -> Identity:
        if self._identity is None:
            raise RuntimeError(
                "this daemon does not own the journal: take_over comes first, and after every AppendUnsettled"
            )
        return self._identity

    def _check_restored(self, plan: RestorePlan) -> None:
        if self._identity is None or plan.attempt != self._state.attempt:
            raise RuntimeError(f"attempt {plan.attempt} does not own the journal (attempt {self._state.attempt} does)")
        if plan.checkpoint != self._state.newest_checkpoint:
            raise RuntimeError("the plan restores another checkpoint than the journal's newest")

    def clean_up(self, needed: frozenset[str] = frozenset()) -> int:
        """Deletes entries and state that no retained checkpoint needs; returns the number of objects deleted (C31).

        `needed` are the objects that pending checkpoints list. Called only after an append or takeover. After a
        StorageError the next call deletes the rest; objects that are needed now are left to the sweep of the next
        takeover.
        """
        newest = self._state.newest
        if newest is None:
            return 0
        dropped = [handle for checkpoint in self._dropped for handle in checkpoint.states]
        garbage = decide_garbage(dropped, self._referenced() | needed)
        names = sorted(handle.path for handle in garbage)
        names += [journal_name(s) for s in list_entries(self._storage) if s < newest.floor]
        self._storage.delete_all(names[:SWEPT_MAX])
        self._dropped = []
        return len(names[:SWEPT_MAX])

    def sweep_orphans(self, *, own: bool = False) -> int:
        """Deletes state of undecided checkpoints of older attempts after a takeover, and marks of interrupted restores.

        `own` includes attempts of this daemon that have ended. Ids reserved by then are never used again, so no live
        state is deleted.
        """
        kept, last = self._referenced(), self._state.reserved_to if own else self._used_before
        orphans = [
            name
            for name in self._storage.list(STATE_PREFIX)
            if name not in kept and (owner := checkpoint_of_state(name)) is not None and owner <= last
        ]
        orphans = [*self._storage.list(RESTORING_PREFIX), *orphans][:SWEPT_MAX]
        self._storage.delete_all(orphans)
        return len(orphans)

    def _referenced(self) -> frozenset[str]:
        return listed_paths(entry.checkpoint for entry in self._state.retained)

    def _check_before(self, entry: CheckpointEntry | EndedEntry) -> None:
        """Raises JournalLost if the preceding entry is gone. Writes nothing."""
        before = JournalSequence(entry.sequence - 1)
        if (
            not self._storage.exists(journal_name(before))
            and max(list_entries(self._storage), default=before) <= before
        ):
            self._identity = None
            raise self._vanished()  # a pipeline might continue from an entry written here

    def _create_or_lose(self, entry: CheckpointEntry | EndedEntry) -> None:
        if not self._create(entry):
            self._identity = None
            raise self._lost(entry)

    def _create(self, entry: AnyEntry) -> bool:
        """Creates the entry; returns whether it exists, is this daemon's, and is the newest.

        An unknown outcome is settled by another try: if the first one succeeded, the name is taken and its content is
        this entry, byte for byte.
        """
        name, data = journal_name(entry.sequence), encode_entry(entry)
        for tries_left in reversed(range(PUT_TRIES)):
            try:
                if not self._storage.put_if_absent(name, data) and self._storage.get(name) != data:
                    return False
                break
            except ObjectMissing:
                return False  # taken and already cleaned up: another daemon is far ahead
            except StorageError:
                if not tries_left:
                    raise
        sequences = self._settled_sequences(entry)
        if sequences[-1] > entry.sequence:
            self._identity = None
            raise self._superseded(sequences[-1])
        if entry.sequence > 0 and JournalSequence(entry.sequence - 1) not in sequences:
            self._identity = None  # only a daemon that appends after this entry may remove the one before it
            raise self._vanished()
        return True

    def _settled_sequences(self, entry: AnyEntry) -> list[JournalSequence]:
        """Lists the entries after a write.

        A later entry reveals that a cleanup had removed this one and it was re-created.
        """
        try:
            sequences = list_entries(self._storage)
        except StorageError as failure:
            self._identity = None
            raise AppendUnsettled(
                f"{journal_name(entry.sequence)} was written, but it could not be determined whether it still counts: "
                f"{failure.message}",
                name=journal_name(entry.sequence),
            ) from failure
        return sequences or [JournalSequence(entry.sequence + 1)]

    def _lost(self, entry: CheckpointEntry | EndedEntry) -> Superseded | AppendUnsettled:
        """Returns why the entry's name is taken: by another daemon, or by an own append that seemed to have failed."""
        try:
            taken = read_entry(self._storage, entry.sequence)
        except ObjectMissing:
            return self._superseded(entry.sequence)  # taken and already cleaned up: another daemon is far ahead
        except StorageError as failure:
            return AppendUnsettled(
                f"{journal_name(entry.sequence)} is taken, but it could not be determined by whom: {failure.message}",
                name=journal_name(entry.sequence),
            )
        if taken.writer.token == self._writer.token:
            return AppendUnsettled(
                f"{journal_name(entry.sequence)}: an append that seemed to have failed has succeeded; starting "
                "again from it",
                name=journal_name(entry.sequence),
            )
        return self._superseded(taken.sequence)

    def _vanished(self) -> JournalLost:
        place = f"{self._storage.location.rstrip('/')}/{JOURNAL_PREFIX.rstrip('/')}"
        return JournalLost(
            f"{place} no longer has the entries that this daemon has read or written: the volume was unmounted, or "
            "the directory deleted. Nothing more is decided. Mount the volume, or restore the whole directory from "
            "a backup, and start again",
            location=self._storage.location,
        )

    def _superseded(self, sequence: JournalSequence) -> Superseded:
        """Returns the error. The other daemon's entry is read only for the message and may be unreadable by now."""
        try:
            by = read_entry(self._storage, sequence)
        except StorageError as failure:
            return Superseded(
                f"superseded by another daemon ({journal_name(sequence)}: {failure.message}): this daemon stops; "
                "nothing is lost"
            )
        return Superseded(
            f"superseded by {by.writer}, attempt {by.attempt} ({journal_name(sequence)} in "
            f"{self._storage.location}): this daemon stops; nothing is lost",
            attempt=by.attempt,
            host=by.writer.host,
            pid=by.writer.pid,
        )
