"""One state of one step as a table: typed columns, and frames of its rows by key group.

The columns are the key columns, then what is stored per key: value fields by name and type, results of aggregates
instead of their accumulators where they can be derived (`results.py`), the time at which the entry expires, and the key
group. Nested values are arrays, structs and maps as in the pipeline. Lists have the subtask instead of the key group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

import msgspec
import polars as pl

from tidegate.datatypes import INT, TIMESTAMP, DataType
from tidegate.formats.columns import make_column, polars_type
from tidegate.formats.kinds.json.writer import json_objects
from tidegate.state.declaration import StateField, StateShape
from tidegate.state.snapshot import Entry
from tidegate.tables.files import GroupEntries, StateFiles, read_groups
from tidegate.tables.results import AggregateResult, derive_result
from tidegate.tables.source import StateSnapshot

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
