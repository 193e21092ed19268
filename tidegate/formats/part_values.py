"""Parts of a sink's records besides values: keys, timestamps, headers, partitions and tombstones, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

import msgspec
import polars as pl

from tidegate.formats import keys
from tidegate.formats.columns import cut_lists, join_lists, polars_type
from tidegate.formats.contract import Encoded, Encoder, FlatHeaders, Headers
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.key_values import SchemaKeyWriter, key_writer
from tidegate.formats.record_parts import CARRIED_HEADERS, HEADERS_TYPE, HeaderRules, RecordParts
from tidegate.formats.schema_ids import bare_options
from tidegate.formats.text import ExpressionEncoder

_PARTITION_MAX: Final = 2**31 - 1


class PartsEncoder:
    """Adds these parts to the output of a format's encoder. Parts that the sink does not set remain the format's."""

    def __init__(self, parts: RecordParts) -> None:
        self._parts = parts
        self._made: dict[pl.DataType | None, list[pl.Expr]] = {}
        self._keys: tuple[pl.DataType, SchemaKeyWriter] | None = None

    def encode(self, frame: pl.DataFrame, values: Encoder) -> Encoded:
        """Encodes each row as a record. Rows that become tombstones are not passed to the format."""
        parts = self._parts
        deleted = None if parts.deleted is None else frame[parts.deleted].fill_null(value=False)
        kind = None if parts.key is None else frame.get_column(parts.key).dtype
        expressions = self._made.get(kind)
        if expressions is None:
            expressions = self._made[kind] = self._expressions(kind)
        columns, failures = self._columns(frame, deleted, values, expressions)
        if parts.key_format == keys.AVRO and parts.key is not None and kind is not None:
            key, bad = self._key_writer(kind).write(frame.get_column(parts.key))
            columns = columns.with_columns(key)
            failures += bad
        if parts.headers is not None:
            headers = header_lists(frame, parts.headers)
            if headers is not None and "headers" in columns.columns:
                headers = join_lists([headers, columns["headers"]]).alias("headers")
            columns = columns if headers is None else columns.with_columns(headers)
        if parts.marks:
            columns = columns.with_columns(self._marked(columns))
        if parts.partition is not None:
            failures += _no_partitions(parts.partition, frame[parts.partition])
        if deleted is not None and parts.key is not None:
            failures += _keyless(parts.key, deleted & columns["key"].is_null())
        return Encoded(columns, failures)

    def _columns(
        self, frame: pl.DataFrame, deleted: pl.Series | None, values: Encoder, expressions: list[pl.Expr]
    ) -> tuple[pl.DataFrame, list[RecordFailure]]:
        """Computes values, keys, timestamps and partitions, in one pass if values are also an expression."""
        some = deleted is not None and bool(deleted.any())
        if isinstance(values, ExpressionEncoder) and not some:
            written = values.write(frame)
            if written is None:
                return frame.select_seq(values.value, *expressions), []
            return pl.DataFrame([written, *_computed(frame, expressions)]), []
        encoded = values.encode(frame) if deleted is None or not some else _spread(frame, deleted, values)
        return encoded.columns.with_columns(_computed(frame, expressions)), list(encoded.failures)

    def _marked(self, columns: pl.DataFrame) -> pl.Series:
        """Appends headers with schema ids, since the last header of a name counts. A tombstone has none."""
        kind = polars_type(HEADERS_TYPE)
        lists = [columns["headers"]] if "headers" in columns.columns else []
        for name, part, value in self._parts.marks:
            if part in columns.columns:
                choice = pl.Series([[], [{"key": name, "value": value}]], dtype=kind)
                lists.append(choice.gather(columns[part].is_not_null().cast(pl.UInt32)))
        return join_lists(lists).alias("headers")

    def _key_writer(self, kind: pl.DataType) -> SchemaKeyWriter:
        if self._keys is None or self._keys[0] != kind:
            self._keys = (kind, SchemaKeyWriter(kind, bare_options(self._parts.key_options)))
        return self._keys[1]

    def _expressions(self, kind: pl.DataType | None) -> list[pl.Expr]:
        """`kind` is the type of the key column, which in practice never changes."""
        parts = self._parts
        found: list[pl.Expr] = []
        if parts.key is not None and kind is not None and parts.key_format != keys.AVRO:
            found.append(key_writer(parts.key, parts.key_format, kind))
        if parts.timestamp is not None:
            found.append(pl.col(parts.timestamp).dt.epoch("ms").alias("timestamp"))
        if parts.partition is not None:
            found.append(pl.col(parts.partition).cast(pl.Int32, strict=False).alias("partition"))
        return found


def _computed(frame: pl.DataFrame, expressions: list[pl.Expr]) -> list[pl.Series]:
    return frame.select_seq(expressions).get_columns() if expressions else []


def _spread(frame: pl.DataFrame, deleted: pl.Series, values: Encoder) -> Encoded:
    """Encodes the rows that are not deleted, with NULLs between them."""
    rows = (~deleted).arg_true()
    encoded = values.encode(frame.filter(~deleted))
    places = pl.select(pl.when(pl.lit(~deleted)).then(pl.lit((~deleted).cast(pl.UInt32).cum_sum() - 1))).to_series()
    failures = [msgspec.structs.replace(one, row=rows[one.row]) for one in encoded.failures]
    return Encoded(encoded.columns.select(pl.all().gather(places)), failures)


def _no_partitions(column: str, partitions: pl.Series) -> list[RecordFailure]:
    """Finds numbers that no topic can have. They are compared with the topic's partition count later."""
    rows = (~partitions.cast(pl.Int64).is_between(0, _PARTITION_MAX)).arg_true().to_list()
    return [
        RecordFailure(row, FailureKind.NO_PARTITION, f"`{column}` is {partitions[row]}, which is not a partition")
        for row in rows
    ]


def _keyless(column: str, rows: pl.Series) -> list[RecordFailure]:
    message = f"a tombstone deletes a key, but `{column}` is NULL"
    return [RecordFailure(row, FailureKind.NO_KEY, message) for row in rows.arg_true().to_list()]


# -- headers -----------------------------------------------------------------------------------------------------------


def header_lists(frame: pl.DataFrame, rules: HeaderRules) -> pl.Series | None:
    """Returns the headers of each row's record; None if no row has any, since records without headers are written
    faster.
    """
    lists = [_passed(frame[CARRIED_HEADERS], rules)] if rules.pass_through and CARRIED_HEADERS in frame.columns else []
    for name, column in rules.added:
        added = pl.struct(pl.lit(name).alias("key"), pl.col(column).cast(pl.Binary).alias("value"))
        lists.append(frame.select(pl.concat_list([added])).to_series())  # fast with a single struct
    if not lists:
        return None
    made = join_lists(lists).alias("headers")
    return made if made.list.len().max() else None


def _passed(headers: pl.Series, rules: HeaderRules) -> pl.Series:
    """Selects headers of the source record. A row in flight from before the file passed headers on has none.

    Slices a flat column: a filter in `list.eval` occasionally makes Polars 2.1 panic.
    """
    chosen = rules.passed is not None or bool(rules.dropped)
    flat = headers.explode(empty_as_null=False, keep_nulls=False)
    if flat.is_empty() or not (chosen or rules.renamed):
        return headers
    counts = headers.list.len().cast(pl.Int64)
    ends = counts.fill_null(0).cum_sum()
    starts = ends - counts
    names = flat.struct.field("key")
    if chosen:
        kept = ~names.is_in(list(rules.dropped))
        if rules.passed is not None:
            kept &= names.is_in(list(rules.passed))
        before = pl.concat([pl.Series([0], dtype=pl.Int64), kept.cast(pl.Int64).cum_sum()])
        starts, ends = before.gather(starts), before.gather(ends)
        flat, names = flat.filter(kept), names.filter(kept)
    if rules.renamed:
        flat = pl.DataFrame([names.replace(rules.renamed), flat.struct.field("value")]).to_struct()
    return cut_lists(flat, starts, ends)


def header_column(headers: Sequence[Headers | None]) -> pl.Series:
    """Inverts `header_pairs`."""
    made = [None if one is None else [{"key": name, "value": value} for name, value in one] for one in headers]
    return pl.Series("headers", made, dtype=polars_type(HEADERS_TYPE))


def header_pairs(headers: pl.Series) -> list[Headers | None]:
    """Converts a list column to pairs; None where the list is NULL. A dictionary per header would be slow."""
    counts = headers.list.len().to_list()
    flat = headers.explode(empty_as_null=False, keep_nulls=False)
    pairs = list(zip(flat.struct.field("key").to_list(), flat.struct.field("value").to_list(), strict=True))
    found: list[Headers | None] = []
    at = 0
    for count in counts:
        found.append(None if count is None else pairs[at : at + count])
        at += count or 0
    return found


def header_size(headers: pl.Series) -> int:
    """Returns the size in bytes of all names and values in a list column."""
    flat = headers.explode(empty_as_null=False, keep_nulls=False)
    names, values = flat.struct.field("key").str.len_bytes().sum(), flat.struct.field("value").bin.size().sum()
    return int(names or 0) + int(values or 0)


def flatten_headers(headers: Sequence[Headers]) -> FlatHeaders:
    """Returns the headers of all messages in sequence."""
    parts = list(chain.from_iterable(chain.from_iterable(headers)))
    names, values = pl.Series("key", parts[::2], dtype=pl.String), pl.Series("value", parts[1::2], dtype=pl.Binary)
    return FlatHeaders(pl.Series(list(map(len, headers)), dtype=pl.Int64), names, values)
