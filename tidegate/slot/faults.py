"""Classifies a slot's exceptions: worth another attempt, or certain to fail again."""

from __future__ import annotations

import os
import sys
import traceback
from typing import Final

from tidegate.errors import AttemptFailed, PipelineStopped, TidegateError
from tidegate.formats.failures import RecordPlace
from tidegate.task.messages import SlotFailed
from tidegate.user_code.failure import StepFailed
from tidegate.user_code.modules import UserCodeProblem

PROGRAM_ERRORS: Final = (
    TypeError,
    AttributeError,
    NameError,
    SyntaxError,
    LookupError,
    ValueError,
    ArithmeticError,
    AssertionError,
    NotImplementedError,
)
"""Errors of the program. Any other may come from the environment (files, memory, brokers), which may soon change."""


class ExecutorLacksModule(PipelineStopped):
    """The executors' interpreter cannot import what a slot needs; another attempt would fail in the same way."""

    code = "executor-lacks-module"
    exit_code = 2


class ForkServerFrozen(AttemptFailed):
    """A signal has stopped the process that slots are forked from: no slot could be started."""

    code = "fork-server-frozen"


def lacking_module(what: str, error: str) -> ExecutorLacksModule:
    """Returns the error with its remedy: which interpreter needs packages."""
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    return ExecutorLacksModule(
        f"{what}: {error}; install tidegate and its packages for the executors' interpreter {python}, all in the "
        f"daemon's versions, or name another interpreter with spark.pyspark.python"
    )


def is_of_the_work(error: BaseException) -> bool:
    """Returns whether to report it to the daemon: an error, a panic of Polars, or `sys.exit` in a user module."""
    loaded = sys.modules.get("polars.exceptions")  # not imported before a slot needs it
    panics = () if loaded is None else (loaded.PanicException,)
    return isinstance(error, (Exception, SystemExit, *panics))


def derive_failure(error: BaseException) -> SlotFailed:
    """Returns a slot's report to the daemon; a bug or an unexpected error of a library is reported in full."""
    if isinstance(error, TidegateError):
        place = error.fields.get("place")
        record = place if isinstance(place, RecordPlace) else None
        fault = derive_fault(error.__cause__) if isinstance(error, StepFailed) and error.__cause__ else ""
        return SlotFailed(error.code, error.message, error.retriable, error.exit_code, record=record, fault=fault)
    text, trace = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    lacks = isinstance(error, ImportError)
    if isinstance(error, UserCodeProblem):
        text, lacks = f"{error.message}; {error.remedy}", isinstance(error.__cause__, ImportError)
    if lacks:
        return SlotFailed(ExecutorLacksModule.code, text, False, ExecutorLacksModule.exit_code, trace)
    return SlotFailed("internal", text, True, 1, trace, derive_fault(error))


def derive_fault(error: BaseException) -> str:
    """Returns the kind of a program error and its traceback, without values; empty for any other exception.

    Two attempts with the same fault failed at the same place in the program.
    """
    if not isinstance(error, PROGRAM_ERRORS):
        return ""
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join([type(error).__name__, *(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))])
