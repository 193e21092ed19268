"""What a command reads from and prints to, whatever it was started with: closed, full, without a reader, of few
characters.
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
"""Exit code, as of every program whose reader has gone (`tidegate explain FILE | head`): there is no verdict."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_STREAMS: Final = {"stdin": "r", "stdout": "w", "stderr": "w"}


def open_streams() -> None:
    """Before anything is opened: a stream that is closed (`2>&-`) reads and keeps nothing.

    Else the first file that is opened, a checkpoint for instance, would get its number, and what libraries print would
    go there. A character that stdout has no bytes for is printed as its escape.
    """
    for number in range(len(_STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free, which is this one
    for number, (name, mode) in enumerate(_STREAMS.items()):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - as long as we are
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper) and (stream.errors == "strict" or stream.encoding.lower() != "utf-8"):
        stream.reconfigure(errors="backslashreplace")


@contextmanager
def printing() -> Iterator[None]:
    """What is printed within has arrived when it ends. Raises ClickException when it has nowhere to go, and Exit when
    nobody reads it.
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
    """What is said on stderr within may go nowhere (a full disk, a reader that has gone): there is the exit code."""
    try:
        yield
    except OSError:
        discard(sys.stderr)
