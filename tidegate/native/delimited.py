"""Delimited lines to columns with `delimited.c`, which decodes only what it can decode with certainty.

It reports all other records, which are left to the caller.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Final

from tidegate.datatypes import DataType
from tidegate.native.columns import KINDS, DeclaredColumns, Rows

_LEFT_KINDS: Final = frozenset({"binary", "array", "map", "struct"})


class _Dialect(ctypes.Structure):
    """`dialect` of `delimited.c`."""

    _fields_ = (
        ("separator", ctypes.c_char_p),
        ("separator_length", ctypes.c_int32),
        ("null", ctypes.c_char_p),
        ("null_length", ctypes.c_int32),
        ("quote", ctypes.c_int32),
        ("escape", ctypes.c_int32),
        ("blanks", ctypes.c_char_p),
    )


def is_supported(record: DataType) -> bool:
    """Returns whether lines with these fields can be decoded here."""
    return all(kind.kind in KINDS and kind.kind not in _LEFT_KINDS for _, kind in record.fields)


class LineDecoder:
    """Decodes lines to columns of the fields in `wanted` of `record`, a struct. Keeps nothing of a batch."""

    def __init__(
        self,
        library: ctypes.CDLL,
        record: DataType,
        wanted: Collection[str],
        *,
        separator: str,
        null: str,
        quote: str,
        escape: str,
        blanks: str,
    ) -> None:
        """`quote` and `escape` are ASCII, and empty if nothing is quoted; `blanks` around fields are removed."""
        assert is_supported(record)
        self.library = library
        self._decode = library.tg_delimited_decode
        self._decode.restype = ctypes.c_int32
        address, number = ctypes.c_void_p, ctypes.c_int64
        self._decode.argtypes = [address, address, address, address, number, address, address, address, address]
        self._columns = DeclaredColumns(record, wanted)
        data, null_data = separator.encode(), null.encode()
        marks = ord(quote or "\0"), ord(escape or "\0")
        self._dialect = _Dialect(data, len(data), null_data, len(null_data), *marks, blanks.encode())

    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        """Decodes `count` values; raises MemoryError.

        `addresses` and `lengths` are the addresses of arrays. Lengths are int32, -1 for no value.
        """
        given = ctypes.byref(self._dialect), addresses, lengths, count
        return self._columns.fill(count, lambda record, *out: self._decode(record, *given, *out))
