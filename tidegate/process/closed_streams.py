"""Handles a stream that cannot be written: its reader is gone, or its disk is full.

Every command imports this module.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TextIO


def discard(stream: TextIO) -> None:
    """Redirects the stream to nothing, so that later writes neither block nor fail.

    The exit of the interpreter writes to it, for example.
    """
    descriptor = find_descriptor(stream)
    if descriptor is not None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, descriptor)
        os.close(nothing)
    if stream is sys.stderr:  # a thread may be blocked in a write to it, holding the lock of its buffer
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - as long as the process
        vars(sys)["__stderr__"] = sys.stderr  # the interpreter restores this one at its exit


def find_descriptor(stream: TextIO) -> int | None:
    """Returns the descriptor; None if there is none (io.UnsupportedOperation) or the stream is closed."""
    try:
        return stream.fileno()
    except (OSError, ValueError):
        return None
