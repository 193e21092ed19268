"""Records of JSON and MessagePack to columns with `json.c` and `msgpack.c`, which decode only what they are certain of.

They report all other records, which are left to the caller. `json_write.c` writes JSON from columns of a frame.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegate.datatypes import STRING, DataType
from tidegate.native.arrow import Lent, import_series
from tidegate.native.columns import KINDS, DeclaredColumns, Rows

if TYPE_CHECKING:
    import polars as pl

ZONED: Final = DataType("timestamp", precision=1)
"""For fields of a `record`: a timestamp whose text needs an offset, as in RFC 3339. Texts without one are left over."""
JSON: Final = "json"
MSGPACK: Final = "msgpack"
_NAME_BYTES_MAX: Final = 255
_STRICT: Final = 1
_NEEDS_FIELD: Final = 2
"""Flags of `enum flag` in `columns.h`."""


def is_supported(kind: DataType, syntax: str = JSON) -> bool:
    """Returns whether all or most values of a type can be decoded here."""
    if kind.kind == "map" and kind.key != STRING:
        return False
    if kind.kind == "struct":
        return all(_is_plain(name, syntax) and is_supported(part, syntax) for name, part in kind.fields)
    return kind.kind in KINDS and (kind.element is None or is_supported(kind.element, syntax))


def _is_plain(name: str, syntax: str) -> bool:
    """Returns whether JSON writes a name without escapes, or MessagePack with at most two bytes in front."""
    if syntax == MSGPACK:
        return len(name.encode()) <= _NAME_BYTES_MAX
    return not any(letter in '"\\' or letter < " " for letter in name)


class RecordDecoder:
    """Decodes values of the type `record`, a struct, to columns of the fields in `wanted`. Keeps nothing of a batch."""

    def __init__(
        self,
        library: ctypes.CDLL,
        record: DataType,
        wanted: Collection[str],
        *,
        strict: bool,
        needs_field: bool = False,
        syntax: str = JSON,
    ) -> None:
        """Sets which records are left over, and whether they are in JSON or MSGPACK.

        With `strict`, records with fields that `record` does not have. With `needs_field`, records that have fields but
        none that `record` has.
        """
        assert is_supported(record, syntax)
        self.library = library
        self._decode = library.tg_msgpack_decode if syntax == MSGPACK else library.tg_json_decode
        self._decode.restype = ctypes.c_int32
        address, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        self._decode.argtypes = [address, flag, address, address, number, address, address, address, address]
        self._columns = DeclaredColumns(record, wanted)
        self._flags = (_STRICT if strict else 0) | (_NEEDS_FIELD if needs_field else 0)

    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        """Decodes `count` values; raises MemoryError.

        `addresses` and `lengths` are the addresses of arrays. Lengths are int32, -1 for no value.
        """
        given = self._flags, addresses, lengths, count
        return self._columns.fill(count, lambda record, *out: self._decode(record, *given, *out))


WRITTEN_KINDS: Final = frozenset(
    {
        *("boolean", "tinyint", "smallint", "int", "bigint", "double", "string"),
        *("date", "timestamp", "timestamp_ntz"),
    }
)
"""Kinds of columns that C writes."""


_WORD_BYTES: Final = 8


class _Field(ctypes.Structure):
    """`written_field` of `json_write.c`."""

    _fields_ = (
        ("prefix", ctypes.c_char_p),
        ("prefix_length", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("column", ctypes.c_void_p),
    )


class _LeftOver(Exception):
    """C does not write one of the values."""


class JsonWriter:
    """Writes objects with these fields. Not thread-safe."""

    def __init__(self, library: ctypes.CDLL, fields: Sequence[tuple[bytes, str]]) -> None:
        """`fields` has what is written before each value (`{` or `,`, the name and a colon), and its kind."""
        assert fields
        library.tg_prepare_doubles()
        self._write = library.tg_write_json
        self._write.restype = ctypes.c_int32
        self._write.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        self._fields = (_Field * len(fields))()
        for field, (prefix, kind) in zip(self._fields, fields, strict=True):
            field.prefix = prefix + bytes(-len(prefix) % _WORD_BYTES)
            field.prefix_length = len(prefix)
            field.kind = KINDS.index(kind)

    def write(self, columns: Sequence[pl.Series]) -> pl.Series | None:
        """Returns the object of each row as a Binary column `value`; None if C does not write one of them.

        The columns have the types of the fields. Raises MemoryError.
        """
        lent = [Lent(column) for column in columns]
        return self.write_at([one.address for one in lent], len(columns[0]))

    def write_at(self, addresses: Sequence[int], rows: int) -> pl.Series | None:
        """Returns the same for columns at the addresses of their arrays."""
        for field, address in zip(self._fields, addresses, strict=True):
            field.column = address

        def fill(*to: Any) -> int:
            written: int = self._write(self._fields, len(addresses), rows, *to)
            if written < 0:
                raise _LeftOver
            return written

        try:
            return import_series(fill)
        except _LeftOver:
            return None
