"""JSON values that are not Python objects: which columns are decoded in C."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tidegate.datatypes import DataType
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.native.json import RecordDecoder, is_supported
from tidegate.native.library import loaded


def find_memory_decoder(
    declared: Columns,
    wanted: Collection[str],
    careful: Callable[[Sequence[bytes | None]], Decoded],
    *,
    strict: bool,
    needs_field: bool,
) -> MemoryDecoder[Decoded] | None:
    """Returns a decoder of these columns; None if the library is not available or does not support a type."""
    library, record = loaded(), DataType("struct", fields=tuple(declared))
    if library is None or not is_supported(record):
        return None
    return MemoryDecoder(RecordDecoder(library.free, record, wanted, strict=strict, needs_field=needs_field), careful)
