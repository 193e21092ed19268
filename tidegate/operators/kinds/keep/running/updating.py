"""The best rows of each key as an updating result: a row that gets a rank is emitted, with all rows that it moves down.

The newest row of a key and rank is the valid one. What is emitted for a row does not depend on batches.
"""

from __future__ import annotations

from typing import Any, Final

import polars as pl
from typing_extensions import override

from tidegate.operators.keyed.runtime import KeyedRuntime
from tidegate.operators.kinds.keep import RankingOperator
from tidegate.operators.kinds.keep.ranking import Ranking
from tidegate.operators.kinds.keep.running.frames import cut_rows, frame_of, rows_of
from tidegate.operators.runtime import OperatorRuntime, Out, system_columns
from tidegate.operators.spec import Slot
from tidegate.state.order import Row

EMITTED_AT_ONCE: Final = 5000


class UpdatingRuntime(KeyedRuntime[RankingOperator], OperatorRuntime):
    """Updates rankings and emits the ranks that change."""

    def __init__(self, operator: RankingOperator, slot: Slot) -> None:
        super().__init__(operator, slot)
        self._columns = operator.columns
        self._order = operator.order()
        self._rows_max, self._bytes_max = slot.rows_max, slot.bytes_max

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        keys = self.keys_of(batch)
        rankings = {
            key: Ranking(self._order, () if value is None else value[0], self.operator.places)
            for key, value in self.look_up(keys).items()
        }
        changed: dict[Any, None] = {}
        places: list[int] = []
        rows: list[Row] = []
        ranks: list[int] = []
        for place, (key, row) in enumerate(zip(keys, rows_of(batch, self._columns), strict=True)):
            ranking = rankings[key]
            first = self._order.first(row)
            if not ranking.admits(first):
                continue
            entered = ranking.enter(row, first)
            if entered is None:
                continue
            changed[key] = None
            moved = ranking.rows[entered:]
            rows += moved
            ranks += range(entered + 1, entered + 1 + len(moved))
            places += [place] * len(moved)
        self.state.put_many(changed, [(rankings[key].rows,) for key in changed])
        for part in cut_rows(rows, self._columns, min(EMITTED_AT_ONCE, self._rows_max), self._bytes_max):
            system = batch[system_columns(batch)][places[part]]
            out.emit(pl.concat([frame_of(rows[part], ranks[part], self._columns), system], how="horizontal"))
