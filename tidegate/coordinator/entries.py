"""Journal entries: their content, their encoding, and what is refused when one is read. Pure.

Every entry carries what a later reader needs even if all older entries are gone: its writer, the identity of the data,
the highest checkpoint id that may have been used (C10), and the oldest entry that is still needed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, CheckpointId, ClusterName, JournalSequence, OperatorName
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.storage.base import ObjectCorrupt
from tidegate.storage.checksum import seal, unseal
from tidegate.storage.names import journal_name
from tidegate.user_code.describe import CodeMark

FORMAT_VERSION: Final = 1


class JournalRefused(TidegateError):
    """The journal is inconsistent: a gap, an unknown version, or entries that contradict one another."""

    code = "journal-refused"
    exit_code = 4
    retriable = False


class Writer(msgspec.Struct, frozen=True):
    """A daemon process. Its random `token` distinguishes its entries from those of all other processes."""

    token: str
    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class ClusterIdentity(msgspec.Struct, frozen=True):
    """A Kafka cluster that the pipeline uses."""

    id: str
    """Kafka's own id of the cluster."""
    topic_ids: dict[str, str]
    """Topic name -> Kafka's topic id, for all topics of sources and sinks in the cluster."""


class Identity(msgspec.Struct, frozen=True):
    """The pipeline, clusters and plan that the data of an entry belongs to; compared at every restore."""

    pipeline: str
    clusters: dict[ClusterName, ClusterIdentity]
    """The clusters in use; empty in a savepoint that was made from rows without any."""
    parallelism: int
    max_parallelism: int
    fingerprint: str = ""
    """Digest of the plan; shows people whether the pipeline file was changed."""
    fingerprints: dict[OperatorName, StateFingerprint] = {}
    """The state fingerprint of each step (`plan/state_fingerprints.py`)."""
    applied_directives: dict[OperatorName, tuple[str, ...]] = {}
    """Upgrade directives that applied when these states were restored or begun; each is applied only once."""
    begun: dict[OperatorName, dict[str, CheckpointId]] = {}
    """Aggregates added to a step with state, and the checkpoint after which they count.

    A step whose whole state was reset is listed under an empty name.
    """
    code: dict[OperatorName, CodeMark] = {}
    """The user code of each step that runs some. A change is reported and never refused."""
    files: dict[str, str] = {}
    """The files of `code:` by name, with the SHA-256 of their content. A change is reported and never refused."""
    sources: dict[OperatorName, ClusterName] = {}
    """The cluster of each source."""
    sinks: dict[OperatorName, ClusterName] = {}
    """The cluster of each sink."""


class JournalEntry(msgspec.Struct, frozen=True):
    """The fields that all kinds of entries have."""

    format_version: int
    sequence: JournalSequence
    floor: JournalSequence
    """The oldest entry that is still needed; older ones may be missing, cleaned up, or garbage."""
    attempt: Attempt
    writer: Writer
    reserved_to: CheckpointId
    """No checkpoint id above this was used before the next entry; 0 before the first."""
    identity: Identity
    at_ms: int
    """Writer's clock, ms since 1970."""
    journal: str
    """Random token of this journal, part of every transactional id: two directories never share one (ADR 20)."""
    replaces: tuple[str, ...] = ()
    """Tokens of journals of the same pipeline that this one has replaced at a user's request."""
    origin: str = ""
    """The user's choice that this history began from (`checkpoint 42`, `savepoint 7b3f...`); empty for none.

    Every later entry repeats it, so that the same choice is not applied twice.
    """


class Takeover(JournalEntry, frozen=True, kw_only=True, tag="takeover", tag_field="entry"):
    """The writer owns the pipeline from here on, as a new attempt; no older daemon can decide anything (ADR 2)."""

    first_checkpoint: CheckpointId
    """The first checkpoint id of the attempt: above all that may have been used before."""


class CheckpointEntry(JournalEntry, frozen=True, kw_only=True, tag="checkpoint", tag_field="entry"):
    """The checkpoint is complete, and its transactions must be committed."""

    checkpoint: CompletedCheckpoint
    again: bool = False
    """True if this is an older checkpoint, appended again to continue from.

    If it is final, only the older attempt ended.
    """


class EndedEntry(JournalEntry, frozen=True, kw_only=True, tag="ended", tag_field="entry"):
    """All transactions that the newest checkpoint lists have ended, so they need not be queried again (ADR 20).

    Kafka forgets an ended transaction after a week or two; the journal does not.
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
    """Encodes an entry as sealed JSON that can be read with any pager."""
    return seal(msgspec.json.format(_encoder.encode(entry), indent=1) + b"\n")


def decode_entry(sequence: JournalSequence, data: bytes) -> AnyEntry:
    """Decodes an entry.

    Raises ObjectCorrupt for damage and JournalRefused for another format version; both name the file.
    """
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
    """Metadata of a savepoint: the object in its folder that lists everything else that belongs to it."""

    format_version: int
    token: str
    """Random; distinguishes this savepoint from every other one, wherever it is moved."""
    written_at_ms: int
    """Writer's clock, ms since 1970."""
    identity: Identity
    checkpoint: CompletedCheckpoint
    """The paths of its states are relative to the folder. It lists no committables."""
    from_rows: bool = False
    """True if a user made it from rows (`tidegate state write`), so that no pipeline has written output up to it."""
    keys: int | None = None
    """Number of entries of its keyed states; None where they cannot be counted."""
