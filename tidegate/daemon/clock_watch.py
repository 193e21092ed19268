"""Reports when the machine's wall clock is set. Only timestamps depend on it, so nothing else happens."""

from __future__ import annotations

import logging
from typing import Final

from tidegate.clock import Clock, wall_offset_ms

logger = logging.getLogger(__name__)

STEP_MS_MIN: Final = 1000
"""Smaller steps come from a time service, or from this process not having run between two readings."""


class ClockWatch:
    """Compares the wall clock with the monotonic clock. `look` is called periodically."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset_ms = wall_offset_ms(clock)

    def look(self) -> None:
        """Compares both clocks with the last call, and logs a step."""
        offset_ms = wall_offset_ms(self._clock)
        step_ms = offset_ms - self._offset_ms
        if abs(step_ms) < STEP_MS_MIN:
            return
        self._offset_ms = offset_ms
        logger.warning(
            "the wall clock of this machine was set %s by %.1f s; checkpoints, deadlines and restarts use another "
            "clock and are not affected, but timestamps before and after it (log, checkpoint list) are not comparable",
            "forward" if step_ms > 0 else "back",
            abs(step_ms) / 1000,
        )
