"""Ownership of a pipeline by a checkpoint directory, according to a record in Kafka. Pure (ADR 20).

The journal decides between daemons that share a directory. It cannot detect a directory that is lost, or a second one
of the same pipeline. So the daemon that owns a pipeline leaves a record in Kafka, next to the offsets that it mirrors
to the consumer group of the pipeline's name: its journal, attempt and checkpoint. The record is read before a takeover
and repeatedly while running. It is written after the journal, so it may be older than the journal but never newer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeVar

import msgspec

from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.restore_target import RestoreTarget
from tidegate.errors import PipelineStopped, Superseded
from tidegate.ids import Attempt, CheckpointId, TransactionalId

WRITER_LENGTH: Final = 12
SHOWN: Final = 3

S = TypeVar("S", bound=str)


class OwnershipConflict(PipelineStopped):
    """Kafka knows more about the pipeline than the checkpoint directory; continuing could write output again."""

    code = "ownership-conflict"


class OwnerRecord(msgspec.Struct, frozen=True):
    """The ownership record in Kafka. Within one journal, records are ordered by attempt, then checkpoint."""

    journal: str
    attempt: Attempt
    writer: str
    """The first characters of the writer's token."""
    checkpoint: CheckpointId
    process: str
    """Process and host, for people."""
    origin: str = ""
    """The choice that its history began from, as in JournalEntry."""

    def __str__(self) -> str:
        return f"journal {self.journal}, attempt {self.attempt}, checkpoint {self.checkpoint}, {self.process}"


class Known(msgspec.Struct, frozen=True):
    """Kafka's knowledge of the pipeline's name before a daemon takes over."""

    record: OwnerRecord | None = None
    mirrored: bool = False
    """True if the consumer group has offsets, whoever wrote them."""
    ids: tuple[TransactionalId, ...] = ()
    """Transactional ids of the pipeline."""
    open_journals: tuple[str, ...] = ()
    """Tokens of the journals that have open transactions now."""
    journals: tuple[str, ...] = ()
    """Tokens in all of these ids."""

    @property
    def nothing(self) -> bool:
        """True if the name was never used, or so long ago that Kafka has forgotten it."""
        return self.record is None and not self.mirrored and not self.ids


def merge_known(parts: Iterable[Known]) -> Known:
    """Merges what the clusters of a pipeline know: the newest record of all counts."""
    found = list(parts)
    records = [one.record for one in found if one.record is not None]
    return Known(
        record=derive_newest(records),
        mirrored=any(one.mirrored for one in found),
        ids=_sorted(one.ids for one in found),
        open_journals=_sorted(one.open_journals for one in found),
        journals=_sorted(one.journals for one in found),
    )


def _sorted(parts: Iterable[Sequence[S]]) -> tuple[S, ...]:
    return tuple(sorted({one for part in parts for one in part}))


def derive_newest(records: Iterable[OwnerRecord]) -> OwnerRecord | None:
    """Returns the newest of some records.

    Journals are compared by attempt and checkpoint, which continue to count when one journal replaces another.
    """
    return max(records, key=lambda one: (one.attempt, one.checkpoint), default=None)


class _Envelope(msgspec.Struct, frozen=True):
    tidegate: OwnerRecord


def derive_record(state: JournalState) -> OwnerRecord:
    """Derives the record of the daemon that owns this journal, after its takeover."""
    if state.newest is None:
        raise ValueError("an empty journal has no owner")
    newest = state.newest_checkpoint
    return OwnerRecord(
        journal=state.journal,
        attempt=state.attempt,
        writer=state.newest.writer.token[:WRITER_LENGTH],
        checkpoint=CheckpointId(0) if newest is None else newest.id,
        process=str(state.newest.writer),
        origin=state.origin,
    )


def encode_record(record: OwnerRecord) -> str:
    """Encodes a record as text for the metadata of a committed offset: about 200 bytes; Kafka allows 4,096."""
    return msgspec.json.encode(_Envelope(record)).decode()


def derive_newest_record(texts: Iterable[str]) -> OwnerRecord | None:
    """Returns the newest record among the metadata of a group's offsets; other texts are ignored.

    Partitions that were not read since keep older records, also of journals that were replaced.
    """
    found = []
    for text in set(texts):
        try:
            found.append(msgspec.json.decode(text, type=_Envelope).tidegate)
        except msgspec.DecodeError:
            continue
    return derive_newest(found)


def decide_owner(state: JournalState, known: Known, *, place: str, consent: bool) -> tuple[str, ...]:
    """Decides before a takeover which journals this one replaces; returns their tokens, usually none.

    `consent` means that the user allows output to be written again. Raises OwnershipConflict without it if Kafka knows
    more than the directory.
    """
    if state.newest is None:
        if known.nothing or consent:
            return tuple(sorted({*known.journals, *(() if known.record is None else (known.record.journal,))}))
        raise OwnershipConflict(_tell_empty(known, place), place=place)
    problem = _find_problem(state, known)
    if not problem:
        return ()
    if consent:
        record = {known.record.journal} if known.record is not None else set()
        return tuple(sorted((record | set(known.open_journals)) - {state.journal}))
    raise OwnershipConflict(
        f"{place}: {problem}. Continuing from this directory would write output again that is already committed, so "
        "nothing was started. The choices: name the right directory; or, if readers tolerate duplicate "
        "output, start with --restore ID --repeat-output (`tidegate checkpoints FILE` lists the ids)",
        place=place,
    )


def refuse_repeated(state: JournalState, known: Known, target: RestoreTarget, *, place: str) -> None:
    """Raises OwnershipConflict if the pipeline has continued from `target` before and its directory does not record it.

    The directory may be empty or a different one. A supervisor repeats a command line at every start, but consent to
    repeated output covers only the first one (ADR 12).
    """
    record = known.record
    if (
        record is None
        or record.origin != target.origin
        or (state.newest is not None and not _find_problem(state, known))
    ):
        return
    what = "is empty" if state.newest is None else "has no record of it"
    raise OwnershipConflict(
        f"{place} {what}, but the pipeline has continued from {target.title} before: its consumer group has the record "
        f"of {record}. Restoring it once more would write output again, so nothing was started. The choices: mount the "
        "volume, or correct `checkpoints.directory`; or add --begin-anew to --restore PATH --repeat-output, if "
        "readers tolerate duplicate output",
        place=place,
    )


def decide_still_owner(own: OwnerRecord, replaces: Collection[str], found: OwnerRecord | None) -> None:
    """Raises Superseded when a daemon with another directory has taken over; called while running."""
    if found is None or found.journal in replaces:
        return
    if found.journal == own.journal:
        older = found.attempt < own.attempt
        if older or (found.attempt == own.attempt and found.writer == own.writer):
            return
    elsewhere = "" if found.journal == own.journal else ", with another checkpoint directory"
    raise Superseded(
        f"superseded by {found.process}, attempt {found.attempt}{elsewhere} (its record in Kafka: {found}; this one is "
        f"{own}): this daemon stops; nothing is lost",
        attempt=found.attempt,
    )


def _find_problem(state: JournalState, known: Known) -> str:
    record, newest = known.record, state.newest_checkpoint
    if record is None:
        foreign = sorted(set(known.open_journals) - {state.journal, *state.replaces})
        if not foreign:
            return ""
        return (
            f"transactions of this pipeline's name are open that belong to another checkpoint directory (journal "
            f"{', '.join(foreign)}; this one is {state.journal}): does another daemon run?"
        )
    if record.journal in state.replaces:
        return ""
    if record.journal != state.journal:
        return (
            f"the pipeline has continued from another checkpoint directory ({record}); the journal here is "
            f"{state.journal}, attempt {state.attempt}"
        )
    assert state.newest is not None
    id_here = 0 if newest is None else newest.id
    another = record.attempt == state.attempt and not state.newest.writer.token.startswith(record.writer)
    if record.attempt > state.attempt or record.checkpoint > id_here or another:
        return (
            f"the pipeline is further along than this journal ({record}; here the newest are attempt {state.attempt} "
            f"and checkpoint {id_here}): this is an old copy of the directory"
        )
    return ""


def _tell_empty(known: Known, place: str) -> str:
    facts = []
    if known.record is not None:
        facts.append(f"its consumer group has the record of {known.record}")
    elif known.mirrored:
        facts.append("its consumer group has offsets")
    if known.ids:
        more = f" and {len(known.ids) - SHOWN} more" if len(known.ids) > SHOWN else ""
        facts.append(f"there are transactional ids of it ({', '.join(known.ids[:SHOWN])}{more})")
    return (
        f"{place} is empty, but Kafka knows this pipeline: {' and '.join(facts)}. Starting over would write output "
        "again, so nothing was started. The choices: mount the volume, or correct `checkpoints.directory`; restore a "
        "savepoint (--restore PATH --repeat-output); or begin as `start` says with --begin-anew, if readers tolerate "
        "duplicate "
        "output"
    )
