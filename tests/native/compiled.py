"""The shared object, compiled from the sources of this checkout."""

from __future__ import annotations

import atexit
import ctypes
import shutil
import tempfile
from functools import cache
from pathlib import Path
from unittest import SkipTest

from tidegate.native.build import FLAGS, compile_library, find_compiler


def require_compiler() -> list[str]:
    """The C compiler. Without one there is nothing to test: users do without the library there, too."""
    found = find_compiler()
    if found is None:
        raise SkipTest("no C compiler")
    return found


STRICT = ("-Wall", "-Wextra", "-Werror")
"""Not where it is built for use: another compiler warns of other things."""


@cache
def compiled_library() -> ctypes.CDLL:
    """Once in a process."""
    require_compiler()
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = Path(folder) / "edge.so"
    reason = compile_library(target, (*FLAGS, *STRICT))
    assert not reason, reason
    return ctypes.CDLL(str(target))
