"""Infers the columns of a table from its change events, for `tidegate init`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.debezium import ADDED
from tidegate.formats.kinds.debezium.envelope import NoChange
from tidegate.formats.kinds.debezium.json_decoder import read_change
from tidegate.formats.kinds.debezium.json_values import read_types
from tidegate.formats.kinds.json.inference import InferredColumn, LeftOut, derive_schema, refused_column


class Table(msgspec.Struct, frozen=True):
    """A table according to the events of a topic."""

    columns: tuple[InferredColumn, ...]
    left_out: tuple[LeftOut, ...]
    events: int
    typed: bool
    """True if the types come from the schema in the records, and not only from their values."""


def derive_table(values: Sequence[bytes | None]) -> Table | None:
    """Infers the table; None if most of the records are not change events."""
    rows: list[bytes] = []
    schema = b""
    others = 0
    for value in filter(None, values):
        try:
            change = read_change(value)
        except NoChange as event:  # an event without a row is not counted
            others += event.kind is not FailureKind.UNSUPPORTED_CHANGE
        except (ValueError, RecursionError):
            others += 1
        else:
            rows.append(change.row)
            schema = change.schema or schema
    if len(rows) <= others:
        return None
    types, found = read_types(schema), derive_schema(rows)
    columns = [InferredColumn(one.name, types[one.name]) if one.name in types else one for one in found.columns]
    left_out: list[LeftOut] = []
    for one in found.left_out:  # values too different for inference may still have a type in the schema
        if one.path in types and not refused_column(one.path):
            columns.append(InferredColumn(one.path, types[one.path]))
        else:
            left_out.append(one)
    own = tuple(one for one in columns if one.name not in ADDED)
    taken = [one.name for one in columns if one.name in ADDED]
    left_out += [LeftOut(name, f"every debezium source has a column `{name}`") for name in taken]
    return Table(own, tuple(left_out), len(rows), bool(types))


def find_key(keys: Sequence[bytes | None]) -> list[str]:
    """Returns the columns of the table's key, taken from the first key that is an object."""
    for key in filter(None, keys):
        try:
            found: Any = msgspec.json.decode(key)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("payload"), dict):
            found = found["payload"]
        if isinstance(found, dict):
            return list(found)
    return []
