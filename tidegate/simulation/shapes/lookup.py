"""Lookups in a table, and the changes of a table.

The version of a table row is the number of its record. `simulation/lookups.py` judges lookups: which version a row gets
depends on which topic is read faster, but it is never older than what the table's topic held when the attempt began.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from typing_extensions import override

from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.shapes.shape import (
    Content,
    ContentShape,
    Step,
    alternate,
)

if TYPE_CHECKING:
    from tidegate.simulation.timing import Timing
    from tidegate.simulation.workload import InputRecord

STREAM: Final = "orders"
TABLE: Final = "customers"
DELETED_OF: Final = 4
"""One record of the table in this many is a tombstone."""
NULL_OF: Final = 9
"""One record of the stream in this many has a NULL key."""
WAIT_MS: Final = 700
_TABLE: Final[Mapping[str, Any]] = {
    "schema": {"version": "bigint", "cents": "bigint"},
    "metadata": {"key": "id"},
    "on_null": "tombstone",
}
_STEP: Final[Step] = {"name": "customer", "from": TABLE, "table": {"key": "id"}}


class LookupShape(ContentShape):
    """Orders with the version of their customer's row."""

    inputs = (STREAM, TABLE)
    outputs = ("enriched",)
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {TABLE: _TABLE}
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_enriched": {"topic": "enriched", "from": "rows", "key": "customer"}
    }
    exactly_once = True
    growing = False  # the records of a key are in one partition
    bounded = False

    def __init__(self, missing: str = "null", *, gated: bool = True) -> None:
        self.missing = missing
        self.gated = gated
        self.letters = missing == "fail"  # type: ignore[misc]  # the other shapes have it once for all

    @override
    def steps_with(self, timing: Timing | None) -> Sequence[Step]:
        missing = f"wait {WAIT_MS}ms" if self.missing == "wait" else self.missing
        return [
            _STEP,
            {
                "name": "looked-up",
                "from": STREAM,
                "lookup": "customer",
                "on": {"customer": "id"},
                "missing": missing,
                "add": {"version": "customer.version"},
                "begin": "caught-up" if self.gated else "immediately",
            },
            {
                "name": "rows",
                "from": "looked-up",
                "select": {"id": "id", "customer": "customer", "version": "version"},
            },
        ]

    @override
    def choose_inputs(self, topics: Sequence[str], now_s: float, timing: Timing | None) -> Sequence[str]:
        return alternate(topics, now_s)

    @override
    def dress(self, record: InputRecord, now_ms: int) -> Record:
        if record.place.topic == TABLE:
            return _dress_row(record, now_ms)
        row = {**msgspec.json.decode(record.value), "customer": key_of(record)}
        return Record(record.customer.encode(), msgspec.json.encode(row), now_ms)


class TableShape(ContentShape):
    """The changes of a table: for each batch the net effect on each key."""

    inputs = (TABLE,)
    outputs = ("current",)
    own: ClassVar[Mapping[str, Mapping[str, Any]]] = {TABLE: _TABLE}
    steps: ClassVar[Sequence[Step]] = [_STEP]
    sinks: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "to_current": {"topic": "current", "from": "customer", "key": "id"}
    }
    exactly_once = True
    growing = False
    bounded = False

    @override
    def dress(self, record: InputRecord, now_ms: int) -> Record:
        return _dress_row(record, now_ms)

    @override
    def name_of(self, topic: str, content: Content) -> Hashable:
        assert content.row is not None
        return content.row["version"], content.row["_deleted"]


def key_of(record: InputRecord) -> str | None:
    """Returns the key that a record of the stream is looked up by."""
    return None if record.id % NULL_OF == NULL_OF - 1 else record.customer


def is_deleted(record: InputRecord) -> bool:
    """Returns whether a record of the table is a tombstone."""
    return record.id * 7 % DELETED_OF == 1


def _dress_row(record: InputRecord, now_ms: int) -> Record:
    row = None if is_deleted(record) else msgspec.json.encode({"version": record.id, "cents": record.price_cents})
    return Record(record.customer.encode(), row, now_ms)
