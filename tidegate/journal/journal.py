"""The journal in storage: taking over, appending decisions, cleaning up after them.

Thin: what entries look like is in `entries.py`, how they are read in `reading.py`, and what they mean in
`journal_state.py`. Whoever creates entry n has decided; whoever finds it taken by somebody else is superseded and
stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.committable import Committable
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
from tidegate.coordinator.permit import CommitPermit, issue_permit
from tidegate.coordinator.recovery import Chosen, RestorePlan
from tidegate.coordinator.shared_files import decide_garbage, listed_paths
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
    """Whether an entry exists is unknown; only a new takeover, which reads the journal again, may continue."""

    code = "journal-unsettled"


class JournalVanished(PipelineStopped):
    """The journal of this daemon is not where it was: deleted, or the volume is not mounted any more."""

    code = "journal-vanished"


class Used(msgspec.Struct, frozen=True):
    """Numbers that are taken."""

    attempt: Attempt
    checkpoint: CheckpointId


NOTHING_USED: Final = Used(Attempt(0), CheckpointId(0))


class Appended(msgspec.Struct, frozen=True):
    """A durable decision and what it allows."""

    sequence: JournalSequence
    permit: CommitPermit
    reserved_to: CheckpointId


class Journal:
    """See the module. One instance per daemon, used by one thread at a time.

    `retained` completed checkpoints are kept (at least 1); `id_reserve` is how many checkpoint ids may be used
    between two entries (C10). The journal decides nothing before `take_over`. With `may_repeat` somebody has said that
    output may be written again: then entries may be missing in front of a checkpoint.
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
        """What is wrong with older entries, which the newest checkpoint makes unnecessary; of the last reading."""
        self._identity: Identity | None = None
        self._state = EMPTY
        self._last_read = EMPTY
        self._used_before = CheckpointId(0)
        self._dropped: list[CompletedCheckpoint] = []
        self.doubtful: CompletedCheckpoint | None = None  # its append may have left an entry; until one has its place
        self._seen = False  # any entry, at any time

    @property
    def state(self) -> JournalState:
        """As of the last own takeover or append."""
        return self._state

    @property
    def last_read(self) -> JournalState:
        """As of the last reading, whoever has written it. Nothing is decided by it: a thread may just be reading."""
        return self._last_read

    @property
    def identity(self) -> Identity | None:
        """What the own entries refer to; None before the own takeover."""
        return self._identity

    def read(self) -> JournalState:
        """What is true now; decides nothing. Where nothing was appended since it was known, one entry is read.

        Raises StorageError, ObjectCorrupt, JournalRefused; JournalVanished when entries that it has seen are gone.
        """
        for _ in range(READ_TRIES):
            sequences = list_entries(self._storage)
            if not sequences:
                if self._seen or self._state.newest is not None:
                    raise self._vanished()
                if not self._storage.list(STATE_PREFIX):
                    return EMPTY
                if not list_entries(self._storage):  # else another daemon has just begun
                    raise journal_gone(self._storage)
                continue
            self._seen = True
            known = () if self.passed_over else (self._state, self._last_read)
            try:
                self._last_read, self.passed_over = read_listed(
                    self._storage, sequences, may_repeat=self._may_repeat, known=known
                )
            except ObjectMissing:
                continue  # cleaned up between the listing and the reading: there is a newer entry
            return self._last_read
        raise StorageError(
            f"{self._storage.location}: the journal changed {READ_TRIES} times while it was read; another daemon runs "
            "this pipeline: stop one of the two",
            location=self._storage.location,
        )

    def read_own(self) -> JournalState:
        """As `read`; raises Superseded when somebody else has taken over since the own takeover."""
        state = self.read()
        if self._state.newest and state.newest and state.newest.writer.token != self._writer.token:
            raise self._superseded(state.newest.sequence)
        return state

    def take_over(
        self, identity: Identity, at_ms: int, above: Used = NOTHING_USED, replaced: Sequence[str] = ()
    ) -> JournalState:
        """Begin a new attempt: from now on nobody else can decide. The state returned ends with the own entry.

        Attempt and checkpoint ids will be greater than those of `above`, whose history another journal holds.
        `replaced` are tokens of other journals that this one takes the place of.

        Only the first takeover of a daemon supersedes others. Later ones follow a failed attempt: when somebody else
        has decided meanwhile, this daemon is the older one, and raises Superseded. JournalVanished as `read`.
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
        """THE decision: when this returns, the checkpoint is complete and its transactions must be committed.

        Raises Superseded when somebody else has taken over; StorageError when the storage failed and nothing was
        appended as far as is known (the next append settles it); AppendUnsettled when only a takeover may go on.
        """
        return self._append(checkpoint, self._owned())

    def adopt(self, upgrade: Upgrade) -> None:
        """What the attempt has taken over and said is part of what its checkpoints refer to. After `take_over`."""
        self._identity = msgspec.structs.replace(self._owned(), words=upgrade.words, begun=upgrade.begun)

    def append_salvaged(self, plan: RestorePlan, committables: tuple[Committable, ...], at_ms: int) -> Appended:
        """The restored checkpoint once more, under the attempt's next id, with other transactions in its list.

        Between the own takeover and the attempt, when the listed transactions are all ended or lost. Its identity
        stays: positions and states are still dealt out as they were written. It pushes out no older checkpoint, which
        somebody may go back to. Raises what `append_checkpoint` raises.
        """
        self._check_restored(plan)
        restored = self._state.retained[-1]
        checkpoint = msgspec.structs.replace(restored.checkpoint, committables=committables)
        return self._append_again(plan, Chosen(checkpoint, restored.identity), at_ms, added=0)

    def append_restored(self, plan: RestorePlan, chosen: Chosen, at_ms: int) -> Appended:
        """The checkpoint to continue from in place of the newest, as the newest. It is then restored like any other.

        Between the own takeover and the attempt, when no transaction that it does not list can be committed any more.
        `plan` restores the newest. Raises what `append_checkpoint` raises.
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
        self.doubtful = None  # last: at no moment may somebody who looks from another thread find it in neither
        return Appended(entry.sequence, issue_permit(checkpoint.id, checkpoint.committables), entry.reserved_to)

    def append_ended(self, at_ms: int) -> None:
        """Every transaction that the newest checkpoint lists has a definite end: nobody has to ask for it any more.

        Raises what `append_checkpoint` raises. Nothing is appended where nothing is listed.
        """
        identity, newest = self._owned(), self._state.newest_checkpoint
        if newest is None or not newest.committables:
            return
        entry = EndedEntry(
            format_version=FORMAT_VERSION,
            sequence=self._state.next_sequence,
            floor=self._state.floor_with(0, len(self._state.retained)),  # what a salvage has left is left
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
        """What the journal lists, as far as is known here, and what an append of unknown outcome may have listed.

        May be asked for while an append is under way in another thread.
        """
        doubtful = () if self.doubtful is None else self.doubtful.committables
        return (*self._state.committables, *doubtful)

    def release_permit(self) -> CommitPermit | None:
        """Of the newest checkpoint, when an attempt has ended; None with nothing to end, or a journal not ours."""
        newest = self._state.newest_checkpoint
        if self._identity is None or newest is None or not newest.committables:
            return None
        return issue_permit(newest.id, newest.committables)

    def recovery_permit(self, plan: RestorePlan) -> CommitPermit | None:
        """The permit of the checkpoint that is restored, after the own takeover; None when nothing is left to end."""
        self._check_restored(plan)
        return self.release_permit()

    def _owned(self) -> Identity:
        if self._identity is None:
            raise RuntimeError("the journal belongs to nobody: take_over comes first, and after every AppendUnsettled")
        return self._identity

    def _check_restored(self, plan: RestorePlan) -> None:
        if self._identity is None or plan.attempt != self._state.attempt:
            raise RuntimeError(f"attempt {plan.attempt} does not own the journal (attempt {self._state.attempt} does)")
        if plan.checkpoint != self._state.newest_checkpoint:
            raise RuntimeError("the plan restores another checkpoint than the journal's newest")

    def clean_up(self, needed: frozenset[str] = frozenset()) -> int:
        """Delete entries and state that no retained checkpoint needs; the number of objects deleted (C31).

        `needed` are the objects that pending checkpoints list. Called after an append or takeover, never before. A
        StorageError leaves the rest to the next call; what is needed now is left to the next takeover's sweep.
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
        """After a takeover: delete state of older attempts that no retained checkpoint needs (undecided checkpoints),
        and marks of savepoints that daemons before this one were restoring.

        `own`: of this daemon's, too, which have ended. Ids reserved by then are never used again: nothing alive is hit.
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
        """Raises JournalVanished where the entry before it is gone. Nothing is written."""
        before = JournalSequence(entry.sequence - 1)
        if (
            not self._storage.exists(journal_name(before))
            and max(list_entries(self._storage), default=before) <= before
        ):
            self._identity = None
            raise self._vanished()  # a pipeline might continue from an entry that is left there

    def _create_or_lose(self, entry: CheckpointEntry | EndedEntry) -> None:
        if not self._create(entry):
            self._identity = None
            raise self._lost(entry)

    def _create(self, entry: AnyEntry) -> bool:
        """Whether the entry is there and is ours, and nothing newer is. An unknown outcome is settled by trying again:
        if the first try had worked, the name is taken and the content is, byte for byte, this entry.
        """
        name, data = journal_name(entry.sequence), encode_entry(entry)
        for tries_left in reversed(range(PUT_TRIES)):
            try:
                if not self._storage.put_if_absent(name, data) and self._storage.get(name) != data:
                    return False
                break
            except ObjectMissing:
                return False  # taken and already cleaned up: somebody is far ahead
            except StorageError:
                if not tries_left:
                    raise
        sequences = self._settled_sequences(entry)
        if sequences[-1] > entry.sequence:
            self._identity = None
            raise self._superseded(sequences[-1])
        if entry.sequence > 0 and JournalSequence(entry.sequence - 1) not in sequences:
            self._identity = None  # only whoever appends after this entry may remove the one before it
            raise self._vanished()
        return True

    def _settled_sequences(self, entry: AnyEntry) -> list[JournalSequence]:
        """A clean-up may have removed entry n and a superseded writer re-created it: a later entry shows which."""
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
        """Why the entry's place is taken: by somebody else, or by an own append that was thought to have failed."""
        try:
            taken = read_entry(self._storage, entry.sequence)
        except ObjectMissing:
            return self._superseded(entry.sequence)  # taken and already cleaned up: somebody is far ahead
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

    def _vanished(self) -> JournalVanished:
        place = f"{self._storage.location.rstrip('/')}/{JOURNAL_PREFIX.rstrip('/')}"
        return JournalVanished(
            f"{place} does not have the entries any more that this daemon has read or written there: was the volume "
            "unmounted, or the directory deleted? Nothing more is decided. Mount the volume, or put the whole "
            "directory back from a backup, and start again",
            location=self._storage.location,
        )

    def _superseded(self, sequence: JournalSequence) -> Superseded:
        """That somebody else has decided is known; who it was is for people, and need not be readable any more."""
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
