"""The contract of an aggregate function: the accumulator of a group of rows, its updates, and its result.

An *accumulator* is a tuple of plain values, one per field, as a state keeps it: dates are days, timestamps are
microseconds since 1970, arrays are tuples. It is never changed in place.

An aggregate needs `fields`, `add` and `result`, which is enough for running totals. With `merge` it works in windows
and sessions, with `retract` over changes. Everything else has a default that families override for speed: `run` updates
the totals of a batch, and `from_rows`, `from_parts` and `pack` reduce a frame with Polars.

The plan declares states by the fields, so no module next to this one imports Polars at its top.
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

    from tidegate.native.running import TotalFunction
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
    """How the results of an aggregate are used, which determines what an accumulator must support."""

    RUNNING = auto()
    """Rows are added in order of arrival, with a result after each."""
    WINDOW = auto()
    """Rows are added and accumulators are merged in any order, with results that are identical to the last bit."""
    CHANGES = auto()
    """Rows are added and retracted."""


class AggregateField(NamedTuple):
    """A part of an accumulator: a field of the state, and a column of partial results."""

    suffix: str
    """The suffix of the field's name, after the aggregate's name and a dot."""
    type: DataType
    nullable: bool
    zero: Any = None
    """The value without rows. Merging it with any other value leaves that value unchanged."""
    optional: bool = False
    """True if stored values may lack the field; its value is then the zero."""


class Reduction(NamedTuple):
    """How to reduce a frame. All names begin with the aggregate's name and a dot."""

    columns: list[pl.Series]
    """Columns to add to the frame first."""
    expressions: list[pl.Expr]
    """For `group_by(...).agg(...)`. Over rows they read only added columns, since arguments may have the same names."""

    def joined(self, other: Reduction) -> Reduction:
        """Returns the reduction combined with another."""
        return Reduction([*self.columns, *other.columns], [*self.expressions, *other.expressions])

    def counting(self, values: pl.Series, name: str) -> Reduction:
        """Returns the reduction with the number of values added, as `name`."""
        import polars as pl

        count = pl.col(name).count().cast(pl.Int64)
        return Reduction([*self.columns, values.alias(name)], [*self.expressions, count])

    def adding(self, name: str) -> Reduction:
        """Returns the reduction with the sum of a column of partial results added."""
        import polars as pl

        return Reduction(self.columns, [*self.expressions, pl.col(name).sum()])


Make = Callable[[str, AggregateCall, AggregateUse], "Aggregate"]
"""Creates an aggregate from the name of its result, the call over plain columns, and the use."""

Functions = Mapping[str, Mapping[AggregateUse, Make]]
"""The aggregates of a family, by function name and by use."""


class AggregateTooLarge(Exception):
    """A group has more values than an aggregate keeps."""


class Aggregate:
    """One aggregate function of a step, over plain columns. `name` is that of its result."""

    fields: Sequence[AggregateField]
    takes_null = False
    """True if `add` receives rows whose argument is NULL."""
    picks_value: ClassVar[bool] = False
    """True if the result is one of the values. Repeated results then do not change it."""
    keeps_values: ClassVar[bool] = False
    """True if the accumulator grows with the group."""
    begins_late: ClassVar[bool] = True
    """True if it can be added to a step with existing totals, which then start from the zero."""
    native_function: TotalFunction | None = None
    """The function in C that does what `run` does, for values and accumulators of fixed-size types."""
    encoding = ""
    """How values are encoded if the field types do not determine it. It is part of the headers of state files."""

    def __init__(self, name: str, call: AggregateCall, use: AggregateUse) -> None:
        """`use` is one for which the registry lists the class."""
        self.name = name
        self.call = call
        self.use = use
        self.arguments: Sequence[str] = [one.name for one in call.arguments if isinstance(one, ColumnReference)]
        """The columns whose values `add` receives: the value itself if there is one column, otherwise a tuple."""

    # -- definition ----------------------------------------------------------------------------------------------------

    @property
    def zero(self) -> Value:
        """The accumulator without rows."""
        return tuple(field.zero for field in self.fields)

    def add(self, accumulator: Value, value: Any) -> Value:
        """Adds a row. The value is not NULL unless `takes_null`."""
        raise NotImplementedError

    def merge(self, left: Value, right: Value) -> Value:
        """Combines the accumulators of two groups of rows. For windows it must be associative and commutative."""
        raise NotImplementedError

    def result(self, accumulator: Value) -> Any:
        """Derives the result, a plain value. Raises OverflowError, AggregateTooLarge if there is none."""
        raise NotImplementedError

    def retract(self, accumulator: Value, value: Any) -> Value | None:
        """Removes a row that was added. Returns None if the accumulator shows that it was not. Only for changes."""
        raise NotImplementedError

    # -- a batch of running totals -------------------------------------------------------------------------------------

    def read(self, rows: pl.DataFrame) -> list[Any]:
        """Returns the values of rows as `add` and `run` receive them, None for NULL."""
        from tidegate.formats.columns import plain_values

        if not self.arguments:
            return [None] * rows.height
        columns = [plain_values(rows[name]) for name in self.arguments]
        if len(columns) == 1:
            return columns[0]
        return [None if row[0] is None and not self.takes_null else row for row in zip(*columns, strict=True)]

    def run(self, numbers: Numbers, values: Sequence[Any], columns: list[list[Any]]) -> list[Any]:
        """Adds rows in order. Returns the result after each. Updates `columns`, the accumulators by field."""
        accumulators = list(zip(*columns, strict=True))
        found = self.results(accumulators)
        results: list[Any] = []
        for number, value in zip(numbers, values, strict=True):
            if value is not None or self.takes_null:
                accumulators[number] = accumulator = self.add(accumulators[number], value)
                found[number] = self.result(accumulator)
            results.append(found[number])
        for column, moved in zip(columns, zip(*accumulators, strict=True), strict=False):  # empty without keys
            column[:] = moved
        return results

    def results(self, accumulators: Sequence[Value]) -> list[Any]:
        """Returns the result of each accumulator. Raises as `result` does."""
        return list(map(self.result, accumulators))

    # -- frames, for windows -------------------------------------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """The names of the fields in partial results."""
        return [f"{self.name}.{field.suffix}" for field in self.fields]

    def from_rows(self, rows: pl.DataFrame) -> Reduction:
        """Returns how rows become partial results."""
        import polars as pl

        names = [f"{self.name}.argument{place}" for place in range(len(self.arguments))]
        added = [rows[argument].alias(name) for name, argument in zip(names, self.arguments, strict=True)]
        counted = pl.lit(1, pl.UInt8).alias(f"{self.name}.rows")
        return Reduction(added, [*(pl.col(name).implode() for name in names), counted])

    def from_parts(self, parts: pl.DataFrame) -> Reduction:  # noqa: ARG002  # for overrides
        """Returns how partial results are reduced further."""
        import polars as pl

        return Reduction([], [pl.col(column).implode() for column in self.columns])

    def pack(self, grouped: pl.DataFrame) -> list[pl.Series]:
        """Returns the columns of the fields from the results of the expressions of either reduction."""
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

    # -- changes: values in a separate state ---------------------------------------------------------------------------

    def declare_values(self, groups: StateShape) -> StateDeclaration | None:  # noqa: ARG002  # for overrides
        """Returns the state for the values of all groups, or None. `groups` is the shape of the state of groups."""
        return None

    def open_values(self, values: KeyedState[Any]) -> None:
        """Receives the state that it has declared."""

    def begin(self, values: Sequence[Any], numbers: Numbers, keys: Sequence[Row]) -> Sequence[Any]:  # noqa: ARG002  # for overrides
        """Begins a batch. Returns the values as `add` and `retract` receive them. `numbers` are indexes of `keys`."""
        return values

    def finish(self, accumulators: Sequence[Value], keys: Sequence[Row]) -> Sequence[Value]:  # noqa: ARG002  # for overrides
        """Ends a batch. Returns the accumulators of its keys as the state keeps them, after all rows were added."""
        return accumulators


def _groups_of(grouped: pl.DataFrame, names: Sequence[str]) -> Iterable[Sequence[Sequence[Any]]]:
    from tidegate.formats.columns import plain_values

    return zip(*(plain_values(grouped[name]) for name in names), strict=True)


def argument_type(call: AggregateCall) -> DataType:
    """Returns the type of the only argument."""
    assert call.argument is not None
    return call.argument.type


def derive_columns(aggregate: Aggregate, accumulators: Iterable[Value]) -> list[pl.Series]:
    """Returns accumulators as columns of partial results."""
    from tidegate.formats.columns import make_column

    fields = aggregate.fields
    columns = list(zip(*accumulators, strict=True)) or [()] * len(fields)
    named = zip(aggregate.columns, fields, columns, strict=True)
    return [make_column(name, field.type, values) for name, field, values in named]


def derive_accumulators(aggregate: Aggregate, frame: pl.DataFrame) -> list[Value]:
    """Returns the accumulators of partial results, one per row."""
    from tidegate.formats.columns import plain_values

    return list(zip(*(plain_values(frame[column]) for column in aggregate.columns), strict=True))


def blank(column: pl.Series, where: pl.Series) -> pl.Series:
    """Returns the column with NULL in these rows."""
    import polars as pl

    return column.zip_with(~where, pl.Series([None], dtype=column.dtype)) if where.any() else column


class RowChoice(NamedTuple):
    """The rows to count. Aggregates with equal choices count the same rows."""

    condition: str
    """A boolean column that is true for the rows that count; empty: all rows."""
    known: str
    """A column that is not NULL in the rows that count; empty: all rows."""

    def derive_mask(self, rows: pl.DataFrame) -> pl.Series:
        """Returns for each row True if it counts. A condition that is NULL is not true."""
        masks = [rows[self.condition].fill_null(value=False)] if self.condition else []
        masks += [rows[self.known].is_not_null()] if self.known else []
        return masks[0] & masks[1] if len(masks) > 1 else masks[0]


def derive_choice(call: AggregateCall) -> RowChoice | None:
    """Returns the choice of rows that a call over plain columns counts; None: all rows."""
    if not call.is_filtered:
        return None
    return RowChoice(_name_of(call.condition), _name_of(call.argument) if call.ignore_nulls else "")


def _name_of(column: object) -> str:
    return column.name if isinstance(column, ColumnReference) else ""
