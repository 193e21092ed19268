"""The runtime of `explode`. Imported only where operators run, because it imports Polars.

A batch may yield many times its rows, each with a copy of the other columns, so the output is measured before it is
created. A batch whose output would be too large is processed in parts. A single record whose output would be too large
is a bad record. Large results are emitted in pieces of the size that the vertex takes at a time.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Final

import polars as pl
from typing_extensions import override

from tidegate.expressions.bounds import BATCH_BYTES_MAX, FIXED_BYTES
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.formats.sizes import count_rows_within, size_of
from tidegate.operators.rowwise import apply_to_rows, without_failed
from tidegate.operators.runtime import BatchTooLarge, OperatorRuntime, Out, system_columns

if TYPE_CHECKING:
    from tidegate.operators.kinds.explode import ExplodeOperator
    from tidegate.operators.spec import Slot

RECORD_BYTES_MAX: Final = 256 << 20
"""The maximum size of all rows of one record."""
_MADE: Final = "__tidegate_made"
_POSITION: Final = "__tidegate_position"


class ExplodeRuntime(OperatorRuntime):
    """Splits records into rows. Emits at most `rows_max` rows and about `bytes_max` bytes at a time."""

    def __init__(self, operator: ExplodeOperator, slot: Slot) -> None:
        one = operator.explode
        self._column = one.column
        self._others = [name for name, _ in operator.others]
        self._outer = one.outer
        self._rows_max, self._bytes_max = slot.rows_max, slot.bytes_max
        self._output = [name for name, _ in operator.pruned_columns()]
        made = pl.col(_MADE)
        parts = [made] if len(one.made) == 1 else [made.struct.field("key"), made.struct.field("value")]
        new = dict(zip(one.made, parts, strict=True)) | {one.position: pl.col(_POSITION)}
        self._new = [new[name].alias(name) if name in new else pl.col(name) for name in self._output]
        self._positioned = one.position in self._output
        self._copied = [
            size for name, kind in operator.others if (size := size_of(pl.col(name), polars_type(kind))) is not None
        ]

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        """Raises BatchTooLarge."""
        counts = batch[self._column].list.len().fill_null(0)
        most = counts.max()
        at_most = (most if isinstance(most, int) else 0) * (batch.estimated_size() + FIXED_BYTES)
        failures = self._too_large(batch, counts) if at_most > BATCH_BYTES_MAX else []
        kept = without_failed(batch, failures) if failures else batch
        made, raising = apply_to_rows(kept, self._explode)
        if raising:
            out.fail(kept, raising)
        if failures:
            out.fail(batch, failures)
        while made.height:
            rows = min(made.height, self._rows_max, max(1, self._bytes_max // FIXED_BYTES))
            if at_most > self._bytes_max:
                rows = count_rows_within(made[:rows], self._bytes_max)
            out.emit(made[:rows])
            made = made[rows:]

    def _too_large(self, batch: pl.DataFrame, counts: pl.Series) -> list[RecordFailure]:
        """Returns the records whose rows are too large. Raises BatchTooLarge if only several together are too large."""
        system = system_columns(batch)
        fixed = FIXED_BYTES * (len(self._others) + len(system) + 1)
        carried = [size for name in system if (size := size_of(pl.col(name), batch.schema[name])) is not None]
        copied = reduce(add, [size.fill_null(0) for size in (*self._copied, *carried)], pl.lit(fixed, pl.Int64))
        sizes = batch.select((copied * counts.cast(pl.Int64)).alias("bytes"))["bytes"]
        if batch.height > 1 and int(sizes.sum()) > BATCH_BYTES_MAX:
            raise BatchTooLarge(f"the rows of {batch.height} records have more than {BATCH_BYTES_MAX} bytes")
        message = f"the rows of `{self._column}` have more than {RECORD_BYTES_MAX >> 20} MiB together"
        return [
            RecordFailure(int(row), FailureKind.RESULT_TOO_LARGE, message)
            for row in (sizes > RECORD_BYTES_MAX).arg_true()
        ]

    def _explode(self, frame: pl.DataFrame) -> tuple[pl.DataFrame, list[RecordFailure]]:
        """Returns the rows of all records, in order."""
        system = system_columns(frame)
        counts = pl.col(self._column).list.len().fill_null(0)
        made = pl.col(self._column)
        position = pl.int_ranges(0, counts, dtype=pl.Int32)
        if self._outer:  # treats NULL and empty alike, in both lists
            made, position = (pl.when(counts > 0).then(one) for one in (made, position))
        else:
            frame = frame.filter(counts > 0)
        lists = [made.alias(_MADE), *([position.alias(_POSITION)] if self._positioned else [])]
        long = frame.select(*self._others, *system, *lists).explode(
            _MADE, *([_POSITION] if self._positioned else []), empty_as_null=False, keep_nulls=True
        )
        return long.select(*self._new, *system), []
