"""Calls user code with batches: frames in, frames out, and a row that raises fails alone (`PartwiseCalls`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, TypeVar

import polars as pl
from typing_extensions import override

from tidegate.errors import TidegateError
from tidegate.formats.failures import BadRecordPolicy, FailureKind, RecordFailure
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.batch_values import BatchKeys, BatchValue
from tidegate.operators.kinds.python.running.code import CodeRuntime
from tidegate.operators.kinds.python.running.frames import FrameConverter, Unfit
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.runtime import Out as StepOut
from tidegate.operators.runtime import system_columns
from tidegate.operators.spec import Slot
from tidegate.python import Out
from tidegate.user_code.describe import DeclaredState

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
    """Calls user code for the batches of one subtask, and learns from the rows that raise how many to try at a time.

    As long as nothing raises, a batch is one call. Once a row has raised, the batch is tried in parts of about the size
    at which every second one succeeds, and a part that raises is halved down to its first row that raises. That is
    close to the fewest calls that can tell which rows these are. Parts are tried in order, and each succeeds only once,
    so state follows the order of the rows. The try that succeeds counts: code that raises only now and then may succeed
    with the same rows a moment later.
    """

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


_SAME: Final = "with `rows: same`, a batch has one result, with a row for each of its rows, in their order"


class BatchResults:
    """Collects what user code makes of a part of a batch."""

    def __init__(
        self, converters: Mapping[str, FrameConverter], rows: int, *, same_rows: bool, fails_rows: bool
    ) -> None:
        """`rows`: those of the part. `same_rows`: the main output has one row for each of them.

        `fails_rows`: values that do not fit fail their row instead of being an error of the call.
        """
        self.frames: dict[str, list[pl.DataFrame]] = {}
        """By output."""
        self.unfit: Unfit = {}
        """Rows of the main output that fail by their values, and why."""
        self.rows = rows
        self._converters = converters
        self._same_rows = same_rows
        self._fails_rows = fails_rows

    def add(self, output: str, frame: object) -> None:
        """Adds a frame. Raises TypeError and ValueError for one that does not fit the output."""
        if self._same_rows and not output:
            self._check_rows(frame)
        converted, unfit = self._converters[output].convert(frame)
        if unfit and not (self._fails_rows and not output):
            row, reason = next(iter(unfit.items()))
            raise ValueError(f"{reason} (row {row})")
        if unfit:
            self.unfit = unfit
        self.frames.setdefault(output, []).append(converted)

    @property
    def height(self) -> int:
        """The number of rows of the main output."""
        return sum(frame.height for frame in self.frames.get("", ()))

    def check_complete(self) -> None:
        """Raises ValueError if the result of the rows is missing."""
        if self._same_rows and "" not in self.frames:
            raise ValueError(f"there is no result: {_SAME}")

    def _check_rows(self, frame: object) -> None:
        if "" in self.frames:
            raise ValueError(f"there is a second result: {_SAME}")
        if isinstance(frame, pl.DataFrame) and frame.height != self.rows:
            raise ValueError(f"the result has {frame.height} rows, and the batch {self.rows}: {_SAME}")


class BatchOut(Out):
    """What user code emits to while it processes a batch."""

    def __init__(self, results: BatchResults, outputs: Collection[str], scope: RunningScope) -> None:
        self._results = results
        self._outputs = outputs
        self._scope = scope

    @override
    def emit(self, row: Any = None, /, **columns: Any) -> None:
        self._add("", row, columns)

    @override
    def to(self, output: str, row: Any = None, /, **columns: Any) -> None:
        if output not in self._outputs or not output:
            names = ", ".join(f"`{name}`" for name in self._outputs if name) or "none"
            raise ValueError(f"there is no output {output!r}: declare it under `outputs` (declared: {names})")
        self._add(output, row, columns)

    def _add(self, output: str, frame: Any, columns: Mapping[str, Any]) -> None:
        self._scope.check()
        if columns:
            raise TypeError("a batch emits frames, not single rows: emit a polars.DataFrame")
        self._results.add(output, frame)


class BatchesRuntime(CodeRuntime):
    """Calls `process_batch` of a step, or a function, with all rows of a batch."""

    def __init__(self, operator: PythonOperator, slot: Slot) -> None:
        """Raises StepFailed, and UserCodeProblem."""
        super().__init__(operator, slot)
        self._columns = [name for name, _ in operator.columns]
        self._keys = BatchKeys(operator.keys) if operator.keys else None
        self._values = {one.name: self._open_value(one) for one in operator.description.states}
        self._times = (TIME, BEHIND) if operator.timed else ()
        outputs = {"": operator.main, **operator.others}
        self._converters = {output: FrameConverter(declared) for output, declared in outputs.items()}
        self._emitted = {output: [name for name, _ in operator.pruned_columns(output)] for output in outputs}
        self._calls = PartwiseCalls(self._describe, to_first_failure=operator.bad_records is BadRecordPolicy.FAIL)
        self._open(self._values)

    def _open_value(self, declared: DeclaredState) -> BatchValue:
        assert self._keys is not None, "a step without a key has no state"
        return BatchValue(declared, self._state_of(declared.name), self._keys, self._scope)

    @override
    def process(self, port: int, batch: pl.DataFrame, out: StepOut) -> None:
        self._read_clock()

        def attempt(start: int, end: int) -> BatchResults:
            return self._attempt(batch if end - start == batch.height else batch[start:end])

        parts, raised = self._calls.process(batch.height, attempt)
        if raised:
            out.fail(batch, [RecordFailure(row, FailureKind.PYTHON_FAILED, reason) for row, reason in raised])
        unfit = [
            RecordFailure(start + row, FailureKind.PYTHON_FAILED, reason)
            for start, part in parts
            for row, reason in part.unfit.items()
        ]
        if unfit:  # the step's states include these rows
            out.fail(batch, unfit, None if self.operator.description.states else 0)
        self._emit(batch, parts, out)

    def _attempt(self, rows: pl.DataFrame) -> BatchResults:
        """Calls user code with some rows, all or nothing. Raises CallRaised."""
        # User code may change this frame, but not the columns in it.
        part = pl.DataFrame([rows.get_column(name) for name in self._columns])
        if self._keys is not None:
            self._keys.begin(part, [rows.get_column(name) for name in self._times])
        same_rows = self.operator.same_rows
        fails_rows = same_rows and not self._values
        results = BatchResults(self._converters, part.height, same_rows=same_rows, fails_rows=fails_rows)
        self._scope.begin()
        try:
            self._call(part, results)
            results.check_complete()
        except BaseException as error:
            for value in self._values.values():
                value.undo()
            if isinstance(error, (KeyboardInterrupt, TidegateError)):  # as for rows
                raise
            raise CallRaised from error
        finally:
            self._scope.end()
        self._remove_for(sum(value.keep() for value in self._values.values()))
        return results

    def _call(self, frame: pl.DataFrame, results: BatchResults) -> None:
        """Calls user code."""
        operator, code = self.operator, self._code
        if operator.description.is_class:
            out = BatchOut(results, self._converters, self._scope)
            if self._keys is None:
                code.process_batch(frame, out)
            else:
                code.process_batch(self._keys.given, frame, out)
            return
        result = code(frame, self._settings) if operator.description.takes_settings else code(frame)
        if result is not None:
            results.add("", result)

    def _emit(self, batch: pl.DataFrame, parts: Sequence[tuple[int, BatchResults]], out: StepOut) -> None:
        for output, read in self._emitted.items():
            frames = [(start, part.rows, frame) for start, part in parts for frame in part.frames.get(output, ())]
            if not frames or not read:
                continue
            if self.operator.preserves_record(output):
                made = _join([frame for *_, frame in frames])
                out.emit(self._with_records(made if made.columns == read else made[read], batch, parts))
                continue
            made = _join([_with_time(frame[read], batch[start : start + rows]) for start, rows, frame in frames])
            self._send(output, made, out)

    def _with_records(
        self, made: pl.DataFrame, batch: pl.DataFrame, parts: Sequence[tuple[int, BatchResults]]
    ) -> pl.DataFrame:
        """Returns results with the system columns of their rows, without those that fail."""
        failed = {start + row for start, part in parts for row in part.unfit}
        if failed or made.height < batch.height:
            places = [start + row for start, part in parts for row in range(part.height)]
            kept = [index for index, place in enumerate(places) if place not in failed]
            made, batch = made[kept], batch[[places[index] for index in kept]]
        return pl.DataFrame([*made.get_columns(), *map(batch.get_column, system_columns(batch))])


def _join(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames) if len(frames) > 1 else frames[0]


def _with_time(made: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """Returns new rows, if rows have event time with the latest one of the rows that they were made of."""
    if TIME not in rows.columns:
        return made
    return made.with_columns(pl.lit(rows[TIME].max(), pl.Int64).alias(TIME), pl.lit(0, pl.Int64).alias(BEHIND))
