"""Parts of a sink's records besides their values, as plain values. `part_values.py` computes them."""

from __future__ import annotations

from typing import Final

import msgspec

from tidegate.datatypes import BINARY, STRING, DataType
from tidegate.formats import keys
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions

HEADERS_TYPE: Final = DataType("array", element=DataType("struct", fields=(("key", STRING), ("value", BINARY))))
"""Type of every headers column, from the source to the sink."""
CARRIED_HEADERS: Final = "__tidegate_headers"
"""Column with the headers of a row's source record, if a sink passes them on."""


class HeaderRules(msgspec.Struct, frozen=True):
    """Headers of a record: those of its source record in their order, then added ones."""

    passed: tuple[str, ...] | None = ()
    """Names of headers to pass on; None for all."""
    dropped: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    added: tuple[tuple[str, str], ...] = ()
    """Names of headers and the columns, string or binary, that hold their values."""
    texts: tuple[str, ...] = ()
    """The expressions of `added`, for display."""

    @property
    def pass_through(self) -> bool:
        """True if any header of the source record is passed on."""
        return self.passed is None or bool(self.passed)

    def __str__(self) -> str:
        parts = [f"pass {'all' if self.passed is None else ', '.join(self.passed) or 'none'}"]
        parts += [f"without {', '.join(self.dropped)}"] if self.dropped else []
        parts += [f"{old} as {new}" for old, new in self.renamed.items()]
        parts += [f"{name} = {text}" for (name, _), text in zip(self.added, self.texts, strict=True)]
        return "; ".join(parts)


class RecordParts(msgspec.Struct, frozen=True):
    """Columns that define the parts of a record other than its value; None if a part is not set."""

    key: str | None = None
    key_format: str = keys.TEXT
    timestamp: str | None = None
    partition: str | None = None
    deleted: str | None = None
    """A record is a tombstone where this column is true."""
    headers: HeaderRules | None = None
    key_options: FormatOptions = NO_OPTIONS
    """Options for a key in a format with schemas."""
    marks: tuple[tuple[str, str, bytes], ...] = ()
    """Headers that identify schemas: name, the part that was written with the schema (`value` or `key`), and value."""

    @property
    def columns(self) -> set[str]:
        """All columns that are read."""
        named = (self.key, self.timestamp, self.partition, self.deleted)
        added = () if self.headers is None else (column for _, column in self.headers.added)
        return {name for name in (*named, *added) if name is not None}


NO_PARTS: Final = RecordParts()
"""Records with a value only."""
