"""Which completed checkpoints have a line of their own in the log: those that carried something. Pure.

A pipeline without input completes one each interval, and a log that repeats this hides everything else. Such idle
checkpoints are counted, and reported at most once a minute; at `logging.level: debug` each has its line.
"""

from __future__ import annotations

from typing import Final

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.checkpoint_summary import render_duration
from tidegate.settings.counts import render_count

IDLE_REPORT_S: Final = 60.0


def carries(checkpoint: CompletedCheckpoint, before: CompletedCheckpoint | None) -> bool:
    """Whether records were read or written since the checkpoint before; that of an attempt's first is not known."""
    if before is None or checkpoint.final or checkpoint.inflight_bytes:
        return True
    return checkpoint.positions != before.positions or any(each.records for each in checkpoint.committables)


class CheckpointLines:
    """One per attempt. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._before: CompletedCheckpoint | None = None
        self._idle = 0
        """Checkpoints that no line has reported yet."""
        self._since_s: float | None = None
        """When the idle ones were reported last, or the first of all was seen."""

    def deserves_line(self, checkpoint: CompletedCheckpoint, *, ordered: bool) -> bool:
        """Whether this checkpoint, the newest, has a line of its own; `ordered`: somebody asked for it."""
        before, self._before = self._before, checkpoint
        if ordered or carries(checkpoint, before):
            return True
        self._idle += 1
        return False

    def idle_line(self, now_s: float) -> str | None:
        """What to report of the idle ones, None when it is too early; to be asked after each of them."""
        if self._since_s is None:
            self._since_s = now_s
        elapsed_s = now_s - self._since_s
        if elapsed_s < IDLE_REPORT_S:
            return None
        count, self._idle, self._since_s = self._idle, 0, now_s
        return f"idle: {render_count(count, 'checkpoint')} without new records in {render_duration(elapsed_s)}"
