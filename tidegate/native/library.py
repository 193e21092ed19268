"""The shared object, where it was built and fits."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any, Final

from tidegate.native.arrow import ArrowFunctions
from tidegate.native.build import TARGET

ABI: Final = 6
"""Of the functions that are called here: one number with `tg_abi` in `messages.c`, raised with any change of them."""
SWITCH: Final = "TIDEGATE_NATIVE"
"""An environment variable: `0` leaves the library out, `1` makes it an error that it is missing."""

Address = ctypes.c_void_p
_COUNT: Final = ctypes.c_int64
_FUNCTIONS: Final[dict[str, tuple[Any, int, int]]] = {
    "tg_scan": (None, 0, 7),
    "tg_run_ends": (_COUNT, 1, 2),
    "tg_keys": (None, 0, 2),
    "tg_timestamps": (_COUNT, 0, 3),
    "tg_count_headers": (_COUNT, 0, 5),
    "tg_headers": (None, 2, 5),
    "tg_record_bytes": (_COUNT, 0, 3),
    "tg_destroy": (None, 0, 1),
}
"""What each of `messages.c` and `headers.c` returns, and how many addresses its arguments are before the one address,
which all have, with the number of its rows, and after it."""
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
    """The library is missing where it is needed. The message says why."""


class Library:
    """The functions, and what they need of Python. Raises NativeMissing for a file that is no such library."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise NativeMissing(f"{path} is missing: there was no C compiler when Tidegate was installed")
        file = str(path)
        try:
            self.free = ctypes.CDLL(file)
            """Functions that let other threads run."""
            self.locked = ctypes.PyDLL(file)
            """Functions that make objects."""
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
        """Columns."""
        self.locked.tg_bytes.restype = ctypes.py_object
        self.locked.tg_bytes.argtypes = [Address, Address, Address, _COUNT]

    def bytes_of(self, addresses: int, lengths: int, count: int) -> list[bytes | None]:
        """What is at so many addresses, of these lengths (int32; -1: None)."""
        found: list[bytes | None] = self.locked.tg_bytes(ctypes.byref(self._python), addresses, lengths, count)
        return found


@cache
def find_library() -> Library | str:
    """The library, else why it is not used. Raises NativeMissing where the environment asks for it."""
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
    """The library where it is used."""
    found: Any = find_library()
    return None if isinstance(found, str) else found
