"""A savepoint with a state of many types, and the rows that Spark reads from it."""

from __future__ import annotations

import datetime as dt
import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from tidegate.coordinator.entries import Identity, Savepoint
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.datatypes import BIGINT, BINARY, DOUBLE, STRING, TIMESTAMP, DataType, decimal_of, map_of
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, StateName
from tidegate.journal.savepoint import FORMAT_VERSION, METADATA, encode_metadata
from tidegate.journal.state_files import derive_head
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.snapshot import encode_snapshot
from tidegate.storage.checksum import seal
from tidegate.storage.local import LocalStorage

GROUPS: Final = 8
PLACE: Final = DataType("struct", fields=(("city", STRING), ("days", DataType("array", element=DataType("date")))))
VALUES: Final = (
    StateField("d", decimal_of(20, 2)),
    StateField("at", TIMESTAMP),
    StateField("l", DataType("array", element=BIGINT)),
    StateField("place", PLACE),
    StateField("m", map_of(STRING, decimal_of(5, 2))),
    StateField("a.sum", DOUBLE),
    StateField("a.error", DOUBLE, nullable=False),
    StateField("a.rest", BINARY),
    StateField("a.count", BIGINT, nullable=False),
)
PATH_OPTIONS: Final = {"step": "sums"}
SCHEMA: Final = (
    "struct<k:string,d:decimal(20,2),at:timestamp,l:array<bigint>,place:struct<city:string,days:array<date>>,"
    "m:map<string,decimal(5,2)>,a:double,__tidegate_key_group:int>"
)
_AT: Final = 1_767_323_045_000_006
_HELD: Final[tuple[tuple[int, str, tuple[Any, ...]], ...]] = (
    (
        0,
        "a",
        (
            Decimal("1.50"),
            _AT,
            (1, None),
            ("rome", (0, None)),
            (("x", Decimal("1.50")), ("y", None)),
            1.0,
            0.0,
            None,
            2,
        ),
    ),
    (3, "b", (None, None, None, None, None, None, 0.0, None, 0)),
    (7, "c", (Decimal("0.00"), _AT, (), (None, None), (), 0.25, 0.0, None, 1)),
)
ROWS: Final[tuple[tuple[Any, ...], ...]] = (
    (
        *("a", Decimal("1.50"), "2026-01-02 03:04:05.000006", [1, None]),
        *(("rome", [dt.date(1970, 1, 1), None]), {"x": Decimal("1.50"), "y": None}, 0.5),
    ),
    ("b", None, None, None, None, None, None),
    ("c", Decimal("0.00"), "2026-01-02 03:04:05.000006", [], (None, None), {}, 0.25),
)
"""Rows without the key group; timestamps as text in UTC."""


def write_state(folder: Path) -> Path:
    """Writes the savepoint and returns its folder. Each key has a file of its own."""
    shape = StateShape((StateField("k", STRING),), VALUES, "as they are given", GROUPS)
    declaration = StateDeclaration(StateName("totals"), shape)
    storage = LocalStorage(str(folder))
    handles = []
    for number, (group, key, value) in enumerate(_HELD):
        data = seal(encode_snapshot("sums", declaration, {group: [((key,), value)]}))
        path = f"state/{number:05d}-sums-0.state"
        storage.put(path, data)
        head, head_sha256 = derive_head(data)
        handles.append(
            StateHandle(
                OperatorName("sums"),
                SlotIndex(0),
                path,
                len(data),
                hashlib.sha256(data).hexdigest(),
                state=declaration.name,
                head_bytes=head,
                head_sha256=head_sha256,
            )
        )
    checkpoint = CompletedCheckpoint(CheckpointId(1), Attempt(1), 0, 0, (), tuple(handles), ())
    identity = Identity("shop", {}, 1, GROUPS)
    savepoint = Savepoint(FORMAT_VERSION, "0" * 32, 0, identity, checkpoint)
    storage.put(METADATA, encode_metadata(savepoint))
    return folder
