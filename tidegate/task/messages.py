"""What the daemon and a slot say to one another over the control connection.

Every message belongs to the attempt of its connection: a slot says hello with attempt and token, anything else is
refused, and a connection never outlives its attempt (C37). Encoded as length-prefixed msgpack.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from tidegate.coordinator.types import Ack, Decline, SourcePositions, StateHandle
from tidegate.formats.failures import RecordPlace
from tidegate.formats.schemas import SchemaText
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId, VertexId
from tidegate.plan.graph import Plan
from tidegate.storage.options import NO_OPTIONS, StorageOptions
from tidegate.task.elements import Barrier
from tidegate.task.report import SlotReport

LENGTH: Final = struct.Struct("!I")
MESSAGE_BYTES_MAX: Final = 256 << 20


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First message of a slot. `data_host` is the address other slots reach it by: its end of this connection."""

    attempt: Attempt
    token: str
    partition: int
    """Spark's barrier partition; only a name, the daemon assigns the slot index."""
    process: int
    host: str
    data_port: int
    version: str
    python: str


class Running(msgspec.Struct, frozen=True, tag="running"):
    """Deployed: state is restored, channels are connected, sources are reading, storage.shared is answered."""


class Acknowledged(msgspec.Struct, frozen=True, tag="ack"):
    """See Ack."""

    ack: Ack


class Declined(msgspec.Struct, frozen=True, tag="decline"):
    """See Decline."""

    decline: Decline


class SourceFinished(msgspec.Struct, frozen=True, tag="source-finished"):
    """A bounded source subtask has returned everything up to its end."""

    source: OperatorName


class InputCaughtUp(msgspec.Struct, frozen=True, tag="input-caught-up"):
    """An input of a subtask that opens a gate has caught up: it is idle, and was asked after its rows whether it still
    is. Sent once in an attempt.
    """

    vertex: VertexId
    port: int


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Sent by the slot's control thread; `loop_age_ms` is the time since the loop last turned, 0 before."""

    loop_age_ms: int
    report: SlotReport
    open_transactions: dict[VertexId, int | None]
    """Vertices with sinks: ms since the oldest transaction that is not ended took its first record, or None."""


class SlotFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The slot gives up; it ends by itself after this."""

    code: str
    message: str
    retriable: bool
    exit_code: int
    traceback: str = ""
    fault: str = ""
    """See coordinator.restart.AttemptFailure."""
    record: RecordPlace | None = None
    """The bad record that has ended the pipeline."""


class LogRecord(msgspec.Struct, frozen=True, tag="log"):
    """A log record of the slot, printed by the daemon."""

    level: int
    logger: str
    message: str
    time_ms: int
    exception: str = ""


class SchemasWanted(msgspec.Struct, frozen=True, tag="schemas-wanted"):
    """Records name schemas of these ids, or GUIDs, and wait for them."""

    ids: tuple[int | str, ...]


class SchemaUnfit(msgspec.Struct, frozen=True, tag="schema-unfit"):
    """A source cannot read what was written with the schema of this id: such records are bad. Once for each id."""

    id: int | str
    why: str


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """Answer to Stop: everything is closed, the process is about to return."""


SlotMessage = (
    Hello
    | Running
    | Acknowledged
    | Declined
    | SourceFinished
    | InputCaughtUp
    | Heartbeat
    | SlotFailed
    | LogRecord
    | SchemasWanted
    | SchemaUnfit
    | Stopped
)


class PeerAddress(msgspec.Struct, frozen=True):
    """Where a slot accepts data connections."""

    host: str
    port: int


class SlotSettings(msgspec.Struct, frozen=True):
    """What every slot needs to know beyond the plan."""

    group_id: str
    storage_url: str
    transaction_timeout_ms: int
    checkpoint_interval_ms: int
    heartbeat_interval_ms: int
    lease_ms: int
    pipeline_log_level: int
    max_concurrent: int = 1
    unaligned_after_ms: int | None = None
    """`checkpoints.unaligned`: None never, 0 always, more: after so long."""
    checkpoints_retained: int = 1
    """`checkpoints.retained`: what an increment builds on is kept while fewer newer checkpoints have completed."""
    state_backend: str = "memory"
    storage: StorageOptions = NO_OPTIONS
    local_copies_max_bytes: int = 0
    """Of all copies of state files on a machine; 0: none are kept."""


class Deploy(msgspec.Struct, frozen=True, tag="deploy"):
    """The work of one slot: the plan, who the others are, and what to restore."""

    attempt: Attempt
    slot: SlotIndex
    token: str
    plan: Plan
    peers: tuple[PeerAddress, ...]
    settings: SlotSettings
    partitions: dict[OperatorName, tuple[TopicPartition, ...]]
    positions: tuple[SourcePositions, ...]
    states: tuple[StateHandle, ...]
    journal: str = ""
    """Token of the journal, for transactional ids."""
    proof: str = ""
    """See storage.shared."""
    renamed: dict[OperatorName, OperatorName] = {}
    """Steps whose states were written under another name: name of now -> that one."""
    former_edges: dict[str, str] = {}
    """The same for edges with rows in flight."""


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """All slots run. What is written before that no checkpoint can complete: it would only hold readers back."""


class Trigger(msgspec.Struct, frozen=True, tag="trigger"):
    """Inject this barrier at the sources (C12). A slot obeys the next one of its own attempt alone (C37, C40)."""

    pipeline: str
    attempt: Attempt
    barrier: Barrier


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """The checkpoint is in the journal and its transactions are ended; `released` ids may be used again."""

    attempt: Attempt
    checkpoint: CheckpointId
    released: frozenset[TransactionalId]


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned"):
    """The coordinator gave the checkpoint up."""

    attempt: Attempt
    checkpoint: CheckpointId
    reason: str


class AddPartitions(msgspec.Struct, frozen=True, tag="add-partitions"):
    """The source has new partitions; this slot reads these, too, from their first offset."""

    attempt: Attempt
    source: OperatorName
    partitions: tuple[TopicPartition, ...]


class HoldSources(msgspec.Struct, frozen=True, tag="hold"):
    """These sources of the slot read nothing from now on, all others read."""

    attempt: Attempt
    sources: frozenset[OperatorName]


class SchemaAnswer(msgspec.Struct, frozen=True, tag="schema"):
    """To SchemasWanted, once for each id; no schema: the registry says that it has none."""

    id: int | str
    schema: SchemaText | None


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Renews the slot's lease."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Close everything and return. Prepared transactions stay prepared."""


DriverMessage = (
    Deploy | Begin | Trigger | Completed | Abandoned | AddPartitions | HoldSources | SchemaAnswer | Ping | Stop
)

_encode = msgspec.msgpack.Encoder().encode
_decode_slot = msgspec.msgpack.Decoder(SlotMessage).decode
_decode_driver = msgspec.msgpack.Decoder(DriverMessage).decode


def encode_message(message: SlotMessage | DriverMessage) -> bytes:
    """Length prefix and body.

    Texts of errors and log lines may have half characters, of an emoji for instance, from a function of the user's.
    Nothing can encode them: they are sent as escapes.
    """
    try:
        body = _encode(message)
    except UnicodeEncodeError:
        body = _encode(_escaped(msgspec.to_builtins(message)))
    return LENGTH.pack(len(body)) + body


def escape_halves(text: str) -> str:
    """Lone surrogates (undecodable bytes of a file name, broken records) are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return escape_halves(value)
        case dict():
            return {_escaped(name): _escaped(each) for name, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
        case _:
            return value


def decode_slot_message(body: bytes) -> SlotMessage:
    """Raises msgspec.DecodeError for what no slot sends."""
    message: SlotMessage = _decode_slot(body)
    return message


def decode_driver_message(body: bytes) -> DriverMessage:
    """Raises msgspec.DecodeError for what no daemon sends."""
    message: DriverMessage = _decode_driver(body)
    return message
