"""Rows about failed records as records of the dead-letter topic.

A letter is never refused: what has no room in the topic is left out, and a header says so.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from tidegate.formats import letters
from tidegate.formats.contract import Headers
from tidegate.formats.record_limits import RecordLimits, fits
from tidegate.formats.records import OutputRecords

_HeaderList = list[tuple[str, bytes | None]]
_Form = tuple[bytes | None, bytes | None, _HeaderList]
"""Key, value and headers."""


class LetterEncoder:
    """Of one subtask of one attempt; used as a `RecordEncoder` is."""

    def __init__(self, pipeline: str, attempt: int) -> None:
        self._about = [(letters.PIPELINE, pipeline.encode()), (letters.ATTEMPT, str(attempt).encode())]

    def encode(self, frame: pl.DataFrame, limits: RecordLimits | None = None) -> OutputRecords:
        """One record per row, in order. Letters about one partition are in one partition, in their order."""
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        headers: list[Headers | None] = []
        partitions: list[int | None] = []
        for row in frame.iter_rows(named=True):
            key, value, found = self._fitting(row, limits)
            keys.append(key)
            values.append(value)
            headers.append(found)
            partitions.append(_partition_of(row, None if limits is None else limits.partitions))
        size = sum(len(one or b"") for one in (*keys, *values))
        return OutputRecords(values, keys, headers=headers, partitions=partitions, size_bytes=size)

    def _fitting(self, row: Mapping[str, Any], limits: RecordLimits | None) -> _Form:
        forms = list(self._forms(row)) if limits is not None else [next(self._forms(row))]
        return next((one for one in forms if limits is None or fits(*one, limits)), forms[-1])

    def _forms(self, row: Mapping[str, Any]) -> Iterator[_Form]:
        """The letter, then with less and less; the last form always has room (`LETTER_BYTES_MIN`)."""
        own = [(one["key"], one["value"]) for one in row["headers"] or ()]
        key, value, known = row["key"], row["value"], row["bytes"]
        text = None if row["row"] is None else row["row"].encode()
        yield key, value, [*own, *self._reason(row, known, len(own)), *_row_headers(text, letters.ROW_BYTES_MAX)]
        yield key, value, [*own, *self._reason(row, known, len(own)), *_row_headers(text, 0)]
        size = [(letters.VALUE_SIZE, str(len(value)).encode())] if value is not None else []
        less = letters.TOO_LARGE if known in (letters.ORIGINAL, letters.NO_HEADERS) else known
        for rest, part in ((own, key), ([], None)):
            for row_max in (letters.ROW_BYTES_MAX, 0):
                reason = self._reason(row, less, len(rest))
                yield part, None, [*rest, *reason, *size, *_row_headers(text, row_max)]

    def _reason(self, row: Mapping[str, Any], known: str, own: int) -> _HeaderList:
        found: Sequence[tuple[str, object]] = (
            (letters.EXCEPTION, row["kind"]),
            (letters.MESSAGE, row["message"]),
            (letters.TOPIC, row["topic"]),
            (letters.PARTITION, row["partition"]),
            (letters.OFFSET, row["offset"]),
            (letters.STEP, row["step"]),
            (letters.KIND, row["kind"]),
            (letters.TIMESTAMP, row["timestamp"]),
            (letters.BYTES, known),
            (letters.HEADERS, own),
        )
        return [*((name, str(value).encode()) for name, value in found if value is not None), *self._about]


def _row_headers(text: bytes | None, bytes_max: int) -> _HeaderList:
    if text is None:
        return []
    cut = text[:bytes_max].decode(errors="ignore").encode()
    size = [] if len(text) <= bytes_max else [(letters.ROW_SIZE, str(len(text)).encode())]
    return [*([(letters.ROW, cut)] if cut else []), *size]


def _partition_of(row: Mapping[str, Any], partitions: int | None) -> int | None:
    """Always the same for one partition of a source; None: the client chooses."""
    if not partitions or row["partition"] is None:
        return None
    return (zlib.crc32((row["topic"] or "").encode()) + int(row["partition"])) % partitions
