"""Records of a topic as lines: the input of `topic produce` and the output of `topic read`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tidegate.cli.output import printable
from tidegate.clock import render_stamp
from tidegate.errors import TidegateError
from tidegate.formats.plain import header_to_plain, text_or_base64

_PLACE_WIDTH: Final = 8
"""Width of `partition:offset`, so that lines of a small topic are aligned."""
NO_KEY: Final = "-"
NO_VALUE: Final = "(null)"


class LineRefused(TidegateError):
    """A line is not a valid record. The lines before it are written."""

    code = "line-refused"
    exit_code = 2
    retriable = False


class SeenRecord(msgspec.Struct, frozen=True):
    """A record that was read. `timestamp_ms` is None if it has no timestamp."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


class LineReader:
    """Parses lines into keys and values. `key` applies to every record; a `separator` ends the key of each line."""

    def __init__(self, *, json: bool, key: str | None = None, separator: str | None = None) -> None:
        self.json = json
        self._key = None if key is None else key.encode()
        self._separator = None if separator is None else separator.encode()

    def parse(self, number: int, line: bytes) -> tuple[bytes | None, bytes] | None:
        """Returns key and value of line `number`, or None if it is blank. Raises LineRefused."""
        line = line.rstrip(b"\r\n")
        if not line.strip():
            return None
        key, value = self._key, line
        if self._separator is not None:
            key, found, value = line.partition(self._separator)
            if not found:
                shown = self._separator.decode()
                raise LineRefused(f"line {number} has no {shown!r} after the key: {_short(line)}", line=number)
        if self.json:
            try:
                msgspec.json.decode(value)
            except (ValueError, RecursionError) as error:
                remedy = "correct it, or write lines unchanged with --format text"
                raise LineRefused(
                    f"line {number} is not JSON ({error}): {_short(value)}; {remedy}", line=number
                ) from error
        return key, value


def _short(text: bytes) -> str:
    shown = _printable(text[:60])
    return shown if len(text) <= len(text[:60]) else f"{shown}..."


def render_text(record: SeenRecord) -> str:
    """Renders `partition:offset  timestamp  key  value`. The text cannot move a terminal's cursor."""
    place = f"{record.partition}:{record.offset}".ljust(_PLACE_WIDTH)
    key = NO_KEY if record.key is None else _printable(record.key)
    value = NO_VALUE if record.value is None else _printable(record.value)
    return f"{place}  {_timestamp(record.timestamp_ms) or NO_KEY}  {key}  {value}"


def render_json(record: SeenRecord) -> str:
    """Renders one JSON object on one line.

    A value that is JSON is nested unchanged, except text and null: text here stands for the bytes of the record, from
    which `preview` restores it. Bytes that are not UTF-8 are in base64.
    """
    entry: dict[str, object] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": _timestamp(record.timestamp_ms),
        **text_or_base64("key", record.key),
        **text_or_base64("value", record.value),
    }
    if record.headers:
        entry["headers"] = [header_to_plain(name, value) for name, value in record.headers]
    nested = None if record.value is None else _compact_json(record.value)
    if nested is not None and nested != b"null" and not nested.startswith(b'"'):
        entry["value"] = msgspec.Raw(nested)
    return msgspec.json.encode(entry).decode()


def _compact_json(value: bytes) -> bytes | None:
    """Returns JSON without line breaks, or None if the value is not JSON."""
    try:
        value.decode()
        msgspec.json.decode(value)
        return msgspec.json.format(value, indent=-1)
    except (ValueError, RecursionError):
        return None


def _printable(content: bytes) -> str:
    return printable(content.decode(errors="backslashreplace"))


def _timestamp(timestamp_ms: int | None) -> str | None:
    """Renders a timestamp as ISO 8601, or as a number if no calendar covers it, because producers may write any."""
    if timestamp_ms is None:
        return None
    try:
        return render_stamp(timestamp_ms)
    except OverflowError:
        return f"{timestamp_ms}ms"
