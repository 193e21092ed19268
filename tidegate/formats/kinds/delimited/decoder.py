"""Delimited lines to columns: each record is one line, and fails alone.

`dialect.py` splits lines, `formats/text_values.py` converts their fields. Values that are not Python objects yet are
decoded in C where it is certain of them (`native/delimited.c`), with the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from typing_extensions import override

from tidegate.config.fields.counts import render_count
from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, Decoded, Decoder, Messages
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.formats.kinds.delimited.dialect import Dialect, LineProblem, LineSplitter
from tidegate.formats.text_values import TextColumns
from tidegate.native.delimited import LineDecoder, is_supported
from tidegate.native.library import loaded


class DelimitedDecoder(Decoder):
    """Decodes lines to a frame with exactly the columns of `output`. The fields are the declared columns, in order."""

    def __init__(self, declared: Columns, output: Columns, dialect: Dialect) -> None:
        self._declared = declared
        self._output = output
        self._dialect = dialect
        self._read = LineSplitter(dialect).read
        self._columns = TextColumns(declared, output, lambda at, name: f"column {at + 1} (`{name}`)", _HEADER)

    @override
    def decode(self, messages: Messages) -> Decoded:
        memory = messages.memory
        if memory is None or self._in_memory is None:
            return self.decode_values(messages.values)
        return self._in_memory.decode(memory)

    @cached_property
    def _in_memory(self) -> MemoryDecoder[Decoded] | None:
        library, record = loaded(), DataType("struct", fields=tuple(self._declared))
        if library is None or not is_supported(record):
            return None
        wanted, dialect = {name for name, _ in self._output}, self._dialect
        certain = LineDecoder(
            library.free,
            record,
            wanted,
            separator=dialect.separator,
            null=dialect.null,
            quote=dialect.quote,
            escape=dialect.escape,
            blanks=dialect.blanks,
        )
        return MemoryDecoder(certain, self.decode_values)

    def decode_values(self, values: Sequence[bytes | None]) -> Decoded:
        """Returns rows of the good values in order, and the bad ones. Never raises for what a value contains."""
        lines: list[list[str | None]] = []
        rows: list[int] = []
        failures: list[RecordFailure] = []
        count = len(self._declared)
        for row, value in enumerate(values):
            if value is None:
                failures.append(RecordFailure(row, FailureKind.NULL_VALUE, "a tombstone has no line"))
                continue
            try:
                fields = self._read(value.decode())
            except UnicodeDecodeError as error:
                reason = f"the line is not UTF-8: {error.reason} at byte {error.start}"
                failures.append(RecordFailure(row, FailureKind.NOT_UTF8, reason))
                continue
            except LineProblem as problem:
                failures.append(RecordFailure(row, FailureKind.MALFORMED_DELIMITED, str(problem)))
                continue
            if len(fields) == count:
                lines.append(fields)
                rows.append(row)
            else:
                reason = self._describe_count(fields)
                failures.append(RecordFailure(row, FailureKind.MALFORMED_DELIMITED, reason))
        texts = list(zip(*lines, strict=True)) if lines else [()] * count
        return self._columns.convert(texts, rows, failures)

    def _describe_count(self, fields: Sequence[str | None]) -> str:
        count = len(self._declared)
        sizes = f"{render_count(len(fields), 'field')}, but the schema has {render_count(count, 'column')}"
        if len(fields) > count:
            first = fields[count]
            shown = "NULL" if first is None else repr(first[:_SHOWN_MAX])
            return f"it has {sizes}; field {count + 1} is {shown}"
        name = self._declared[len(fields)][0]
        return f"it has {sizes}; column {len(fields) + 1} is `{name}`"


_SHOWN_MAX = 40
_HEADER = "this may be a header line, which `header: true` skips if it names all columns in their order"
