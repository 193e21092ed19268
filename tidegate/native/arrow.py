"""Arrays that C has filled in, as Polars columns: handed over by Arrow's C data interface, without a copy.

Their memory is freed by C when Polars drops the last column of a batch (`arrow.h`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import polars as pl

BUFFER_BYTES_MAX: Final = 2**31 - 1
"""Of a buffer that views point into."""
_SCHEMA_CAPSULE: Final = b"arrow_schema"
_ARRAY_CAPSULE: Final = b"arrow_array"
_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
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
    """What Polars imports by the PyCapsule protocol."""

    def __init__(self, array: ArrowArray, schema: ArrowSchema) -> None:
        self._array, self._schema = array, schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        schema, array = ctypes.addressof(self._schema), ctypes.addressof(self._array)
        return _capsule(schema, _SCHEMA_CAPSULE, None), _capsule(array, _ARRAY_CAPSULE, None)


def import_series(fill: Callable[[Any, Any], int]) -> pl.Series:
    """The column that `fill` makes, of references to an array and to a schema. It returns 0 where memory is missing.

    Raises MemoryError.
    """
    import polars as pl

    array, schema = ArrowArray(), ArrowSchema()
    if not fill(ctypes.byref(array), ctypes.byref(schema)):
        raise MemoryError("no memory for the columns of a batch")
    try:
        return pl.Series(_Exported(array, schema))
    finally:  # what was imported is taken over, and has no `release` any more
        for each in (array, schema):
            if each.release:
                each.release(ctypes.byref(each))


class ArrowFunctions:
    """Columns of arrays that C or librdkafka has: copies, so the arrays need not stay."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._views, self._fixed = library.tg_view_column, library.tg_fixed_column
        self._views.restype = self._fixed.restype = ctypes.c_int32
        address, number, text = ctypes.c_void_p, ctypes.c_int64, ctypes.c_char_p
        self._views.argtypes = [address, address, number, number, text, address, address]
        self._fixed.argtypes = [address, number, number, address, text, text, address, address]

    def view_column(
        self, name: str, addresses: int, lengths: int, count: int, buffer_bytes: int = BUFFER_BYTES_MAX
    ) -> pl.Series:
        """So many bytes values as a Binary column: addresses of arrays of pointers and of int32; a length of -1: NULL.

        Raises MemoryError.
        """
        label = name.encode()
        return import_series(lambda *out: self._views(addresses, lengths, count, buffer_bytes, label, *out))

    def fixed_column(
        self, name: str, address: int, count: int, dtype: type[pl.Int32 | pl.Int64], known: int | None = None
    ) -> pl.Series:
        """So many numbers at an address as a column; `known` is the address of a byte for each: 0 is NULL.

        Raises MemoryError.
        """
        import polars as pl

        width, form = (8, b"l") if dtype is pl.Int64 else (4, b"i")
        label = name.encode()
        return import_series(lambda *out: self._fixed(address, count, width, known, form, label, *out))
