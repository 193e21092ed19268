"""Records of JSON to columns, by `json.c`: what it is certain of. All others are named, and left to the caller."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from tidegate.datatypes import STRING, DataType, parts_of
from tidegate.native.arrow import import_series

if TYPE_CHECKING:
    import polars as pl

_KINDS: Final = (
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "array",
    "map",
    "struct",
)
"""One number each with `enum kind` in `json.c`."""


class _Field(ctypes.Structure):
    """`field` of `json.c`."""


_Field._fields_ = (
    ("name", ctypes.c_char_p),
    ("name_length", ctypes.c_int32),
    ("kind", ctypes.c_int32),
    ("wanted", ctypes.c_int32),
    ("precision", ctypes.c_int32),
    ("scale", ctypes.c_int32),
    ("count", ctypes.c_int32),
    ("children", ctypes.POINTER(_Field)),
)


class Rows(NamedTuple):
    """Of a batch: the rows that were decoded, in order, and the places of those that were left over, ascending."""

    frame: pl.DataFrame
    left: Sequence[int]


def is_supported(kind: DataType) -> bool:
    """Whether values of a type are decoded here, all or most of them."""
    if kind.kind == "map" and kind.key != STRING:
        return False
    if kind.kind == "struct":
        return all(_is_plain(name) and is_supported(part) for name, part in kind.fields)
    return kind.kind in _KINDS and (kind.element is None or is_supported(kind.element))


def _is_plain(name: str) -> bool:
    """Whether a name stands in JSON as it is. A pipeline file takes no other."""
    return not any(letter in '"\\' or letter < " " for letter in name)


class RecordDecoder:
    """Decodes values of the type `record`, a struct, to columns of the fields in `wanted`. Keeps nothing of a batch."""

    def __init__(self, library: ctypes.CDLL, record: DataType, wanted: Collection[str], *, strict: bool) -> None:
        """`strict`: records with fields that `record` does not have are left over."""
        assert is_supported(record)
        self.library = library
        self._decode = library.tg_json_decode
        self._decode.restype = ctypes.c_int32
        address, number, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        self._decode.argtypes = [address, flag, address, address, number, address, address, address, address]
        self._record = _fields_of([("", record)], wanted)
        self._none_wanted = not any(name in wanted for name, _ in record.fields)
        self._strict = strict

    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        """The values are at so many addresses, of these lengths (int32; -1: none). Raises MemoryError."""
        import polars as pl

        # Not an array of ctypes: each size of those is a type of its own, which only a garbage collection frees.
        left, left_count = array("q", bytes(8 * count)), ctypes.c_int64()
        record, out = ctypes.byref(self._record), (left.buffer_info()[0], ctypes.byref(left_count))
        rows = import_series(lambda *to: self._decode(record, self._strict, addresses, lengths, count, *out, *to))
        found = left[: left_count.value].tolist()
        frame = pl.DataFrame(height=count - len(found)) if self._none_wanted else rows.struct.unnest()
        return Rows(frame, found)


def _fields_of(fields: Sequence[tuple[str, DataType]], wanted: Collection[str]) -> ctypes.Array[_Field]:
    return (_Field * len(fields))(*(_field_of(name, kind, wanted) for name, kind in fields))


def _field_of(name: str, kind: DataType, wanted: Collection[str]) -> _Field:
    parts = kind.fields or [("item", part) for part in parts_of(kind)]
    label = name.encode()
    return _Field(
        label,
        len(label),
        _KINDS.index(kind.kind),
        name in wanted,
        kind.precision,
        kind.scale,
        len(parts),
        _fields_of(parts, wanted),
    )
