"""One row must not end an attempt: what raises over a batch is narrowed down to the rows that make it raise.

What is known to fail is a condition of its own (ADR 6); this is the net below it, for what nobody has thought of.
While nothing raises it costs one call.
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
"""A row, and what it raises."""

REASON_CHARACTERS_MAX: Final = 300


def evaluate_rows(height: int, evaluate: Callable[[int, int], T]) -> tuple[list[tuple[int, T]], list[Raising]]:
    """`evaluate(start, end)` over all rows: results with the row they begin at, and the rows that raise by themselves.

    Parts are evaluated in order, each only once with success, so `evaluate` may move state as its last act. Raises what
    no row causes: errors of Tidegate, lack of memory, and whatever is raised without any rows, too.
    """
    try:
        return [(0, evaluate(0, height))], []
    except (Exception, PanicException) as error:
        if not _may_be_of_a_row(error) or not height:
            raise
        logger.debug("a batch of %d rows raises; looking for the rows", height, exc_info=error)
        evaluate(0, 0)  # raises for a mistake of ours that has nothing to do with the rows
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
    """Of a record that has made the program raise."""
    return RecordFailure(row, FailureKind.INTERNAL_ERROR, f"{type(error).__name__}: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """What an exception says first, cut to `REASON_CHARACTERS_MAX`: messages of Polars can hold whole values."""
    return (str(error).splitlines() or [""])[0][:REASON_CHARACTERS_MAX]
