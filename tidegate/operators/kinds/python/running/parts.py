"""Processes a batch in parts, so that a row for which user code raises fails alone.

As long as nothing raises, a batch is one call. Once a row has raised, the batch is tried in parts of about the size at
which every second one succeeds, and a part that raises is halved down to its first row that raises. That is close to
the fewest calls that can tell which rows these are. Parts are tried in order, and each succeeds only once, so state
follows the order of the rows. The try that succeeds counts: code that raises only now and then may succeed with the
same rows a moment later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

ROWS_MAX: Final = 1 << 20
_WEIGHT: Final = 0.2
"""How much the last distance between two rows that raise counts for the mean."""
_SHARE: Final = 0.7
"""Half of all parts of this share of the mean distance have no row that raises."""


class CallRaised(Exception):
    """User code raised for some of the rows that it was called with, and the call has had no effect.

    The cause is what user code raised.
    """


class PartwiseCalls:
    """Calls user code for the batches of one subtask, and learns from the rows that raise how many to try at a time."""

    def __init__(self, describe: Callable[[BaseException], str], *, to_first_failure: bool = False) -> None:
        """`describe`: renders what user code raised as the reason of a failure. `to_first_failure`: a row that fails
        ends everything, so those after it need not be processed.
        """
        self._describe = describe
        self._to_first_failure = to_first_failure
        self._rows: float = ROWS_MAX
        """The number of rows to try next."""
        self._distance: float | None = None
        """The mean distance between rows that raise."""
        self._since = 0
        """Rows since the last one that raised."""

    def process(
        self, height: int, attempt: Callable[[int, int], T]
    ) -> tuple[list[tuple[int, T]], list[tuple[int, str]]]:
        """Calls `attempt(start, end)` until each row has been processed or has failed.

        Returns the results, each with its first row, and the rows that failed with the reason. `attempt` raises
        CallRaised; any other exception is passed on.
        """
        results: list[tuple[int, T]] = []
        failed: list[tuple[int, str]] = []
        position = 0
        suspects = 0
        """The number of rows from `position` on of which some have raised."""
        error: BaseException | None = None
        """What they raised together; None if they have not been tried together."""
        while position < height:
            if suspects == 1 and error is not None:
                failed.append((position, self._describe(error)))
                if self._to_first_failure:
                    break
                position, suspects = position + 1, 0
                self._learn()
                continue
            rows = (suspects + 1) // 2 if suspects else min(max(1, int(self._rows)), height - position)
            try:
                result = attempt(position, position + rows)
            except CallRaised as failure:
                suspects, error = rows, failure.__cause__
                continue
            results.append((position, result))
            position += rows
            self._since += rows
            if suspects:
                suspects, error = suspects - rows, None
            else:
                self._rows = min(ROWS_MAX, 2 * self._rows)
        return results, failed

    def _learn(self) -> None:
        """Records a row that raises, after those that did not."""
        distance = self._since + 1
        self._since = 0
        mean = self._distance
        self._distance = distance if mean is None else mean + _WEIGHT * (distance - mean)
        self._rows = _SHARE * self._distance
