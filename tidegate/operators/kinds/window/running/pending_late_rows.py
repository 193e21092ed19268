"""Whole rows of sessions that wait until it is known if they are late, for the output of late rows.

They are stored as Arrow IPC with the system columns, so that adding or removing an input column does not change the
state's shape.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import polars as pl

from tidegate.datatypes import RESERVED, is_reserved
from tidegate.formats.arrow import decode_frame, encode_frame
from tidegate.formats.columns import plain_values, polars_type
from tidegate.operators.kinds.window.running.partial import AT
from tidegate.operators.kinds.window.settings import LATE_ROWS
from tidegate.operators.late import columns_read
from tidegate.operators.spec import LATE, render_columns
from tidegate.state.errors import StateUnreadable

if TYPE_CHECKING:
    from tidegate.operators.kinds.window import WindowOperator
    from tidegate.state.order import Row
    from tidegate.state.time_ordered import TimeOrdered

_TIME: Final = "__tidegate_time"


class WaitingRows:
    """Whole rows by the instant before which all was closed for them, and by key, as in the state `pending_late`."""

    def __init__(self, operator: WindowOperator, state: TimeOrdered) -> None:
        self._name = operator.name
        late = operator.pruned_columns(LATE)
        read = columns_read(late)
        self._columns = [(name, kind) for name, kind in late if name in read]
        self._state = state

    def add(self, rows: pl.DataFrame, by: Sequence[str]) -> None:
        """Adds rows with their own columns and those of `by`, which are the key of the state."""
        places: defaultdict[Row, list[int]] = defaultdict(list)
        for place, row in enumerate(zip(*(plain_values(rows[name]) for name in by), strict=True)):
            places[row].append(place)
        frame = rows.drop(AT).select(*(name for name, _ in self._columns), pl.col(f"^{RESERVED}.*$"))
        new = {row: encode_frame(frame[chosen]) for row, chosen in places.items()}
        found = self._state.get_many(new)
        chunks = [((*(() if old is None else old[0]), data),) for old, data in zip(found, new.values(), strict=True)]
        self._state.put_many(new, chunks)

    def take(self, rows: Sequence[Row], late: Mapping[Row, set[int]]) -> Iterator[tuple[pl.DataFrame, pl.Series]]:
        """Removes the rows of these places. Yields the late ones, selected by place and event time, with the instant
        before which everything was closed for them.

        Raises StateUnreadable for rows that cannot be converted to the current columns.
        """
        if not len(self._state):
            return
        for row, value in zip(rows, self._state.get_many(rows), strict=True):
            if value is None or not late.get(row) or not self._columns:
                continue
            for data in value[0]:
                frame = self._fit(decode_frame(data))
                frame = frame.filter(pl.col(_TIME).is_in(list(late[row])))
                if frame.height:
                    yield frame, pl.repeat(row[0], frame.height, dtype=pl.Int64, eager=True)
        self._state.delete_many(rows)

    def _fit(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Converts rows to the current columns. New columns are NULL; types change if nothing is lost. If one column is
        new and another is gone, it may have been renamed, and NULL would lose its values, so this raises
        StateUnreadable.
        """
        names = [name for name, _ in self._columns]
        new = [name for name in names if name not in frame.columns]
        gone = [name for name in frame.columns if name not in names and not is_reserved(name)]
        if new and gone:
            remedy = f"keep {gone[0]} in the step until they have been emitted"
            raise self._unfit(frame, f"have no {new[0]}, and {gone[0]} is no longer a column of the step", remedy)
        fitted = []
        for name, kind in self._columns:
            wanted = polars_type(kind)
            if name not in frame.columns:
                fitted.append(pl.repeat(None, frame.height, dtype=wanted, eager=True).alias(name))
            elif (held := frame[name]).dtype != wanted:
                cast = _cast(held, wanted)
                if cast is None:
                    remedy = "start with the old definition, let it catch up, then change it"
                    raise self._unfit(frame, f"cannot have {name} as {kind}", remedy)
                fitted.append(cast)
        return frame.with_columns(fitted)

    def _unfit(self, frame: pl.DataFrame, reason: str, remedy: str) -> StateUnreadable:
        return StateUnreadable(
            f"{frame.height} rows of {self._name} that wait until their sessions are closed {reason} (they have "
            f"{render_columns(frame.schema.items())}): {remedy}",
            operator=self._name,
            state=LATE_ROWS,
        )


def _cast(column: pl.Series, wanted: pl.DataType) -> pl.Series | None:
    """Casts a column. Returns None if values would be lost."""
    try:
        cast = column.cast(wanted, strict=False)
        return cast if cast.cast(column.dtype, strict=False).equals(column) else None
    except pl.exceptions.PolarsError:
        return None
