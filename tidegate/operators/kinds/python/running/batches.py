"""Calls user code with batches: frames in, frames out, and a row that raises fails alone (`PartwiseCalls`).

A `Value` state is a column of values, by key. While user code runs, it has the values of all keys of its rows, read at
once when it is first used. What is written changes only this column. It reaches the state after the call, or is
forgotten if the call has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import Any, Final, NoReturn, TypeVar

import polars as pl
from typing_extensions import override

from tidegate.config.fields.steps import Ttl
from tidegate.errors import TidegateError
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.failures import BadRecordPolicy, FailureKind, RecordFailure
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.python import PythonOperator
from tidegate.operators.kinds.python.running.code import CodeRuntime
from tidegate.operators.kinds.python.running.frames import FrameConverter, Unfit
from tidegate.operators.kinds.python.running.states import RunningScope
from tidegate.operators.runtime import Out as StepOut
from tidegate.operators.runtime import system_columns
from tidegate.operators.spec import Slot
from tidegate.operators.user_values import converter_of
from tidegate.python import Out, Value
from tidegate.state.base import Key, KeyedState
from tidegate.user_code.describe import DeclaredState

_PLACE: Final = "__tidegate_place"


class BatchKeys:
    """The distinct keys of the rows that user code is called with."""

    def __init__(self, names: Sequence[str]) -> None:
        """`names`: the key columns."""
        self._names = names
        self._rows: list[pl.Series] = []
        """The key columns of the rows."""
        self._distinct: list[pl.Series] = []
        self._times: list[pl.Series] = []
        self._moments: tuple[list[int], list[int]] | None = None
        self.given = pl.DataFrame()
        """The keys in order of their first appearance, for user code, which may change the frame."""
        self.keys: list[Key] = []
        """The same keys as state has them."""
        self._places: pl.Series | None = None
        """The key of each row, as its place among the keys. None: not needed so far."""

    def begin(self, rows: pl.DataFrame, times: list[pl.Series]) -> None:
        """Takes the keys of the rows of a call. `times` has their event times if a state needs them."""
        self._rows = [rows.get_column(name) for name in self._names]
        if len(self._rows) == 1:
            self._distinct = [self._rows[0].unique(maintain_order=True)]
        else:
            self._distinct = pl.DataFrame(self._rows).unique(maintain_order=True).get_columns()
        self._times, self._moments = times, None
        self.given = pl.DataFrame(self._distinct)
        self.keys = _plain(self._distinct)
        self._places = None

    def find(self, keys: object) -> pl.Series | None:
        """Returns the place of the key of each row of a frame with the key columns; None if it has all keys in order.

        Raises TypeError for anything else, and ValueError for a key that no row of the call has.
        """
        if not isinstance(keys, pl.DataFrame):
            raise TypeError(f"keys are a polars.DataFrame with the key columns, not {type(keys).__name__}")
        for name in self._names:
            if name not in keys.columns:
                raise TypeError(f"the frame of keys has no key column `{name}`")
        found = [keys.get_column(name) for name in self._names]
        if _are_equal(found, self._distinct):
            return None
        if _are_equal(found, self._rows):
            if self._places is None:
                self._places = self._join(found)
            return self._places
        for column, own in zip(found, self._rows, strict=True):
            if column.dtype != own.dtype:
                raise TypeError(f"`{own.name}` of the keys is pl.{column.dtype!r}, and the key is pl.{own.dtype!r}")
        places = self._join(found)
        if places.null_count():
            other = pl.DataFrame(found).filter(places.is_null()).row(0)
            raise ValueError(f"{other!r} is not the key of a row of this call, and only their state can be used")
        return places

    def event_times(self) -> tuple[list[int], list[int]]:
        """Returns, for each key, the time that its first row has reached (`RunningScope.reached_ms`), and the latest
        time of its rows.
        """
        if self._moments is None:
            self._moments = self._derive_moments()
        return self._moments

    def _derive_moments(self) -> tuple[list[int], list[int]]:
        grouped = (
            pl.DataFrame([*self._rows, *self._times])
            .group_by(self._names, maintain_order=True)
            .agg((pl.col(TIME) + pl.col(BEHIND)).first().alias(BEHIND), pl.col(TIME).max())
        )
        return grouped[BEHIND].to_list(), grouped[TIME].to_list()

    def _join(self, keys: list[pl.Series]) -> pl.Series:
        numbered = pl.DataFrame(self._distinct).with_row_index(_PLACE)
        joined = pl.DataFrame(keys).join(numbered, on=self._names, how="left", maintain_order="left", nulls_equal=True)
        return joined.get_column(_PLACE)


def _plain(columns: list[pl.Series]) -> list[Key]:
    values = list(map(plain_values, columns))
    return values[0] if len(values) == 1 else list(zip(*values, strict=True))


def _are_equal(one: list[pl.Series], other: list[pl.Series]) -> bool:
    return all(column.equals(own, check_dtypes=True) for column, own in zip(one, other, strict=True))


class BatchValue(Value[Any]):
    """One state, as user code sees it while a batch is processed. NULL is no value."""

    def __init__(self, declared: DeclaredState, state: KeyedState[Any], keys: BatchKeys, scope: RunningScope) -> None:
        self._name = declared.name
        self._kind = declared.type
        default = declared.default
        if default is not None:
            default = converter_of(declared.name, declared.type)(default)
        self._default = None if default is None else make_column(self._name, self._kind, [default])
        self._converter = FrameConverter(((self._name, self._kind),), "or declare the state with another type")
        self._state = state
        self._keys = keys
        self._scope = scope
        self._ttl = declared.ttl
        self._values: pl.Series | None = None
        """The value of each key of the call. None: not read yet."""
        self._ends: list[int | None] = []
        """With a `ttl`: when the values that have been read end."""
        self._written: pl.Series | None = None
        """Which values the call has written. None: none of them."""

    # -- for user code -------------------------------------------------------------------------------------------------

    @override
    def get_many(self, keys: pl.DataFrame) -> pl.Series:
        self._scope.check()
        places = self._keys.find(keys)
        values = self._read()
        if self._default is not None and values.null_count():
            values = values.zip_with(values.is_not_null(), self._default.new_from_index(0, len(values)))
        return values.clone() if places is None else values.gather(places)

    @override
    def set_many(self, keys: pl.DataFrame, values: pl.Series) -> None:
        self._scope.check()
        places = self._keys.find(keys)
        if not isinstance(values, pl.Series):
            raise TypeError(f"values are a polars.Series, not {type(values).__name__}")
        if len(values) != keys.height:
            raise ValueError(f"there are {len(values)} values for {keys.height} keys")
        converted, unfit = self._converter.convert(values.to_frame(self._name))
        for reason in unfit.values():
            raise ValueError(reason)
        self._write(places, converted.get_column(self._name))

    @override
    def clear_many(self, keys: pl.DataFrame) -> None:
        self._scope.check()
        self._write(self._keys.find(keys), self._nothing(keys.height))

    @override
    def get(self) -> Any:
        _refuse_single()

    @override
    def set(self, value: Any) -> None:
        _refuse_single()

    @override
    def clear(self) -> None:
        _refuse_single()

    @override
    def take(self) -> Any:
        _refuse_single()

    # -- for the runtime -----------------------------------------------------------------------------------------------

    def keep(self) -> int:
        """Ends a call: writes to the state what it has written. Returns the number of values."""
        values, written = self._values, self._written
        if values is None or written is None:
            self.undo()
            return 0
        keys, ends = self._keys.keys, self._new_ends()
        count = len(values)
        self.undo()
        kept = written & values.is_not_null()
        if not kept.all():
            removed = (written & values.is_null()).to_list()
            self._state.delete_many(list(compress(keys, removed)))
            kept_list = kept.to_list()
            count = sum(written.to_list())
            keys, values = list(compress(keys, kept_list)), values.filter(kept)
            ends = None if ends is None else list(compress(ends, kept_list))
        if keys:
            plain = plain_values(values)
            self._state.put_many(keys, zip(plain, strict=True) if ends is None else zip(plain, ends, strict=True))
        return count

    def undo(self) -> None:
        """Forgets what the call has written."""
        self._values = self._written = None

    def _read(self) -> pl.Series:
        if self._values is None:
            stored = self._state.get_many(self._keys.keys)
            if self._ttl is not None:
                moments = self._moments(self._ttl)[0]
                stored = [
                    None if entry is None or (entry[1] is not None and moment > entry[1]) else entry
                    for entry, moment in zip(stored, moments, strict=True)
                ]
                self._ends = [None if entry is None else entry[1] for entry in stored]
            values = [None if entry is None else entry[0] for entry in stored]
            self._values = make_column(self._name, self._kind, values)
        return self._values

    def _moments(self, ttl: Ttl) -> tuple[list[int], list[int]]:
        """Returns the times at which values are read, and those from which their `ttl` counts if they are written."""
        if not ttl.processing:
            return self._keys.event_times()
        now = [self._scope.wall_ms] * len(self._keys.keys)
        return now, now

    def _new_ends(self) -> list[int] | None:
        """Returns when values that are written end: not earlier than before, whatever row writes them."""
        ttl = self._ttl
        if ttl is None:
            return None
        ends = [moment + ttl.time_ms for moment in self._moments(ttl)[1]]
        return [end if before is None or before < end else before for end, before in zip(ends, self._ends, strict=True)]

    def _write(self, places: pl.Series | None, values: pl.Series) -> None:
        if places is None:
            if self._ttl is not None:
                self._read()
            self._values = values
            self._written = pl.Series([True]).new_from_index(0, len(values))
            return
        count = len(self._keys.keys)
        now = pl.int_range(count, eager=True).scatter(places, pl.int_range(count, count + len(values), eager=True))
        self._values = pl.concat([self._read(), values]).gather(now)
        written = now >= count
        self._written = written if self._written is None else self._written | written

    def _nothing(self, height: int) -> pl.Series:
        return make_column(self._name, self._kind, [None]).new_from_index(0, height)


def _refuse_single() -> NoReturn:
    raise RuntimeError("a batch has rows of several keys: use `get_many(keys)`, `set_many(keys, values)`, `clear_many`")


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
