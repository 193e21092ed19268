"""A dead letter as read back from the dead-letter topic, and the marks of replayed dead letters. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from tidegate.errors import UNDECODABLE
from tidegate.formats import dead_letters as letters
from tidegate.formats.contract import Headers
from tidegate.ids import MAIN_CLUSTER, ClusterName, SourceTopic, with_cluster

_NUMBER: Final = re.compile("-?[0-9]{1,19}")


class DeadLetter(msgspec.Struct, frozen=True):
    """The contents of a dead letter. Unknown numbers are None, unknown texts empty."""

    partition: int
    """Partition of the dead-letter topic, as is `offset`."""
    offset: int
    written_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    """The record's own headers."""
    pipeline: str
    step: str
    kind: str
    message: str
    topic: str
    source_partition: int | None
    source_offset: int | None
    timestamp_ms: int | None
    """Timestamp of the record."""
    known: str
    """What is known of the record: one of the constants of the package."""
    value_size: int | None
    row: str | None
    """The failed row as JSON (`frames.py`)."""
    row_types: str | None
    row_masked: int | None
    row_size: int | None
    port: int | None = None
    """The input of the step on which the row arrived; None if there is no row, or the row is a result of the step."""
    cluster: ClusterName = MAIN_CLUSTER
    """The cluster of `topic`."""
    tries: int = 0
    """How often the row was replayed at the step before."""
    reason: Headers = ()
    """The headers that are not the record's own, unchanged."""

    @property
    def whole(self) -> bool:
        """True if the record can be written again unchanged."""
        return self.known == letters.ORIGINAL

    @property
    def place(self) -> str:
        """Position of the record, for display."""
        if self.source_partition is None:
            return str(self.source_topic) if self.topic else "unknown"
        return with_cluster(f"{self.topic}[{self.source_partition}] offset {self.source_offset}", self.cluster)

    @property
    def source_topic(self) -> SourceTopic:
        """The topic of the record."""
        return SourceTopic(self.cluster, self.topic)


def read_dead_letter(
    partition: int, offset: int, written_ms: int | None, key: bytes | None, value: bytes | None, headers: Headers
) -> DeadLetter | None:
    """Parses a dead letter; returns None for a mark or a record of another origin."""
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
        known=_last(reason, letters.BYTES) or "",
        value_size=_number(_last(reason, letters.VALUE_SIZE)),
        row=_last(reason, letters.ROW),
        row_types=_last(reason, letters.ROW_TYPES),
        row_masked=_number(_last(reason, letters.ROW_MASKED)),
        row_size=_number(_last(reason, letters.ROW_SIZE)),
        port=_number(_last(reason, letters.PORT)),
        cluster=ClusterName(_last(reason, letters.CLUSTER) or MAIN_CLUSTER),
        tries=_number(_last(reason, letters.TRIES)) or 0,
        reason=tuple(reason),
    )


class LetterMark(msgspec.Struct, frozen=True):
    """The value of a record that marks dead letters of its own partition as written to `to`."""

    offsets: tuple[tuple[int, int], ...]
    """Ranges; both ends are inclusive."""
    to: str


def derive_retry_headers(letter: DeadLetter, place: str) -> Headers:
    """Returns the headers of the record that replays a dead letter at its step; key and value are the letter's.

    The record holds everything that the letter holds, so that a row that fails again is about the original record.
    """
    return (*letter.headers, *letter.reason, (letters.REPLAYED_FROM, place.encode()))


def make_mark(offsets: Iterable[int], to: str) -> bytes:
    """Returns the value of the record that marks these dead letters."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1][1] == offset - 1:
            ranges[-1] = (ranges[-1][0], offset)
        else:
            ranges.append((offset, offset))
    return msgspec.json.encode(LetterMark(tuple(ranges), to))


def read_mark(value: bytes | None, headers: Headers) -> LetterMark | None:
    """Parses a mark; None for any other record.

    A dead letter may contain the header of a mark, copied from its record, but never as its only header.
    """
    if [name for name, _ in headers] != [letters.MARKER]:
        return None
    try:
        return msgspec.json.decode(value or b"", type=LetterMark)
    except UNDECODABLE:
        return None


def _last(headers: Sequence[tuple[str, bytes | None]], name: str) -> str | None:
    """Returns the last header of a name, as Kafka does: a dead letter about a dead letter has the names twice."""
    found = next((value for one, value in reversed(headers) if one == name), None)
    return None if found is None else found.decode(errors="replace")


def _number(text: str | None) -> int | None:
    """Parses a signed 64-bit number, the range of all of Kafka's numbers."""
    number = int(text) if text is not None and _NUMBER.fullmatch(text) else None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None
