"""Failed records as rows on their way to the dead-letter topic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import polars as pl

from tidegate.formats.columns import polars_type
from tidegate.formats.contract import Headers
from tidegate.formats.dead_letters import (
    DEAD_LETTER_COLUMNS,
    MESSAGE_CHARACTERS_MAX,
    NO_HEADERS,
    NO_RECORD,
    ORIGINAL,
    RETRY_TRIES,
    WANTED,
)
from tidegate.formats.dead_letters.rows import render_rows, render_types
from tidegate.formats.failures import RecordFailure
from tidegate.ids import ClusterName, SourceTopic

DEAD_LETTER_SCHEMA: Final = {name: polars_type(kind) for name, kind in DEAD_LETTER_COLUMNS}


class RawRecord(msgspec.Struct, frozen=True):
    """A record of a source as it was read."""

    key: bytes | None
    value: bytes | None
    headers: Headers | None
    """None if they cannot be read."""
    timestamp_ms: int | None


def dead_letters_of_records(
    step: str, cluster: ClusterName, found: Sequence[tuple[str, int, int, RawRecord, RecordFailure]]
) -> pl.DataFrame:
    """Returns dead letters for records that a source could not decode: topic, partition, offset, bytes and reason."""
    rows = [
        {
            "topic": topic,
            "partition": partition,
            "offset": offset,
            **columns_of(raw),
            "step": step,
            "kind": failure.kind.value,
            "message": _message_of(failure),
            "cluster": cluster,
        }
        for topic, partition, offset, raw, failure in found
    ]
    return pl.DataFrame(rows, schema=DEAD_LETTER_SCHEMA)


def columns_of(raw: RawRecord) -> dict[str, Any]:
    """Returns the columns that come from the record itself."""
    headers = [{"key": name, "value": value} for name, value in raw.headers or ()]
    return {
        "bytes": NO_HEADERS if raw.headers is None else ORIGINAL,
        "key": raw.key,
        "value": raw.value,
        "headers": headers,
        "timestamp": raw.timestamp_ms,
    }


def dead_letters_of_rows(
    step: str,
    origins: Sequence[SourceTopic],
    frame: pl.DataFrame,
    failures: Sequence[RecordFailure],
    port: int | None = 0,
) -> pl.DataFrame:
    """Returns dead letters for rows of `frame` that failed in a step or a sink.

    `port` is the input on which the rows arrived, None if they are results of the step. `origins` are the topics from
    which the rows may come. The record's bytes are read back by topic, partition and offset if these are known.
    """
    rows = frame[[failure.row for failure in failures]]
    place = [_column(rows, name) for name in ("__tidegate_partition", "__tidegate_offset")]
    topics = _only([one.topic for one in origins], rows.height) or _column(rows, "__tidegate_topic")
    clusters = _only([one.cluster for one in origins], rows.height) or _column(rows, "__tidegate_cluster")
    texts, types = render_rows(rows), render_types(rows)
    known = [None not in one for one in zip(clusters, topics, *place, strict=True)]
    return pl.DataFrame(
        {
            "topic": topics,
            "partition": place[0],
            "offset": place[1],
            "bytes": [WANTED if one else NO_RECORD for one in known],
            "step": [step] * rows.height,
            "kind": [failure.kind.value for failure in failures],
            "message": [_message_of(failure) for failure in failures],
            "row": [text for text, _ in texts],
            "row_types": [None if text is None else types for text, _ in texts],
            "row_bytes": [size for _, size in texts],
            "port": [port] * rows.height,
            "tries": _column(rows, RETRY_TRIES),
            "cluster": clusters,
        },
        schema_overrides=DEAD_LETTER_SCHEMA,
    ).select([name if name in _MADE else pl.lit(None, kind).alias(name) for name, kind in DEAD_LETTER_SCHEMA.items()])


_MADE: Final = frozenset(name for name, _ in DEAD_LETTER_COLUMNS) - {"key", "value", "headers", "timestamp"}


def _message_of(failure: RecordFailure) -> str:
    """Replaces characters that cannot be encoded: texts of exceptions may not be valid UTF-8."""
    return failure.message[:MESSAGE_CHARACTERS_MAX].encode(errors="replace").decode()


def _only(names: Sequence[str], count: int) -> list[Any]:
    """Returns the name that all rows have; empty if there are several."""
    return [names[0]] * count if len({*names}) == 1 else []


def _column(rows: pl.DataFrame, name: str) -> list[Any]:
    return rows[name].to_list() if name in rows.columns else [None] * rows.height
