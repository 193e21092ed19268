"""Bisection: when evaluating a batch raises, finds the rows that cause it, so that one row does not end an attempt.

Known failures are detected by explicit conditions (ADR 6). Bisection handles unforeseen ones. As long as nothing
raises, it costs a single call.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from polars.exceptions import PanicException

from tidegate.errors import TidegateError
from tidegate.formats.failures import FailureKind, RecordFailure

logger = logging.getLogger(__name__)

T = TypeVar("T")

Raising = tuple[int, Exception | PanicException]
"""A row and the exception that it raises."""

REASON_CHARACTERS_MAX: Final = 300


def evaluate_rows(height: int, evaluate: Callable[[int, int], T]) -> tuple[list[tuple[int, T]], list[Raising]]:
    """Calls `evaluate(start, end)` for all rows. Returns the results, each with its first row, and the rows that raise.

    Parts are evaluated in order, and each succeeds only once, so `evaluate` may change state as its last action. Raises
    errors that no single row causes: those of Tidegate, lack of memory, and any error that an empty batch also raises.
    """
    try:
        return [(0, evaluate(0, height))], []
    except (Exception, PanicException) as error:
        if not _may_be_of_a_row(error) or not height:
            raise
        logger.debug("a batch of %d rows raises an error; searching for the rows that cause it", height, exc_info=error)
        evaluate(0, 0)  # raises if the error is a bug that does not depend on the rows
        return _bisected(height, evaluate, error)


def _bisected(
    height: int, evaluate: Callable[[int, int], T], first: Exception | PanicException
) -> tuple[list[tuple[int, T]], list[Raising]]:
    results: list[tuple[int, T]] = []
    raising: list[Raising] = []
    waiting: deque[tuple[int, int, Exception | PanicException | None]] = deque([(0, height, first)])
    while waiting:
        start, end, error = waiting.popleft()
        if error is None:
            try:
                results.append((start, evaluate(start, end)))
                continue
            except (Exception, PanicException) as raised:
                if not _may_be_of_a_row(raised):
                    raise
                error = raised
        if end - start == 1:
            raising.append((start, error))
            continue
        middle = (start + end) // 2
        waiting.extendleft([(middle, end, None), (start, middle, None)])
    return results, raising


def _may_be_of_a_row(error: BaseException) -> bool:
    return not isinstance(error, MemoryError | TidegateError)


def internal_failure(row: int, error: BaseException) -> RecordFailure:
    """Returns the failure of a record for which the program raised an unforeseen exception."""
    return RecordFailure(row, FailureKind.INTERNAL_ERROR, f"{type(error).__name__}: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """Returns the first line of the message, cut to `REASON_CHARACTERS_MAX`: messages of Polars can contain whole
    values.
    """
    return (str(error).splitlines() or [""])[0][:REASON_CHARACTERS_MAX]
