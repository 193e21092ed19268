"""An operator as the loop drives it: batches in, what it emits and which rows fail out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from tidegate.formats.failures import RecordFailure
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Slot, StepOperator
from tidegate.state.backends import choose_backend
from tidegate.task.elements import CatchUpMarker, StreamStatus, Watermark


class Collected:
    """An `Out` that keeps everything."""

    def __init__(self) -> None:
        self.batches: list[pl.DataFrame] = []
        self.sides: dict[str, list[pl.DataFrame]] = {}
        self.failures: list[RecordFailure] = []
        self.order: list[pl.DataFrame | Watermark | StreamStatus | CatchUpMarker] = []
        """Rows of the main output and event time, as they came."""

    def emit(self, batch: pl.DataFrame) -> None:
        if batch.height:
            self.batches.append(batch)
            self.order.append(batch)

    def side(self, name: str, batch: pl.DataFrame) -> None:
        self.sides.setdefault(name, []).append(batch)

    def fail(self, batch: pl.DataFrame, failures: Sequence[RecordFailure], port: int | None = 0) -> None:
        assert all(0 <= one.row < batch.height for one in failures)
        self.failures += failures

    def watermark(self, time_ms: int) -> None:
        self.order.append(Watermark(time_ms))

    def status(self, idle: bool) -> None:
        self.order.append(StreamStatus(idle))

    def caught_up(self) -> None:
        self.order.append(CatchUpMarker())


class Driven:
    """One operator with a memory of its failures."""

    def __init__(self, runtime: OperatorRuntime) -> None:
        self.runtime = runtime
        self._out = Collected()

    @property
    def state(self) -> Any:
        """Its only state."""
        (state,) = self.runtime.states.values()
        return state

    def process(self, frame: pl.DataFrame) -> pl.DataFrame | None:
        """What comes out of a batch; None when nothing does."""
        self._out.batches.clear()
        self.runtime.process(0, frame, self._out)
        return pl.concat(self._out.batches) if self._out.batches else None

    def take_failures(self) -> list[RecordFailure]:
        """Failed rows since the last call."""
        taken, self._out.failures = self._out.failures, []
        return taken


def drive(spec: StepOperator, backend: str = "memory") -> Driven:
    """An operator opened as a slot opens it."""
    return Driven(spec.open(Slot(128, choose_backend(backend, retained=1))))
