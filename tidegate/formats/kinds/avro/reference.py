"""Reads records one by one with fastavro: those that C leaves over, and as the reference for what C reads.

fastavro receives the schemas without logical types, so that it returns the encoded values. They are interpreted here,
because fastavro rounds decimals to their precision and does not support nanoseconds.

It returns only the value of a union of several types, and an object can be a map or a record, a text a string or a
symbol. So each type of such a union becomes a record with one field, which takes the same bytes, and the name of the
field identifies the member. A writer's type is assigned to the reader's type that matches it, else to the first that it
can be promoted to.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Context, Decimal
from itertools import count
from typing import Any, Final
from uuid import UUID

import fastavro
import polars as pl
from fastavro.read import SchemaResolutionError

from tidegate.datatypes import FIRST_DAY, FIRST_MOMENT, LAST_DAY, LAST_MOMENT, DataType
from tidegate.formats.bisection import first_line
from tidegate.formats.columns import make_series, polars_type
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.avro.resolution import choose_member, find_field, is_alike, short_name, word_of
from tidegate.formats.kinds.avro.schema import DAY, MICROS, AvroType, is_value

Convert = Callable[[Any], Any]
"""Converts a value returned by fastavro to one that Polars accepts for the column."""

_DIGITS: Final = Context(prec=80)
_UNREADABLE: Final = (ValueError, LookupError, EOFError, OverflowError, TypeError, RecursionError)
"""What fastavro and the conversions raise for the bytes of a record."""


class _Unfit(ValueError):
    """A value that its type cannot hold."""

    def __init__(self, message: str, kind: FailureKind = FailureKind.OUT_OF_RANGE, path: tuple[str, ...] = ()) -> None:
        """`path` holds the names of the enclosing fields, outermost first."""
        super().__init__(f"`{'.'.join(path)}`: {message}" if path else message)
        self._message, self.kind, self._path = message, kind, path

    def inside(self, name: str) -> _Unfit:
        """Returns the same error, located in a field."""
        return _Unfit(self._message, self.kind, (name, *self._path))


class ReferenceReader:
    """Reads bodies written with `writer` into values of `columns`, as fields of `reader`."""

    def __init__(self, writer: AvroType, reader: AvroType, columns: Columns, skipped: int) -> None:
        """The first `skipped` bytes of each body are not read."""
        self._skipped = skipped
        self._defaults = {one.name: one.default for one in reader.fields if find_field(writer, one) is None}
        """Defaults of fields that are not requested from fastavro."""
        written, read = show_members(writer, reader)
        self._writer = fastavro.parse_schema(written)
        self._reader = None if read == written else fastavro.parse_schema(read)
        types = {field.name: field.type for field in reader.fields}
        self._columns = [(name, polars_type(kind), _field_converter(name, types[name])) for name, kind in columns]
        self._checked = [
            (field.name, convert)
            for field in reader.fields
            if (convert := _field_converter(field.name, field.type)) is not None
            and field.name not in {name for name, _ in columns}
        ]
        """Fields without a column, which are only checked."""
        self._not_null = [
            (field.name, word_of(field.type))
            for field in reader.fields
            if (origin := find_field(writer, field)) is not None
            and _has_null(origin.type)
            and not _has_null(field.type)
        ]
        """Fields of which the writer's type includes NULL and the reader's does not, with the reader's type."""

    def read(self, bodies: Sequence[bytes]) -> Decoded:
        """Returns the rows of good records, and the failures."""
        rows, failures = self.read_values(bodies)
        if not self._columns:
            return Decoded(pl.DataFrame(height=len(rows)), failures)
        values = zip(*rows, strict=True) if rows else [()] * len(self._columns)
        columns = zip(self._columns, values, strict=True)
        return Decoded(pl.DataFrame([make_series(name, kind, one) for (name, kind, _), one in columns]), failures)

    def read_values(self, bodies: Sequence[bytes]) -> tuple[list[list[Any]], list[RecordFailure]]:
        """Returns the values of each good record in the order of the columns, and the failures."""
        rows: list[list[Any]] = []
        failures: list[RecordFailure] = []
        for row, body in enumerate(bodies):
            try:
                rows.append(self._read(body))
            except _UNREADABLE as error:
                failures.append(_failure(row, error))
            except SchemaResolutionError as error:  # of this value: a NULL, a symbol, or a type of a union
                failures.append(RecordFailure(row, FailureKind.INCOMPATIBLE_SCHEMA, self._describe_unfit(body, error)))
        return rows, failures

    def _describe_unfit(self, body: bytes, error: Exception) -> str:
        """Returns why a value does not fit the reader's schema. fastavro does not name the field."""
        stream = io.BytesIO(body)
        stream.seek(self._skipped)
        with suppress(*_UNREADABLE):
            record: Any = fastavro.schemaless_reader(stream, self._writer, None)
            for name, kind in self._not_null:
                if record.get(name, ...) is None:
                    return f"at `{name}`: the value is NULL, and the reader's type is {kind}"
        return first_line(error)

    def _read(self, body: bytes) -> list[Any]:
        stream = io.BytesIO(body)
        stream.seek(self._skipped)
        record: Any = fastavro.schemaless_reader(stream, self._writer, self._reader)
        left = len(body) - stream.tell()
        if left:
            raise ValueError(f"bytes follow the end of the record: {left}")
        record |= self._defaults
        for name, convert in self._checked:
            convert(record[name])
        return [record[name] if convert is None else convert(record[name]) for name, _, convert in self._columns]


def _has_null(one: AvroType) -> bool:
    return one.kind == "null" or any(branch.kind == "null" for branch in one.branches)


def _failure(row: int, error: Exception) -> RecordFailure:
    if isinstance(error, UnicodeDecodeError):
        return RecordFailure(row, FailureKind.NOT_UTF8, f"a string is not UTF-8: {error.reason}")
    if isinstance(error, _Unfit):
        return RecordFailure(row, error.kind, str(error))
    if isinstance(error, EOFError | LookupError) or not str(error):
        what = "the bytes end within the record"
        if isinstance(error, LookupError):
            what = "an enum or a union has an index beyond its symbols or types"
        return RecordFailure(
            row, FailureKind.MALFORMED_AVRO, f"{what}; it was written with another schema, or truncated"
        )
    return RecordFailure(row, FailureKind.MALFORMED_AVRO, first_line(error))


def default_series(name: str, kind: DataType, one: AvroType, default: Any) -> pl.Series:
    """Returns one row with a default, given as in the JSON of a schema."""
    convert = _converter(one)
    return make_series(name, polars_type(kind), [default if convert is None else convert(default)])


def _field_converter(name: str, one: AvroType) -> Convert | None:
    """Wraps `_converter` so that a failure names the field."""
    convert = _converter(one)
    if convert is None:
        return None

    def located(value: Any) -> Any:
        try:
            return convert(value)
        except _Unfit as error:
            raise error.inside(name) from error

    return located


def _converter(one: AvroType) -> Convert | None:
    """Returns the conversion of values of a type; None if they are unchanged."""
    if one.kind == "union":
        return _union(one)
    if one.kind == "record":
        return _record(one)
    inner = None if one.items is None else _converter(one.items)
    if one.kind == "array":
        return None if inner is None else lambda values: [inner(value) for value in values]
    if one.kind == "map":
        same = inner or (lambda value: value)
        return lambda values: [{"key": key, "value": same(value)} for key, value in values.items()]
    if one.logical:
        return _logical(one)
    if one.kind == "int":
        return lambda value: _within(value, -(2**31), 2**31 - 1, "an int")
    return _bytes if one.kind in ("bytes", "fixed") else None


def _record(one: AvroType) -> Convert:
    fields = [(field.name, _field_converter(field.name, field.type), field.default) for field in one.fields]

    def convert(values: Any) -> dict[str, Any]:
        made = {}
        for name, inner, default in fields:
            value = values.get(name, default)  # a default of a record may omit a field that has a default of its own
            made[name] = value if inner is None else inner(value)
        return made

    return convert


def _union(one: AvroType) -> Convert | None:
    if one.bare is one:
        return _members(one)
    inner = _converter(one.bare)
    return None if inner is None else lambda value: None if value is None else inner(value)


def _members(one: AvroType) -> Convert:
    """Converts to a struct with a field per type, as Spark does; the field of the value's type is set."""
    branches = [each for each in one.branches if each.kind != "null"]
    converters = [_converter(each) or (lambda value: value) for each in branches]

    def convert(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        index, value = member_of(value) or _default_member(branches, value)
        made: dict[str, Any] = {f"member{place}": None for place in range(len(branches))}
        made[f"member{index}"] = converters[index](value)
        return made

    return convert


def _default_member(branches: Sequence[AvroType], default: Any) -> tuple[int, Any]:
    """Returns the first type that the default is a value of, as Avro's own library does.

    `check_defaults` guarantees that there is one.
    """
    index = next(place for place, each in enumerate(branches) if is_value(each, default))
    return index, float(default) if branches[index].kind in ("float", "double") else default


def _logical(one: AvroType) -> Convert:
    if one.logical == "decimal":
        limit, context = 10**one.precision, _DIGITS
        return lambda value: _decimal(value, limit, one, context)
    if one.logical == "uuid":
        return _uuid
    if one.logical == "date":
        return lambda value: _within(value, FIRST_DAY, LAST_DAY, "a date of the years 1 to 9999")
    if one.logical in DAY:
        return lambda value: _within(value, 0, DAY[one.logical] - 1, "a time of day")
    if one.logical == "duration":
        return _bytes
    factor, divisor = MICROS[one.logical.rpartition("-")[2]]
    return lambda value: _within(
        value * factor // divisor, FIRST_MOMENT, LAST_MOMENT, "a timestamp of the years 1 to 9999"
    )


def _uuid(value: str) -> str:
    try:
        return str(UUID(value))
    except ValueError as error:
        raise _Unfit(f"{value[:60]!r} is not a UUID", FailureKind.MALFORMED_AVRO) from error


def _within(value: int, low: int, high: int, what: str) -> int:
    if not low <= value <= high:
        raise _Unfit(f"{value} is not {what}")
    return value


def _decimal(value: bytes | str, limit: int, one: AvroType, context: Context) -> Decimal:
    unscaled = int.from_bytes(_bytes(value), "big", signed=True)
    if not -limit < unscaled < limit:
        raise _Unfit(f"a decimal has more than {one.precision} digits")
    return Decimal(unscaled).scaleb(-one.scale, context)


def _bytes(value: bytes | str) -> bytes:
    """Converts a text to bytes: the default of a field has one character per byte."""
    return value if isinstance(value, bytes) else value.encode("latin-1")


# -- schemas for fastavro ----------------------------------------------------------------------------------------------


MEMBER: Final = "__tidegate_member"
"""Prefix of the name of a member's field, followed by its index among the types other than null."""

Both = tuple[Any, Any]
"""JSON schemas for the writer and the reader."""


def member_of(value: Any) -> tuple[int, Any] | None:
    """Returns which member of a union was read, and its value; None for a default, which was not read."""
    if isinstance(value, Mapping) and len(value) == 1:
        [(name, inner)] = value.items()
        if name.startswith(MEMBER):
            return int(name.removeprefix(MEMBER)), inner
    return None


def show_members(writer: AvroType, reader: AvroType) -> Both:
    """Returns the schemas for fastavro, without logical types."""
    return _Pairs().both(writer, reader)


class _Pairs:
    """Describes types for fastavro.

    They are written out wherever they are used, with a separate name for each place that both sides have, and fields
    have the reader's names, so that nothing is resolved by name. Fields that the writer lacks are omitted; the caller
    adds their defaults.
    """

    def __init__(self) -> None:
        self._numbers = count()

    def both(self, writer: AvroType, reader: AvroType) -> Both:
        if reader.kind == "union" and reader.bare is reader:
            return self._members(writer, reader)
        if "union" in (writer.kind, reader.kind):
            return self._branches(writer, reader)
        if writer.kind == reader.kind == "record":
            return self._records(writer, reader)
        if writer.items is not None and reader.items is not None and writer.kind == reader.kind:
            word = "items" if reader.kind == "array" else "values"
            items = self.both(writer.items, reader.items)
            return {"type": writer.kind, word: items[0]}, {"type": writer.kind, word: items[1]}
        name = self._name(reader)
        return _leaf(writer, name), _leaf(reader, name)

    def _alone(self, one: AvroType) -> Any:
        """Describes a type that the other side does not have."""
        if one.kind == "union":
            return [self._alone(each) for each in one.branches]
        if one.kind == "record":
            fields = [{"name": field.name, "type": self._alone(field.type)} for field in one.fields]
            return {"type": "record", "name": self._name(one), "fields": fields}
        if one.items is not None:
            return {"type": one.kind, "items" if one.kind == "array" else "values": self._alone(one.items)}
        return _leaf(one, self._name(one))

    def _records(self, writer: AvroType, reader: AvroType) -> Both:
        sources = {field.name: find_field(writer, field) for field in reader.fields}
        names = {source.name: name for name, source in sources.items() if source is not None}
        types = {field.name: field.type for field in reader.fields}
        written, read = [], {}
        for number, field in enumerate(writer.fields):
            name = names.get(field.name)
            if name is None:
                written.append({"name": f"__tidegate_{number}", "type": self._alone(field.type)})
            else:
                one, other = self.both(field.type, types[name])
                written.append({"name": name, "type": one})
                read[name] = {"name": name, "type": other}
        name = self._name(reader)
        ordered = [read[one] for one in types if one in read]
        return (
            {"type": "record", "name": name, "fields": written},
            {"type": "record", "name": name, "fields": ordered},
        )

    def _branches(self, writer: AvroType, reader: AvroType) -> Both:
        """Handles a reader's type that is a single type, or one and null."""
        written, read = list(writer.branches or (writer,)), list(reader.branches or (reader,))
        ones: dict[int, Any] = {}
        others = []
        for branch in read:
            left = [(at, one) for at, one in enumerate(written) if at not in ones]
            place = next((at for at, one in left if is_alike(one, branch)), None)
            if place is None:
                others.append(self._alone(branch))
            else:
                ones[place], other = self.both(written[place], branch)
                others.append(other)
        made = [ones[at] if at in ones else self._alone(one) for at, one in enumerate(written)]
        return made if writer.kind == "union" else made[0], others if reader.kind == "union" else others[0]

    def _members(self, writer: AvroType, reader: AvroType) -> Both:
        members = [one for one in reader.branches if one.kind != "null"]
        nullable = len(members) < len(reader.branches)
        ones: list[Any] = []
        others: list[Any] = ["null"] if nullable else []
        for branch in writer.branches or (writer,):
            place = choose_member(branch, members)
            if place is None or branch.kind == "null":
                ones.append(self._alone(branch))
                continue
            one, other = self.both(branch, members[place])
            name = f"Member{next(self._numbers)}"
            ones.append(_member(name, place, one))
            others.append(_member(name, place, other))
        if not others:
            others = [self._alone(one) for one in members]
        return ones if writer.kind == "union" else ones[0], others

    def _name(self, one: AvroType) -> str:
        return f"{short_name(one.name) or one.kind}__{next(self._numbers)}"


def _member(name: str, place: int, kind: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": f"{MEMBER}{place}", "type": kind}]}


def _leaf(one: AvroType, name: str) -> Any:
    if one.kind == "enum":
        more = {} if one.default is None else {"default": one.default}
        return {"type": "enum", "name": name, "symbols": list(one.symbols), **more}
    return {"type": "fixed", "name": name, "size": one.size} if one.kind == "fixed" else one.kind
