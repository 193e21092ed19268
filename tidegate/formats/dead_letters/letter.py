"""A letter as it is read back from the dead-letter topic, and the marks of those that were written again. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tidegate.errors import UNDECODABLE
from tidegate.formats import dead_letters as letters
from tidegate.formats.contract import Headers

_NUMBER: Final = re.compile("-?[0-9]{1,19}")


class DeadLetter(msgspec.Struct, frozen=True):
    """What a record of the dead-letter topic says. Numbers that nobody knows are None, words empty."""

    partition: int
    """Of the dead-letter topic, as `offset`."""
    offset: int
    written_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The record's own."""
    pipeline: str
    step: str
    kind: str
    message: str
    topic: str
    source_partition: int | None
    source_offset: int | None
    timestamp_ms: int | None
    """Of the record."""
    bytes: str
    """One of the words of the package."""
    value_size: int | None
    row: str | None
    """The row that failed, as JSON (`rows.py`)."""
    row_types: str | None
    row_masked: int | None
    row_size: int | None

    @property
    def whole(self) -> bool:
        """Whether the record can be written again as it was."""
        return self.bytes == letters.ORIGINAL

    @property
    def place(self) -> str:
        """Of the record, for people."""
        if self.source_partition is None:
            return self.topic or "unknown"
        return f"{self.topic}[{self.source_partition}] offset {self.source_offset}"


def read_dead_letter(
    partition: int, offset: int, written_ms: int | None, key: bytes | None, value: bytes | None, headers: Headers
) -> DeadLetter | None:
    """None for a record that is no letter of ours: a mark, or what somebody else has written."""
    own_count = _number(_last(headers, letters.HEADERS))
    kind = _last(headers, letters.KIND)
    if own_count is None or kind is None or not 0 <= own_count <= len(headers):
        return None
    reason = headers[own_count:]
    return DeadLetter(
        partition=partition,
        offset=offset,
        written_ms=written_ms,
        key=key,
        value=value,
        headers=tuple(headers[:own_count]),
        pipeline=_last(reason, letters.PIPELINE) or "",
        step=_last(reason, letters.STEP) or "",
        kind=kind,
        message=_last(reason, letters.MESSAGE) or "",
        topic=_last(reason, letters.TOPIC) or "",
        source_partition=_number(_last(reason, letters.PARTITION)),
        source_offset=_number(_last(reason, letters.OFFSET)),
        timestamp_ms=_number(_last(reason, letters.TIMESTAMP)),
        bytes=_last(reason, letters.BYTES) or "",
        value_size=_number(_last(reason, letters.VALUE_SIZE)),
        row=_last(reason, letters.ROW),
        row_types=_last(reason, letters.ROW_TYPES),
        row_masked=_number(_last(reason, letters.ROW_MASKED)),
        row_size=_number(_last(reason, letters.ROW_SIZE)),
    )


class LetterMark(msgspec.Struct, frozen=True):
    """The value of a record that marks letters of its own partition: they were written to `to`."""

    offsets: tuple[tuple[int, int], ...]
    """Ranges, both ends inclusive."""
    to: str


def make_mark(offsets: Iterable[int], to: str) -> bytes:
    """The value of the record that marks these letters."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return msgspec.json.encode(LetterMark(tuple(ranges), to))


def read_mark(value: bytes | None, headers: Headers) -> LetterMark | None:
    """None for a record that is no mark. A letter may have a mark's header, its record's own, but never that alone."""
    if [name for name, _ in headers] != [letters.MARKER]:
        return None
    try:
        return msgspec.json.decode(value or b"", type=LetterMark)
    except UNDECODABLE:
        return None


def _last(headers: Sequence[tuple[str, bytes | None]], name: str) -> str | None:
    """Kafka's rule for names that repeat: a letter about a letter has the names twice."""
    found = next((value for one, value in reversed(headers) if one == name), None)
    return None if found is None else found.decode(errors="replace")


def _number(text: str | None) -> int | None:
    """Of 64 bits, as all of Kafka's are."""
    number = int(text) if text is not None and _NUMBER.fullmatch(text) else None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None
