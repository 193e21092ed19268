"""What the records of a sink get besides their values, as plain values. What makes them is in `part_values.py`."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tidegate.datatypes import BINARY, STRING, DataType
from tidegate.formats import keys
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions

HEADERS_TYPE: Final = DataType("array", element=DataType("struct", fields=(("key", STRING), ("value", BINARY))))
"""Of every column of headers, from the source to the sink."""
CARRIED_HEADERS: Final = "__tidegate_headers"
"""The column with the headers of a row's source record, where a sink passes them on."""


class HeaderRules(msgspec.Struct, frozen=True):
    """Headers of a record: those of its source record in their order, then those that are added."""

    passed: tuple[str, ...] | None = ()
    """Names of those that are passed on; None: all."""
    dropped: tuple[str, ...] = ()
    renamed: dict[str, str] = {}
    added: tuple[tuple[str, str], ...] = ()
    """Names, and the columns of frames that have the values: string or binary."""
    texts: tuple[str, ...] = ()
    """The expressions of `added`, for people."""

    @property
    def pass_through(self) -> bool:
        """Whether any header of the source record is passed on."""
        return self.passed is None or bool(self.passed)

    def explains(self) -> dict[str, Any]:
        """As plain values, by the words of the file."""
        found: dict[str, Any] = {"pass": "all" if self.passed is None else list(self.passed) or "none"}
        if self.dropped:
            found["drop"] = list(self.dropped)
        if self.renamed:
            found["rename"] = dict(self.renamed)
        if self.added:
            found["add"] = {name: text for (name, _), text in zip(self.added, self.texts, strict=True)}
        return found

    def __str__(self) -> str:
        found = self.explains()
        passed = found["pass"]
        words = [f"pass {passed if isinstance(passed, str) else ', '.join(passed)}"]
        words += [f"without {', '.join(self.dropped)}"] if self.dropped else []
        words += [f"{old} as {new}" for old, new in self.renamed.items()]
        words += [f"{name} = {text}" for name, text in found.get("add", {}).items()]
        return "; ".join(words)


class RecordParts(msgspec.Struct, frozen=True):
    """Columns of frames that say what a record has besides its value; None: nothing."""

    key: str | None = None
    key_format: str = keys.TEXT
    timestamp: str | None = None
    partition: str | None = None
    deleted: str | None = None
    """Where it is true the record is a tombstone."""
    headers: HeaderRules | None = None
    key_options: FormatOptions = NO_OPTIONS
    """Of a key in a format with schemas."""
    marks: tuple[tuple[str, str, bytes], ...] = ()
    """Headers that say what a record was written with: name, part (`value` or `key`) that it says so of, value."""

    @property
    def columns(self) -> set[str]:
        """All that are read."""
        named = (self.key, self.timestamp, self.partition, self.deleted)
        added = () if self.headers is None else (column for _, column in self.headers.added)
        return {name for name in (*named, *added) if name is not None}


NO_PARTS: Final = RecordParts()
"""A value alone."""
