"""Keys of records as columns, and back, in the formats that `keys.py` names. Runs in slots only.

A NULL is a record without key, either way. What cannot be read fails as a value does, and the message says that it is
the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats import keys
from tidegate.formats.columns import type_of
from tidegate.formats.contract import WaitingForSchema
from tidegate.formats.expressions import key_bytes
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.json_text import json_text
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder, decode_json
from tidegate.formats.kinds.json.unexpected_values import describe_unexpected_value
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_keys import KEY, KeySchemas, record_options
from tidegate.formats.schemas import FormatOptions, Schemas


class ReadKeys(NamedTuple):
    """A value for each record, anything where it has failed, and the failures."""

    column: pl.Series
    failures: Sequence[RecordFailure] = ()


AS_THEY_ARE: Final = (keys.RAW, keys.TEXT)
"""Formats of keys that are bytes or texts, so that they need not be objects."""

ReadKey = Callable[[Sequence[bytes | None]], ReadKeys | WaitingForSchema]


def key_reader(name: str, key_format: str, kind: DataType, options: FormatOptions, schemas: Schemas) -> ReadKey:
    """Makes the column `name` of the keys of a batch. `options` and `schemas` are for formats with schemas."""
    if key_format == keys.AVRO:
        return SchemaKeyReader(name, kind, options, schemas).read
    if key_format in AS_THEY_ARE:
        return lambda found: read_as_they_are(name, key_format, pl.Series(found, dtype=pl.Binary))
    decoder = JsonDecoder([(name, kind)], None, lambda record: _wrapped(name, record))
    fields = [field for field, _ in kind.fields]
    return lambda found: _json_keys(decoder, name, fields, found)


def read_as_they_are(name: str, key_format: str, found: pl.Series) -> ReadKeys:
    """The column `name` of bytes, in one of the formats AS_THEY_ARE."""
    found = found.alias(name)
    if key_format == keys.RAW:
        return ReadKeys(found)
    try:
        return ReadKeys(found.cast(pl.String))
    except pl.exceptions.ComputeError:  # one of them is no UTF-8: which, Polars does not say
        texts: list[str | None] = []
        failures: list[RecordFailure] = []
        for row, data in enumerate(found):
            try:
                texts.append(None if data is None else data.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                failures.append(RecordFailure(row, FailureKind.NOT_UTF8, f"the key is not UTF-8: {error.reason}"))
        return ReadKeys(pl.Series(name, texts, dtype=pl.String), failures)


def _wrapped(name: str, record: type[msgspec.Struct]) -> Decode:
    """A key is any JSON value, records are objects: it becomes one as the field `name`, by its own text."""
    decode = decode_json(record)
    whole = msgspec.json.Decoder(msgspec.Raw).decode
    before = b"{" + msgspec.json.encode(name) + b":"

    def read(data: bytes | None) -> Any:
        if data is None:
            return record()
        whole(data)  # one value and nothing after it, so that it cannot end the object
        return decode(before + data + b"}")

    return read


def _json_keys(decoder: JsonDecoder, name: str, fields: Sequence[str], found: Sequence[bytes | None]) -> ReadKeys:
    frame, failures = decoder.decode_values(found)
    column = frame[name]
    if failures:
        bad = {failure.row for failure in failures}
        places = iter(range(column.len()))
        spread = pl.Series([None if row in bad else next(places) for row in range(len(found))], dtype=pl.UInt32)
        column = column.gather(spread)
    unexpected = _find_unexpected_values(column, fields, found) if fields else []
    if not failures and not unexpected:
        return ReadKeys(column)
    everything = sorted([*failures, *unexpected], key=attrgetter("row"))
    return ReadKeys(column, _named(everything, range(len(found))))


def _find_unexpected_values(
    column: pl.Series, fields: Sequence[str], found: Sequence[bytes | None]
) -> list[RecordFailure]:
    """Objects with none of the fields of a struct: only where all of them are NULL."""
    parts = [column.struct.field(field) for field in fields]
    if any(part.null_count() == 0 for part in parts):
        return []
    whole = column.is_not_null()
    nulls = pl.select(pl.all_horizontal(whole, *(part.is_null() for part in parts))).to_series()
    texts = ((row, describe_unexpected_value(found[row] or b"{}", fields)) for row in nulls.arg_true())
    return [RecordFailure(row, FailureKind.NO_DECLARED_FIELD, text) for row, text in texts if text]


class _Values:
    """Keys as the values of messages, which is all of them that a decoder of such a format asks for."""

    memory = None

    def __init__(self, values: Sequence[bytes]) -> None:
        self.values = values


class SchemaKeyReader:
    """Keys in a format with schemas; see `schema_keys.py`."""

    def __init__(self, name: str, kind: DataType, options: FormatOptions, schemas: Schemas) -> None:
        columns = [(KEY, kind)]
        self._decoder = FORMATS[keys.AVRO].decoder(columns, columns, record_options(options), KeySchemas(schemas))
        self._name = name

    def read(self, found: Sequence[bytes | None]) -> ReadKeys | WaitingForSchema:
        """NULL for a record without key."""
        rows = [row for row, data in enumerate(found) if data is not None]
        messages: Any = _Values([data for data in found if data is not None])
        decoded = self._decoder.decode(messages)
        if isinstance(decoded, WaitingForSchema):
            return decoded
        column = decoded.frame[KEY].alias(self._name)
        failures = _named(decoded.failures, rows)
        if column.len() == len(found):
            return ReadKeys(column)
        bad = {one.row for one in failures}
        good = (row for row in rows if row not in bad)
        return ReadKeys(_spread(column, {row: place for place, row in enumerate(good)}, len(found)), failures)


def _spread(column: pl.Series, places: Mapping[int, int], count: int) -> pl.Series:
    """Values at their rows, NULL at the others."""
    return column.gather(pl.Series([places.get(row) for row in range(count)], dtype=pl.UInt32))


class SchemaKeyWriter:
    """The inverse, of columns of one type."""

    def __init__(self, kind: pl.DataType, options: FormatOptions) -> None:
        self._encoder = FORMATS[keys.AVRO].encoder([(KEY, type_of(kind))], record_options(options))

    def write(self, column: pl.Series) -> tuple[pl.Series, list[RecordFailure]]:
        """The bytes, as `key`: NULL, a record without key, for NULL. Those of rows that fail mean nothing."""
        encoded = self._encoder.encode(column.drop_nulls().alias(KEY).to_frame())
        made = encoded.columns["value"].alias("key")
        if made.len() == column.len():
            return made, _named(encoded.failures, range(column.len()))
        rows = column.is_not_null().arg_true().to_list()
        return _spread(made, {row: at for at, row in enumerate(rows)}, column.len()), _named(encoded.failures, rows)


def _named(failures: Sequence[RecordFailure], rows: Sequence[int]) -> list[RecordFailure]:
    """At their rows of the batch, saying that it is the key."""
    return [RecordFailure(rows[one.row], one.kind, f"the key: {one.message}") for one in failures]


def key_writer(name: str, key_format: str, kind: pl.DataType) -> pl.Expr:
    """The bytes of the keys in the column `name`, as `key`."""
    key = pl.col(name)
    if key_format != keys.JSON:
        return key_bytes(key, kind).alias("key")
    return pl.when(key.is_not_null()).then(json_text(key, type_of(kind))).cast(pl.Binary).alias("key")
