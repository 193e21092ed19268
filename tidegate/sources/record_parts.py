"""The parts of a record other than its value as columns: key, headers, timestamp, partition, offset, topic.

The format reads the values. This module adds the other columns, rows for tombstones if the source turns them into rows,
and the records that are bad because of their key or timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final

import polars as pl

from tidegate.formats.columns import TIMESTAMP, cut_lists, polars_type
from tidegate.formats.contract import Columns, Decoded, Decoder, FlatHeaders, Headers, WaitingForSchema
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.key_values import AS_THEY_ARE, ReadKey, ReadKeys, key_reader, read_as_they_are
from tidegate.formats.part_values import flatten_headers
from tidegate.formats.record_parts import CARRIED_HEADERS, HEADERS_TYPE
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_ids import KEY_HEADER, UNREADABLE_NAME, HeaderIdDecoder, HeaderSchemas
from tidegate.formats.schemas import IdPlace, Schemas
from tidegate.operators.builtin.kafka_source import DELETED, SKIP, TOMBSTONE, MetadataColumn, SourceOperator
from tidegate.operators.runtime import system_columns
from tidegate.sources.event_times import FIRST_MS, LAST_MS, in_calendar
from tidegate.sources.messages import Records
from tidegate.sources.reader import MAX_RECORDS

Read = Callable[[Records], ReadKeys | WaitingForSchema]
"""Reads a column of all messages of a batch, and the records that are bad because of it."""

_HEADERS: Final = polars_type(HEADERS_TYPE)


def open_decoder(operator: SourceOperator, schemas: Schemas) -> Decoder | PartsDecoder:
    """Returns the decoder of a source's records: the format's own decoder if only values are read."""
    wanted, known = operator.decodes, dict(operator.schema)
    values = tuple(one for one in wanted if one[0] in known)
    decoder = _open_values(operator, values, schemas)
    tombstones = operator.on_null == TOMBSTONE
    if not (operator.checked or operator.carries_headers or tombstones):
        return decoder
    return PartsDecoder(operator, decoder, schemas)


def derive_skipped_values(operator: SourceOperator) -> frozenset[bytes | None]:
    """Returns the values of records that the source leaves out: tombstones, header lines."""
    skipped = FORMATS[operator.format].skipped_values(operator.schema, operator.options)
    return frozenset([*skipped, None] if operator.on_null == SKIP else skipped)


def _open_values(operator: SourceOperator, values: Columns, schemas: Schemas) -> Decoder:
    record_format = FORMATS[operator.format]
    if operator.options.ids is not IdPlace.HEADER or record_format.schema_kind is None:
        return record_format.decoder(operator.schema, values, operator.decoding, schemas)
    known = HeaderSchemas(schemas)
    return HeaderIdDecoder(record_format.decoder(operator.schema, values, operator.decoding, known), known)


class PartsDecoder:
    """A Decoder of the source's messages.

    Frames have the columns that the source `decodes`, followed by `__tidegate_headers` if the source carries them.
    """

    def __init__(self, operator: SourceOperator, values: Decoder, schemas: Schemas) -> None:
        self._values = values
        self._columns = [name for name, _ in operator.decodes]
        self._reads = [(_reader(one, operator, schemas), one.name in self._columns) for one in operator.checked]
        """Each with whether the column is used; if not, the records are only checked."""
        self._tombstones = operator.on_null == TOMBSTONE
        if operator.carries_headers:
            self._reads.append((lambda messages: read_headers(CARRIED_HEADERS, messages), True))
            self._columns.append(CARRIED_HEADERS)

    def decode(self, messages: Records) -> Decoded | WaitingForSchema:
        """Decodes a batch, as a Decoder does."""
        decoded = self._decode_values(messages)
        found = [
            read(messages) for read, _ in self._reads
        ]  # even if the values wait: all schemas are requested at once
        waiting = next((one for one in (decoded, *found) if isinstance(one, WaitingForSchema)), None)
        if waiting is not None:
            return waiting
        assert isinstance(decoded, Decoded)
        parts = [one for one in found if isinstance(one, ReadKeys)]
        columns = [part.column for part, (_, wanted) in zip(parts, self._reads, strict=True) if wanted]
        if not decoded.failures and not any(part.failures for part in parts):
            frame = decoded.frame.hstack(columns)
            return Decoded(frame if frame.columns == self._columns else self._ordered(frame, decoded.frame), ())
        failures = {failure.row: failure for part in reversed(parts) for failure in part.failures}
        failures |= {failure.row: failure for failure in decoded.failures}
        unread = {failure.row for failure in decoded.failures}
        good = [row for row in range(len(messages)) if row not in failures]
        decoded_rows = {row: place for place, row in enumerate(r for r in range(len(messages)) if r not in unread)}
        values = [column.gather([decoded_rows[row] for row in good]) for column in decoded.frame.get_columns()]
        values += [column.gather(good) for column in columns]
        frame = pl.DataFrame(values) if values else pl.DataFrame(height=len(good))
        return Decoded(self._ordered(frame, decoded.frame), [failures[row] for row in sorted(failures)])

    def _ordered(self, frame: pl.DataFrame, values: pl.DataFrame) -> pl.DataFrame:
        """Returns the columns in their order, followed by the system columns that came with the values."""
        names = [*self._columns, *system_columns(values)]
        return frame[:, names] if names else pl.DataFrame(height=frame.height)  # `select` would be a query

    def _decode_values(self, messages: Records) -> Decoded | WaitingForSchema:
        """Decodes the values; rows of tombstones have only NULLs."""
        if not self._tombstones:
            return self._values.decode(messages)
        values = messages.values
        if all(values):
            decoded = self._values.decode(messages)
            if isinstance(decoded, WaitingForSchema):
                return decoded
            none = pl.Series(DELETED, [False], dtype=pl.Boolean).new_from_index(0, decoded.frame.height)
            return Decoded(decoded.frame.hstack([none]), decoded.failures)
        live = [row for row, value in enumerate(values) if value is not None]
        decoded = self._values.decode(messages if len(live) == len(values) else messages.choose(live))
        if isinstance(decoded, WaitingForSchema):
            return decoded
        failures = [RecordFailure(live[one.row], one.kind, one.message) for one in decoded.failures]
        bad = {one.row for one in failures}
        rows = [row for row in range(len(values)) if row not in bad]
        deleted = pl.Series(DELETED, [values[row] is None for row in rows], dtype=pl.Boolean)
        if len(live) == len(values):
            return Decoded(decoded.frame.hstack([deleted]), failures)
        places = iter(range(decoded.frame.height))
        spread = pl.Series([None if values[row] is None else next(places) for row in rows], dtype=pl.UInt32)
        return Decoded(pl.DataFrame([*(one.gather(spread) for one in decoded.frame.get_columns()), deleted]), failures)


def _reader(one: MetadataColumn, operator: SourceOperator, schemas: Schemas) -> Read:
    name = one.name
    match one.part:
        case "key":
            if operator.key_options.ids is IdPlace.HEADER:
                known = HeaderSchemas(schemas)
                framed = key_reader(name, operator.key_format, one.type, operator.key_options, known)
                return partial(_read_framed, framed, known)
            if operator.key_format in AS_THEY_ARE:
                return lambda messages: read_as_they_are(name, operator.key_format, messages.key_column)
            read = key_reader(name, operator.key_format, one.type, operator.key_options, schemas)
            return lambda messages: read(messages.keys)
        case "headers" if name not in dict(operator.decodes):
            return check_headers
        case "headers":
            return lambda messages: read_headers(name, messages)
        case "timestamp":
            return lambda messages: timestamp_column(name, messages.timestamp_column)
        case "partition":
            return lambda messages: ReadKeys(messages.partition_column.alias(name))
        case "offset":
            return lambda messages: ReadKeys(messages.offset_column.alias(name))
        case "topic" if len(operator.topics) == 1:
            topic = pl.Series(name, list(operator.topics), dtype=pl.String)
            return lambda messages: ReadKeys(topic.new_from_index(0, len(messages)))
    return lambda messages: ReadKeys(pl.Series(name, messages.topics, dtype=pl.String))


def _read_framed(read: ReadKey, known: HeaderSchemas, messages: Records) -> ReadKeys | WaitingForSchema:
    """Reads keys whose schema ids are in headers; `known` are the schemas of `read`."""
    headers = messages.headers
    found = read(known.frame(messages.keys, headers, KEY_HEADER))
    if isinstance(found, WaitingForSchema):
        return WaitingForSchema(known.named(found.wanted))
    return found._replace(failures=known.named_failures(found.failures, headers)) if found.failures else found


def timestamp_column(name: str, timestamps_ms: pl.Series) -> ReadKeys:
    """Reads timestamps. Records with a year after 9999 are bad.

    Kafka accepts any timestamp, and producers that use another unit than milliseconds write such years.
    """
    times = timestamps_ms.alias(name)
    outside = None if in_calendar(times.min(), times.max()) else ~times.is_between(FIRST_MS, LAST_MS)
    if outside is None or not outside.any():
        return ReadKeys(times.cast(pl.Datetime("ms", "UTC")).cast(TIMESTAMP))
    failures = [
        RecordFailure(
            row, FailureKind.OUT_OF_RANGE, f"the record's timestamp is {timestamps_ms[row]} ms, after the year 9999"
        )
        for row in outside.arg_true().to_list()
    ]
    times = times.set(outside, None)
    return ReadKeys(times.cast(pl.Datetime("ms", "UTC")).cast(TIMESTAMP), failures)


def read_headers(name: str, messages: Records) -> ReadKeys:
    """Reads headers. Kafka accepts any bytes in names, the client only UTF-8: other records are bad."""
    flat = messages.flat_headers
    if flat is not None:
        return ReadKeys(_cut_headers(name, len(messages), flat))
    headers = messages.headers
    failures = find_unreadable(headers)
    return ReadKeys(header_column(name, [one or () for one in headers] if failures else headers), failures)  # type: ignore[arg-type]  # None is unreadable


def check_headers(messages: Records) -> ReadKeys:
    """Checks headers like `read_headers`, for a column that is not used. Returns no column, which would
    cost as much.
    """
    return ReadKeys(pl.Series(), () if messages.flat_headers is not None else find_unreadable(messages.headers))


def find_unreadable(headers: Sequence[Headers | None]) -> list[RecordFailure]:
    """Returns failures for records with a header name that is not UTF-8."""
    if all(headers) or None not in headers:
        return []
    return [RecordFailure(row, FailureKind.NOT_UTF8, UNREADABLE_NAME) for row, one in enumerate(headers) if one is None]


def header_column(name: str, headers: Sequence[Headers]) -> pl.Series:
    """Returns lists of names and values."""
    return _cut_headers(name, len(headers), flatten_headers(headers))


def _cut_headers(name: str, count: int, headers: FlatHeaders) -> pl.Series:
    """Builds the lists by cutting one flat column: a list of lists takes Polars fifty times as long."""
    counts, names, values = headers
    if names.is_empty():
        none = _no_headers()
        return (none.head(count) if count <= len(none) else none.new_from_index(0, count)).alias(name)
    flat = pl.DataFrame([names, values]).to_struct(name)
    per_record, rest = divmod(len(names), len(counts))
    if not rest and counts.min() == counts.max():
        return flat.reshape((len(counts), per_record)).arr.to_list()
    ends = counts.cum_sum()
    return cut_lists(flat, ends - counts, ends).alias(name)


@cache
def _no_headers() -> pl.Series:
    """Returns empty lists for a whole batch: created once, since most topics have no headers."""
    return pl.select(pl.repeat(pl.lit([], dtype=_HEADERS), MAX_RECORDS)).to_series()
