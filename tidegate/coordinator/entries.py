"""Journal entries: their content, their bytes, and what is refused when one is read. Pure.

Every entry carries what a later reader must know even when all older entries are gone: who wrote it, whose data it
is about, the highest checkpoint id that may have been used (C10), and the oldest entry that is still needed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, CheckpointId, JournalSequence, OperatorName
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal, unseal
from tidegate.storage.names import journal_name

FORMAT_VERSION: Final = 1


class JournalRefused(TidegateError):
    """The journal cannot be followed: a gap, an unknown version, or entries that contradict one another."""

    code = "journal-refused"
    exit_code = 4
    retriable = False


class Writer(msgspec.Struct, frozen=True):
    """One daemon process. `token` is random and distinguishes its entries from everybody else's."""

    token: str
    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Identity(msgspec.Struct, frozen=True):
    """What the positions, states and committables of an entry refer to; compared at every restore."""

    pipeline: str
    cluster_id: str
    topic_ids: dict[str, str]
    """Topic name -> Kafka's topic id, for all topics of sources and sinks."""
    parallelism: int
    max_parallelism: int
    fingerprint: str = ""
    """Digest of the plan, for people who ask whether the pipeline file was changed."""
    fingerprints: dict[OperatorName, StateFingerprint] = {}
    """What the state of each step means (`plan/state_fingerprints.py`)."""
    words: dict[OperatorName, tuple[str, ...]] = {}
    """What was said about changed state when these states were taken over or begun: each word counts once."""
    begun: dict[OperatorName, dict[str, CheckpointId]] = {}
    """Aggregates that were added to a step with state, and the checkpoint after which they count; under an empty name
    a step whose whole state was reset."""


class JournalEntry(msgspec.Struct, frozen=True):
    """What both kinds have in common."""

    format_version: int
    sequence: JournalSequence
    floor: JournalSequence
    """The oldest entry that is still needed; those below may be missing, cleaned up, or garbage."""
    attempt: Attempt
    writer: Writer
    reserved_to: CheckpointId
    """No checkpoint id above this was used before the next entry; 0 before the first."""
    identity: Identity
    at_ms: int
    """Writer's clock, ms since 1970."""
    journal: str
    """Random token of this journal, in every transactional id: two directories never share one (ADR 20)."""
    replaces: tuple[str, ...] = ()
    """Tokens of journals of the same pipeline that this one has taken the place of, on somebody's word."""
    origin: str = ""
    """What this history was begun from by somebody's choice (`checkpoint 42`, `savepoint 7b3f...`), carried on by every
    later entry, so that the same choice is not made twice; empty for none."""


class Takeover(JournalEntry, frozen=True, kw_only=True, tag="takeover", tag_field="entry"):
    """The writer owns the pipeline from here on, as a new attempt: nobody older can decide anything (ADR 2)."""

    first_checkpoint: CheckpointId
    """The first checkpoint id of the attempt: above all that may have been used before."""


class CheckpointEntry(JournalEntry, frozen=True, kw_only=True, tag="checkpoint", tag_field="entry"):
    """The checkpoint is complete, and its transactions are to be committed."""

    checkpoint: CompletedCheckpoint
    again: bool = False
    """It is an older one, appended once more to continue from: its attempt has not made it, so if it is final that one
    was."""


class EndedEntry(JournalEntry, frozen=True, kw_only=True, tag="ended", tag_field="entry"):
    """The transactions that the newest checkpoint lists are all ended, and nobody has to ask for them again (ADR 20).

    What Kafka knows about an ended transaction is gone after a week or two; what is written here is not.
    """

    ended: CheckpointId
    """The newest checkpoint."""


AnyEntry = Takeover | CheckpointEntry | EndedEntry


class _Version(msgspec.Struct):
    format_version: int


_encoder = msgspec.json.Encoder()
_decode_version = msgspec.json.Decoder(_Version).decode
_decode_entry = msgspec.json.Decoder(AnyEntry).decode


def encode_entry(entry: AnyEntry) -> bytes:
    """Sealed JSON, readable with any pager."""
    return seal(msgspec.json.format(_encoder.encode(entry), indent=1) + b"\n")


def decode_entry(sequence: JournalSequence, data: bytes) -> AnyEntry:
    """Raises ObjectCorrupt for damage and JournalRefused for another format version; both name the file."""
    name = journal_name(sequence)
    body = unseal(name, data)
    try:
        version = _decode_version(body).format_version
    except msgspec.DecodeError as failure:
        raise ObjectCorrupt(f"{name} is intact but not a journal entry: {failure}", name=name) from failure
    if version != FORMAT_VERSION:
        raise JournalRefused(
            f"{name} has format version {version}, this release reads version {FORMAT_VERSION}; run the release that "
            "wrote it",
            name=name,
            version=version,
        )
    try:
        entry: AnyEntry = _decode_entry(body)
    except msgspec.DecodeError as failure:
        raise ObjectCorrupt(f"{name} is intact but not a journal entry: {failure}", name=name) from failure
    if entry.sequence != sequence:
        raise ObjectCorrupt(
            f"{name} holds entry {entry.sequence}: the file was renamed or swapped; put every file of the journal back "
            "under its own name",
            name=name,
        )
    return entry


class Savepoint(msgspec.Struct, frozen=True):
    """Metadata of a savepoint: the object in its folder that says what else belongs to it."""

    format_version: int
    token: str
    """Random; distinguishes this savepoint from every other one, wherever it is moved."""
    written_at_ms: int
    """Writer's clock, ms since 1970."""
    identity: Identity
    checkpoint: CompletedCheckpoint
    """Its states' paths are relative to the folder; it lists no committables."""
    from_rows: bool = False
    """Somebody has made it of rows (`tidegate state write`): no pipeline has written output up to it."""
    keys: int | None = None
    """Entries of its keyed states; None where they cannot be counted."""
