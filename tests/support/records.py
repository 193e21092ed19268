"""Records of a sink as lists, which tests write and compare, and as columns, which the sink has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import polars as pl

from tidegate.formats.contract import Headers
from tidegate.formats.part_values import header_column
from tidegate.formats.records import OutputRecords, output_records


class Listed(NamedTuple):
    """The columns of records as lists; None for parts that the sink does not set."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    timestamps_ms: list[int | None] | None
    headers: list[Headers | None] | None
    partitions: list[int | None] | None


def listed(records: OutputRecords) -> Listed:
    def plain(column: pl.Series | None) -> list[Any] | None:
        return None if column is None else column.to_list()

    headers = records.header_pairs(0, len(records))
    columns = plain(records.keys), plain(records.timestamps_ms), headers, plain(records.partitions)
    return Listed(records.values.to_list(), *columns)


def records_of(
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    timestamps_ms: Sequence[int | None] | None = None,
    headers: Sequence[Headers | None] | None = None,
    partitions: Sequence[int | None] | None = None,
    *,
    at_edge: bool = False,
    topic: str | None = None,
) -> OutputRecords:
    """Inverts `listed`."""
    made = output_records(
        pl.Series(values, dtype=pl.Binary),
        None if keys is None else pl.Series(keys, dtype=pl.Binary),
        None if timestamps_ms is None else pl.Series(timestamps_ms, dtype=pl.Int64),
        None if headers is None else header_column(headers),
        None if partitions is None else pl.Series(partitions, dtype=pl.Int32),
        at_edge=at_edge,
    )
    return msgspec.structs.replace(made, topic=topic)
