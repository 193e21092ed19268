"""The envelope of a change event in any encoding: its fields, why an event is not a change of a row, and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import polars as pl

from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.debezium import DELETED, OP, OP_FIELD
from tidegate.formats.row_kinds import BEFORE, INSERT, ROW_KIND, UPDATE_AFTER
from tidegate.formats.row_kinds import DELETE as DELETED_ROW

UNAVAILABLE: Final = "__debezium_unavailable_value"
"""Debezium's placeholder for a value that is not available (`unavailable.value.placeholder`)."""
UNAVAILABLE_BASE64: Final = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
"""The placeholder in a column of bytes."""
UNAVAILABLE_NUMBERS: Final = list(UNAVAILABLE.encode())
"""The placeholder in a column of arrays of integers or dates: its bytes as numbers. (For arrays of decimals, it is
NULL.)
"""
UNAVAILABLE_UUID: Final = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
"""The only element of an array of UUIDs that stands for the placeholder, derived from it."""
ROWS: Final = {"c": "after", "r": "after", "u": "after", "d": "before"}
"""The field with the row, by `op`."""
DELETE: Final = "d"
UPDATE: Final = "u"
_REMEDY: Final = "PostgreSQL writes it with `REPLICA IDENTITY FULL`, MySQL with `binlog_row_image=FULL`"
_NO_ROW: Final = {"t": "truncates the table", "m": "is a logical message"}


class NoChange(Exception):
    """An event that is not an insert, update or delete of a row."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message

    def at(self, row: int) -> RecordFailure:
        """Returns the failure of a record."""
        return RecordFailure(row, self.kind, self.message)


def find_no_change(op: str | None, top: str, *, before: bool, after: bool) -> NoChange | None:
    """Returns why an event is not a change, given which rows it has; None if it is one.

    :param top: prefix of field names in places.
    """
    if op is None:
        return incomplete("the record has no `op`, so it is not a change event", top.removesuffix(".") or OP_FIELD)
    place = ROWS.get(op)
    if place is None:
        what = _NO_ROW.get(op, "is unknown")
        message = f"the event `{op[:20]}` {what} and has no row - at `{top}{OP_FIELD}`"
        return NoChange(FailureKind.UNSUPPORTED_CHANGE, message)
    if not (before if op == DELETE else after):
        return incomplete(f"the event `{op}` has no row in `{place}`", f"{top}{place}")
    return incomplete("a delete has a row in `after`", f"{top}after") if op == DELETE and after else None


def no_row_before(op: str, place: str) -> NoChange:
    """Returns the error for a change that must be retracted but lacks the row before it."""
    return incomplete(f"the event `{op}` has no row in `before`, which must be retracted ({_REMEDY})", place)


def lacks_before(field: str, place: str) -> NoChange:
    """Returns the error for a change whose row before it lacks a column."""
    return incomplete(f"the row in `before` must be retracted, but has no `{field}` ({_REMEDY})", place)


def is_unavailable(value: Any) -> bool:
    """Returns whether a value or a part of it is Debezium's placeholder."""
    match value:
        case str():
            return value in (UNAVAILABLE, UNAVAILABLE_BASE64)
        case bytes():
            return value == UNAVAILABLE.encode()
        case list():
            return value in ([UNAVAILABLE_UUID], UNAVAILABLE_NUMBERS) or any(map(is_unavailable, value))
        case dict():
            return any(map(is_unavailable, value.values()))
    return False


def not_in_log(place: str) -> NoChange:
    """Returns the error for a change with a value that Debezium does not have."""
    return incomplete("the database's log does not contain the value (with `REPLICA IDENTITY FULL` it does)", place)


def incomplete(message: str, place: str) -> NoChange:
    """Returns the error for an event without a required part."""
    return NoChange(FailureKind.INCOMPLETE_CHANGE, f"{message} - at `{place}`")


# -- rows as frames ----------------------------------------------------------------------------------------------------


_KINDS: Final = {UPDATE: UPDATE_AFTER, DELETE: DELETED_ROW}


def make_frame(
    rows: Iterable[pl.Series], ops: pl.Series, output: Sequence[str], before: Iterable[pl.Series] | None
) -> pl.DataFrame:
    """Adds the columns that every source has to the rows' columns; returns those in `output`, in its order.

    `before` holds columns of the rows before updates, in the order of the updates; None if there are no retractions.
    """
    made = {one.name: one for one in (*rows, (ops == DELETE).alias(DELETED), ops.alias(OP))}
    columns = [made[name] for name in output]
    if before is not None:
        updates = (ops == UPDATE).arg_true()
        places = _NOWHERE.new_from_index(0, len(ops)).scatter(updates, range(len(updates)))
        kinds = ops.replace_strict(_KINDS, default=INSERT, return_dtype=pl.Int8())
        columns += [kinds.alias(ROW_KIND), *(one.gather(places).alias(f"{BEFORE}{one.name}") for one in before)]
    return pl.DataFrame(columns) if columns else pl.DataFrame(height=len(ops))


_NOWHERE: Final = pl.Series([None], dtype=pl.UInt32())
