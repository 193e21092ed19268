"""What commands print: tables, JSON, moments and texts of records; and standard streams that are safe even if closed,
full, without a reader, or with a limited character set.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

import click
import msgspec

from tidegate.process.log_lines import discard


def echo_json(value: object) -> None:
    """Prints a value for `--format json`. A path that is not UTF-8 is escaped, which `open_streams` arranges."""
    click.echo(json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False))


def render_table(titles: Sequence[str], cells: Iterable[Sequence[str]], right: Collection[str]) -> list[str]:
    """Renders rows with columns as wide as their content, because a truncated name is useless. `right`: titles of
    numeric columns.
    """
    rows = [tuple(titles), *map(tuple, cells)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if title in right else cell.ljust(width)
            for title, cell, width in zip(titles, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def printable(text: str, keep: str = "") -> str:
    """Escapes everything that a terminal would interpret, including line ends, except for characters in `keep`.

    Used for whatever comes from a record: its keys, values and names.
    """
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in keep else each.encode("unicode_escape").decode() for each in text
    )


def render_moment(at_ms: int | None) -> str:
    """Renders `at_ms` (since 1970) as UTC in seconds: `-` for None, the plain number beyond the calendar."""
    if at_ms is None:
        return "-"
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError):
        return f"{at_ms} ms"


# -- the standard streams ----------------------------------------------------------------------------------------------

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
