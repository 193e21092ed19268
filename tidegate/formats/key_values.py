"""Record keys as columns and back, in the formats listed in `keys.py`. Used in slots only.

NULL stands for a record without a key, in both directions. A key that cannot be read fails like a value, and the
message states that it is the key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats import keys
from tidegate.formats.columns import read_utf8, type_of
from tidegate.formats.contract import WaitingForSchema, messages_of_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder, decode_json
from tidegate.formats.kinds.json.types import describe_unexpected_value
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_keys import KEY, KeySchemas, record_options
from tidegate.formats.schemas import FormatOptions, Schemas
from tidegate.formats.text import json_text, key_bytes


class ReadKeys(NamedTuple):
    """A value for each record, undefined where it failed, and the failures."""

    column: pl.Series
    failures: Sequence[RecordFailure] = ()


AS_THEY_ARE: Final = (keys.RAW, keys.TEXT)
"""Formats of keys that are bytes or text, so that no Python objects are needed."""

ReadKey = Callable[[Sequence[bytes | None]], ReadKeys | WaitingForSchema]


def key_reader(name: str, key_format: str, kind: DataType, options: FormatOptions, schemas: Schemas) -> ReadKey:
    """Creates a reader of keys into the column `name`. `options` and `schemas` are for formats with schemas."""
    if key_format == keys.AVRO:
        return SchemaKeyReader(name, kind, options, schemas).read
    if key_format in AS_THEY_ARE:
        return lambda found: read_as_they_are(name, key_format, pl.Series(found, dtype=pl.Binary))
    decoder = JsonDecoder([(name, kind)], None, lambda record: _wrapped(name, record))
    fields = [field for field, _ in kind.fields]
    return lambda found: _json_keys(decoder, name, fields, found)


def read_as_they_are(name: str, key_format: str, found: pl.Series) -> ReadKeys:
    """Converts bytes in one of the formats AS_THEY_ARE to the column `name`."""
    found = found.alias(name)
    if key_format == keys.RAW:
        return ReadKeys(found)
    texts, errors = read_utf8(found)
    failures = [
        RecordFailure(row, FailureKind.NOT_UTF8, f"the key is not UTF-8: {error.reason}")
        for row, error in errors.items()
    ]
    return ReadKeys(texts, failures)


def _wrapped(name: str, record: type[msgspec.Struct]) -> Decode:
    """Wraps a key, which can be any JSON value, into the text of an object with the field `name`, and decodes that."""
    decode = decode_json(record)
    whole = msgspec.json.Decoder(msgspec.Raw).decode
    before = b"{" + msgspec.json.encode(name) + b":"

    def read(data: bytes | None) -> Any:
        if data is None:
            return record()
        whole(data)  # exactly one value, so that the key cannot close the object
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
    """Finds objects with none of the fields of a struct; only rows in which all fields are NULL need a check."""
    parts = [column.struct.field(field) for field in fields]
    if any(part.null_count() == 0 for part in parts):
        return []
    whole = column.is_not_null()
    nulls = pl.select(pl.all_horizontal(whole, *(part.is_null() for part in parts))).to_series()
    texts = ((row, describe_unexpected_value(found[row] or b"{}", fields)) for row in nulls.arg_true())
    return [RecordFailure(row, FailureKind.NO_DECLARED_FIELD, text) for row, text in texts if text]


class SchemaKeyReader:
    """Reads keys in a format with schemas (`schema_keys.py`)."""

    def __init__(self, name: str, kind: DataType, options: FormatOptions, schemas: Schemas) -> None:
        columns = [(KEY, kind)]
        self._decoder = FORMATS[keys.AVRO].decoder(columns, columns, record_options(options), KeySchemas(schemas))
        self._name = name

    def read(self, found: Sequence[bytes | None]) -> ReadKeys | WaitingForSchema:
        """Decodes keys; NULL for a record without a key."""
        rows = [row for row, data in enumerate(found) if data is not None]
        decoded = self._decoder.decode(messages_of_values([data for data in found if data is not None]))
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
    """Places values at their rows, with NULL at the others."""
    return column.gather(pl.Series([places.get(row) for row in range(count)], dtype=pl.UInt32))


class SchemaKeyWriter:
    """Writes keys in a format with schemas, from columns of one type."""

    def __init__(self, kind: pl.DataType, options: FormatOptions) -> None:
        self._encoder = FORMATS[keys.AVRO].encoder([(KEY, type_of(kind))], record_options(options))

    def write(self, column: pl.Series) -> tuple[pl.Series, list[RecordFailure]]:
        """Returns the bytes as column `key`, NULL for NULL, and the failures. Bytes of failed rows are undefined."""
        encoded = self._encoder.encode(column.drop_nulls().alias(KEY).to_frame())
        made = encoded.columns["value"].alias("key")
        if made.len() == column.len():
            return made, _named(encoded.failures, range(column.len()))
        rows = column.is_not_null().arg_true().to_list()
        return _spread(made, {row: at for at, row in enumerate(rows)}, column.len()), _named(encoded.failures, rows)


def _named(failures: Sequence[RecordFailure], rows: Sequence[int]) -> list[RecordFailure]:
    """Assigns failures to their rows in the batch and states that the key failed."""
    return [RecordFailure(rows[one.row], one.kind, f"the key: {one.message}") for one in failures]


def key_writer(name: str, key_format: str, kind: pl.DataType) -> pl.Expr:
    """Returns the bytes of the keys in the column `name`, as `key`."""
    key = pl.col(name)
    if key_format != keys.JSON:
        return key_bytes(key, kind).alias("key")
    return pl.when(key.is_not_null()).then(json_text(key, type_of(kind))).cast(pl.Binary).alias("key")
