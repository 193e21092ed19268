"""The results of a join: frames with the columns of both sides, the condition, and the columns of the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from tidegate.datatypes import DataType
from tidegate.expressions.compiled import compile_predicate, compile_projection
from tidegate.expressions.parse import qualified_name
from tidegate.formats.columns import TIMESTAMP, make_column, polars_type
from tidegate.formats.sizes import cut_frame
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.join import AT, BOUNDS
from tidegate.operators.kinds.join.running.side import Kept, Side
from tidegate.operators.rowwise import apply_to_rows

if TYPE_CHECKING:
    from tidegate.operators.kinds.join import JoinOperator
    from tidegate.operators.runtime import Out
    from tidegate.operators.spec import Columns, Slot

PAIR: Final = "__tidegate_pair"
"""The column with the index of a pair, from which one sees what the condition has left."""


class Results:
    """Makes and emits the rows of one subtask."""

    def __init__(self, operator: JoinOperator, sides: Sequence[Side], slot: Slot) -> None:
        self._sides = sides
        self._names: list[Columns] = [
            tuple((qualified_name(alias, name), kind) for name, kind in columns)
            for alias, columns in zip(operator.aliases, operator.sides, strict=True)
        ]
        self._matching = operator.matching
        self._where = None if operator.where is None else compile_predicate(operator.where)
        output = dict(operator.pruned_columns())
        self._select = compile_projection([one for one in operator.columns if one[0] in output])
        self._rows_max = slot.rows_max
        self._bytes_max = slot.bytes_max

    def pair(self, port: int, batch: pl.DataFrame, places: list[int], partners: Sequence[Kept]) -> pl.DataFrame:
        """Returns rows of a batch of one side, each with a partner of the other."""
        own = batch[places]
        other = pl.Series(AT, [row[0] for row in partners], dtype=pl.Int64)
        ats = pl.select(pl.max_horizontal(own[AT], other)).to_series()
        return self._frame(
            port, [own[name] for name, _ in self._sides[port].columns], self._kept(1 - port, partners), ats
        )

    def alone(self, port: int, rows: pl.DataFrame) -> pl.DataFrame:
        """Returns rows of one side without partners."""
        return self._frame(port, [rows[name] for name, _ in self._sides[port].columns], None, rows[AT])

    def alone_kept(self, port: int, rows: Sequence[Kept]) -> pl.DataFrame:
        """Does what `alone` does, for rows from the state."""
        ats = pl.Series(AT, [row[0] for row in rows], dtype=pl.Int64)
        return self._frame(port, self._kept(port, rows), None, ats)

    def filter(self, frame: pl.DataFrame, out: Out) -> tuple[pl.DataFrame, Sequence[int]]:
        """Returns the pairs for which the condition is true, and their indexes. Reports those for which it fails."""
        if self._where is None:
            return frame, range(frame.height)
        numbered = frame.with_row_index(PAIR)
        kept, failures = apply_to_rows(numbered, self._where.apply)
        if failures:
            out.fail(frame, failures, None)
        indexes = kept.drop_in_place(PAIR).to_list()
        return kept, indexes

    def emit(self, frame: pl.DataFrame, out: Out) -> None:
        """Emits the result of each row, in parts."""
        if not frame.height:
            return
        result, failures = apply_to_rows(frame, lambda part: self._select.apply(part, [TIME, BEHIND]))
        if failures:
            out.fail(frame, failures, None)
        for part in cut_frame(result, self._rows_max, self._bytes_max):
            out.emit(part)

    def _frame(self, port: int, own: list[pl.Series], other: list[pl.Series] | None, ats: pl.Series) -> pl.DataFrame:
        columns = [one.alias(name) for one, (name, _) in zip(own, self._names[port], strict=True)]
        if other is None:
            columns += [_nulls(name, kind, len(ats)) for name, kind in self._names[1 - port]]
        else:
            columns += [one.alias(name) for one, (name, _) in zip(other, self._names[1 - port], strict=True)]
        matching = self._matching
        if matching.size_ms:
            bounds = (ats, ats + matching.size_ms)
            columns += [_timestamps(name, one) for (name, _), one in zip(BOUNDS, bounds, strict=True)]
        columns += [(ats + matching.shift_ms).alias(TIME), _NOT_BEHIND.new_from_index(0, len(ats))]
        return pl.DataFrame(columns)

    def _kept(self, port: int, rows: Sequence[Kept]) -> list[pl.Series]:
        side = self._sides[port]
        values: Sequence[Sequence[Any]] = list(zip(*rows, strict=True))[1:] if rows else [()] * len(side.columns)
        return [make_column(name, kind, one) for (name, kind), one in zip(side.columns, values, strict=True)]


_NOT_BEHIND: Final = pl.Series(BEHIND, [0], dtype=pl.Int64)


def _nulls(name: str, kind: DataType, count: int) -> pl.Series:
    return pl.Series(name, [None], dtype=polars_type(kind)).new_from_index(0, count)


def _timestamps(name: str, instants_ms: pl.Series) -> pl.Series:
    return instants_ms.cast(pl.Datetime("ms", "UTC")).cast(TIMESTAMP).alias(name)
