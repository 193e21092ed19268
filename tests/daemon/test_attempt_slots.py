"""Which of several errors is the cause of an attempt's end."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import msgspec

from tidegate.daemon.attempt_slots import SlotError, SlotRefused, derive_cause, derive_slot_error
from tidegate.errors import AttemptFailed
from tidegate.formats.failures import FailureKind, RecordFailure, RecordPlace
from tidegate.slot.faults import derive_failure
from tidegate.task.bad_records import BadRecord, FatalRecords
from tidegate.task.messages import SlotFailed

SLOT: Any = SimpleNamespace()


def bad_record(partition: int, offset: int) -> SlotFailed:
    """As a slot reports it, over the wire."""
    fatal = FatalRecords()
    fatal.add(RecordPlace("orders", partition, offset), "step a", RecordFailure(0, FailureKind.WRONG_TYPE, "x"))
    try:
        fatal.raise_first()
    except BadRecord as error:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(derive_failure(error)), type=SlotFailed)
    raise AssertionError


def test_of_bad_records_in_several_slots_the_first_of_the_lowest_partition_is_the_cause() -> None:
    reports = [bad_record(2, 5), bad_record(1, 30), bad_record(1, 4)]
    errors = [AttemptFailed("a peer is gone"), *(derive_slot_error(SLOT, one) for one in reports)]
    for order in permutations(errors):
        cause = derive_cause(order)
        assert isinstance(cause, SlotRefused)
        assert cause.exit_code == 4
        assert cause.fields == {"code": "bad-record", "fault": "", "topic": "orders", "partition": 1, "offset": 4}


def test_the_first_of_equal_causes_counts() -> None:
    first, second = (SlotRefused(text, code="sink-refused", fault="") for text in "ab")
    assert derive_cause([AttemptFailed("x"), first, second]) is first
    record = derive_slot_error(SLOT, bad_record(0, 0))
    assert derive_cause([first, record]) is first
    assert derive_cause([record, first]) is record
    peer, lost = SlotError("p", code="peer-lost"), SlotError("q", code="internal")
    assert derive_cause([peer, lost]) is lost
