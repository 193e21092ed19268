"""Delimited lines to fields: the dialect, and what is wrong with a line that is not in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

import msgspec

from tidegate.formats.plain import render_number

_BLANKS: Final = " \t"
_SHOWN_MAX: Final = 40


class Dialect(msgspec.Struct, frozen=True):
    """How fields are written. `quote` may be empty: then nothing is quoted."""

    separator: str
    quote: str
    escape: str
    null: str
    trim: bool = False

    @property
    def overlaps(self) -> tuple[str, ...]:
        """The ends of a text in front of which its separator would be found too early: `a|` is cut in `a|||b`."""
        parts = [self.separator[:size] for size in range(1, len(self.separator))]
        return tuple(part for part in parts if (part + self.separator).startswith(self.separator))

    @property
    def quoted(self) -> frozenset[str]:
        """Texts that are always quoted: that of NULL, and the empty one, which many readers take for NULL."""
        return frozenset([self.null, ""] if self.quote else [self.null])

    @property
    def blanks(self) -> str:
        """The characters that are removed around fields."""
        return "".join(one for one in _BLANKS if one not in self.separator) if self.trim else ""


class LineProblem(ValueError):
    """A line that cannot be split into fields."""


class LineSplitter:
    """Splits lines of one dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self._separator = dialect.separator
        self._quote = dialect.quote
        self._escape = dialect.escape
        self._null = dialect.null
        self._blanks = dialect.blanks
        special = re.escape(dialect.quote + dialect.escape)
        self._special = re.compile(f"[{special}]") if dialect.quote else None
        quote, separator = re.escape(dialect.quote), re.escape(dialect.separator)
        self._plainly_quoted = (
            re.compile(rf"{quote}([^{special}]*){quote}(?={separator}|\Z)") if dialect.quote else None
        )
        """Matches most quoted fields at once."""

    def read(self, line: str) -> list[str | None]:
        """Returns the fields of a line, None for NULL. Raises LineProblem."""
        if line.endswith("\n"):
            line = line[:-1].removesuffix("\r")
        quoted = self._special is not None and self._quote in line
        return self._split_quoted(line) if quoted else self._split_plain(line)

    def _split_plain(self, line: str) -> list[str | None]:
        if "\n" in line or "\r" in line:
            raise LineProblem("it has several lines, but only quoted fields can contain line breaks")
        null, blanks = self._null, self._blanks
        if blanks:
            texts = [text.strip(blanks) for text in line.split(self._separator)]
            return [None if text == null else text for text in texts]
        return [None if text == null else text for text in line.split(self._separator)]

    def _split_quoted(self, line: str) -> list[str | None]:
        assert self._plainly_quoted is not None
        fields: list[str | None] = []
        match, at, end, separator = self._plainly_quoted.match, 0, len(line), self._separator
        while True:
            found = match(line, at)
            start = at if found else self._skip_blanks(line, at)
            if found:
                fields.append(found[1])
                at = found.end()
            elif line.startswith(self._quote, start):
                text, at = self._read_quoted(line, start, len(fields))
                fields.append(text)
                if at < end and not line.startswith(separator, at):
                    rest = line[at : at + _SHOWN_MAX]
                    raise LineProblem(f"column {len(fields)}: {rest!r} follows the closing quote")
            else:
                stop = line.find(separator, at)
                stop = end if stop < 0 else stop
                fields += self._split_plain(line[at:stop])
                at = stop
            if at >= end:
                return fields
            at += len(separator)

    def _skip_blanks(self, line: str, at: int) -> int:
        while self._blanks and at < len(line) and line[at] in self._blanks:
            at += 1
        return at

    def _read_quoted(self, line: str, start: int, column: int) -> tuple[str, int]:
        """Returns the text of a quoted field, and the position after it."""
        assert self._special is not None
        parts: list[str] = []
        at = start + 1
        while True:
            found = self._special.search(line, at)
            if found is None:
                raise LineProblem(f"column {column + 1}: the quote is not closed in {line[start:][:_SHOWN_MAX]!r}")
            parts.append(line[at : found.start()])
            at = found.end()
            if found[0] == self._escape and line[at : at + 1] in (self._quote, self._escape):
                parts.append(line[at])
                at += 1
            elif found[0] == self._quote:
                return "".join(parts), self._skip_blanks(line, at)
            else:
                parts.append(found[0])


def render_line(values: Iterable[Any], dialect: Dialect) -> str:
    """Returns the line of plain values, as people write them in YAML. Raises ValueError for one that no field holds."""
    return dialect.separator.join(_render_field(value, dialect) for value in values)


def _render_field(value: Any, dialect: Dialect) -> str:
    match value:
        case None:
            return dialect.null
        case bool():
            text = str(value).lower()
        case Decimal():
            text = render_number(value)
        case int() | float() | str():
            text = str(value)
        case _:
            raise ValueError(f"a field cannot hold {type(value).__name__}")
    marks = (dialect.separator, "\r", "\n", *dialect.quote)
    special = text in dialect.quoted or any(one in text for one in marks) or text.endswith(dialect.overlaps)
    if not special:
        return text
    if not dialect.quote:
        raise ValueError(f"{text[:_SHOWN_MAX]!r} needs quotes, but `quote` is empty")
    if dialect.escape != dialect.quote:
        text = text.replace(dialect.escape, dialect.escape * 2)
    return f"{dialect.quote}{text.replace(dialect.quote, dialect.escape + dialect.quote)}{dialect.quote}"
