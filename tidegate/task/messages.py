"""The messages between the daemon and a slot on the control connection.

Every message belongs to the attempt of its connection. A slot's Hello carries attempt and token, any other opening is
rejected, and a connection never outlives its attempt (C37). Messages are length-prefixed msgpack.
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
from tidegate.plan.taps import TapPoint
from tidegate.storage.base import NO_OPTIONS, StorageOptions
from tidegate.task.elements import Barrier
from tidegate.task.report import SlotReport

LENGTH: Final = struct.Struct("!I")
MESSAGE_BYTES_MAX: Final = 256 << 20


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """First message of a slot. `data_host` is the address at which other slots reach it: its end of this connection."""

    attempt: Attempt
    token: str
    partition: int
    """Spark's barrier partition. Only a name: the daemon assigns the slot index."""
    process: int
    host: str
    data_port: int
    version: str
    python: str


class Running(msgspec.Struct, frozen=True, tag="running"):
    """Report that the slot is deployed: state restored, channels connected, sources reading,
    `storage.shared` answered.
    """


class Acknowledged(msgspec.Struct, frozen=True, tag="ack"):
    """A subtask's acknowledgement of a checkpoint."""

    ack: Ack


class Declined(msgspec.Struct, frozen=True, tag="decline"):
    """A subtask's refusal of a checkpoint."""

    decline: Decline


class SourceFinished(msgspec.Struct, frozen=True, tag="source-finished"):
    """Report that a bounded source subtask has returned everything up to its end."""

    source: OperatorName


class InputCaughtUp(msgspec.Struct, frozen=True, tag="input-caught-up"):
    """Report that an input that opens a gate has caught up with what its topics held when the attempt started.

    Sent once per attempt.
    """

    vertex: VertexId
    port: int


class Heartbeat(msgspec.Struct, frozen=True, tag="heartbeat"):
    """Heartbeat of the slot's control thread. `loop_age_ms` is the time since the last turn of the loop, 0
    before that.
    """

    loop_age_ms: int
    report: SlotReport
    open_transactions: dict[VertexId, int | None]
    """Per vertex with sinks: ms since the oldest unfinished transaction received its first record, or None."""
    user_code: str = ""
    """The step whose code the loop runs at this moment, and where it is: `visits (visits.py:14 in process)`."""


class SlotFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Report that the slot gives up; it exits after this message."""

    code: str
    message: str
    retriable: bool
    exit_code: int
    traceback: str = ""
    fault: str = ""
    """Kind and traceback of a program error, as in coordinator.restart.AttemptFailure."""
    record: RecordPlace | None = None
    """The bad record that stopped the pipeline."""


class LogRecord(msgspec.Struct, frozen=True, tag="log"):
    """A log record of the slot, printed by the daemon."""

    level: int
    logger: str
    message: str
    time_ms: int
    exception: str = ""


class SchemasWanted(msgspec.Struct, frozen=True, tag="schemas-wanted"):
    """Request for schemas: records refer to these ids or GUIDs, and wait for the schemas."""

    ids: tuple[int | str, ...]


class SchemaUnfit(msgspec.Struct, frozen=True, tag="schema-unfit"):
    """Report that a source cannot read records written with this schema: they are bad. Sent once per id."""

    id: int | str
    why: str


class RowsTapped(msgspec.Struct, frozen=True, tag="rows-tapped"):
    """Rows of a tap, each a JSON object in UTF-8."""

    tap: int
    rows: tuple[bytes, ...]
    full: bool = False
    """The slot copies no more, because the next row would exceed the bytes, or because of an error that it logged."""


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """Answer to Stop: everything is closed, and the process is about to exit."""


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
    | RowsTapped
    | Stopped
)


class PeerAddress(msgspec.Struct, frozen=True):
    """Where a slot accepts data connections."""

    host: str
    port: int


class SlotSettings(msgspec.Struct, frozen=True):
    """Settings that every slot needs in addition to the plan."""

    group_id: str
    storage_url: str
    transaction_timeout_ms: int
    checkpoint_interval_ms: int
    heartbeat_interval_ms: int
    lease_ms: int
    pipeline_log_level: int
    max_concurrent: int = 1
    unaligned_after_ms: int | None = None
    """`checkpoints.unaligned`: None for never, 0 for always, otherwise the time limit after which barriers overtake."""
    checkpoints_retained: int = 1
    """`checkpoints.retained`: the base of an increment is kept while fewer newer checkpoints have completed."""
    state_backend: str = "memory"
    storage: StorageOptions = NO_OPTIONS
    local_copies_max_bytes: int = 0
    """Limit for all copies of state files on a machine; 0 disables them."""


class Deploy(msgspec.Struct, frozen=True, tag="deploy"):
    """The work of one slot: the plan, its peers, and the state to restore."""

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
    """Secret of the proof that all slots see the same storage; see storage.shared."""
    renamed: dict[OperatorName, OperatorName] = {}
    """Steps whose states were written under another name: current name -> former name."""
    former_edges: dict[str, str] = {}
    """The same for edges with rows in flight."""
    base: frozenset[CheckpointId] = frozenset()
    """As in RestorePlan."""


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Notice that all slots are running. Rows written earlier belong to no possible checkpoint and would only hold
    readers back.
    """


class Trigger(msgspec.Struct, frozen=True, tag="trigger"):
    """Order to inject this barrier at the sources (C12). A slot obeys only the next one of its own attempt
    (C37, C40).
    """

    pipeline: str
    attempt: Attempt
    barrier: Barrier


class Completed(msgspec.Struct, frozen=True, tag="completed"):
    """Notice that the checkpoint is in the journal and its transactions have ended; `released` ids may be reused."""

    attempt: Attempt
    checkpoint: CheckpointId
    released: frozenset[TransactionalId]


class Abandoned(msgspec.Struct, frozen=True, tag="abandoned"):
    """Notice that the coordinator has aborted the checkpoint."""

    attempt: Attempt
    checkpoint: CheckpointId
    reason: str


class AddPartitions(msgspec.Struct, frozen=True, tag="add-partitions"):
    """Order to read new partitions of a source as well, from their first offset."""

    attempt: Attempt
    source: OperatorName
    partitions: tuple[TopicPartition, ...]


class HoldSources(msgspec.Struct, frozen=True, tag="hold"):
    """Order that these sources of the slot stop reading from now on, and all others read."""

    attempt: Attempt
    sources: frozenset[OperatorName]


class SchemaAnswer(msgspec.Struct, frozen=True, tag="schema"):
    """Answer to SchemasWanted, once per id. Without a schema: the registry has none under that id."""

    id: int | str
    schema: SchemaText | None


class TapRows(msgspec.Struct, frozen=True, tag="tap"):
    """Order to copy the next rows of these outputs, until `EndTap` or the limits."""

    tap: int
    points: tuple[TapPoint, ...]
    rows_max: int
    bytes_max: int


class EndTap(msgspec.Struct, frozen=True, tag="end-tap"):
    """Order to copy no more rows for a tap."""

    tap: int


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Renewal of the slot's lease."""


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Order to close everything and exit. Prepared transactions stay prepared."""


DriverMessage = (
    Deploy
    | Begin
    | Trigger
    | Completed
    | Abandoned
    | AddPartitions
    | HoldSources
    | SchemaAnswer
    | TapRows
    | EndTap
    | Ping
    | Stop
)

_encode = msgspec.msgpack.Encoder().encode
_decode_slot = msgspec.msgpack.Decoder(SlotMessage).decode
_decode_driver = msgspec.msgpack.Decoder(DriverMessage).decode


def encode_message(message: SlotMessage | DriverMessage) -> bytes:
    """Returns the length prefix and the body.

    Error texts and log lines may contain lone surrogates, such as half an emoji returned by a user function. They
    cannot be encoded and are sent as escapes.
    """
    try:
        body = _encode(message)
    except UnicodeEncodeError:
        body = _encode(_escaped(msgspec.to_builtins(message)))
    return LENGTH.pack(len(body)) + body


def escape_halves(text: str) -> str:
    """Writes lone surrogates (undecodable bytes of a file name, broken records) as escapes."""
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
    """Decodes a message from a slot. Raises msgspec.DecodeError for any other bytes."""
    message: SlotMessage = _decode_slot(body)
    return message


def decode_driver_message(body: bytes) -> DriverMessage:
    """Decodes a message from the daemon. Raises msgspec.DecodeError for any other bytes."""
    message: DriverMessage = _decode_driver(body)
    return message
