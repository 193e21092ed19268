"""The contract of an aggregate function: what it keeps of a group of rows, and how that moves and becomes a result.

An *accumulator* is a tuple of plain values, one per field, as a state keeps it: dates are days, timestamps microseconds
since 1970, arrays tuples. It is never changed in place.

An aggregate needs `fields`, `add` and `result`, which is enough for running totals. With `merge` it works in windows
and sessions, with `retract` over changes. Everything else has a default, which families override for speed: `run` moves
the totals of a batch, and `from_rows`, `from_parts` and `pack` reduce a frame with Polars.

The plan declares states by the fields, so no module beside this one imports Polars at its top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from tidegate.datatypes import DataType
from tidegate.expressions.expression import AggregateCall, ColumnReference

if TYPE_CHECKING:
    import polars as pl

    from tidegate.state.base import KeyedState
    from tidegate.state.declaration import StateDeclaration, StateShape
    from tidegate.state.order import Row

Value = tuple[Any, ...]
"""An accumulator."""

Numbers = Sequence[int]
"""The number of each row's key in the batch."""

TIME: Final = "__tidegate_time"
"""The column of event times, ms since 1970."""


class AggregateUse(Enum):
    """What the results of an aggregate are for: what an accumulator has to be able to do."""

    RUNNING = auto()
    """Rows are added in order of arrival, and there is a result after each."""
    WINDOW = auto()
    """Rows are added in any order, and accumulators are merged in any order, with the same results to the last bit."""
    CHANGES = auto()
    """Rows are added and retracted."""


class AggregateField(NamedTuple):
    """A part of an accumulator: a field of the state, and a column of partial results."""

    suffix: str
    """Its name is that of the aggregate, a dot and this."""
    type: DataType
    nullable: bool
    zero: Any = None
    """The value without rows: merged with any other it leaves that as it is."""
    optional: bool = False
    """Whether rows that a state is made of may lack it; it has the zero then."""


class Reduction(NamedTuple):
    """How a frame is reduced. All names begin with the aggregate's, then a dot."""

    columns: list[pl.Series]
    """To be added to the frame before."""
    expressions: list[pl.Expr]
    """For `group_by(...).agg(...)`. Of rows they read added columns only: one may be called like an argument."""

    def joined(self, other: Reduction) -> Reduction:
        """With those of another one."""
        return Reduction([*self.columns, *other.columns], [*self.expressions, *other.expressions])

    def counting(self, values: pl.Series, name: str) -> Reduction:
        """With how many values there are, as `name`."""
        import polars as pl

        count = pl.col(name).count().cast(pl.Int64)
        return Reduction([*self.columns, values.alias(name)], [*self.expressions, count])

    def adding(self, name: str) -> Reduction:
        """With the sum of a column of partial results."""
        import polars as pl

        return Reduction(self.columns, [*self.expressions, pl.col(name).sum()])


Make = Callable[[str, AggregateCall, AggregateUse], "Aggregate"]
"""Makes an aggregate: the name of its result, the call over plain columns, and what it is for."""

Functions = Mapping[str, Mapping[AggregateUse, Make]]
"""What a family has, by the name of the function and by use."""


class AggregateTooLarge(Exception):
    """A group has more values than an aggregate keeps."""


class Aggregate:
    """One aggregate function of a step, over plain columns. `name` is that of its result."""

    fields: Sequence[AggregateField]
    takes_null = False
    """Whether `add` gets rows whose argument is NULL."""
    picks_value: ClassVar[bool] = False
    """Whether the result is one of the values: it says as much of results that are given again and again."""
    keeps_values: ClassVar[bool] = False
    """Whether the accumulator grows with the group."""
    begins_late: ClassVar[bool] = True
    """Whether it may be added to a step that has totals already; those have the zero then."""
    encoding = ""
    """How values are kept, where the types of the fields do not say it: it is in the headers of state files."""

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        """`use` is one of those that the registry names the class for."""
        self.name = name
        self.call = call
        self.use = use
        self.arguments: Sequence[str] = [one.name for one in call.arguments if isinstance(one, ColumnReference)]
        """The columns whose values `add` gets: the value itself of a single one, else a tuple."""

    # -- what an aggregate is ------------------------------------------------------------------------------------------

    @property
    def zero(self) -> Value:
        """The accumulator without rows."""
        return tuple(field.zero for field in self.fields)

    def add(self, accumulator: Value, value: Any) -> Value:
        """Adds a row. The value is not NULL unless `takes_null`."""
        raise NotImplementedError

    def merge(self, left: Value, right: Value) -> Value:
        """Combines the accumulators of two groups of rows. Of windows: associative and commutative."""
        raise NotImplementedError

    def result(self, accumulator: Value) -> Any:
        """Derives the result, a plain value. Raises OverflowError, AggregateTooLarge where there is none."""
        raise NotImplementedError

    def retract(self, accumulator: Value, value: Any) -> Value | None:
        """Removes a row that was added; None when the accumulator shows that it was not. Of changes only."""
        raise NotImplementedError

    # -- a batch of running totals -------------------------------------------------------------------------------------

    def read(self, rows: pl.DataFrame) -> list[Any]:
        """The values of rows as `add` and `run` get them, None for NULL."""
        from tidegate.formats.columns import plain_values

        if not self.arguments:
            return [None] * rows.height
        columns = [plain_values(rows[name]) for name in self.arguments]
        if len(columns) == 1:
            return columns[0]
        return [None if row[0] is None and not self.takes_null else row for row in zip(*columns, strict=True)]

    def run(self, numbers: Numbers, values: Sequence[Any], columns: list[list[Any]]) -> list[Any]:
        """Adds rows in order; the results after each. `columns` are the accumulators by field, which are moved."""
        accumulators = list(zip(*columns, strict=True))
        found = self.results(accumulators)
        results: list[Any] = []
        for number, value in zip(numbers, values, strict=True):
            if value is not None or self.takes_null:
                accumulators[number] = accumulator = self.add(accumulators[number], value)
                found[number] = self.result(accumulator)
            results.append(found[number])
        for column, moved in zip(columns, zip(*accumulators, strict=True), strict=False):  # none without keys
            column[:] = moved
        return results

    def results(self, accumulators: Sequence[Value]) -> list[Any]:
        """The result of each accumulator. Raises as `result`."""
        return list(map(self.result, accumulators))

    # -- frames, of windows --------------------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """The names of the fields in partial results."""
        return [f"{self.name}.{field.suffix}" for field in self.fields]

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """How rows become partial results."""
        import polars as pl

        names = [f"{self.name}.argument{place}" for place in range(len(self.arguments))]
        added = [rows[argument].alias(name) for name, argument in zip(names, self.arguments, strict=True)]
        counted = pl.lit(1, pl.UInt8).alias(f"{self.name}.rows")
        return Reduction(added, [*(pl.col(name).implode() for name in names), counted])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:  # noqa: ARG002  # whatever they are
        """How partial results become fewer."""
        import polars as pl

        return Reduction([], [pl.col(column).implode() for column in self.columns])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """The columns of the fields, of what the expressions of either have given."""
        if f"{self.name}.rows" in grouped.columns:
            names = [f"{self.name}.argument{place}" for place in range(len(self.arguments))]
            accumulators = [reduce(self.add, self._added(group), self.zero) for group in _groups_of(grouped, names)]
        else:
            accumulators = [reduce(self.merge, zip(*group, strict=True)) for group in _groups_of(grouped, self.columns)]
        return derive_columns(self, accumulators)

    def _added(self, group: Sequence[Sequence[Any]]) -> Iterable[Any]:
        rows = group[0] if len(group) == 1 else zip(*group, strict=True)
        first = group[0]
        return rows if self.takes_null else (row for row, value in zip(rows, first, strict=True) if value is not None)

    # -- of changes, where values are kept in a state of their own -----------------------------------------------------

    def declare_values(self, groups: StateShape) -> StateDeclaration | None:  # noqa: ARG002  # most need none
        """The state for the values of all groups, where those of a group have the shape `groups`; None without one."""
        return None

    def open_values(self, values: KeyedState[Any]) -> None:
        """Gives it the state that it has declared."""

    def begin(self, values: Sequence[Any], numbers: Numbers, keys: Sequence[Row]) -> Sequence[Any]:  # noqa: ARG002  # most need the values alone
        """Begins a batch: the values as `add` and `retract` get them. `keys` are those that `numbers` count."""
        return values

    def finish(self, accumulators: Sequence[Value], keys: Sequence[Row]) -> Sequence[Value]:  # noqa: ARG002  # all is in them
        """Ends a batch: the accumulators of its keys as the state keeps them, now that all rows are in them."""
        return accumulators


def _groups_of(grouped: pl.DataFrame, names: Sequence[str]) -> Iterable[Sequence[Sequence[Any]]]:
    from tidegate.formats.columns import plain_values

    return zip(*(plain_values(grouped[name]) for name in names), strict=True)


def argument_type(call: AggregateCall) -> DataType:
    """The type of the only argument."""
    assert call.argument is not None
    return call.argument.type


def derive_columns(aggregate: Aggregate, accumulators: Iterable[Value]) -> list[pl.Series]:
    """Accumulators as columns of partial results."""
    from tidegate.formats.columns import make_column

    fields = aggregate.fields
    columns = list(zip(*accumulators, strict=True)) or [()] * len(fields)
    named = zip(aggregate.columns, fields, columns, strict=True)
    return [make_column(name, field.type, values) for name, field, values in named]


def derive_accumulators(aggregate: Aggregate, frame: pl.DataFrame) -> list[Value]:
    """The accumulators of partial results, one per row."""
    from tidegate.formats.columns import plain_values

    return list(zip(*(plain_values(frame[column]) for column in aggregate.columns), strict=True))


def blank(column: pl.Series, where: pl.Series) -> pl.Series:
    """The column with NULL in these rows."""
    import polars as pl

    return column.zip_with(~where, pl.Series([None], dtype=column.dtype)) if where.any() else column
