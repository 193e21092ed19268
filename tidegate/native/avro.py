"""Avro records to columns with `avro.c`, which decodes only what it can decode with certainty.

It reports all other records, which are left to the caller.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from tidegate.datatypes import DataType
from tidegate.native.columns import DeclaredColumns, Rows

WIRE: Final = (
    "null",
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    "uuid",
    "fixed",
    "enum",
    "array",
    "map",
    "record",
    "union",
)
"""An index in this tuple is a number of `enum wire` in `avro.c`."""
PASSED_OVER: Final = -1
NO_NULL: Final = -1
LONG: Final = (-(2**63), 2**63 - 1)


class Step(NamedTuple):
    """How one value was written, and where it goes. `avro.c` documents what it reads of each type."""

    wire: str
    """One of WIRE; a union is only skipped."""
    to: int = PASSED_OVER
    """Index of the field in the enclosing struct; without meaning for elements of a list."""
    null_at: int = NO_NULL
    """Index of null, if the value's type is a union of null and one other type."""
    required: bool = False
    """Records in which it is NULL are left over."""
    size: int = 0
    """Size of a `fixed` in bytes."""
    scale: int = 0
    """Digits after the point of a decimal, whose unscaled number are the bytes."""
    steps: tuple[Step, ...] = ()
    """Fields of a record, items of an array, values of a map, or types of a union."""
    factor: int = 1
    divisor: int = 1
    """An integer is multiplied by `factor`, then divided by `divisor` and rounded down."""
    bounds: tuple[int, int] = LONG
    """Bounds of the result; records with a result outside are left over."""
    symbols: tuple[str, ...] = ()
    refused: tuple[bytes, ...] = ()
    """Encoded values; records that have one here are left over."""


class _Step(ctypes.Structure):
    """`step` of `avro.c`."""


_Step._fields_ = (
    ("wire", ctypes.c_int32),
    ("to", ctypes.c_int32),
    ("null_at", ctypes.c_int32),
    ("required", ctypes.c_int32),
    ("size", ctypes.c_int32),
    ("scale", ctypes.c_int32),
    ("count", ctypes.c_int32),
    ("steps", ctypes.POINTER(_Step)),
    ("factor", ctypes.c_int64),
    ("divisor", ctypes.c_int64),
    ("low", ctypes.c_int64),
    ("high", ctypes.c_int64),
    ("symbols", ctypes.POINTER(ctypes.c_char_p)),
    ("symbol_lengths", ctypes.POINTER(ctypes.c_int32)),
    ("symbol_count", ctypes.c_int32),
    ("refused", ctypes.POINTER(ctypes.c_char_p)),
    ("refused_lengths", ctypes.POINTER(ctypes.c_int32)),
    ("refused_count", ctypes.c_int32),
)


class BodyDecoder:
    """Decodes records that begin with `prefix` to columns of the fields in `wanted`. Keeps nothing of a batch."""

    def __init__(
        self, library: ctypes.CDLL, record: DataType, steps: Sequence[Step], wanted: Collection[str], prefix: bytes
    ) -> None:
        """`steps` are the writer's fields in order. Each goes to a different field of `record`, a struct."""
        library.tg_prepare_doubles()
        self._decode = library.tg_avro_decode
        self._decode.restype = ctypes.c_int32
        address, number, size = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        self._decode.argtypes = [
            *(address, address, ctypes.c_char_p, size, address, address, number),
            *(address, address, address, address),
        ]
        self._columns = DeclaredColumns(record, wanted)
        self._steps = _steps_of([Step("record", steps=tuple(steps))])
        self._prefix = prefix

    def decode(self, addresses: int, lengths: int, count: int) -> Rows:
        """Decodes `count` values; raises MemoryError.

        `addresses` and `lengths` are the addresses of arrays. Lengths are int32, -1 for no value.
        """
        given = ctypes.byref(self._steps), self._prefix, len(self._prefix), addresses, lengths, count
        return self._columns.fill(count, lambda record, *out: self._decode(record, *given, *out))


def _steps_of(steps: Sequence[Step]) -> ctypes.Array[_Step]:
    return (_Step * len(steps))(*map(_step_of, steps))


def _step_of(one: Step) -> _Step:
    return _Step(
        WIRE.index(one.wire),
        one.to,
        one.null_at,
        one.required,
        one.size,
        one.scale,
        len(one.steps),
        _steps_of(one.steps),
        one.factor,
        one.divisor,
        *one.bounds,
        *_byte_strings([symbol.encode() for symbol in one.symbols]),
        *_byte_strings(one.refused),
    )


def _byte_strings(texts: Sequence[bytes]) -> tuple[ctypes.Array[ctypes.c_char_p], ctypes.Array[ctypes.c_int32], int]:
    """Returns the byte strings, their lengths, and how many there are."""
    count = len(texts)
    return (ctypes.c_char_p * count)(*texts), (ctypes.c_int32 * count)(*map(len, texts)), count
