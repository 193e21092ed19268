"""JSON values that are no Python objects: which columns C makes of them."""

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
    """A decoder of these columns; None where the library is not there, or a type is one that it does not know."""
    library, record = loaded(), DataType("struct", fields=tuple(declared))
    if library is None or not is_supported(record):
        return None
    return MemoryDecoder(RecordDecoder(library.free, record, wanted, strict=strict, needs_field=needs_field), careful)
