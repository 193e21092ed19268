"""A query of a state by keys and a condition. Only files that can have matching rows are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import polars as pl

from tidegate.datatypes import BOOLEAN, STRING
from tidegate.errors import TidegateError
from tidegate.expressions.compiled.compiler import Predicate, compile_predicate, compile_projection
from tidegate.expressions.errors import ExpressionError
from tidegate.expressions.expression import Cast, ColumnReference, Expression
from tidegate.expressions.parse import parse_expression
from tidegate.formats.columns import plain_values
from tidegate.state.declaration import StateShape
from tidegate.state.keygroups import KEY_HASH, key_groups_of_keys
from tidegate.tables.files import StateHandles, read_files
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
