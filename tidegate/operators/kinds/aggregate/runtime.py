"""Running totals per key: batched state access, and one pass over the rows for each aggregate.

The rows of a batch are numbered by key. The accumulators of these keys are fetched once, in columns, updated, and
stored once. A row that overflows a sum fails as a whole and leaves the state unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from polars.exceptions import PanicException
from typing_extensions import override

from tidegate.config.fields.ttl import Ttl
from tidegate.errors import TidegateError
from tidegate.expressions.bounds import BATCH_BYTES_MAX
from tidegate.formats.bisection import evaluate_rows, first_line, internal_failure
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import StateName
from tidegate.operators.aggregates.columnar.running import Accumulators, KeyedRows, RunningTotals
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
from tidegate.state.base import NumberedKeys
from tidegate.state.keygroups import key_groups_of_keys

Results = tuple[list[pl.Series], NumberedKeys]
"""Result columns and the keys of the rows."""


class AggregateRuntime(Runtime, OperatorRuntime):
    """Adds rows to the totals of their keys and emits the results."""

    def __init__(self, operator: AggregateOperator, slot: Slot) -> None:
        kinds = dict(operator.output)
        self._keys = list(operator.keys)
        self._each = operator.emit == "each"
        self._output = [name for name, _ in operator.output]
        self._running = RunningTotals(operator.functions)
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
            keys = parts[0][1][1] if len(parts) == 1 else self._number(frame)
            output = output[self._running.last_rows(keys.numbers, keys.count)]
        out.emit(output)

    def _number(self, frame: pl.DataFrame) -> NumberedKeys:
        return self._totals.number_keys([frame[key] for key in self._keys])

    def _run_all(self, batch: pl.DataFrame) -> Results:
        """Runs like `_run`. If a row raises, the batch is processed in parts, which update the state one by one. So a
        batch whose parts might be too large is rejected as a whole first (BatchTooLarge).
        """
        try:
            return self._run(batch)
        except TidegateError:
            raise
        except (Exception, PanicException) as error:
            if batch.height > 1:
                keys = self._number(batch)
                stored = Accumulators(*self._totals.get_columns(keys))
                if self._running.result_bytes_max(KeyedRows(batch, keys.numbers), stored) > BATCH_BYTES_MAX:
                    raise BatchTooLarge(
                        f"results of {batch.height} rows may have more than {BATCH_BYTES_MAX} bytes"
                    ) from error
            raise

    def _run(self, frame: pl.DataFrame) -> Results:
        """Returns result columns and the keys. Updates the state at the very end, all or nothing: an exception has no
        effect. Raises OverflowError, BatchTooLarge.
        """
        keys = self._number(frame)
        stored = Accumulators(*self._totals.get_columns(keys))
        if self._ttl is not None:
            return self._run_lives(frame, keys, stored, self._ttl), keys
        results, columns = self._running.add(KeyedRows(frame, keys.numbers), stored)
        self._totals.put_columns(keys, columns)
        return results, keys

    def _run_lives(self, frame: pl.DataFrame, keys: NumberedKeys, stored: Accumulators, ttl: Ttl) -> list[pl.Series]:
        """Adds the rows to the lives of their keys, and keeps the last one of each key."""
        *columns, expiry = stored.columns
        ends, exist = expiry.to_list(), stored.exist.to_list()
        endless = {key for key, (there, end) in enumerate(zip(exist, ends, strict=True)) if there and end is None}
        moments = self._moments(frame, ttl)
        lives, lasts = split_lives(keys.numbers.to_list(), *moments, ends, ttl.time_ms, endless=endless)
        more = max(lasts, default=-1) + 1 - keys.count
        begun = Accumulators(
            stored.exist.extend_constant(value=False, n=more),
            [column.extend_constant(value=None, n=more) for column in columns],
        )
        rows = KeyedRows(frame, pl.Series(lives, dtype=pl.UInt32))
        results, columns = self._running.add(rows, begun)
        kept = pl.Series(lasts, dtype=pl.UInt32)
        self._totals.put_columns(keys, [*(column[kept] for column in columns), pl.Series(ends, dtype=pl.Int64)])
        self._new += exist.count(False)
        return results

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


def _failure(row: int, error: BaseException) -> RecordFailure:
    if isinstance(error, OverflowError):
        return RecordFailure(row, FailureKind.ARITHMETIC_OVERFLOW, first_line(error))
    return internal_failure(row, error)


def _without(frame: pl.DataFrame, rows: Sequence[int]) -> pl.DataFrame:
    left_out = set(rows)
    return frame[[row for row in range(frame.height) if row not in left_out]]
