"""Running totals per key: batched state access, and one pass over the rows for each function.

The rows of a batch are numbered by key. The accumulators of these keys are fetched once, updated by `Aggregate.run`,
and stored once. A row that overflows a sum fails as a whole and leaves the state unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import itemgetter
from typing import Any

import polars as pl
from polars.exceptions import PanicException
from typing_extensions import override

from tidegate.config.fields.ttl import Ttl
from tidegate.datatypes import DataType
from tidegate.errors import TidegateError
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.formats.bisection import evaluate_rows, first_line, internal_failure
from tidegate.formats.columns import make_column, plain_values
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import StateName
from tidegate.operators.aggregates.contract import Aggregate, Numbers
from tidegate.operators.aggregates.filtering import derive_choice
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.kinds.aggregate.expiry import split_lives
from tidegate.operators.runtime import (
    END_OF_TIME,
    LOWEST,
    BatchTooLarge,
    OperatorRuntime,
    OperatorState,
    Out,
    Runtime,
    system_columns,
)
from tidegate.operators.spec import Slot
from tidegate.operators.sweep import SWEPT_AT_ONCE, SWEPT_FOR_NEW, Sweep
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.snapshot import Value

OVERFLOW = "a running sum leaves the range of bigint"


class AggregateRuntime(Runtime, OperatorRuntime):
    """Adds rows to the totals of their keys and emits the results."""

    def __init__(self, operator: AggregateOperator, slot: Slot) -> None:
        kinds = dict(operator.output)
        self._keys = list(operator.keys)
        self._each = operator.emit == "each"
        self._output = [name for name, _ in operator.output]
        self._aggregates = operator.functions
        self._choices = [derive_choice(call) for _, call in operator.aggregates]
        self._initial = tuple(value for aggregate in self._aggregates for value in aggregate.zero)
        self._parts = [itemgetter(part) for part in range(len(self._initial))]
        key_types = [kinds[key] for key in self._keys]
        (declaration,) = operator.states(slot.max_parallelism)

        def groups_of(keys: list[tuple[Any, ...]]) -> Sequence[int]:
            return key_groups_of_keys(keys, key_types, slot.max_parallelism)

        self._totals = slot.open_state(operator.name, declaration, groups_of)
        self._ttl = operator.ttl
        self._now_ms = slot.now_ms
        self._sweep = None if operator.ttl is None else Sweep(self._totals, operator.ttl.time_ms)
        self._new = 0
        """New keys for which no sweep has run yet."""
        self._watermark_ms = LOWEST
        """The last watermark other than END_OF_TIME."""

    @property
    @override
    def states(self) -> Mapping[StateName, OperatorState]:
        return {self._totals.declaration.name: self._totals}

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        """Ignores an end of time: nothing expires after it, because another start may bring more rows."""
        if watermark_ms != END_OF_TIME:
            self._watermark_ms = watermark_ms
        out.watermark(watermark_ms)

    @override
    def before_snapshot(self) -> None:
        self._go_on(SWEPT_AT_ONCE)

    def _go_on(self, entries: int) -> None:
        """Sweeps this many entries and removes the expired ones."""
        if self._ttl is None or self._sweep is None:
            return
        now_ms = self._now_ms() if self._ttl.processing else self._watermark_ms
        if now_ms != LOWEST:
            self._sweep.go_on(now_ms, entries)

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self._add(batch, out)
        if self._new:
            new, self._new = self._new, 0
            self._go_on(SWEPT_FOR_NEW * new)

    def _add(self, batch: pl.DataFrame, out: Out) -> None:
        """Emits one row per input row (`each`), or the last one per key, in order of occurrence."""
        parts, raising = evaluate_rows(
            batch.height,
            lambda start, end: self._run_all(batch) if end - start == batch.height else self._run(batch[start:end]),
        )
        frame = batch
        if raising:
            out.fail(batch, [_failure(row, error) for row, error in raising])
            frame = _without(batch, [row for row, _ in raising])
            if not frame.height:
                return
        columns = zip(*(results for _, (results, _) in parts), strict=True)
        output = self._with_results(frame, [pl.concat(pieces) if len(pieces) > 1 else pieces[0] for pieces in columns])
        if not self._each:
            numbers = parts[0][1][1] if len(parts) == 1 else _numbered(self._key_values(frame))[1]
            output = output[_last_rows(numbers)]
        out.emit(output)

    def _key_values(self, frame: pl.DataFrame) -> list[Any]:
        columns = [plain_values(frame[key]) for key in self._keys]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _run_all(self, batch: pl.DataFrame) -> tuple[list[pl.Series], list[int]]:
        """Runs like `_run`. If a row raises, the batch is processed in parts, which update the state one by one. So a
        batch whose parts might be too large is rejected as a whole first (BatchTooLarge).
        """
        try:
            return self._run(batch)
        except TidegateError:
            raise
        except (Exception, PanicException) as error:
            if batch.height > 1 and self._texts_at_most(batch) > BATCH_BYTES_MAX:
                raise BatchTooLarge(
                    f"results of {batch.height} rows may have more than {BATCH_BYTES_MAX} bytes"
                ) from error
            raise

    def _texts_at_most(self, frame: pl.DataFrame) -> int:
        """Returns a bound that holds for any subset of the rows: each result is a text from the state or from the
        batch.
        """
        index, keys = _numbered(self._key_values(frame))
        stored = self._totals.get_many(index)
        size, position = 0, 0
        for aggregate in self._aggregates:
            if aggregate.call.type.kind in ("string", "binary"):
                longest = max(map(len, filter(None, aggregate.read(frame))), default=0)
                sizes = [max(longest, len((value and value[position]) or "")) for value in stored]
                size += sum(sizes[key] for key in keys)
            position += len(aggregate.fields)
        return size

    def _run(self, frame: pl.DataFrame) -> tuple[list[pl.Series], list[int]]:
        """Returns result columns and key numbers. Updates the state at the very end, all or nothing: an exception has
        no effect.

        A large text in the state may be in the results of many rows, each of which is a copy once it is in a column.
        Raises OverflowError, BatchTooLarge.
        """
        index, keys = _numbered(self._key_values(frame))
        initial = self._initial
        stored = self._totals.get_many(index)
        found = [initial if value is None else value for value in stored]
        numbers, lasts, ends = self._lives(frame, keys, stored)
        found += [initial] * (max(numbers, default=-1) + 1 - len(found))
        accumulators = [list(map(part, found)) for part in self._parts]
        results: list[tuple[Aggregate, list[Any]]] = []
        position, room = 0, BATCH_BYTES_MAX
        for aggregate, choice in zip(self._aggregates, self._choices, strict=True):
            end = position + len(aggregate.fields)
            own, values = accumulators[position:end], aggregate.read(frame)
            if choice is None:
                result = aggregate.run(numbers, values, own)
            else:
                result = run_counted(aggregate, numbers, values, own, choice.derive_mask(frame).to_list())
            if aggregate.call.type.kind in ("string", "binary") and len(numbers) > 1:
                room -= sum(map(len, filter(None, result)))
            results.append((aggregate, result))
            position = end
        if room < 0:
            raise BatchTooLarge(f"results of {frame.height} rows have more than {BATCH_BYTES_MAX} bytes")
        columns = [_column(aggregate.name, aggregate.call.type, result) for aggregate, result in results]
        if self._ttl is None:
            self._totals.put_many(index, zip(*accumulators, strict=True))
        else:
            kept = [[part[last] for last in lasts] for part in accumulators]
            self._totals.put_many(index, zip(*kept, ends, strict=True))
            if self._sweep is not None:
                self._new += stored.count(None)
        return columns, keys

    def _lives(
        self, frame: pl.DataFrame, keys: list[int], stored: list[Value | None]
    ) -> tuple[list[int], list[int], list[int | None]]:
        """Returns the result of `split_lives` and the ends. Without a ttl, a key has one life."""
        if self._ttl is None:
            return keys, [], []
        ends = [None if value is None else value[-1] for value in stored]
        endless = {key for key, value in enumerate(stored) if value is not None and value[-1] is None}
        moments = self._moments(frame, self._ttl)
        return *split_lives(keys, *moments, ends, self._ttl.time_ms, endless=endless), ends

    def _moments(self, frame: pl.DataFrame, ttl: Ttl) -> tuple[list[int], list[int]]:
        """Returns the times of the rows, and the moments at which they are judged."""
        if ttl.processing:
            now = [self._now_ms()] * frame.height
            return now, now
        return frame[TIME].to_list(), (frame[TIME] + frame[BEHIND]).to_list()

    def _with_results(self, frame: pl.DataFrame, results: Sequence[pl.Series]) -> pl.DataFrame:
        by_name = {column.name: column for column in results}
        names = self._output + system_columns(frame)
        return pl.DataFrame([by_name[name] if name in by_name else frame[name] for name in names])


def run_counted(
    aggregate: Aggregate, numbers: Numbers, values: Sequence[Any], columns: list[list[Any]], mask: Sequence[bool]
) -> list[Any]:
    """Runs `Aggregate.run` for the rows that count according to `mask`. Other rows leave the result unchanged."""
    results = aggregate.results(list(zip(*columns, strict=True)))
    moved = iter(aggregate.run(list(compress(numbers, mask)), list(compress(values, mask)), columns))
    found: list[Any] = []
    for number, counts in zip(numbers, mask, strict=True):
        if counts:
            results[number] = next(moved)
        found.append(results[number])
    return found


def _failure(row: int, error: BaseException) -> RecordFailure:
    if isinstance(error, OverflowError):
        return RecordFailure(row, FailureKind.ARITHMETIC_OVERFLOW, first_line(error))
    return internal_failure(row, error)


def _numbered(keys: Sequence[Any]) -> tuple[dict[Any, int], list[int]]:
    """Returns the keys with their numbers, and the number of each row's key."""
    index: dict[Any, int] = {}
    number_of = index.setdefault
    return index, [number_of(key, len(index)) for key in keys]


def _last_rows(numbers: Sequence[int]) -> list[int]:
    """Returns the last row of each key, in order."""
    return sorted(dict(zip(numbers, range(len(numbers)), strict=True)).values())


def _without(frame: pl.DataFrame, rows: Sequence[int]) -> pl.DataFrame:
    left_out = set(rows)
    return frame[[row for row in range(frame.height) if row not in left_out]]


def _column(name: str, kind: DataType, values: Sequence[Any]) -> pl.Series:
    """Returns a column of results. Raises OverflowError for a sum that does not fit its type."""
    try:
        return make_column(name, kind, values)
    except TypeError as error:  # Polars raises this for an integer that does not fit, which saves a check per row
        if any(isinstance(value, int) and not -(2**63) <= value < 2**63 for value in values):
            raise OverflowError(OVERFLOW) from error
        raise
