"""The one contract between the slot loop and everything that it runs: sources, steps, sinks.

All calls come from the loop's one thread and return at once; nothing here blocks. Batches are Polars frames with the
operator's columns and the engine's own (`datatypes.RESERVED`). What an operator makes of a batch it hands to `out` in
order; a barrier never comes between `process` and the end of what it has emitted, so a snapshot sees all of a batch or
nothing (C33).

A barrier waits for one call at most, so no call may last longer than about 50 ms: the loop sizes batches by the time
that the last ones took (`task/pace.py`), and whoever has more to do than a batch (timers, answers from outside) keeps
the rest in its state and says by `poll` or `on_time` that it is not finished.

Event time passes through every operator. What a watermark makes due is emitted first, then the watermark is passed on
(W20). Whoever has more to emit than one call may last keeps the watermark, continues in `poll` (True while something
moved), and passes it on when it is done; rows that arrive meanwhile are judged by it already, and a higher watermark
takes its place. Who holds rows back holds a status back with them (W05).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from typing_extensions import override

from tidegate.datatypes import is_reserved
from tidegate.errors import AttemptFailed
from tidegate.ids import StateName
from tidegate.state.base import StoredState

if TYPE_CHECKING:
    import polars as pl

    from tidegate.formats.failures import RecordFailure

OperatorState = StoredState[Any]
"""One of its states; what stands for a stored file is the loop's business."""

ROWS_MAX: Final = 1 << 31
"""More rows than any batch has: no limit."""

END_OF_TIME: Final = (1 << 63) - 1
"""The watermark after the last row of a bounded input: no event time comes after it (W01)."""

LOWEST: Final = -(1 << 63)
"""The watermark of whoever has not received any."""


class BatchTooLarge(AttemptFailed):
    """What an operator would make of several rows has no room; nothing has happened: they are processed in parts."""

    code = "batch-too-large"


class Out(Protocol):
    """Where an operator's results go. Calls return when everything downstream in the vertex has seen them."""

    def emit(self, batch: pl.DataFrame) -> None:
        """Rows of the main output, after all that were emitted before. An empty batch goes nowhere."""

    def side(self, name: str, batch: pl.DataFrame) -> None:
        """Rows of a declared side output."""

    def fail(self, batch: pl.DataFrame, failures: Sequence[RecordFailure]) -> None:
        """Rows of `batch` that could not be processed; they are in no `emit`. Raises when the policy is to stop."""

    def watermark(self, time_ms: int) -> None:
        """No row with an event time up to here follows on any output that is not late; END_OF_TIME: none at all.

        Nobody receives it while the operator is idle (W03).
        """

    def status(self, idle: bool) -> None:
        """Idle: nobody waits for its watermark until it is active again.

        Rows make it active for as long as they are emitted (W05). A source says so itself, so that its watermarks
        count again.
        """


class OperatorRuntime(Protocol):
    """One subtask of an operator. `Runtime` has an answer to everything but `process`."""

    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        """Rows that arrived on an input (0 unless the operator declares several).

        A row that makes an expression raise fails by itself (`out.fail`): what is raised here is not a record's fault.
        Raises BatchTooLarge: only the head of a vertex, never for one row, and before anything was emitted or kept.
        """

    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        """No row with an event time up to here, ms since 1970, arrives on any input that is not late; it only grows."""

    def on_status(self, idle: bool, out: Out) -> None:
        """All inputs are idle, or one is active again; only changes are reported."""

    def on_time(self, now_ms: int, out: Out) -> bool:
        """`next_deadline_ms` has come. True when more is due: it is called again in the next turn."""

    def poll(self, rows_max: int, out: Out) -> bool:
        """Emit what has come from outside, at most this many rows; False when there was nothing."""

    @property
    def room(self) -> int:
        """Rows that it takes without having to keep them waiting itself; 0 while it is full."""

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, ms since 1970; None while nothing waits."""

    @property
    def settled(self) -> bool:
        """Whether everything is emitted that what it was given makes due: a final barrier waits for it."""

    @property
    def late_rows(self) -> int:
        """How many rows it has left out because what they belong to was closed already; it only grows."""

    @property
    def gauges(self) -> Mapping[str, int]:
        """What it holds now, by a few fixed names: `open_windows`, `timers`. Read by another thread than the loop's."""

    @property
    def states(self) -> Mapping[StateName, OperatorState]:
        """What is in its snapshots, by the names that its spec declares; restored before the first batch."""

    def before_snapshot(self) -> None:
        """The states are captured next: put into them what is held elsewhere. Emits nothing (C33)."""

    def close(self) -> None:
        """Free what it holds, within a bounded time. Its states are closed by whoever has opened them."""


class Runtime(OperatorRuntime):
    """The answers of an operator without state, time or anything outside; subclasses override what they have."""

    late_rows: int = 0
    """See OperatorRuntime."""

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {}

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        out.watermark(watermark_ms)

    @override
    def on_status(self, idle: bool, out: Out) -> None:
        out.status(idle)

    @override
    def on_time(self, now_ms: int, out: Out) -> bool:  # the contract's signature
        return False

    @override
    def poll(self, rows_max: int, out: Out) -> bool:  # the contract's signature
        return False

    @property
    @override
    def room(self) -> int:
        return ROWS_MAX

    @property
    @override
    def next_deadline_ms(self) -> int | None:
        return None

    @property
    @override
    def settled(self) -> bool:
        return True

    @property
    @override
    def states(self) -> Mapping[StateName, OperatorState]:
        return {}

    @override
    def before_snapshot(self) -> None:
        pass

    @override
    def close(self) -> None:
        pass


def system_columns(frame: pl.DataFrame) -> list[str]:
    """The engine's own columns of a frame."""
    return [name for name in frame.columns if is_reserved(name)]
