"""Renders exceptions of users' code: type, text, and the line of the user's code that it came from. Bounded."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path, PurePath
from types import CodeType, FrameType
from typing import Final

from tidegate.errors import AttemptFailed

TEXT_MAX: Final = 300
"""The maximum number of characters of an error in a message."""
SHOWN_MAX: Final = 60
"""The maximum number of characters of a value in a message."""
_INSTALLED: Final = tuple(sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib"))
_NO_USERS: Final = (
    *("<", str(Path(__file__).parents[1]) + os.sep, *_INSTALLED),
    *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")),
)
"""How the file names of code begin that is in no file, Tidegate's, Python's, or a library's."""


class StepFailed(AttemptFailed):
    """A step in Python cannot be created, or its `open` raises, which is the cause."""

    code = "python-step-failed"


def describe_failure(error: BaseException) -> str:
    """Renders an exception of a user's code: `ValueError: no price, at visits.py:14 in process`."""
    place = find_place(error)
    return f"{name_error(error)}, at {place}" if place else name_error(error)


def name_error(error: BaseException) -> str:
    """Returns the type and the text of an error, truncated."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """Returns the text of an error, truncated. It never raises, although the error may be of a class of the user's."""
    try:
        return str(error)[:TEXT_MAX]
    except BaseException as another:  # noqa: BLE001  # as above; it may even call `sys.exit`
        return f"(its text raises {type(another).__name__})"


def show_value(value: object) -> str:
    """Renders a value for a message, truncated. It never raises, although the value may be of a class of the user's."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001  # too many digits, lists too deep, or user code
        return f"a value of type {type(value).__name__} (its repr raises {type(error).__name__})"
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}..."


def find_place(error: BaseException) -> str:
    """Returns the line of the user's code that the exception passed last (`choose_place`)."""
    return choose_place((frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__))


def find_stack_place(frame: FrameType | None) -> str:
    """Returns the line of the user's code that a thread has reached (`choose_place`)."""
    return choose_place(reversed([(one.f_code, line) for one, line in traceback.walk_stack(frame)])) if frame else ""


def choose_place(called: Iterable[tuple[CodeType, int | None]]) -> str:
    """Returns the innermost line that is the user's, of those that have called each other; empty if there is none.

    Below it there may be libraries that the user calls. If the user's code is installed like a library, it is the line
    that Tidegate has called.
    """
    last = first = ""
    for code, line in called:
        if is_users(code.co_filename):
            last = render_place(code, line)
        elif not first and code.co_filename.startswith(_INSTALLED):
            first = render_place(code, line)
    return last or first


def is_users(file: str) -> bool:
    """Returns whether code with this file name is neither Tidegate's nor Python's nor installed as a library."""
    return not file.startswith(_NO_USERS)


def render_place(code: CodeType, line: int | None) -> str:
    """Renders a place in code: `visits.py:14 in process`. Paths on this machine are shortened to the file's name."""
    path = PurePath(code.co_filename)
    name = str(path) if not path.is_absolute() else "/".join(path.parts[-2:]) if path.stem == "__init__" else path.name
    return f"{name}:{line} in {code.co_name}"
