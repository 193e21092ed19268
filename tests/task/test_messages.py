"""Messages between the daemon and a slot survive their encoding (contract C37: each names its attempt)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.task.fakes import ATTEMPT
from tests.task.topologies import shuffle_plan
from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.types import Ack, Decline, SourcePositions, StateHandle
from tidegate.formats.failures import RecordPlace
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, SubtaskId, TopicPartition, TransactionalId, VertexId
from tidegate.plan.taps import TapPoint
from tidegate.task.elements import Barrier
from tidegate.task.messages import (
    LENGTH,
    Abandoned,
    Acknowledged,
    AddPartitions,
    Begin,
    Completed,
    Declined,
    Deploy,
    DriverMessage,
    EndTap,
    Heartbeat,
    Hello,
    LogRecord,
    PeerAddress,
    Ping,
    RowsTapped,
    Running,
    SchemasWanted,
    SlotFailed,
    SlotMessage,
    SlotSettings,
    SourceFinished,
    Stop,
    Stopped,
    TapRows,
    Trigger,
    decode_driver_message,
    decode_slot_message,
    encode_message,
)
from tidegate.task.report import SlotReport

SUBTASK = SubtaskId(VertexId("total"), SlotIndex(1))
ORDERS = TopicPartition("orders", 3)
POSITIONS = SourcePositions(OperatorName("read"), ((ORDERS, 2**40),), ((ORDERS, 2**41),))
STATE = StateHandle(OperatorName("total"), SlotIndex(1), "states/1", 9, "ab", 5, "cd")
COMMITTABLE = Committable(
    sink=OperatorName("write"),
    subtask=SlotIndex(1),
    attempt=ATTEMPT,
    checkpoint=CheckpointId(2),
    transactional_id=TransactionalId("p.write.1.5-j.0"),
    producer_id=2**50,
    producer_epoch=7,
    written=(WrittenRange(ORDERS, 5, 9, 3),),
    opened_at_ms=1,
    timeout_ms=60_000,
)
ACK = Ack(ATTEMPT, CheckpointId(2), SUBTASK, (POSITIONS,), (STATE,), (COMMITTABLE,), 1.5, 2.5, 3.5, 4.5, 5.5)

FROM_SLOT: list[SlotMessage] = [
    Hello(ATTEMPT, "token", 0, 4711, "127.0.0.1", 5000, "1", "3.11"),
    Running(),
    Acknowledged(ACK),
    Declined(Decline(ATTEMPT, CheckpointId(2), SUBTASK, "declined", "why")),
    SourceFinished(OperatorName("read")),
    Heartbeat(3, SlotReport(), {VertexId("total"): 5, VertexId("again"): None}, "visits (visits.py:14 in process)"),
    SlotFailed("code", "message", True, 1, "trace"),
    SlotFailed("bad-record", "message", False, 4, record=RecordPlace("orders", 0, 7)),
    LogRecord(30, "tidegate", "größer", 1),
    RowsTapped(1, (b'{"k":1}',), full=True),
    Stopped(),
]
FROM_DRIVER: list[DriverMessage] = [
    Deploy(
        attempt=ATTEMPT,
        slot=SlotIndex(1),
        token="token",
        plan=shuffle_plan(2),
        peers=(PeerAddress("a", 1), PeerAddress("b", 2)),
        settings=SlotSettings("group", "file:///x", 60_000, 1000, 500, 5000, 20),
        partitions={OperatorName("read"): (ORDERS,)},
        positions=(POSITIONS,),
        states=(STATE,),
    ),
    Begin(),
    Trigger("shop", ATTEMPT, Barrier(CheckpointId(1), 5, final=True)),
    Completed(ATTEMPT, CheckpointId(1), frozenset({TransactionalId("p.write.1.5-j.0")})),
    Abandoned(ATTEMPT, CheckpointId(1), "timeout"),
    AddPartitions(ATTEMPT, OperatorName("read"), (ORDERS,)),
    TapRows(1, (TapPoint(VertexId("read"), 0, "late", ("k",)),), 10, 1000),
    EndTap(1),
    Ping(),
    Stop(),
]


def name_of(message: object) -> str:
    return type(message).__name__


@pytest.mark.parametrize("message", FROM_SLOT, ids=name_of)
def test_a_message_of_a_slot_survives_its_encoding(message: SlotMessage) -> None:
    encoded = encode_message(message)
    assert LENGTH.unpack_from(encoded) == (len(encoded) - LENGTH.size,)
    assert decode_slot_message(encoded[LENGTH.size :]) == message


@pytest.mark.parametrize("message", FROM_DRIVER, ids=name_of)
def test_a_message_of_the_daemon_survives_its_encoding(message: DriverMessage) -> None:
    assert decode_driver_message(encode_message(message)[LENGTH.size :]) == message


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x81\xa4type\xa7unknown"])
def test_what_nobody_sends_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_slot_message(body)
    with pytest.raises(msgspec.DecodeError):
        decode_driver_message(body)


def test_a_slot_cannot_pass_for_the_daemon() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_driver_message(encode_message(Stopped())[LENGTH.size :])


@pytest.mark.parametrize("message", FROM_SLOT, ids=name_of)
def test_half_characters_are_sent_as_escapes(message: SlotMessage) -> None:
    """A log line or an error of a user's function may have them; they must not end the slot's control thread."""
    decoded = msgspec.to_builtins(message, builtin_types=(bytes,), order="deterministic")
    halved = msgspec.convert(_with_halves(decoded), type(message), builtin_types=(bytes,))
    sent = decode_slot_message(encode_message(halved)[LENGTH.size :])
    assert type(sent) is type(message)
    if isinstance(sent, LogRecord | SlotFailed):
        assert sent.message.endswith(r"\ud83d")
    if isinstance(sent, Declined):
        assert sent.decline.detail.endswith(r"\ud83d")


def test_half_characters_in_a_list_are_sent_as_escapes_too() -> None:
    message = SchemasWanted((7, "a\ud83d"))
    assert decode_slot_message(encode_message(message)[LENGTH.size :]) == SchemasWanted((7, r"a\ud83d"))


def _with_halves(value: Any) -> Any:
    """Free texts of a message, each with half a character at its end."""
    if not isinstance(value, dict):
        return value
    return {
        name: f"{each}\ud83d" if name in ("message", "detail", "exception", "traceback", "why") else _with_halves(each)
        for name, each in value.items()
    }
