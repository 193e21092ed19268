"""JSON values to columns: strict, one record at a time.

msgspec decodes each value into a struct made from the schema. So a bad record is identified individually, and the
others keep their rows. Existing columnar JSON readers would be no faster here, and they coerce, drop or merge records.
All declared fields are checked, but only those that the pipeline uses become columns. Values that are not Python
objects yet are decoded in C if it can decode them with certainty, with the same result.

Rules:

- Missing and null are NULL.
- Unknown fields are skipped, kept as text, or fail their record.
- A source's record that has fields must have a declared one, even if the pipeline does not read it.
- The last of a repeated field or map key counts.
- Integers have bounds and no fraction (`1.0` is rejected).
- A decimal accepts any number, or text of a number, that it holds exactly. A double is the nearest to any number.
- A timestamp is an RFC 3339 string (UTC if it has no offset); a timestamp without time zone must not have an offset.
- A date is `YYYY-MM-DD`, binary is base64, and keys of maps are the texts of such values.

Anything else fails its record; the reason contains the path (`types.py`).
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property
from itertools import chain
from operator import attrgetter
from typing import Any, ClassVar

import msgspec
import polars as pl
from typing_extensions import override

from tidegate.datatypes import TIMESTAMP, DataType
from tidegate.formats.columns import TIMESTAMP as MOMENT
from tidegate.formats.columns import Parts, make_decimals, make_nested, polars_type
from tidegate.formats.contract import Columns, Decoded, Decoder, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.formats.kinds.json.types import (
    DOES_NOT_FIT,
    FRAMED,
    OUTSIDE,
    OwnTypes,
    convert,
    describe_framed,
    describe_unexpected_value,
    keep_rest,
    record_type,
    rephrase,
    texts_of_fields,
)
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, UnknownFields
from tidegate.native.json import JSON, RecordDecoder, is_supported
from tidegate.native.library import loaded

_BOUND = re.compile(
    rf"Expected `(int|float)` [<>]=|^(Number|Integer value) out of range|{DOES_NOT_FIT}decimal|^{OUTSIDE}"
)
_TRUNCATED = "Input data was truncated"
_HALF = re.compile(rb'\\u[dD][89abAB][0-9a-fA-F]{2}"')
"""At the end of a string: msgspec looks for the other half beyond the end of a short value."""
_UNKNOWN_FIELD = "Object contains unknown field"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_FLOATS = frozenset({"float", "double"})


Decode = Callable[[Any], Any]
MakeDecode = Callable[[type[msgspec.Struct]], Decode]
"""Returns a decoder for a record type; it raises what msgspec raises."""


class JsonDecoder(Decoder):
    """Decodes values into a frame with exactly the columns of `output`, by default all declared ones.

    A record is bad if a declared field does not have its type, whether or not the field is read.
    """

    syntax: ClassVar[str] = JSON
    """How values are written, for decoding in C."""

    def __init__(
        self,
        declared: Columns,
        output: Columns | None = None,
        make: MakeDecode | None = None,
        options: FormatOptions = NO_OPTIONS,
        own: OwnTypes | None = None,
        *,
        needs_field: bool = False,
    ) -> None:
        """`make` returns the decoder of a value if values are not JSON texts; `own` is as in `record_type`.

        With `needs_field`, a text with fields is bad if it has none that is declared, unless others are kept.
        """
        strict, rest = options.unknown_fields is UnknownFields.FAIL, options.rest
        record = record_type("Record", declared, strict=strict, rest=rest, own=own)
        decode = (decode_json if make is None else make)(record)
        self._decode = keep_rest(decode, declared, rest, self.texts_of) if rest else decode
        fields = [_Field(index, name, kind) for index, (name, kind) in enumerate(declared)]
        wanted = {name for name, _ in (declared if output is None else output)}
        self._read = [one for one in fields if one.name in wanted]
        self._schema = pl.Schema([(one.name, one.type) for one in self._read])
        self._strict = strict
        self._in_c = None if rest or make is not None or own is not None else (declared, wanted)
        """Columns for decoding in C, if values have no types of their own."""
        self._needed = [name for name, _ in declared] if needs_field and not rest else []
        """Fields of which a text with fields must have at least one."""
        self._empty = record()

    @override
    def decode(self, messages: Messages) -> Decoded:
        memory = messages.memory
        if memory is None or self._in_memory is None:
            return self.decode_values(messages.values)
        return self._in_memory.decode(memory)

    @cached_property
    def _in_memory(self) -> MemoryDecoder[Decoded] | None:
        library = loaded()
        if self._in_c is None or library is None:
            return None
        declared, wanted = self._in_c
        record, needs_field = DataType("struct", fields=tuple(declared)), bool(self._needed)
        if not is_supported(record, self.syntax):
            return None
        certain = RecordDecoder(
            library.free, record, wanted, strict=self._strict, needs_field=needs_field, syntax=self.syntax
        )
        return MemoryDecoder(certain, self.decode_values)

    def decode_values(self, values: Sequence[bytes | None]) -> Decoded:
        """Returns rows of the good values in order, and the bad ones. Never raises for what a value contains."""
        records: list[Any] = []
        failures: list[RecordFailure] = []
        decoded = map(self._decode, values)
        while True:
            # `extend` keeps what it had before an exception, and `map` continues after it, so good records need no loop
            # here.
            try:
                records.extend(decoded)
                break
            except (ValueError, TypeError, RecursionError, InvalidOperation) as error:
                row = len(records) + len(failures)
                failures.append(self.explain(row, values[row], error))
        frame = self._frame(records)
        if self._needed and self._refuse_unexpected_values(frame, values, records, failures):
            frame = self._frame(records)
        return Decoded(frame, failures)

    def explain(self, row: int, value: bytes | None, error: Exception) -> RecordFailure:
        """Explains why a value was rejected. Decoders of other syntaxes override this and the two below."""
        return explain_failure(row, value, error)

    def describe_unexpected(self, value: bytes, needed: Collection[str]) -> str:
        """Explains why a value without any of the fields `needed` is bad; empty if it is not."""
        return describe_unexpected_value(value, needed)

    def texts_of(self, value: Any, known: Collection[str]) -> dict[str, str | None]:
        """Returns the fields of a value, without those in `known`, as texts. Raises ValueError."""
        return texts_of_fields(value, known)

    def _refuse_unexpected_values(
        self, frame: pl.DataFrame, values: Sequence[bytes | None], records: list[Any], failures: list[RecordFailure]
    ) -> bool:
        """Moves records without any declared field from `records` to `failures`; returns whether there are any.

        Only rows of NULLs are checked, and there are none if any column has no NULL, so there is no cost per record.
        """
        if any(column.null_count() == 0 for column in frame.get_columns()):
            return False
        nulls = frame.select(pl.all_horizontal(pl.all().is_null())).to_series().arg_true() if frame.width else None
        suspects = [at for at in (range(len(records)) if nulls is None else nulls) if records[at] == self._empty]
        if not suspects:
            return False
        failed = {failure.row for failure in failures}
        places = [row for row in range(len(values)) if row not in failed]
        found = {
            at: why for at in suspects if (why := self.describe_unexpected(values[places[at]] or b"", self._needed))
        }
        failures += [RecordFailure(places[at], FailureKind.NO_DECLARED_FIELD, why) for at, why in found.items()]
        failures.sort(key=attrgetter("row"))
        records[:] = [record for at, record in enumerate(records) if at not in found]
        return bool(found)

    def _frame(self, records: list[Any]) -> pl.DataFrame:
        if not records:
            return pl.DataFrame(schema=self._schema)
        if not self._schema:
            return pl.DataFrame(height=len(records))
        # Column by column: a tuple per record, transposed by `zip`, was measured four times as slow.
        return pl.DataFrame([one.column(records) for one in self._read])


def decode_json(record: type[msgspec.Struct]) -> Decode:
    """Returns the decoder of texts to records of a type made by `record_type`."""
    return msgspec.json.Decoder(record, dec_hook=convert, float_hook=Decimal).decode


class _Field:
    """A declared field: the attribute `f<index>` of a decoded record."""

    def __init__(self, index: int, name: str, kind: DataType) -> None:
        self.name = name
        self.type = polars_type(kind)
        self._kind = kind
        self._value = attrgetter(f"f{index}")

    def column(self, records: list[Any]) -> pl.Series:
        """Returns the column of its values."""
        return make_nested(self.name, self._kind, list(map(self._value, records)), _PARTS)


def make_moments(name: str, values: Sequence[dt.datetime | None]) -> pl.Series:
    """Returns timestamps as a column, by way of durations, which Polars converts eight times as fast as datetimes."""
    try:
        since = [None if value is None else value - _EPOCH for value in values]
    except TypeError:  # some have no offset
        since = [
            None if value is None else (value if value.tzinfo else value.replace(tzinfo=dt.UTC)) - _EPOCH
            for value in values
        ]
    return pl.Series(name, since, dtype=pl.Duration("us")).to_physical().cast(MOMENT)


def _floats(name: str, kind: DataType, values: Sequence[float | str | None]) -> pl.Series:
    """Returns floating-point numbers as a column. Numbers that JSON cannot represent are texts."""
    try:
        return pl.Series(name, values, dtype=polars_type(kind))
    except TypeError:  # some values are texts
        return pl.Series(name, [None if one is None else float(one) for one in values], dtype=polars_type(kind))


class _DecodedParts(Parts):
    """Takes apart decoded values: structs have the attributes `f0`, `f1` ..., maps are dicts."""

    @override
    def fields(self, kind: DataType, structs: Sequence[Any]) -> Sequence[Sequence[Any]]:
        return [list(map(attrgetter(f"f{index}"), structs)) for index in range(len(kind.fields))]

    @override
    def entries(self, kind: DataType, maps: Sequence[Any]) -> tuple[Sequence[int], Sequence[Any], Sequence[Any]]:
        """Also makes keys distinct as values of the column."""
        key_of = None if kind.key is None else _KEY_OF.get(kind.key.kind)
        if key_of is not None:
            maps = [{key_of(key): one for key, one in value.items()} for value in maps]
        values = list(chain.from_iterable(one.values() for one in maps))
        return list(map(len, maps)), list(chain.from_iterable(maps)), values

    @override
    def leaves(self, name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
        if kind == TIMESTAMP:
            return make_moments(name, values)
        if kind.kind == "decimal":
            return make_decimals(name, kind, values)
        if kind.kind in _FLOATS:
            return _floats(name, kind, values)
        return pl.Series(name, values, dtype=polars_type(kind))


_PARTS = _DecodedParts()


def _nearest_float(key: float) -> float:
    found: float = _FLOAT.unpack(_FLOAT.pack(key))[0]
    return found + 0.0


_FLOAT = struct.Struct("<f")
_KEY_OF: dict[str, Callable[[Any], Any]] = {
    "float": _nearest_float,
    "double": lambda key: key + 0.0,  # -0.0 is 0.0
    "timestamp": lambda key: key if key.tzinfo else key.replace(tzinfo=dt.UTC),
}
"""Normalizes keys that different texts can stand for."""


def explain_failure(row: int, value: bytes | None, error: Exception) -> RecordFailure:
    """Explains why msgspec rejected a value."""
    if value is None:
        return RecordFailure(row, FailureKind.NULL_VALUE, "a tombstone has no JSON")
    if not value:
        return RecordFailure(row, FailureKind.EMPTY_VALUE, "the value is empty")
    if isinstance(error, RecursionError):
        return RecordFailure(row, FailureKind.TOO_DEEP, "the value is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return RecordFailure(row, FailureKind.NOT_UTF8, f"a string is not UTF-8: {error.reason}")
    if isinstance(error, InvalidOperation):  # raised by `Decimal` for exponents of more than 18 digits
        return RecordFailure(row, FailureKind.OUT_OF_RANGE, "the exponent of a number exceeds all types")
    if isinstance(error, TypeError):
        raise error  # only a null value has no bytes; anything else is a bug
    text = str(error)
    if text.startswith(_UNKNOWN_FIELD):
        return RecordFailure(row, FailureKind.UNKNOWN_FIELD, text)
    if not isinstance(error, msgspec.ValidationError):
        if value.startswith(BOM_UTF8):
            text = "the value begins with a byte order mark, which JSON does not allow"
        elif value.startswith(FRAMED):
            text = f"the value begins with a zero byte: {describe_framed(value)}"
        elif text == _TRUNCATED and _HALF.search(value):
            text = "a string has an unpaired surrogate"
        return RecordFailure(row, FailureKind.MALFORMED_JSON, text)
    kind = FailureKind.OUT_OF_RANGE if _BOUND.search(text) else FailureKind.WRONG_TYPE
    return RecordFailure(row, kind, rephrase(text))
