"""Arrays between C and Polars, passed through Arrow's C data interface without a copy.

Arrays that C fills become columns of Polars; C frees their memory when Polars drops the last column of a batch
(`arrow.h`). Columns of Polars are lent to C, which reads them in place (`lent.h`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl

    NumberType = pl.Int32 | pl.Int64 | pl.UInt16 | pl.UInt32

BUFFER_BYTES_MAX: Final = 2**31 - 1
"""Maximum size of a buffer that views point into."""
_WIDTHS: Final = {"Int32": (4, b"i"), "Int64": (8, b"l"), "UInt16": (2, b"S"), "UInt32": (4, b"I")}
"""Bytes and Arrow's format of columns of numbers, by the name of their type."""
_SCHEMA_CAPSULE: Final = b"arrow_schema"
_ARRAY_CAPSULE: Final = b"arrow_array"
_STREAM_CAPSULE: Final = b"arrow_array_stream"
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class ArrowSchema(ctypes.Structure):
    """`struct ArrowSchema`."""


class ArrowArray(ctypes.Structure):
    """`struct ArrowArray`."""


ArrowSchema._fields_ = (
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_void_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowSchema))),
    ("private_data", ctypes.c_void_p),
)
ArrowArray._fields_ = (
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.c_void_p),
    ("children", ctypes.c_void_p),
    ("dictionary", ctypes.c_void_p),
    ("release", ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))),
    ("private_data", ctypes.c_void_p),
)


class _Exported:
    """An array that Polars imports through the PyCapsule protocol."""

    def __init__(self, array: ArrowArray, schema: ArrowSchema) -> None:
        self._array, self._schema = array, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, array = ctypes.addressof(self._schema), ctypes.addressof(self._array)
        return _capsule(schema, _SCHEMA_CAPSULE, None), _capsule(array, _ARRAY_CAPSULE, None)


def import_series(fill: Callable[[Any, Any], int]) -> pl.Series:
    """Imports the column that `fill` writes to references to an array and a schema.

    `fill` returns 0 if it cannot allocate memory. Raises MemoryError.
    """
    return import_many(1, fill)[0]


def import_many(count: int, fill: Callable[[Any, Any], int]) -> list[pl.Series]:
    """Imports the columns that `fill` writes to `count` arrays and schemas. See `import_series`."""
    import polars as pl

    arrays, schemas = _array_of(ArrowArray, count)(), _array_of(ArrowSchema, count)()
    try:
        if not fill(arrays, schemas):
            raise MemoryError("no memory for the columns of a batch")
        return [pl.Series(_Exported(*one)) for one in zip(arrays, schemas, strict=True)]
    finally:  # Polars owns what it has imported, whose `release` is then null
        for each in (*arrays, *schemas):
            if each.release:
                each.release(ctypes.byref(each))


@cache
def _array_of(kind: type[ctypes.Structure], count: int) -> type[ctypes.Array[Any]]:
    """Returns the type of an array. Each length is a type of its own, which only a garbage collection frees."""
    return kind * count


class _Stream(ctypes.Structure):
    """`struct ArrowArrayStream`."""


_StreamPointer: Final = ctypes.POINTER(_Stream)
_Stream._fields_ = (
    ("get_schema", ctypes.CFUNCTYPE(ctypes.c_int, _StreamPointer, ctypes.POINTER(ArrowSchema))),
    ("get_next", ctypes.CFUNCTYPE(ctypes.c_int, _StreamPointer, ctypes.POINTER(ArrowArray))),
    ("get_last_error", ctypes.CFUNCTYPE(ctypes.c_char_p, _StreamPointer)),
    ("release", ctypes.CFUNCTYPE(None, _StreamPointer)),
    ("private_data", ctypes.c_void_p),
)


class Lent:
    """A column that C reads in place: strings and bytes as views, anything else in its physical type.

    The memory is valid as long as this object. `address` is that of a `struct ArrowArray`.
    """

    __slots__ = ("_array", "address")

    def __init__(self, column: pl.Series) -> None:
        """Copies nothing, unless the column consists of several parts. Raises MemoryError."""
        self._array = ArrowArray()
        self.address = ctypes.addressof(self._array)
        capsule = (column if column.n_chunks() == 1 else column.rechunk()).__arrow_c_stream__(None)
        stream = _Stream.from_address(_pointer(capsule, _STREAM_CAPSULE))
        if stream.get_next(stream, self._array):
            raise MemoryError("no memory to lend a column")

    @property
    def text_bytes(self) -> int:
        """Size of the buffers that strings and bytes lie in, which may hold more than those of the column."""
        return _text_bytes(self._array)

    def __del__(self) -> None:
        if self._array.release:
            self._array.release(self._array)


def _text_bytes(array: ArrowArray) -> int:
    """Only columns of views have more than two buffers: known, views, the texts, and at last the sizes of the texts."""
    texts = array.n_buffers - 3
    if texts > 0:
        last = ctypes.c_void_p.from_address(array.buffers + (array.n_buffers - 1) * ctypes.sizeof(ctypes.c_void_p))
        return sum((ctypes.c_int64 * texts).from_address(last.value or 0))
    children = (ctypes.POINTER(ArrowArray) * array.n_children).from_address(array.children) if array.n_children else ()
    return sum(_text_bytes(child.contents) for child in children)


class ArrowFunctions:
    """Creates columns from arrays of C or librdkafka. Columns are copies, so the arrays may be freed afterwards."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._views, self._fixed = library.tg_view_column, library.tg_fixed_column
        self._views.restype = self._fixed.restype = ctypes.c_int32
        address, number, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
        self._views.argtypes = [address, address, number, number, text, address, address]
        self._fixed.argtypes = [address, number, number, address, text, text, address, address]

    def view_column(
        self, name: str, addresses: int, lengths: int, count: int, buffer_bytes: int = BUFFER_BYTES_MAX
    ) -> pl.Series:
        """Creates a Binary column of `count` values.

        `addresses` is the address of an array of pointers, `lengths` that of an int32 array; a length of -1 becomes
        NULL. Raises MemoryError.
        """
        label = name.encode()
        return import_series(lambda *out: self._views(addresses, lengths, count, buffer_bytes, label, *out))

    def fixed_column(
        self, name: str, address: int, count: int, dtype: type[NumberType], known: int | None = None
    ) -> pl.Series:
        """Creates a column of `count` numbers at an address.

        `known` is the address of one byte per number; 0 becomes NULL. Raises MemoryError.
        """
        width, form = _WIDTHS[dtype.__name__]
        label = name.encode()
        return import_series(lambda *out: self._fixed(address, count, width, known, form, label, *out))
