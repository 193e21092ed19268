"""The algorithm of a join.

Each arriving row is compared with the rows of the other side that have arrived before it, and is then kept until no
partner can arrive any more. So a pair is found once, when its second row arrives, in whatever order that is. A row is
late once the watermark has passed it: its partners may be removed then. The watermark of its own partition, which the
row carries, decides this, so it does not depend on batches, on the other side and on restarts. The operator's own
watermark also decides; it is ahead of a partition's only if the partition was idle or its input had ended.

Rows that match nothing come out when the watermark has passed the end of their wait. Their event time is then in the
past, so the watermark that is passed on is held back by the longest wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from typing_extensions import override

from tidegate.datatypes import DataType
from tidegate.expressions.compiled import compile_predicate, compile_projection
from tidegate.expressions.parse import qualified_name
from tidegate.formats.columns import TIMESTAMP, make_column, polars_type
from tidegate.formats.failures import FailureKind, RecordFailure
from tidegate.ids import StateName
from tidegate.operators.event_time import BEHIND, TIME, DueResultsRuntime, EventClock
from tidegate.operators.kinds.join import AT, BOUNDS, BUCKET, BYTES_MAX, ROWS_MAX, SIDE, JoinOperator
from tidegate.operators.kinds.join.running.side import Kept, Pair, Side
from tidegate.operators.kinds.join.settings import JoinRows, Matching
from tidegate.operators.lateness import LateRows
from tidegate.operators.rowwise import apply_to_rows, without_failed
from tidegate.operators.runtime import END_OF_TIME, LOWEST, OperatorState, Out
from tidegate.operators.spec import LATE, Slot
from tidegate.operators.waiting import WAITING_ROWS, WAITING_UNTIL
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.operator_list import OperatorList

if TYPE_CHECKING:
    from tidegate.operators.spec import Columns

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
        self._slot = slot

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
        for part in self._slot.cut(result):
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


REASON: Final = "late: the rows that it would be joined with may have been removed"
FIRED_MAX: Final = 1_500
"""The number of rows that come out unmatched in one call. Rows of one position and key come out together."""
ALONE_AT_ONCE: Final = 500
"""The number of unmatched rows that are made at a time."""
REMOVED_AT_ONCE: Final = 2_000
"""The number of entries of a side to remove in one turn; more if more were written since the last one."""


class JoinRuntime(DueResultsRuntime):
    """Pairs rows of two sides."""

    def __init__(self, operator: JoinOperator, slot: Slot) -> None:
        self._operator = operator
        self._rows = operator.rows
        self._matching = operator.matching
        kinds = [kind for _, kind in operator.keys]
        self._clock = EventClock(operator.name, slot.own_groups)
        keyed = {
            one.name: slot.open_state(
                operator.name, one, lambda rows: key_groups_of_keys(rows, kinds, slot.max_parallelism)
            )
            for one in operator.states(slot.max_parallelism)
            if one.keyed
        }
        self._width = OperatorList[Any](operator.name, BUCKET)
        self._groups = slot.own_groups
        self._in_buckets = False
        """True once rows from a restore are in buckets of the present width."""
        lists = {one.declaration.name: one for one in (self._width, self._clock.state)}
        self.states: dict[StateName, OperatorState] = {**keyed, **lists}
        self._sides = [Side(operator, port, slot, keyed) for port in (0, 1)]
        self._results = Results(operator, self._sides, slot)
        late = operator.pruned_columns(LATE)
        self._late = [
            LateRows(self._clock, side.key_columns, slot.max_parallelism, late, REASON) for side in self._sides
        ]
        waits = [side.waits_ms for side in self._sides if side.tracked]
        self._held_back_ms = max((wait - operator.matching.shift_ms for wait in waits), default=0)
        self._at_once = FIRED_MAX
        """The number of positions and keys in one call, by how many rows they had last."""
        self._over_ms: int | None = None
        """The watermark that was passed on, while entries may be left that it makes useless."""

    @property
    @override
    def late_rows(self) -> int:  # type: ignore[override]  # a count that is kept elsewhere
        return sum(one.count for one in self._late)

    @property
    @override
    def gauges(self) -> Mapping[str, int]:
        left, right = self._sides
        found = {"left_rows": len(left), "right_rows": len(right)}
        if left.preserved or right.preserved:
            found[WAITING_ROWS] = left.waiting + right.waiting
            until = [one for side in self._sides if (one := side.waits_until_ms) is not None]
            found |= {WAITING_UNTIL: max(until)} if until else {}
        return found

    @override
    def before_snapshot(self) -> None:
        self._clock.before_snapshot()
        self._restore_buckets()

    def _restore_buckets(self) -> None:
        """Makes sure that rows are in buckets of the present width. Called before the first access to them."""
        if self._in_buckets:
            return
        self._in_buckets, width = True, ((self._matching.bucket_ms,),)
        if self._width.values and {*self._width.values} != {*width}:
            for side in self._sides:
                side.move_to_buckets(self._groups)
        if self._width.values != width:
            self._width.replace(width)

    # -- rows ----------------------------------------------------------------------------------------------------------

    @override
    def process(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        self._restore_buckets()
        batch = _at_newest(self._matching, batch)
        late = self._is_late(port, batch)
        if late.any():
            self._put_aside(port, batch.filter(late), out)
            batch = batch.filter(~late)
        if self._matching.every_ms < self._matching.size_ms:
            batch = _in_all_windows(self._matching, batch)
            batch = batch.filter(~self._is_late(port, batch))
        if self._sides[port].preserved:
            batch = self._without_null_keys(port, batch, out)
        if batch.height:
            self._join(port, batch, out)

    def _is_late(self, port: int, batch: pl.DataFrame) -> pl.Series:
        last = batch[AT] + self._matching.shift_ms
        by_partition = last < batch[TIME] + batch[BEHIND]
        return by_partition | self._clock.closed(last, lambda: self._late[port].groups_of(batch))

    def _put_aside(self, port: int, late: pl.DataFrame, out: Out) -> None:
        """Counts late rows, and emits them with their side as a struct."""
        sides = self._operator.aliases
        wanted = dict(self._operator.pruned_columns(LATE))
        added = [pl.lit(sides[port]).alias(SIDE)] if SIDE in wanted else []
        for of, alias in enumerate(sides):
            kind = wanted.get(alias)
            if kind is not None:
                fields = [name for name, _ in kind.fields]
                column = pl.struct(fields) if of == port else pl.lit(None, polars_type(kind))
                added.append(column.alias(alias))
        every = pl.repeat(True, late.height, eager=True)
        self._late[port].put_aside_where(every, late.drop(AT).with_columns(added), out)

    def _without_null_keys(self, port: int, batch: pl.DataFrame, out: Out) -> pl.DataFrame:
        """Emits rows with a NULL key, which match nothing. Returns the others."""
        columns = self._sides[port].key_columns
        if not any(batch[name].null_count() for name in columns):
            return batch
        null = pl.any_horizontal(pl.col(name).is_null() for name in columns)
        self._results.emit(self._results.alone(port, batch.filter(null)), out)
        return batch.filter(~null)

    def _join(self, port: int, batch: pl.DataFrame, out: Out) -> None:
        side, other = self._sides[port], self._sides[1 - port]
        arriving = side.read(batch)
        excess = side.find_excess(arriving)
        if excess:
            several = self._matching.every_ms < self._matching.size_ms  # the row may be in other windows
            batch = _without_excess(batch, excess, out, None if several else port)
            if not batch.height:
                return
            arriving = side.read(batch)
        pairs, matched = other.find(batch, arriving), set[int]()
        for some in pairs:
            matched |= self._match(port, batch, some, matched, out)
        side.add(batch, arriving, matched)

    def _match(self, port: int, batch: pl.DataFrame, pairs: list[Pair], before: set[int], out: Out) -> set[int]:
        """Emits what follows from pairs. Returns the places of the rows that have matched, if that matters.

        `before` are those of earlier pairs.
        """
        results, side, other = self._results, self._sides[port], self._sides[1 - port]
        if self._rows.pairs or self._operator.where is not None:
            frame = results.pair(port, batch, [place for place, _, _ in pairs], [row for _, _, row in pairs])
            frame, kept = results.filter(frame, out)
            pairs = pairs if len(kept) == len(pairs) else [pairs[index] for index in kept]
            if self._rows.pairs:
                results.emit(frame, out)
        first = other.match(pairs) if other.tracked else []
        matched = {place for place, _, _ in pairs} if side.tracked else set()
        if self._rows is JoinRows.SEMI:
            left = results.alone(0, batch[sorted(matched - before)]) if port == 0 else results.alone_kept(0, first)
            results.emit(left, out)
        return matched

    # -- time ----------------------------------------------------------------------------------------------------------

    @override
    def on_watermark(self, watermark_ms: int, out: Out) -> None:
        self._restore_buckets()
        super().on_watermark(watermark_ms, out)

    @override
    def poll(self, rows_max: int, out: Out) -> bool:
        if super().poll(rows_max, out):
            return True
        if self._over_ms is None:
            return False
        more = [side.remove(self._over_ms, REMOVED_AT_ONCE) for side in self._sides]
        if not any(more):
            self._over_ms = None
        return any(more)

    @override
    def emit_due(self, watermark_ms: int, rows_max: int, out: Out) -> bool:
        limit = min(rows_max, self._at_once)
        for port, side in enumerate(self._sides):
            taken, rows = side.take_unmatched(watermark_ms, limit) if side.preserved else ([], [])
            if taken and self._clock.ending:
                self._clock.fired([row[0] + side.waits_ms for row in taken], side.groups_of(taken))
            for start in range(0, len(rows), ALONE_AT_ONCE):
                self._results.emit(self._results.alone_kept(port, rows[start : start + ALONE_AT_ONCE]), out)
            if rows:
                self._at_once = max(1, min(FIRED_MAX, 2 * self._at_once, FIRED_MAX * len(taken) // len(rows)))
            limit -= len(taken)
            if limit <= 0:
                return True
        if watermark_ms != END_OF_TIME:  # entries stay after it, because another start may bring more rows
            self._over_ms = watermark_ms
        return False

    @override
    def passed_on(self, watermark_ms: int) -> int:
        return watermark_ms if watermark_ms == END_OF_TIME else max(LOWEST, watermark_ms - self._held_back_ms)


def _at_newest(matching: Matching, batch: pl.DataFrame) -> pl.DataFrame:
    """Adds the position of each row; that of its newest window, if it is in several."""
    ats = batch[TIME]
    if matching.size_ms:
        ats = (ats - matching.offset_ms) // matching.every_ms * matching.every_ms + matching.offset_ms
    return batch.with_columns(ats.alias(AT))


def _in_all_windows(matching: Matching, batch: pl.DataFrame) -> pl.DataFrame:
    """Repeats each row for each of its windows, given the newest one."""
    count = -(-matching.size_ms // matching.every_ms)
    repeated = pl.concat(batch.with_columns(pl.col(AT) - before * matching.every_ms) for before in range(count))
    return repeated.filter(pl.col(AT) + matching.size_ms > pl.col(TIME))


def _without_excess(batch: pl.DataFrame, excess: Sequence[int], out: Out, port: int | None) -> pl.DataFrame:
    """Reports rows beyond the limits, and returns the others."""
    text = f"a key has more than {ROWS_MAX:,} rows or {BYTES_MAX >> 20} MiB on one side within a time bucket"
    failures = [RecordFailure(place, FailureKind.TOO_MANY_ROWS, text) for place in excess]
    out.fail(batch.drop(AT), failures, port)
    return without_failed(batch, failures)
