"""What a checkpoint or savepoint has: its states without their entries, and rows of one by keys and a condition.

Only files that can have matching rows are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
import polars as pl

from tidegate.coordinator.types import StateHandle
from tidegate.datatypes import BOOLEAN, STRING
from tidegate.errors import TidegateError
from tidegate.expressions.compiled.compiler import Predicate, compile_predicate, compile_projection
from tidegate.expressions.errors import ExpressionError
from tidegate.expressions.expression import Cast, ColumnReference, Expression
from tidegate.expressions.parse import parse_expression
from tidegate.formats.columns import plain_values
from tidegate.ids import OperatorName, StateName
from tidegate.state.declaration import Serializer, StateShape
from tidegate.state.keygroups import KEY_HASH, key_groups_of_keys
from tidegate.tables.files import StateFiles, StateHandles, list_states, read_files
from tidegate.tables.source import StateSnapshot
from tidegate.tables.table import Role, StateTable, read_frames


class QueryRefused(TidegateError):
    """The query does not fit the state."""

    code = "state-query-refused"
    exit_code = 2


class Query:
    """A query of one state.

    `keys` are values of key columns, as text; `where` is a Spark SQL condition over the table's columns. Raises
    QueryRefused for invalid columns and values.
    """

    def __init__(self, shape: StateShape, table: StateTable, keys: Mapping[str, str], where: str | None) -> None:
        self._shape = shape
        self._table = table
        self._keys = {name: self._read_key(name, text) for name, text in keys.items()}
        self._where = None if where is None else self._compile(where)
        self.key_groups = self._derive_groups()
        """The key groups that can have matching rows; None for all."""

    def read(self, snapshot: StateSnapshot, state: StateHandles) -> Iterator[pl.DataFrame]:
        """Yields frames of matching rows; other key groups are not decoded.

        Raises QueryRefused if the condition fails for a row.
        """
        files = read_files(snapshot, state, self.key_groups)
        for frame in read_frames(snapshot, files, self._table, self.key_groups):
            found = frame
            for name, value in self._keys.items():
                found = found.filter(pl.col(name) == pl.lit(value))
            if self._where is not None and found.height:
                found, failures = self._where.apply(found)
                if failures:
                    raise QueryRefused(f"--where cannot be evaluated for a row: {failures[0].message}")
            if found.height:
                yield found

    def _read_key(self, name: str, text: str) -> pl.Series:
        keys = [column for column in self._table.columns if column.role is Role.KEY]
        for column in keys:
            if column.name == name:
                given = ColumnReference(name, STRING)
                value: Expression = given if column.type == STRING else Cast(given, column.type)
                found, failures = compile_projection([(name, value)]).apply(pl.DataFrame({name: [text]}))
                if failures or found[name][0] is None:
                    raise QueryRefused(f"--key {name}={text}: {text!r} is not a {column.type}, the type of `{name}`")
                return found[name]
        names = ", ".join(column.name for column in keys) or "none: it is a list"
        raise QueryRefused(f"--key {name}={text}: the state has no key column `{name}`; it has {names}")

    def _compile(self, text: str) -> Predicate:
        try:
            expression = parse_expression(text, self._table.schema)
        except ExpressionError as error:
            raise QueryRefused(f"--where {text!r}: {error.message}") from error
        if expression.type != BOOLEAN:
            raise QueryRefused(f"--where {text!r} is {expression.type}, not a condition; write a comparison")
        return compile_predicate(expression)

    def _derive_groups(self) -> range | None:
        """Returns the only key group if all columns that determine it are given."""
        shape = self._shape
        counted = slice(shape.prefix, len(shape.keys) - shape.suffix)
        counting, names = shape.keys[counted], self._table.keys[counted]
        if not counting or shape.key_hash != KEY_HASH or any(name not in self._keys for name in names):
            return None
        row = tuple(plain_values(self._keys[name])[0] for name in names)
        (group,) = key_groups_of_keys([row], [field.type for field in counting], shape.max_parallelism)
        return range(group, group + 1)


# -- the list of states: steps, keys, bytes, files, without entries ----------------------------------------------------


class ColumnInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """A column of a state's table."""

    name: str
    type: str
    role: Role
    function: str = ""
    """The aggregate function of a result, as far as the accumulator reveals it."""


class StateInfo(msgspec.Struct, frozen=True):
    """One state of one step."""

    step: OperatorName
    state: StateName
    form: str
    keys: int | None
    """Number of keys; None if increments may have changed it.

    `entries` counts those of full files, `changes` those of later increments.
    """
    entries: int
    changes: int
    bytes: int
    files: int
    increments: int
    serializer: str
    columns: tuple[ColumnInfo, ...]


class InflightInfo(msgspec.Struct, frozen=True):
    """Rows that were in flight between subtasks at an unaligned barrier."""

    edges: tuple[str, ...]
    bytes: int
    files: int


class PositionInfo(msgspec.Struct, frozen=True):
    """The position of a source in a partition."""

    source: OperatorName
    partition: str
    offset: int


class StateListing(msgspec.Struct, frozen=True):
    """The contents of a checkpoint or savepoint."""

    source: str
    pipeline: str
    checkpoint: int
    completed_at_ms: int
    parallelism: int
    max_parallelism: int
    states: tuple[StateInfo, ...]
    in_flight: tuple[InflightInfo, ...]
    positions: tuple[PositionInfo, ...]


def read_listing(snapshot: StateSnapshot) -> StateListing:
    """Reads the contents. Raises what `read_files` raises."""
    checkpoint, identity = snapshot.checkpoint, snapshot.identity
    positions = {
        (part.source, str(partition)): offset
        for part in checkpoint.positions
        for partition, offset in part.next_offsets
    }
    return StateListing(
        source=snapshot.title,
        pipeline=identity.pipeline,
        checkpoint=checkpoint.id,
        completed_at_ms=checkpoint.completed_at_ms,
        parallelism=identity.parallelism,
        max_parallelism=identity.max_parallelism,
        states=tuple(_describe(read_files(snapshot, state)) for state in list_states(snapshot)),
        in_flight=_in_flight([handle for handle in checkpoint.states if handle.in_flight]),
        positions=tuple(PositionInfo(*place, offset) for place, offset in sorted(positions.items())),
    )


def _describe(state: StateFiles) -> StateInfo:
    full = sum(file.entries for file in state.files if not file.handle.increment)
    changes = sum(file.entries for file in state.files if file.handle.increment)
    columns = StateTable(state.shape).columns
    return StateInfo(
        step=state.operator,
        state=state.state,
        form=state.shape.form.value,
        keys=None if changes else full,
        entries=full,
        changes=changes,
        bytes=sum(file.handle.size_bytes for file in state.files),
        files=len(state.files),
        increments=sum(file.handle.increment for file in state.files),
        serializer=_render_serializer(state.shape.serializer),
        columns=tuple(ColumnInfo(one.name, str(one.type), one.role, one.function) for one in columns),
    )


def _render_serializer(serializer: Serializer) -> str:
    parameters = ", ".join(f"{name}={value}" for name, value in sorted(serializer.parameters.items()))
    return f"{serializer.name} {serializer.version}" + (f" ({parameters})" if parameters else "")


def _in_flight(handles: Sequence[StateHandle]) -> tuple[InflightInfo, ...]:
    """Groups rows in flight by the edges that they were on; a file may have several."""
    found: dict[tuple[str, ...], list[StateHandle]] = {}
    for handle in handles:
        found.setdefault(handle.edges, []).append(handle)
    return tuple(
        InflightInfo(edges, sum(one.size_bytes for one in own), len(own)) for edges, own in sorted(found.items())
    )
