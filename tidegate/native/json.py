"""Records of JSON and MessagePack to columns with `json.c` and `msgpack.c`, which decode only what they are certain of.

They report all other records, which are left to the caller.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection
from typing import Final

from tidegate.datatypes import STRING, DataType
from tidegate.native.columns import KINDS, DeclaredColumns, Rows

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
