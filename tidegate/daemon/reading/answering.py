"""The side of the process that `ChildReader` starts: one request on standard input, one answer on standard output.

Both are MessagePack.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from tidegate.errors import TidegateError
from tidegate.parent import die_with_parent

NICENESS: Final = 5
"""The daemon and its slots come first. With 10, a read next to slots that use all cores takes longer than it may."""

R = TypeVar("R")


class ReadRefused(msgspec.Struct, frozen=True):
    """The error that ended a read."""

    code: str
    message: str


class ReadAnswer(msgspec.Struct, frozen=True):
    """What the process writes."""

    refused: ReadRefused | None = None
    value: Any = None


def answer_request(request: type[R], read: Callable[[R], object]) -> None:
    """Answers with what `read` returns, or the TidegateError that it raises.

    The process ends with the one that has started it, whose id is its argument.
    """
    die_with_parent(int(sys.argv[1]))
    os.nice(NICENESS)
    try:
        answer = ReadAnswer(value=read(msgspec.msgpack.decode(sys.stdin.buffer.read(), type=request)))
    except TidegateError as error:
        answer = ReadAnswer(ReadRefused(error.code, error.message))
    sys.stdout.buffer.write(msgspec.msgpack.encode(answer))
