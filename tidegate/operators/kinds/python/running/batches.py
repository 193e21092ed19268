"""Calls user code with batches: frames in, frames out, and a row that raises fails alone (`parts.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import polars as pl

from tidegate.errors import TidegateError
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.sizes import cut_frame
from tidegate.operators.kinds.python.running.batch_values import BatchKeys, BatchValue
from tidegate.operators.kinds.python.running.frames import FrameConverter, Unfit
from tidegate.operators.kinds.python.running.parts import PartwiseCalls, RowFailed
from tidegate.operators.runtime import Out, system_columns
from tidegate.operators.spec import Columns

Call = Callable[[pl.DataFrame, "BatchOut"], None]
"""Calls user code with the rows of a part."""

_SAME: Final = "with `rows: same`, emit one frame, with a row for each row of the batch, in the same order"


class BatchResults:
    """Collects what user code makes of a part of a batch."""

    def __init__(self, converters: Mapping[str, FrameConverter], rows: int | None, *, fails_rows: bool) -> None:
        """`rows`: how many rows the result has, one for each row of the part; None: any number of new rows.

        `fails_rows`: values that do not fit fail their row instead of being an error of the call.
        """
        self.frames: dict[str, list[pl.DataFrame]] = {}
        """By output."""
        self.unfit: Unfit = {}
        """Rows of the main output that fail by their values, and why."""
        self._converters = converters
        self._rows = rows
        self._fails_rows = fails_rows

    def add(self, output: str, frame: object) -> None:
        """Adds a frame. Raises TypeError and ValueError for one that does not fit the output."""
        if self._rows is not None and not output:
            self._check_rows(frame, self._rows)
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
        if self._rows is not None and "" not in self.frames:
            raise ValueError(f"there is no result: {_SAME}")

    def _check_rows(self, frame: object, rows: int) -> None:
        if "" in self.frames:
            raise ValueError(f"there is a second result: {_SAME}")
        if isinstance(frame, pl.DataFrame) and frame.height != rows:
            raise ValueError(f"the result has {frame.height} rows, and the batch {rows}: {_SAME}")


class BatchOut:
    """Receives the frames that user code emits while it processes a batch."""

    def __init__(self, results: BatchResults, outputs: Collection[str]) -> None:
        self._results = results
        self._outputs = outputs

    def emit(self, frame: pl.DataFrame) -> None:
        """Emits the rows of a frame with the columns of `output`."""
        self._results.add("", frame)

    def to(self, output: str, frame: pl.DataFrame) -> None:
        """Emits the rows of a frame on one of `outputs`."""
        if output not in self._outputs or not output:
            names = ", ".join(f"`{name}`" for name in self._outputs if name) or "none"
            raise ValueError(f"there is no output {output!r}: `outputs` has {names}")
        self._results.add(output, frame)


class BatchProcessor:
    """Processes the batches of a step in one slot."""

    def __init__(
        self,
        *,
        columns: Columns,
        outputs: Mapping[str, Columns],
        emitted: Mapping[str, Columns],
        same_rows: bool,
        call: Call,
        explain: Callable[[BaseException], str],
        keys: BatchKeys | None = None,
        values: Sequence[BatchValue] = (),
        rows_max: int,
        bytes_max: int,
    ) -> None:
        """`columns`: those that user code gets. `outputs`: declared columns by output, the main one under the empty
        name. `emitted`: which of them are read.
        """
        self._columns = [name for name, _ in columns]
        self._converters = {output: FrameConverter(declared) for output, declared in outputs.items()}
        self._emitted = {output: [name for name, _ in read] for output, read in emitted.items()}
        self._same_rows = same_rows
        self._call = call
        self._explain = explain
        self._keys = keys
        self._values = values
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._calls = PartwiseCalls()

    def process(self, batch: pl.DataFrame, out: Out) -> None:
        """Processes a batch, and reports the rows that fail."""
        frame = batch[self._columns]

        def attempt(start: int, end: int) -> BatchResults:
            return self._attempt(frame, start, end)

        parts, raised = self._calls.process(frame.height, attempt)
        failures = [RecordFailure(row, FailureKind.PYTHON_FAILED, reason) for row, reason in raised]
        for start, part in parts:
            failures += [
                RecordFailure(start + row, FailureKind.PYTHON_FAILED, reason) for row, reason in part.unfit.items()
            ]
        if failures:
            failures.sort(key=lambda one: one.row)
            out.fail(batch, failures)
        self._emit(batch, parts, out)

    def _attempt(self, batch: pl.DataFrame, start: int, end: int) -> BatchResults:
        """Calls user code with some rows, all or nothing. Raises RowFailed."""
        if end - start == batch.height:
            part = batch.clone()  # user code may change the frame itself, but never the values in it
        else:
            part = batch[start:end]
        if self._keys is not None:
            self._keys.begin(part)
        rows = part.height if self._same_rows else None
        results = BatchResults(self._converters, rows, fails_rows=self._same_rows and not self._values)
        try:
            self._call(part, BatchOut(results, self._converters))
            results.check_complete()
        except BaseException as error:
            for value in self._values:
                value.undo()
            if isinstance(error, TidegateError):
                raise
            raise RowFailed(self._explain(error)) from error
        for value in self._values:
            value.keep()
        if self._keys is not None:
            self._keys.end()
        return results

    def _emit(self, batch: pl.DataFrame, parts: Sequence[tuple[int, BatchResults]], out: Out) -> None:
        for output, read in self._emitted.items():
            frames = [(start, frame) for start, part in parts for frame in part.frames.get(output, ())]
            if not frames:
                continue
            made = pl.concat([frame for _, frame in frames]) if len(frames) > 1 else frames[0][1]
            made = made if made.columns == read else made[read]
            if self._same_rows and not output:
                out.emit(self._with_records(made, batch, parts))
                continue
            for piece in cut_frame(made, self._rows_max, self._bytes_max):
                if output:
                    out.side(output, piece)
                else:
                    out.emit(piece)

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
