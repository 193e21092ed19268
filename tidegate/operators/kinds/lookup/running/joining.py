"""The runtime of `lookup`: keeps the rows of the table, and joins each batch of the stream with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import polars as pl
from typing_extensions import override

from tidegate.expressions.bounds import BATCH_BYTES_MAX, GROWING
from tidegate.expressions.compiled import compile_projection
from tidegate.expressions.expression import columns_of
from tidegate.expressions.parse import qualified_name
from tidegate.formats.columns import make_column, polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import StateName
from tidegate.operators.kinds.lookup import STREAM, TABLE, LookupOperator
from tidegate.operators.kinds.lookup.missing import DROP, FAIL
from tidegate.operators.latest_rows.runtime import FIRST, LatestRows, RowChange, check_size, read_keys
from tidegate.operators.rowwise import apply_to_rows
from tidegate.operators.runtime import OperatorRuntime, OperatorState, Out, Runtime, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.snapshot import Value


class LookupRuntime(Runtime, OperatorRuntime):
    """The rows of the table for the keys of one subtask."""

    def __init__(self, operator: LookupOperator, slot: Slot) -> None:
        self._operator = operator
        self._projection = compile_projection(operator.pruned_expressions)
        self._grows = any(kind.kind in GROWING for _, kind in operator.held)
        kinds = [kind for _, kind in operator.keys]
        groups_of = partial(key_groups_of_keys, kinds=kinds, max_parallelism=slot.max_parallelism)
        self._opened = [slot.open_state(operator.name, one, groups_of) for one in operator.states(slot.max_parallelism)]
        self._state = self._opened[0]
        read = {column for _, one in operator.add for column in columns_of(one)}
        keys = zip(operator.key_columns[STREAM], operator.table_keys, strict=True)
        self._own_keys = [
            (column, own, kind)
            for column, (name, kind) in keys
            if (own := qualified_name(operator.table, name)) in read
        ]
        """For columns of the table's key that are read: the stream's column, the qualified name, and its type."""
        self._rows = LatestRows(self._state, operator.key_columns[TABLE], operator.held, operator.place, operator.ttl)

    @property
    @override
    def states(self) -> Mapping[StateName, OperatorState]:
        return {one.declaration.name: one for one in self._opened}

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        return {"table_rows": len(self._rows)}

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        """Raises BatchTooLarge: many rows of the stream may get one large row of the table."""
        if port == STREAM:
            self._join(batch, out)
            return
        self._apply(batch, out)

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._rows.advance(watermark_ms)
        out.watermark(watermark_ms)

    def _apply(self, batch: pl.DataFrame, out: Out) -> list[RowChange]:
        """Applies rows of the table."""
        changes, failures = self._rows.apply(batch)
        if failures:
            out.fail(batch, failures, TABLE)
        return changes

    def _join(self, batch: pl.DataFrame, out: Out) -> None:
        joined, found = self._with_table(batch)
        missing = self._operator.missing.word
        if missing in (DROP, FAIL) and not found.all():
            if missing == FAIL:
                out.fail(batch, [self._failure(row) for row in (~found).arg_true().to_list()])
            joined = joined.filter(found)
        self._emit(joined, out)

    def _emit(self, joined: pl.DataFrame, out: Out) -> None:
        """Emits rows with the columns that `add` computes."""
        made, failures = apply_to_rows(joined, self._project)
        if failures:
            out.fail(joined, failures)
        out.emit(made)

    def _with_table(self, batch: pl.DataFrame) -> tuple[pl.DataFrame, pl.Series]:
        """Returns the batch with the columns of the table, NULL without a row, and whether there is one."""
        operator = self._operator
        index: dict[Any, int] = {}
        numbers = [index.setdefault(key, len(index)) for key in read_keys(batch, operator.key_columns[STREAM])]
        stored: list[Value | None] = self._rows.get_many(index)
        columns = self._columns_of(stored)
        if self._grows and batch.height > 1:
            most = sum(column.estimated_size() for column in columns) * (batch.height - len(index) + 1)
            if most > BATCH_BYTES_MAX:
                check_size((stored[number] for number in numbers), BATCH_BYTES_MAX)
        places = pl.Series(numbers, dtype=pl.UInt32)
        found = pl.Series([value is not None for value in stored], dtype=pl.Boolean).gather(places)
        added = [column.gather(places) for column in columns]
        return batch.with_columns(*self._key_columns(batch, found), *added), found

    def _columns_of(self, stored: Sequence[Value | None]) -> list[pl.Series]:
        """Returns the columns of the table's rows, under their qualified names."""
        held = self._operator.held
        width = FIRST + len(held)
        none = (None,) * width
        columns = zip(*(none if value is None else value[:width] for value in stored), strict=True)
        values = [*columns][FIRST:] or [()] * len(held)
        names = (qualified_name(self._operator.table, name) for name, _ in held)
        return [make_column(name, kind, some) for name, (_, kind), some in zip(names, held, values, strict=True)]

    def _key_columns(self, batch: pl.DataFrame, found: pl.Series) -> list[pl.Series]:
        """Returns the key of the table's row as it is there: that of the stream may be of another type."""
        return [
            batch[column].cast(polars_type(kind)).set(~found, None).alias(name) for column, name, kind in self._own_keys
        ]

    def _project(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RecordFailure]]:
        return self._projection.apply(frame, system_columns(frame))

    def _failure(self, row: int) -> RecordFailure:
        operator = self._operator
        names = ", ".join(f"`{name}`" for name in operator.key_columns[STREAM])
        return RecordFailure(row, FailureKind.NO_TABLE_ROW, f"`{operator.table}` has no row for its {names}")
