"""Decides which log lines show how a pipeline is doing: one a minute, and at once for something new or slow. Pure.

In a steady state nothing else is logged at `info`; at `debug` each checkpoint has its line. Times are seconds of a
monotonic clock.
"""

from __future__ import annotations

import statistics
from collections import deque
from typing import Final

import msgspec

from tidegate.config.fields.counts import render_count, render_seconds, render_size
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.status import PipelineState, Status
from tidegate.ids import CheckpointId

PERIOD_S: Final = 60.0
"""At most one line of each of the two kinds in this time."""
USUAL_MAX: Final = 20
"""The usual duration is the median of this number of checkpoints."""
USUAL_MIN: Final = 5
SLOW_TIMES: Final = 3
SLOW_S_MIN: Final = 1.0
STALE_S: Final = 10.0
"""A lag that was measured longer ago counts as unknown."""

FLOWING: Final = frozenset({PipelineState.RUNNING, PipelineState.DEGRADED})
HELD_UP: Final = frozenset({PipelineState.WAITING, PipelineState.RESTORING, PipelineState.RESTARTING})
"""States in which no record flows without this being requested."""


def carries(checkpoint: CompletedCheckpoint, before: CompletedCheckpoint | None) -> bool:
    """Returns whether records were read since the previous checkpoint (if any), or are committed by this one."""
    moved = before is not None and checkpoint.positions != before.positions
    return moved or any(each.records for each in checkpoint.committables)


class CheckpointLines:
    """Decides which checkpoints of one attempt have a line: completed ones at `info`, failed ones at `warning`."""

    def __init__(self) -> None:
        self._before: CompletedCheckpoint | None = None
        self._carried = False
        self._given_up = 0
        self._reasons: set[str] = set()
        """Why checkpoints were given up since the last one that completed."""
        self._durations: deque[float] = deque(maxlen=USUAL_MAX)
        self._slow_at: float | None = None

    def given_up(self, reason: str) -> bool:
        """Records a checkpoint that did not complete. Returns whether it has a line: the first one for each reason.

        On a full disk every checkpoint fails, each with the names of other files. The line of the next one that
        completes, or of the failed attempt, has their number.
        """
        self._given_up += 1
        first = reason not in self._reasons
        self._reasons.add(reason)
        return first

    def decide(self, checkpoint: CompletedCheckpoint, duration_s: float, now_s: float, *, ordered: bool) -> str | None:
        """Describes what is notable about the newest checkpoint; None if nothing is, so that it has no line at `info`.

        `ordered` means that it was requested.
        """
        first, slow = self._before is None, self._derive_slow(duration_s, now_s)
        newly = carries(checkpoint, self._before) and not self._carried
        self._before, self._carried = checkpoint, self._carried or newly
        given_up, self._given_up = self._given_up, 0
        self._reasons.clear()
        notes = {
            "the first of the attempt": first,
            "the first with records": newly and not first,
            "requested": ordered,
            f"after {render_count(given_up, 'checkpoint')} that did not complete": given_up > 0,
            slow: bool(slow),
        }
        found = [note for note, applies in notes.items() if applies]
        return ", ".join(found) if found or checkpoint.final else None

    def _derive_slow(self, duration_s: float, now_s: float) -> str:
        """Compares the duration with the usual one; empty if it is normal.

        If all checkpoints are slow, that becomes the usual duration and is not reported.
        """
        known = list(self._durations)
        self._durations.append(duration_s)
        if len(known) < USUAL_MIN or (self._slow_at is not None and now_s - self._slow_at < PERIOD_S):
            return ""
        usual_s = statistics.median(known)
        if duration_s <= max(SLOW_S_MIN, SLOW_TIMES * usual_s):
            return ""
        self._slow_at = now_s
        return f"usually {render_seconds(usual_s)}"


class ProgressLine(msgspec.Struct, frozen=True):
    """One line: its text, and the same numbers by name for structured logs."""

    text: str
    fields: dict[str, float]


class ProgressLines:
    """Creates one line a minute about the pipeline's progress. One per daemon, on its event loop."""

    def __init__(self) -> None:
        self._state: PipelineState | None = None
        self._began_s = 0.0
        self._began: Status | None = None
        """The status when the minute began."""
        self._clear()
        self._last: tuple[CheckpointId, float, float] | None = None
        """Id of the newest checkpoint, when it completed, and how long it took."""
        self._size_bytes = 0

    def _clear(self) -> None:
        self._count, self._sum_s, self._longest_s = 0, 0.0, 0.0

    def completed(self, checkpoint: CompletedCheckpoint, duration_s: float, now_s: float) -> None:
        """Takes a completed checkpoint."""
        self._count += 1
        self._sum_s += duration_s
        self._longest_s = max(self._longest_s, duration_s)
        self._last, self._size_bytes = (checkpoint.id, now_s, duration_s), checkpoint.size_bytes

    def is_due(self, state: PipelineState, now_s: float) -> bool:
        """Returns whether `take` is due. Each state begins a new minute."""
        if state is not self._state:
            self._state, self._began = state, None
        if state not in FLOWING | HELD_UP:
            return False
        return self._began is None or now_s - self._began_s >= PERIOD_S

    def take(self, status: Status, now_s: float) -> ProgressLine | None:
        """Returns the line of the minute that ends now; None when the first one begins."""
        before, elapsed_s = self._began, now_s - self._began_s
        self._began, self._began_s = status, now_s
        line = None
        if before is not None:
            line = self._flowing(before, status, elapsed_s, now_s) if status.state in FLOWING else _held_up(status)
        self._clear()
        return line

    def _flowing(self, before: Status, status: Status, elapsed_s: float, now_s: float) -> ProgressLine:
        read_s = (status.records_in - before.records_in) / elapsed_s
        written_s = (status.records_out - before.records_out) / elapsed_s
        fields = {"records_in_per_second": round(read_s, 1), "records_out_per_second": round(written_s, 1)}
        lag, lags = _lag(status)
        checkpoints, took = self._checkpoints(now_s)
        reason = f"{status.state}: {status.reason}; " if status.state is PipelineState.DEGRADED else ""
        holds = "".join(f"; {one.name} is on hold {one.on_hold}" for one in status.operators if one.on_hold)
        text = f"{reason}in {_rate(read_s)}, out {_rate(written_s)}, lag {lag}; {checkpoints}{holds}"
        return ProgressLine(text, fields | lags | took)

    def _checkpoints(self, now_s: float) -> tuple[str, dict[str, float]]:
        """With a long interval most minutes have no checkpoint."""
        if self._last is None:
            return "no checkpoint yet", {"checkpoints": 0}
        number, at_s, duration_s = self._last
        state = f"state {render_size(self._size_bytes)}"
        if not self._count:
            ago, took = render_seconds(now_s - at_s), render_seconds(duration_s)
            return f"last checkpoint {number} {ago} ago in {took}, {state}", {
                "checkpoints": 0,
                "state_bytes": self._size_bytes,
            }
        mean_s = self._sum_s / self._count
        longest = f", {render_seconds(self._longest_s)} at most" if self._count > 1 else ""
        mean = f"{render_seconds(mean_s)}{' on average' if self._count > 1 else ''}"
        return f"{render_count(self._count, 'checkpoint')} in {mean}{longest}, {state}", {
            "checkpoints": self._count,
            "checkpoint_seconds": round(mean_s, 3),
            "checkpoint_seconds_max": round(self._longest_s, 3),
            "state_bytes": self._size_bytes,
        }


def _held_up(status: Status) -> ProgressLine:
    return ProgressLine(f"{status.state}: {status.reason}" if status.reason else f"still {status.state}", {})


def _rate(per_second: float) -> str:
    return f"{per_second:,.0f} records/s" if per_second >= 10 or not per_second else f"{per_second:.1f} records/s"


def _lag(status: Status) -> tuple[str, dict[str, float]]:
    if status.lag_records is None or status.lag_age_seconds is None or status.lag_age_seconds > STALE_S:
        return "unknown", {}
    text, fields = render_count(status.lag_records, "record"), {"lag_records": float(status.lag_records)}
    if not status.lag_seconds:
        return text, fields
    return f"{text} ({render_seconds(status.lag_seconds)})", fields | {"lag_seconds": round(status.lag_seconds, 3)}
