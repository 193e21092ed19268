"""JSON values to columns: strict, one record at a time.

Each value is decoded by msgspec into a struct made from the schema, so a bad record is known by itself and the
others keep their rows. A columnar JSON reader would be no faster here and coerces, drops or merges records.
All declared fields are checked; columns are made of those that the pipeline uses.

Rules: missing and null are NULL; unknown fields are skipped; of a repeated field the last counts; integers have
bounds and no fraction (`1.0` is refused); a double takes integers; a timestamp is an RFC 3339 string (without an
offset: UTC), a date `YYYY-MM-DD`, binary base64. Anything else fails its record with the path in the reason.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import polars as pl

from tidegate.datatypes import FIRST_MOMENT, LAST_MOMENT, TIMESTAMP, DataType
from tidegate.formats.columns import TIMESTAMP as MOMENT
from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Columns, Decoded, Messages
from tidegate.formats.failures import FailureKind, RecordFailure

_FLOAT_MAX = 3.4028234663852886e38
_BOUND = re.compile(r"Expected `(int|float)` [<>]=|^Number out of range")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_KEPT_TYPES = (bytes, dt.datetime, dt.date)
_LAST_YEARS = frozenset({dt.MINYEAR, dt.MAXYEAR})
_YEAR = attrgetter("year")


def _between(kind: type, low: float, high: float) -> Any:
    return Annotated[kind, msgspec.Meta(ge=low, le=high)]


_SCALARS: dict[str, Any] = {
    "boolean": bool,
    "tinyint": _between(int, -(2**7), 2**7 - 1),
    "smallint": _between(int, -(2**15), 2**15 - 1),
    "int": _between(int, -(2**31), 2**31 - 1),
    "bigint": _between(int, -(2**63), 2**63 - 1),
    "float": _between(float, -_FLOAT_MAX, _FLOAT_MAX),
    "double": float,
    "string": str,
    "binary": bytes,
    "date": dt.date,
    "timestamp": dt.datetime,
}

Decode = Callable[[Any], Any]
MakeDecode = Callable[[type[msgspec.Struct]], Decode]
"""From the type of a record to what decodes one; it raises as msgspec does."""


class JsonDecoder:
    """Decodes values into a frame with exactly the columns of `output`, by default all that are declared.

    A field that is declared has its type or makes its record bad, whether anybody reads it or not.
    """

    def __init__(self, declared: Columns, output: Columns | None = None, make: MakeDecode | None = None) -> None:
        """`make` gives what turns a value into a record where values are no JSON texts."""
        self._decode = (_decode_json if make is None else make)(_record_type("Record", declared))
        fields = [_Field(index, name, kind) for index, (name, kind) in enumerate(declared)]
        wanted = {name for name, _ in (declared if output is None else output)}
        self._read = [one for one in fields if one.name in wanted]
        self._schema = pl.Schema([(one.name, one.type) for one in self._read])
        self._moments = [one for one in fields if one.outside is not None]
        """Fields that hold timestamps."""

    def decode(self, messages: Messages) -> Decoded:
        """See Decoder."""
        return self.decode_values(messages.values)

    def decode_values(self, values: Sequence[bytes | None]) -> Decoded:
        """Rows of the good values in order, and the bad ones. Never raises for what a value contains."""
        records: list[Any] = []
        failures: list[RecordFailure] = []
        decoded = map(self._decode, values)
        while True:
            # `extend` keeps what it had before an exception, `map` continues after it: good records need no loop here
            try:
                records.extend(decoded)
                break
            except (ValueError, TypeError, RecursionError) as error:
                row = len(records) + len(failures)
                failures.append(_failure(row, values[row], error))
        frame = self._frame(records)
        return self._within_calendar(frame, records, failures) if self._moments else Decoded(frame, failures)

    def _within_calendar(self, frame: pl.DataFrame, records: list[Any], failures: list[RecordFailure]) -> Decoded:
        """Without the rows whose timestamp an offset has moved out of the years 1 to 9999: nobody could read it."""
        looked_at = [one for one in self._moments if one.name in frame.columns or one.may_be_outside(records)]
        if not looked_at:
            return Decoded(frame, failures)
        unread = [one.column(records) for one in looked_at if one.name not in frame.columns]
        found = frame.hstack(unread).select(one.outside for one in looked_at if one.outside is not None)
        bad = found.select(pl.any_horizontal(pl.all())).to_series()
        if not bad.any():
            return Decoded(frame, failures)
        failed = {failure.row for failure in failures}
        places = [row for row in range(frame.height + len(failures)) if row not in failed]
        for index in bad.arg_true():
            name = next(column for column in found.columns if found[column][index])
            message = f"a timestamp in UTC is before the year 1 or after 9999 - at `$.{name}`"
            failures.append(RecordFailure(places[index], FailureKind.OUT_OF_RANGE, message))
        return Decoded(frame.filter(~bad), sorted(failures, key=attrgetter("row")))

    def _frame(self, records: list[Any]) -> pl.DataFrame:
        if not records:
            return pl.DataFrame(schema=self._schema)
        if not self._schema:
            return pl.DataFrame(height=len(records))
        # Column by column: a tuple per record, transposed by `zip`, was measured four times as slow.
        return pl.DataFrame([one.column(records) for one in self._read])


def _decode_json(record: type[msgspec.Struct]) -> Decode:
    return msgspec.json.Decoder(record).decode


class _Field:
    """A declared field: the attribute `f<index>` of a decoded record."""

    def __init__(self, index: int, name: str, kind: DataType) -> None:
        self.name = name
        self.type = polars_type(kind)
        outside = _outside_calendar(pl.col(name), kind)
        self.outside = None if outside is None else outside.fill_null(value=False).alias(name)
        """Where its column holds a timestamp that nobody could read; None for a type without timestamps."""
        self._value = _reader(index, kind)
        self._plain = kind == TIMESTAMP

    def column(self, records: list[Any]) -> pl.Series:
        """Its values."""
        if self._plain:
            return _moments(self.name, list(map(self._value, records)))
        return pl.Series(self.name, list(map(self._value, records)), dtype=self.type)

    def may_be_outside(self, records: list[Any]) -> bool:
        """Whether a look at the column is worth making it: an offset moves a timestamp by less than a day."""
        return not self._plain or not _LAST_YEARS.isdisjoint(map(_YEAR, filter(None, map(self._value, records))))


def _moments(name: str, values: list[dt.datetime | None]) -> pl.Series:
    """Timestamps as a column. By way of durations: Polars takes eight times as long for moments with a time zone."""
    try:
        since = [None if value is None else value - _EPOCH for value in values]
    except TypeError:  # some are without an offset
        since = [
            None if value is None else (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
            for value in values
        ]
    return pl.Series(name, since, dtype=pl.Duration("us")).to_physical().cast(MOMENT)


def _record_type(name: str, fields: Columns) -> type[msgspec.Struct]:
    """A struct with an optional, nullable attribute `f<i>` for each field (names in JSON need not be identifiers)."""
    members = [(f"f{i}", _python_type(f"{name}_{i}", kind) | None, None) for i, (_, kind) in enumerate(fields)]
    names = {f"f{i}": field for i, (field, _) in enumerate(fields)}
    return msgspec.defstruct(name, members, rename=names, gc=False)


def _python_type(name: str, kind: DataType) -> Any:
    if kind.kind == "array":
        assert kind.element is not None
        return list[_python_type(name, kind.element) | None]  # type: ignore[misc]  # built at run time for msgspec
    if kind.kind == "struct":
        return _record_type(name, kind.fields)
    return _SCALARS[kind.kind]


def _outside_calendar(value: pl.Expr, kind: DataType) -> pl.Expr | None:
    """Where a timestamp in `value` is outside; None for a type without timestamps."""
    if kind == TIMESTAMP:
        return ~value.to_physical().is_between(FIRST_MOMENT, LAST_MOMENT)
    if kind.element is not None:
        inside = _outside_calendar(pl.element(), kind.element)
        return None if inside is None else value.list.eval(inside).list.any()
    parts = [_outside_calendar(value.struct.field(name), part) for name, part in kind.fields]
    known = [part.fill_null(value=False) for part in parts if part is not None]
    return pl.any_horizontal(known) if known else None


def _reader(index: int, kind: DataType) -> Callable[[Any], Any]:
    """Reads field `f<index>` of a record; structs as dicts by field name, which Polars takes for struct columns."""
    field = attrgetter(f"f{index}")
    if kind.kind not in ("array", "struct"):
        return field
    return lambda record: msgspec.to_builtins(field(record), builtin_types=_KEPT_TYPES)


def _failure(row: int, value: bytes | None, error: Exception) -> RecordFailure:
    """What is wrong with a value that msgspec has refused."""
    if value is None:
        return RecordFailure(row, FailureKind.NULL_VALUE, "a tombstone holds no JSON")
    if not value:
        return RecordFailure(row, FailureKind.EMPTY_VALUE, "the value is empty")
    if isinstance(error, RecursionError):
        return RecordFailure(row, FailureKind.TOO_DEEP, "the value is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return RecordFailure(row, FailureKind.NOT_UTF8, f"a string is not UTF-8: {error.reason}")
    if isinstance(error, TypeError):
        raise error  # only a null value has no bytes; anything else is our mistake
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return RecordFailure(row, FailureKind.MALFORMED_JSON, text)
    return RecordFailure(row, FailureKind.OUT_OF_RANGE if _BOUND.search(text) else FailureKind.WRONG_TYPE, text)
