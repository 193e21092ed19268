"""Makes the standard streams safe whatever they are: closed, full, without a
reader, or with a limited character set.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click

from tidegate.process.closed_streams import discard

READER_GONE: Final = 128 + signal.SIGPIPE
"""Exit code of every program whose reader has gone (`tidegate explain FILE | head`), because there is no verdict."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_STREAMS: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_streams() -> None:
    """Replaces closed streams (`2>&-`) before anything is opened: they read nothing and discard output.

    Otherwise the first file that is opened, such as a checkpoint, would get the stream's descriptor, and libraries
    would print into it. Characters that the encoding of stdout lacks are printed as escapes.
    """
    for number in range(len(_STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free descriptor, which is this one
    for number, (name, mode) in enumerate(_STREAMS.items()):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - never closed
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding.lower() != "utf-8"):
        stream.reconfigure(errors="backslashreplace")


@contextmanager
def printing() -> Iterator[None]:
    """Ensures that everything printed within has been written at the end.

    Raises ClickException if it cannot be written, and Exit if there is no reader.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError as error:
        discard(sys.stdout)
        raise click.exceptions.Exit(READER_GONE) from error
    except OSError as error:
        if error.filename is not None or error.errno not in _FULL:
            raise
        discard(sys.stdout)
        raise click.ClickException(f"the output cannot be written: {error.strerror}") from error


@contextmanager
def reporting() -> Iterator[None]:
    """Ignores failing writes to stderr (a full disk, a reader that has gone):
    the exit code still reports the result.
    """
    try:
        yield
    except OSError:
        discard(sys.stderr)
