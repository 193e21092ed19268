"""The end of a stream that takes nothing more: nobody reads it, or its disk is full. Every command imports it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO


def discard(stream: TextIO) -> None:
    """Whoever writes to it from now on, the interpreter's end for instance, neither waits nor fails."""
    descriptor = find_descriptor(stream)
    if descriptor is not None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
    if stream is sys.stderr:  # a thread may wait in a write of it, with the lock of its buffer
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
        vars(sys)["__stderr__"] = sys.stderr  # which the interpreter puts in its place at the end


def find_descriptor(stream: TextIO) -> int | None:
    """None where it has none: io.UnsupportedOperation, or it is closed."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None
