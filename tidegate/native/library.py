"""The shared object, if it was built and is compatible."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

from tidegate.native.arrow import ArrowFunctions
from tidegate.native.build import TARGET

ABI: Final = 10
"""Version of the functions called here, equal to `tg_abi` in `messages.c`; incremented whenever one of them changes."""
SWITCH: Final = "TIDEGATE_NATIVE"
"""Environment variable: with `0` the library is not used, with `1` its absence is an error."""

Address = ctypes.c_void_p
_COUNT: Final = ctypes.c_int64
_FUNCTIONS: Final[dict[str, tuple[Any, int, int]]] = {
    "tg_scan": (None, 0, 7),
    "tg_origins": (_COUNT, 1, 4),
    "tg_value_bytes": (_COUNT, 0, 0),
    "tg_keys": (None, 0, 2),
    "tg_timestamps": (_COUNT, 0, 3),
    "tg_count_headers": (_COUNT, 0, 4),
    "tg_headers": (None, 2, 5),
    "tg_record_bytes": (_COUNT, 0, 3),
    "tg_destroy": (None, 0, 1),
    "tg_records_bytes": (_COUNT, 0, 0),
}
"""Functions of `messages.c`, `headers.c` and `produce.c`: the result type and two numbers of address arguments.

Each function takes one address together with the number of its rows. The numbers count the addresses before and after
these two arguments.
"""
_PYTHON: Final = (
    "PyBytes_FromStringAndSize",
    "PyList_New",
    "PyList_SetItem",
    "Py_IncRef",
    "Py_DecRef",
)


class _Python(ctypes.Structure):
    """`python` of `objects.c`."""

    _fields_ = (*((name, Address) for name in _PYTHON), ("none", Address))


class NativeMissing(Exception):
    """The library is required but cannot be used. The message has the reason."""


class Library:
    """Functions of the library, and the Python functions that it needs.

    Raises NativeMissing for an incompatible file.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise NativeMissing(f"{path} is missing: there was no C compiler when Tidegate was installed")
        file = str(path)
        try:
            self.free = ctypes.CDLL(file)
            """Functions that release the interpreter lock."""
            self.locked = ctypes.PyDLL(file)
            """Functions that create objects and hold the interpreter lock."""
            abi = self.free.tg_abi()
        except (OSError, AttributeError) as error:
            raise NativeMissing(f"{path}: {error}") from error
        if abi != ABI:
            raise NativeMissing(f"{path} was built from other sources (version {abi}, not {ABI}); build it again")
        for name, (result, before, after) in _FUNCTIONS.items():
            function = getattr(self.free, name)
            function.restype = result
            function.argtypes = [Address] * (before + 1) + [_COUNT] + [Address] * after
        self._python = _Python(*(ctypes.cast(getattr(ctypes.pythonapi, name), Address) for name in _PYTHON), id(None))
        self.arrow = ArrowFunctions(self.free)
        """Functions that create columns."""
        self.locked.tg_bytes.restype = ctypes.py_object
        self.locked.tg_bytes.argtypes = [Address, Address, Address, _COUNT]
        self.free.tg_arrange.restype = ctypes.c_int32
        self.free.tg_arrange.argtypes = [Address, _COUNT, Address, ctypes.c_int32, Address]
        self.free.tg_produce.restype = None
        self.free.tg_produce.argtypes = [Address, Address, Address, _COUNT, _COUNT, Address]
        self.free.tg_behind.restype = None
        self.free.tg_behind.argtypes = [Address, _COUNT, Address, Address, _COUNT, Address]
        self.free.tg_key_groups.restype = ctypes.c_int32
        self.free.tg_key_groups.argtypes = [Address, Address, _COUNT, _COUNT, _COUNT, Address]
        self.free.tg_distribute.restype = None
        self.free.tg_distribute.argtypes = [Address, _COUNT, Address, _COUNT, Address, Address]
        self.report = ctypes.cast(self.free.tg_report, Address).value or 0
        """Address of the function that takes delivery reports."""

    def bytes_of(self, addresses: int, lengths: int, count: int) -> list[bytes | None]:
        """Returns `count` values as bytes, None for a length of -1.

        `addresses` and `lengths` are the addresses of arrays; lengths are int32.
        """
        found: list[bytes | None] = self.locked.tg_bytes(ctypes.byref(self._python), addresses, lengths, count)
        return found


@cache
def find_library() -> Library | str:
    """Returns the library, or the reason why it is not used. Raises NativeMissing if the environment requires it."""
    wanted = os.environ.get(SWITCH, "")
    if wanted == "0":
        return f"{SWITCH} is 0"
    try:
        return Library(TARGET)
    except NativeMissing as error:
        if wanted == "1":
            raise
        return str(error)


def loaded() -> Library | None:
    """Returns the library if it is used."""
    found: Any = find_library()
    return None if isinstance(found, str) else found
