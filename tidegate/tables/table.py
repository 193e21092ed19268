"""One state of one step as a table: typed columns, and frames of its rows by key group.

The columns are the key columns, then what is stored per key: value fields by name and type, results of aggregates
instead of their accumulators where these determine them, the time at which the entry expires, and the key group. Nested
values are arrays, structs and maps as in the pipeline. Lists have the subtask instead of the key group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, NamedTuple

import msgspec
import polars as pl

from tidegate.datatypes import BIGINT, DOUBLE, INT, MAX_PRECISION, TIMESTAMP, DataType, decimal_of, units_of
from tidegate.expressions.decimal_types import derive_average_type, divide_average
from tidegate.formats.columns import make_column, plain_values, polars_type
from tidegate.formats.kinds.json.writer import json_objects
from tidegate.operators.aggregates.counting import COUNT
from tidegate.operators.aggregates.exact import EXACT_SUM, total_of
from tidegate.operators.aggregates.sums import INTEGER_SUM, average_compensated
from tidegate.state.declaration import StateField, StateShape
from tidegate.state.snapshot import Entry
from tidegate.tables.files import GroupEntries, StateFiles, read_groups
from tidegate.tables.source import StateSnapshot

# -- results of aggregates ---------------------------------------------------------------------------------------------
# | parts of the accumulator | result |
# | --- | --- |
# | `count`; `sum`; `min`; `max`; `first`; `last`; `bool_and`; `bool_or` | itself |
# | `first`, `seen` (with FILTER or IGNORE NULLS) | the first value |
# | `sum`, `count` (decimals, of running totals) | the average |
# | `low`, `carry` (whole numbers, of windows) | the sum; NULL where it exceeds the range of bigint |
# | `sum`, `error`, `rest` (doubles, of running totals), with `count` or without | the average, or the sum |
# | `units`, `fraction`, `fine`, `rest` (doubles, of windows), with `count` or without | the average, or the sum |
# | `by`, `value` | the value, of `first`, `last`, `min_by` or `max_by` |
#
# All other accumulators are shown as they are. Those of `stddev_samp` and `stddev_pop` look the same, and the scale of
# a sum of decimals in windows is not stored in the state.

_ITSELF: Final = frozenset({"count", "sum", "min", "max", "first", "last", "bool_and", "bool_or"})
_INTEGERS: Final = tuple(field.suffix for field in INTEGER_SUM)
_DOUBLES: Final = tuple(field.suffix for field in EXACT_SUM)
_COMPENSATED: Final = ("sum", "error", "rest")
_SUM_DIGITS: Final = 10
"""A sum of decimals has this many more digits than its values, up to the maximum precision."""


class AggregateResult(NamedTuple):
    """The result that can be derived for an aggregate."""

    function: str
    """The function, as far as the accumulator reveals it."""
    type: DataType
    compute: Callable[[pl.DataFrame], pl.Series]
    """Computes it from a frame with the accumulators, whose columns are named like the parts in the state."""


def derive_result(name: str, parts: Sequence[StateField]) -> AggregateResult | None:
    """Derives the result of the aggregate `name` whose accumulator has these parts; None if it cannot be determined."""
    suffixes = tuple(part.name.removeprefix(f"{name}.") for part in parts)
    first = parts[0]
    if len(parts) == 1 and suffixes[0] in _ITSELF:
        return AggregateResult(suffixes[0], first.type, lambda frame: frame[first.name].alias(name))
    if suffixes == ("first", "seen"):
        return AggregateResult("first", first.type, lambda frame: frame[first.name].alias(name))
    if suffixes == ("sum", "count"):
        return _average(name, first)
    if suffixes == _COMPENSATED:
        return AggregateResult("sum", DOUBLE, lambda frame: frame[first.name].alias(name))
    if suffixes == (*_COMPENSATED, COUNT.suffix):
        return AggregateResult(
            "avg", DOUBLE, lambda frame: _compensated_average(name, [part.name for part in parts], frame)
        )
    if suffixes == _INTEGERS:
        return AggregateResult("sum", BIGINT, lambda frame: _integer_sum(name, frame))
    if suffixes in (_DOUBLES, (*_DOUBLES, COUNT.suffix)):
        return _double(name, [part.name for part in parts])
    if suffixes == ("by", "value"):
        return AggregateResult("value", parts[1].type, lambda frame: frame[f"{name}.value"].alias(name))
    return None


def _average(name: str, total: StateField) -> AggregateResult | None:
    count = f"{name}.count"
    if total.type.kind != "decimal" or total.type.precision >= MAX_PRECISION:
        return None  # whether its values have 38 digits or fewer cannot be determined
    scale = total.type.scale
    kind = derive_average_type(decimal_of(total.type.precision - _SUM_DIGITS, scale))

    def compute(frame: pl.DataFrame) -> pl.Series:
        pairs = zip(frame[total.name], frame[count], strict=True)
        found = [None if one is None else divide_average(units_of(one, scale), scale, n, kind) for one, n in pairs]
        return make_column(name, kind, found)

    return AggregateResult("avg", kind, compute)


def _compensated_average(name: str, columns: Sequence[str], frame: pl.DataFrame) -> pl.Series:
    rows = zip(*(frame[column] for column in columns), strict=True)
    return make_column(name, DOUBLE, [average_compensated(*row) for row in rows])


def _integer_sum(name: str, frame: pl.DataFrame) -> pl.Series:
    low, carry = (pl.col(f"{name}.{part}") for part in _INTEGERS)
    return frame.select(pl.when(carry == 0).then(low).alias(name)).to_series()


def _double(name: str, columns: Sequence[str]) -> AggregateResult:
    average = len(columns) > len(_DOUBLES)

    def compute(frame: pl.DataFrame) -> pl.Series:
        counts = frame[columns[-1]] if average else [1] * frame.height
        sums = zip(*(plain_values(frame[column]) for column in columns[: len(_DOUBLES)]), strict=True)
        found = [
            None if total[0] is None else total_of(total).divided(count)
            for total, count in zip(sums, counts, strict=True)
        ]
        return make_column(name, DOUBLE, found)

    return AggregateResult("avg" if average else "sum", DOUBLE, compute)


KEY_GROUP: Final = "__tidegate_key_group"
SUBTASK: Final = "__tidegate_subtask"
EXPIRES: Final = "__tidegate_expires"
"""System columns; the names of all system columns have this prefix."""
ROWS_MAX: Final = 16_384
"""Maximum number of rows of a frame; a key group may have more."""
_US_PER_MS: Final = 1000


class Role(StrEnum):
    """The purpose of a column."""

    KEY = "key"
    VALUE = "value"
    RESULT = "result"
    """Result of an aggregate, derived from its accumulator."""
    ACCUMULATOR = "accumulator"
    ENGINE = "engine"


class TableColumn(msgspec.Struct, frozen=True):
    """A column of a table."""

    name: str
    type: DataType
    role: Role
    function: str = ""
    """The aggregate function of a result, as far as the accumulator reveals it."""


class StateTable:
    """Converts the entries of a state to rows; `raw` leaves accumulators as they are."""

    def __init__(self, shape: StateShape, *, raw: bool = False) -> None:
        self._shape = shape
        self._keyed = bool(shape.keys)
        self._keys = _unique(shape.keys, {KEY_GROUP, SUBTASK, EXPIRES})
        self._values = _unique(shape.values, {*self._keys, KEY_GROUP, SUBTASK, EXPIRES})
        self._results: dict[str, AggregateResult] = {}
        self.columns: tuple[TableColumn, ...] = tuple(self._derive_columns(raw=raw))
        """The columns in order."""

    @property
    def schema(self) -> dict[str, DataType]:
        """The types of the columns by name."""
        return {column.name: column.type for column in self.columns}

    @property
    def keys(self) -> Sequence[str]:
        """The columns of the state's keys, in order."""
        return self._keys

    @property
    def names(self) -> dict[str, str]:
        """The columns of the state's value fields, by field name."""
        return {field.name: name for name, field in zip(self._values, self._shape.values, strict=True)}

    def empty(self) -> pl.DataFrame:
        """Returns a frame without rows."""
        return pl.DataFrame(schema={column.name: polars_type(column.type) for column in self.columns})

    def make_frame(self, parts: Sequence[GroupEntries]) -> pl.DataFrame:
        """Returns the rows of the entries of key groups, or of the lists of subtasks."""
        entries: Sequence[Entry] = (
            parts[0].entries if len(parts) == 1 else [one for part in parts for one in part.entries]
        )
        keys = _columns([key for key, _ in entries], self._shape.keys, self._keys)
        plain = [value for _, value in entries if value is not None]
        values = _columns(plain, self._shape.values, self._values)
        frame = pl.DataFrame([*keys, *values, _groups(KEY_GROUP if self._keyed else SUBTASK, parts)])
        if self._shape.expires:
            ends = [None if value[-1] is None else value[-1] * _US_PER_MS for value in plain]
            frame = frame.with_columns(make_column(EXPIRES, TIMESTAMP, ends))
        for result in self._results.values():
            frame = frame.with_columns(result.compute(frame))
        return frame.select(column.name for column in self.columns)

    def render_json(self, frame: pl.DataFrame) -> list[str]:
        """Returns a JSON object for each row, in the form that sinks write."""
        columns = [(column.name, column.type) for column in self.columns]
        return frame.select(json_objects(columns).cast(pl.String).alias("line"))["line"].to_list()

    def _derive_columns(self, *, raw: bool) -> Iterator[TableColumn]:
        for name, field in zip(self._keys, self._shape.keys, strict=True):
            yield TableColumn(name, field.type, Role.KEY)
        named = zip(self._values, self._shape.values, strict=True)
        for owner, group in groupby(named, lambda one: _owner_of(one[1].name)):
            parts = list(group)
            named_so = all(name == field.name for name, field in parts)  # false if a key column has the name
            result = derive_result(owner, [field for _, field in parts]) if owner and named_so and not raw else None
            if result is not None and owner not in self._keys and owner not in self._values:
                self._results[owner] = result
                yield TableColumn(owner, result.type, Role.RESULT, result.function)
            else:
                role = Role.ACCUMULATOR if owner else Role.VALUE
                yield from (TableColumn(name, field.type, role) for name, field in parts)
        if self._shape.expires:
            yield TableColumn(EXPIRES, TIMESTAMP, Role.ENGINE)
        yield TableColumn(KEY_GROUP if self._keyed else SUBTASK, INT, Role.ENGINE)


def read_frames(
    snapshot: StateSnapshot, state: StateFiles, table: StateTable, key_groups: range | None = None
) -> Iterator[pl.DataFrame]:
    """Yields the rows of a state in frames of at most `ROWS_MAX`, restricted to `key_groups`, if given.

    Raises what `read_groups` raises.
    """
    pending: list[GroupEntries] = []
    room = ROWS_MAX
    for part in read_groups(snapshot, state, key_groups):
        at = 0
        while at < len(part.entries):
            taken = part.entries[at : at + room]
            pending.append(GroupEntries(part.group, taken))
            at, room = at + len(taken), room - len(taken)
            if not room:
                yield table.make_frame(pending)
                pending, room = [], ROWS_MAX
    if pending:
        yield table.make_frame(pending)


def _groups(name: str, parts: Sequence[GroupEntries]) -> pl.Series:
    numbers = pl.Series(name, [part.group for part in parts], dtype=pl.Int32)
    lengths = [len(part.entries) for part in parts]
    return (
        pl.DataFrame({name: numbers, "length": lengths}).select(pl.col(name).repeat_by("length").explode()).to_series()
    )


def _owner_of(name: str) -> str:
    """Returns the aggregate that a part of an accumulator belongs to; empty for others: columns have no dots."""
    return name.rpartition(".")[0]


def _unique(fields: Sequence[StateField], taken: set[str]) -> list[str]:
    """Returns unique names for the fields, appending a number to those that are taken."""
    names: list[str] = []
    for field in fields:
        name, number = field.name, 2
        while name in taken or name in names:
            name, number = f"{field.name}_{number}", number + 1
        names.append(name)
    return names


def _columns(rows: Sequence[Any], fields: Sequence[StateField], names: Sequence[str]) -> list[pl.Series]:
    """Converts positional rows, which may have additional values at the end, to columns."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(fields)
    return [
        make_column(name, field.type, values)
        for name, field, values in zip(names, fields, columns[: len(fields)], strict=True)
    ]
