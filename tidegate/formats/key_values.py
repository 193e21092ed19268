"""Keys of records as columns, and back, in the formats that `keys.py` names. Runs in slots only.

A NULL is a record without key, either way. What cannot be read fails as a value does, and the message says that it is
the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import polars as pl

from tidegate.datatypes import DataType
from tidegate.formats import keys
from tidegate.formats.columns import type_of
from tidegate.formats.expressions import key_bytes
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.json_text import json_text
from tidegate.formats.kinds.json.reader import Decode, JsonDecoder, decode_json


class ReadKeys(NamedTuple):
    """A value for each record, anything where it has failed, and the failures."""

    column: pl.Series
    failures: Sequence[RecordFailure] = ()


ReadKey = Callable[[Sequence[bytes | None]], ReadKeys]


def key_reader(name: str, key_format: str, kind: DataType) -> ReadKey:
    """Makes the column `name` of the keys of a batch."""
    if key_format == keys.RAW:
        return lambda found: ReadKeys(pl.Series(name, found, dtype=pl.Binary))
    if key_format == keys.TEXT:
        return lambda found: _texts(name, found)
    decoder = JsonDecoder([(name, kind)], None, lambda record: _wrapped(name, record))
    return lambda found: _json_keys(decoder, name, found)


def _texts(name: str, found: Sequence[bytes | None]) -> ReadKeys:
    column = pl.Series(name, found, dtype=pl.Binary)
    try:
        return ReadKeys(column.cast(pl.String))
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


def _json_keys(decoder: JsonDecoder, name: str, found: Sequence[bytes | None]) -> ReadKeys:
    frame, failures = decoder.decode_values(found)
    column = frame[name]
    if not failures:
        return ReadKeys(column)
    bad = {failure.row for failure in failures}
    places = iter(range(column.len()))
    spread = pl.Series([None if row in bad else next(places) for row in range(len(found))], dtype=pl.UInt32)
    named = [RecordFailure(one.row, one.kind, f"the key: {one.message}") for one in failures]
    return ReadKeys(column.gather(spread), named)


def key_writer(name: str, key_format: str, kind: pl.DataType) -> pl.Expr:
    """The bytes of the keys in the column `name`, as `key`."""
    key = pl.col(name)
    if key_format != keys.JSON:
        return key_bytes(key, kind).alias("key")
    return pl.when(key.is_not_null()).then(json_text(key, type_of(kind))).cast(pl.Binary).alias("key")
