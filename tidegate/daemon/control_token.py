"""The token that authorizes commands to a running daemon: any user who can read the file may send them.

By default the daemon creates a token at every start in its work directory, which only its user can read; the commands
find it there by the port. `http.token_file` names another file, which is created if it does not exist, and kept.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path
from typing import Final

from tidegate.errors import TidegateError
from tidegate.spark.work_directory import find_work_directories

TOKEN_BYTES: Final = 32
CHARACTERS_MIN: Final = 16
CHARACTERS_MAX: Final = 1024
_PASSING: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE})
"""Errors that another start may not meet."""
_OTHERS: Final = stat.S_IWGRP | stat.S_IROTH | stat.S_IWOTH


class TokenFileRefused(TidegateError):
    """The file with the token cannot be used."""

    code = "token-file-refused"
    exit_code = 2
    retriable = False


class TokenNotWritten(TidegateError):
    """The token could not be stored for now: the disk is full or fails."""

    code = "token-not-written"
    exit_code = 1
    retriable = True


def provide_token(directory: Path, port: int, named: Path | None) -> str:
    """Provides the token of a daemon that listens on `port`, from `directory` or from the file `named`.

    Raises TokenFileRefused, TokenNotWritten.
    """
    try:
        if named is None:
            return _make(directory / _file_name(port))
        return read_token(named) if named.exists() else _make(named)
    except OSError as error:
        raise _unusable(named or directory, error) from error


def provide_read_token(named: str | None) -> str | None:
    """Returns the token in `http.read_token_file`, which is created if absent; None if `named` is None.

    Raises as `provide_token`.
    """
    return None if named is None else provide_token(Path(named).parent, 0, Path(named))


def check_token_file(named: Path) -> None:
    """Checks what `provide_token` would refuse, without creating anything. Raises TokenFileRefused."""
    try:
        exists = named.exists()
    except OSError as error:
        raise _unusable(named, error) from error
    if exists:
        read_token(named)
    elif not os.access(named.parent, os.W_OK | os.X_OK):
        raise _unusable(named, PermissionError(0, "no file can be created in this directory"))


def read_token(file: Path) -> str:
    """Reads the token in a file. Raises TokenFileRefused if it cannot be read, or if other users could have read it."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            mode = os.fstat(descriptor).st_mode
            content = opened.read(CHARACTERS_MAX + 1)
    except (OSError, ValueError) as error:
        whose = "run the command as the daemon's user, who owns the file"
        remedy = whose if isinstance(error, PermissionError) else "name a file; if it does not exist, it is created"
        raise TokenFileRefused(
            f"{file} (a token file) cannot be read: {_cause(error)}; {remedy}", file=str(file)
        ) from error
    if mode & _OTHERS:
        raise TokenFileRefused(
            f"{file} (a token file) is accessible to other users: run chmod 600 {file}", file=str(file)
        )
    token = content.decode("ascii", "replace").strip()
    if not CHARACTERS_MIN <= len(token) <= CHARACTERS_MAX or not (token.isascii() and token.isprintable()):
        raise TokenFileRefused(
            f"{file} (a token file) contains no token: write {CHARACTERS_MIN} to {CHARACTERS_MAX} printable ASCII "
            "characters, or remove the file, and the daemon creates one at its next start",
            file=str(file),
        )
    return token


def find_token(parent: Path, port: int) -> str | None:
    """Finds the token of this user's daemon on `port`; the newest of several, None if there is none."""
    files = [found / _file_name(port) for found in find_work_directories(parent)]
    files = [file for file in files if file.is_file()]
    return read_token(max(files, key=lambda file: file.stat().st_mtime_ns)) if files else None


def _make(file: Path) -> str:
    token = secrets.token_urlsafe(TOKEN_BYTES)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as opened:
            opened.write(token + "\n")
    except OSError:
        file.unlink()  # an empty file would be refused from now on
        raise
    return token


def _file_name(port: int) -> str:
    return f"orders-{port}.token"


def _unusable(file: Path, error: OSError) -> TokenFileRefused | TokenNotWritten:
    kind: type[TokenFileRefused | TokenNotWritten] = TokenFileRefused
    remedy = "name a file in a directory that the daemon's user can write to"
    if error.errno in _PASSING:
        kind, remedy = TokenNotWritten, "free space on the disk, or check it, and start again"
    return kind(f"{file}: the token cannot be stored: {_cause(error)}; {remedy}", file=str(file))


def _cause(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)
