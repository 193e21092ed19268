"""Rows about failed records as records of the dead-letter topic.

A dead letter is never rejected: parts that exceed the topic's limit are left out, and a header states it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import polars as pl

from tidegate.formats import dead_letters as letters
from tidegate.formats.contract import Headers
from tidegate.formats.part_values import header_column
from tidegate.formats.record_limits import RecordLimits, fits
from tidegate.formats.records import OutputRecords, output_records
from tidegate.ids import MAIN_CLUSTER

_HeaderList = list[tuple[str, bytes | None]]
_Form = tuple[bytes | None, bytes | None, _HeaderList]
"""Key, value and headers."""


class DeadLetterEncoder:
    """The encoder of one subtask in one attempt, with the interface of `RecordEncoder`. `mask` removes secrets from a
    text.
    """

    def __init__(self, pipeline: str, attempt: int, mask: Callable[[str], str] = str) -> None:
        self._mask = mask
        self._about = [(letters.PIPELINE, pipeline.encode()), (letters.ATTEMPT, str(attempt).encode())]

    def encode(self, frame: pl.DataFrame, limits: RecordLimits | None = None) -> OutputRecords:
        """Encodes one record per row, in order. Dead letters about one partition share a partition and keep their
        order.
        """
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
        return output_records(
            pl.Series(values, dtype=pl.Binary),
            pl.Series(keys, dtype=pl.Binary),
            headers=header_column(headers),
            partitions=pl.Series(partitions, dtype=pl.Int32),
        )

    def _fitting(self, row: Mapping[str, Any], limits: RecordLimits | None) -> _Form:
        forms = list(self._forms(row)) if limits is not None else [next(self._forms(row))]
        return next((one for one in forms if limits is None or fits(*one, limits)), forms[-1])

    def _forms(self, row: Mapping[str, Any]) -> Iterator[_Form]:
        """Yields the dead letter with fewer and fewer parts; the last form always fits (`DEAD_LETTER_BYTES_MIN`)."""
        own = [(one["key"], one["value"]) for one in row["headers"] or ()]
        key, value, known = row["key"], row["value"], row["bytes"]
        told, untold = self._row_headers(row)
        yield key, value, [*own, *self._reason(row, known, len(own)), *told]
        yield key, value, [*own, *self._reason(row, known, len(own)), *untold]
        size = [(letters.VALUE_SIZE, str(len(value)).encode())] if value is not None else []
        less = letters.TOO_LARGE if known in (letters.ORIGINAL, letters.NO_HEADERS) else known
        for rest, part in ((own, key), ([], None)):
            for about in (told, untold):
                reason = self._reason(row, less, len(rest))
                yield part, None, [*rest, *reason, *size, *about]

    def _row_headers(self, row: Mapping[str, Any]) -> tuple[_HeaderList, _HeaderList]:
        """Returns the headers with the failed row, and without it."""
        text, size = row["row"], row["row_bytes"]
        if text is None:
            untold: _HeaderList = [] if size is None else [_size_header(size)]
            return untold, untold
        masked = _Masked(self._mask)
        text = masked.mask(text)
        told: _HeaderList = [(letters.ROW, text), (letters.ROW_TYPES, row["row_types"].encode())]
        told += [(letters.ROW_MASKED, str(masked.count).encode())] if masked.count else []
        told += [(letters.PORT, str(row["port"]).encode())] if row["port"] is not None else []
        return told, [_size_header(len(text))]

    def _reason(self, row: Mapping[str, Any], known: str, own: int) -> _HeaderList:
        found: Sequence[tuple[str, object]] = (
            (letters.EXCEPTION, row["kind"]),
            (letters.MESSAGE, self._mask(row["message"])),
            (letters.TOPIC, row["topic"]),
            (letters.CLUSTER, None if row["cluster"] == MAIN_CLUSTER else row["cluster"]),
            (letters.PARTITION, row["partition"]),
            (letters.OFFSET, row["offset"]),
            (letters.STEP, row["step"]),
            (letters.KIND, row["kind"]),
            (letters.TIMESTAMP, row["timestamp"]),
            (letters.BYTES, known),
            (letters.TRIES, row["tries"]),
            (letters.HEADERS, own),
        )
        return [*((name, str(value).encode()) for name, value in found if value is not None), *self._about]


class _Masked:
    """Masks the secrets of the pipeline in one row."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self._mask = mask
        self.count = 0
        """Number of texts in the row that contained secrets."""

    def mask(self, text: str) -> bytes:
        """Masks a JSON text; returns it unchanged if it contains no secrets."""
        plain = self._plain(msgspec.json.decode(text))
        return msgspec.json.encode(plain) if self.count else text.encode()

    def _plain(self, value: Any) -> Any:
        if isinstance(value, str):
            shown = self._mask(value)
            self.count += shown != value
            return shown
        if isinstance(value, list):
            return [self._plain(item) for item in value]
        if isinstance(value, dict):
            return {name: self._plain(item) for name, item in value.items()}
        return value


def _size_header(size: int) -> tuple[str, bytes]:
    return letters.ROW_SIZE, str(size).encode()


def _partition_of(row: Mapping[str, Any], partitions: int | None) -> int | None:
    """Returns the same partition for all letters about one source partition; None if the client chooses."""
    if not partitions or row["partition"] is None:
        return None
    return (zlib.crc32(f"{row['cluster'] or ''}/{row['topic'] or ''}".encode()) + int(row["partition"])) % partitions
