"""The contract between the slot loop and everything that it runs: sources, steps and sinks.

All calls come from the loop's single thread and return without blocking. Batches are Polars frames with the operator's
columns and the system columns (`datatypes.RESERVED`). An operator hands the results of a batch to `out` in order. A
barrier never comes between `process` and the last of its results, so a snapshot includes a batch completely or not at
all (C33).

A barrier waits for at most one call, so no call may take longer than about 50 ms. The loop sizes batches by the
duration of recent calls (`task/operator_chain.py`). An operator with more work than a batch, such as timers or external
answers, keeps the rest in its state and returns True from `poll` or `on_time` until it is finished.

Event time passes through every operator. The operator first emits what a watermark makes due and then passes the
watermark on (W20). If that takes longer than one call may, it keeps the watermark, continues in `poll` (True while
there was progress), and passes it on at the end. Rows that arrive in the meantime are already judged by it, and a
higher watermark replaces it. An operator that holds rows back also holds back a status (W05).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

from tidegate.datatypes import is_reserved
from tidegate.errors import AttemptFailed
from tidegate.ids import StateName
from tidegate.state.base import StoredState

if TYPE_CHECKING:
    import polars as pl

    from tidegate.formats.failures import RecordFailure

OperatorState = StoredState[Any]
"""One of its states. The loop alone knows how a stored file is represented."""

ROWS_MAX: Final = 1 << 31
"""More rows than any batch has: no limit."""

END_OF_TIME: Final = (1 << 63) - 1
"""The watermark after the last row of a bounded input: no event time comes after it (W01)."""

LOWEST: Final = -(1 << 63)
"""The watermark before any has arrived."""


class BatchTooLarge(AttemptFailed):
    """The output of several rows exceeds the limits. Nothing was emitted or kept, so the loop processes them in
    parts.
    """

    code = "batch-too-large"


class Out(Protocol):
    """Receives an operator's results. A call returns once everything downstream in the vertex has processed them."""

    def emit(self, batch: pl.DataFrame) -> None:
        """Emits rows of the main output, after all earlier ones. An empty batch is dropped."""

    def side(self, name: str, batch: pl.DataFrame) -> None:
        """Emits rows of a declared side output."""

    def fail(self, batch: pl.DataFrame, failures: Sequence[RecordFailure], port: int | None = 0) -> None:
        """Reports rows of `batch` that failed; they are in no `emit`. `port` is the input that they came from, whose
        columns they have, so that they can be processed again. None: they are results of rows that were processed.

        Raises if the policy is to stop.
        """

    def watermark(self, time_ms: int) -> None:
        """Promises that no row up to this event time follows on any output unless it is late; END_OF_TIME: none at all.

        The watermark is not delivered while the operator is idle (W03).
        """

    def status(self, idle: bool) -> None:
        """Sets the status. If idle, watermarks downstream do not wait for this operator until it is active again.

        Rows make it active while they are emitted (W05). A source reports itself active, so that its watermarks count
        again.
        """

    def caught_up(self) -> None:
        """Declares that the results of everything that the sources held when the attempt started have been emitted.

        Called at most once.
        """


class OperatorRuntime(Protocol):
    """One subtask of an operator. Only `process` has no default: the others fit an operator without state, time or
    external calls.
    """

    late_rows: int = 0
    """How many rows it has dropped because their window or state was already closed. It only grows."""
    states: Mapping[StateName, OperatorState] = MappingProxyType({})
    """The contents of its snapshots, by the names that its spec declares; restored before the first batch."""

    @abstractmethod
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        """Processes rows that arrived on an input (0 unless the operator declares several).

        A row that makes an expression raise fails by itself (`out.fail`); an exception from this method is never caused
        by a record. Raises BatchTooLarge only in the head of a vertex, never for a single row, and before anything is
        emitted or kept.
        """

    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        """Accepts the promise that no row up to this event time, ms since 1970, arrives unless it is late. It only
        grows.
        """
        out.watermark(watermark_ms)

    def on_status(self, idle: bool, out: Out) -> None:
        """Accepts a change of status: all inputs are idle, or one is active again."""
        out.status(idle)

    def on_caught_up(self, out: Out) -> bool:
        """Accepts that all rows that the sources held when the attempt started have arrived, and passes it on behind
        what these rows have made due.

        Returns False if it has to be called again, after `poll`.
        """
        if self.settled:
            out.caught_up()
        return self.settled

    def on_time(self, now_ms: int, out: Out) -> bool:  # noqa: ARG002  # for overrides
        """Runs what is due at `next_deadline_ms`. Returns True if more is due; it is then called again in the next
        turn.
        """
        return False

    def poll(self, rows_max: int, out: Out) -> bool:  # noqa: ARG002  # for overrides
        """Emits at most `rows_max` rows of what has arrived from outside. Returns False if there was nothing."""
        return False

    @property
    def room(self) -> int:
        """How many rows it takes without queueing them itself; 0 while it is full."""
        return ROWS_MAX

    @property
    def next_deadline_ms(self) -> int | None:
        """When `on_time` is due, ms since 1970; None while nothing waits."""
        return None

    @property
    def settled(self) -> bool:
        """True once everything that its input has made due is emitted. A final barrier waits for it."""
        return True

    @property
    def gauges(self) -> Mapping[str, int]:
        """Current sizes under a few fixed names: `open_windows`, `timers`. Read by a thread other than the loop's."""
        return {}

    def before_snapshot(self) -> None:
        """Copies what is held elsewhere into the states, which are captured next. Emits nothing (C33)."""
        return  # to the type checker, an empty body in a protocol is abstract

    def close(self) -> None:
        """Frees its resources within a bounded time. The owner that opened its states closes them."""
        return


def system_columns(frame: pl.DataFrame) -> list[str]:
    """Returns the names of a frame's system columns."""
    return [name for name in frame.columns if is_reserved(name)]
