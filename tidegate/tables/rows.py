"""Converts user-supplied rows to entries of a state: columns are matched by name, typed and checked.

A column of the input is a key column, a value field by its full name (`net.sum`), or the result of an aggregate whose
accumulator is the result: `count`, `sum`, `min`, `max`, `first`, `last`, `bool_and`, `bool_or` of running totals.
Output of `tidegate state read --raw` can be used as input: system columns are ignored, except `__tidegate_expires`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from tidegate.datatypes import TIMESTAMP, DataType
from tidegate.errors import TidegateError
from tidegate.formats.columns import plain_values, polars_type
from tidegate.formats.kinds.json.reader import JsonDecoder
from tidegate.state.declaration import StateDeclaration, StateField
from tidegate.state.keygroups import key_group_of
from tidegate.state.snapshot import Entry
from tidegate.tables.table import EXPIRES, KEY_GROUP, StateTable

LINES: Final = (".jsonl", ".ndjson")
"""Suffixes of files with a JSON object per line."""
_GROUP: Final = "__tidegate_group"
_US_PER_MS: Final = 1000


class RowsRefused(TidegateError):
    """Rows from which a state cannot be created."""

    code = "state-rows-refused"
    exit_code = 2


class StateRows:
    """The columns that a state accepts; `where` names the step in messages about the input."""

    def __init__(self, declaration: StateDeclaration, where: str) -> None:
        self._shape = declaration.shape
        self._settles = declaration.settles
        self._optional = {name: declaration.begins[name] for name in declaration.optional}
        """Default values of the fields that may be omitted."""
        self._where = where
        self._table = StateTable(self._shape, raw=True)
        self._fields: dict[str, StateField] = {}
        """Fields by the names of the columns in which they may be supplied."""
        self._several: dict[str, list[str]] = {}
        """Aggregates with several parts, or with one that is not the result -> the columns to supply."""
        for name, field in zip(self._table.schema, self._shape.keys, strict=False):
            self._fields[name] = field
        for owner, group in groupby(self._shape.values, lambda field: field.name.rpartition(".")[0]):
            parts = []
            for field in group:
                self._fields[self._table.names[field.name]] = field
                parts += [] if field.name in self._optional else [field]
            if owner and len(parts) == 1:
                self._fields.setdefault(owner, parts[0])
            elif owner:
                self._several[owner] = [field.name for field in parts]

    def takes(self, name: str) -> bool:
        """Tells whether there is a column of that name."""
        return name in self._fields or name in self._several

    def types(self, names: Sequence[str]) -> dict[str, DataType]:
        """Returns the types of these input columns. Raises RowsRefused for unknown columns."""
        found: dict[str, DataType] = {}
        for name in names:
            if name in self._fields:
                found[name] = self._fields[name].type
            elif name == EXPIRES and self._shape.expires:
                found[name] = TIMESTAMP
            elif name in self._several:
                parts = ", ".join(f"`{part}`" for part in self._several[name])
                raise RowsRefused(
                    f"{self._where}: `{name}` cannot be derived from its result: supply its accumulator, {parts} "
                    "(`tidegate "
                    "state read --raw` shows some)"
                )
            elif name != KEY_GROUP:
                known = ", ".join(f"`{one}`" for one in self._needed())
                raise RowsRefused(f"{self._where}: the state has no column `{name}`; it has {known}")
        return found

    def read(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Converts the input to columns of the state: the fields by name, then the key group, sorted by key group.

        Raises RowsRefused for columns that are missing, given twice, of another type, or NULL where that is not
        allowed, and for repeated keys.
        """
        types = self.types(frame.columns)
        typed = pl.DataFrame([self._typed(frame[name], kind) for name, kind in types.items()])
        self._refuse_missing(typed)
        columns = [*self._given(typed, self._shape.keys), *self._given(typed, self._shape.values)]
        if self._shape.expires:
            ends = typed[EXPIRES] if EXPIRES in types else pl.Series(EXPIRES, [None], dtype=pl.Datetime("us", "UTC"))
            columns.append(ends if EXPIRES in types else ends.new_from_index(0, typed.height))
        names = [f"{index}" for index in range(len(columns))]
        found = pl.DataFrame([column.alias(name) for name, column in zip(names, columns, strict=True)])
        keys = names[: len(self._shape.keys)]
        self._refuse_repeated(found, keys)
        counting = keys[self._shape.prefix : len(keys) - self._shape.suffix]
        groups = key_group_of(found, counting, self._shape.max_parallelism)
        return found.with_columns(groups.alias(_GROUP)).sort(_GROUP)

    def entries(self, found: pl.DataFrame) -> Iterator[tuple[int, list[Entry]]]:
        """Yields the entries of a frame that `read` has returned, by key group."""
        keys = len(self._shape.keys)
        for part in found.partition_by(_GROUP, maintain_order=True):
            columns = [plain_values(part[name]) for name in part.columns[:-1]]
            if self._shape.expires:
                columns[-1] = [None if end is None else end // _US_PER_MS for end in columns[-1]]
            values = zip(*columns[keys:], strict=True) if columns[keys:] else iter([()] * part.height)
            if self._settles is not None:
                values = map(self._settles, values)
            yield int(part[_GROUP][0]), list(zip(zip(*columns[:keys], strict=True), values, strict=True))

    def _needed(self) -> Iterator[str]:
        yield from (field.name for field in self._shape.keys)
        yield from (self._name_of(field) for field in self._shape.values if field.name not in self._optional)

    def _name_of(self, field: StateField) -> str:
        """Returns the column to supply: the name of the aggregate if its accumulator is the result."""
        return [name for name, one in self._fields.items() if one is field][-1]

    def _refuse_missing(self, typed: pl.DataFrame) -> None:
        given = [self._fields.get(name) for name in typed.columns]
        missing = [
            f"`{self._name_of(field)}`"
            for field in (*self._shape.keys, *self._shape.values)
            if field.name not in self._optional and not any(one is field for one in given)
        ]
        if missing:
            what = f"the column {missing[0]} is" if len(missing) == 1 else f"the columns {', '.join(missing)} are"
            raise RowsRefused(f"{self._where}: {what} missing; it takes {', '.join(self._needed())}")

    def _given(self, typed: pl.DataFrame, fields: Sequence[StateField]) -> Iterator[pl.Series]:
        for field in fields:
            names = [name for name in typed.columns if self._fields.get(name) is field]
            if len(names) > 1:
                what = f"`{names[0]}` and `{names[1]}` are the same column"
                raise RowsRefused(f"{self._where}: {what}; it takes {', '.join(self._needed())}")
            if not names:
                nothing = pl.Series([self._optional[field.name]], dtype=polars_type(field.type))
                yield nothing.new_from_index(0, typed.height)
                continue
            column = typed[names[0]]
            if not field.nullable and column.null_count():
                raise RowsRefused(f"{self._where}: `{names[0]}` is NULL in row {column.is_null().arg_true()[0] + 1}")
            if self._settles is not None and isinstance(column.dtype, pl.List):
                gaps = column.list.eval(pl.element().is_null()).list.any()
                if gaps.any():
                    what = f"`{names[0]}` has a NULL among its elements in row {gaps.arg_true()[0] + 1}"
                    raise RowsRefused(f"{self._where}: {what}: leave it out")
            yield column

    def _typed(self, column: pl.Series, kind: DataType) -> pl.Series:
        """Casts a column to the type of the state if that changes no value."""
        wanted = polars_type(kind)
        if column.dtype == wanted:
            return column
        problem = f"{self._where}: `{column.name}` is {column.dtype}, the state has {kind}"
        if column.dtype == pl.String or isinstance(wanted, pl.String):
            raise RowsRefused(f"{problem}: convert it first")
        try:
            converted = column.cast(wanted, strict=True)
            same = bool((converted.cast(column.dtype, strict=True).eq_missing(column)).all())
        except pl.exceptions.PolarsError as error:
            raise RowsRefused(f"{problem}: {error}") from error
        if not same:
            raise RowsRefused(f"{problem}, which does not hold all of its values")
        return converted

    def _refuse_repeated(self, found: pl.DataFrame, keys: Sequence[str]) -> None:
        repeated = found.select(pl.struct(keys).is_duplicated().alias("twice"))["twice"]
        if repeated.any():
            row = repeated.arg_true()[0]
            shown = ", ".join(f"{f.name}={found[name][row]}" for f, name in zip(self._shape.keys, keys, strict=True))
            raise RowsRefused(f"{self._where}: the key {shown} occurs more than once")


def read_input(rows: StateRows, path: str) -> pl.DataFrame:
    """Reads rows from JSON lines (`.jsonl`), with values as sources read them, or Parquet, also a folder of it.

    Raises RowsRefused.
    """
    try:
        if path.endswith(LINES):
            lines = enumerate(Path(path).read_bytes().splitlines(), 1)
            return _read_lines(rows, path, {number: line for number, line in lines if line.strip()})
        return _scan_parquet(rows, path).collect()
    except (OSError, pl.exceptions.PolarsError) as error:
        raise RowsRefused(f"{path} cannot be read: {error}") from error


def _scan_parquet(rows: StateRows, path: str) -> pl.LazyFrame:
    """Scans Parquet files like Spark.

    Names in a folder that begin with a dot or `_` are skipped: checksums, markers, or output of failed attempts.
    Columns that exist only in folder names (`partitionBy`) are not read.
    """
    folder = Path(path)
    if not folder.is_dir():
        return pl.scan_parquet(path, glob=not folder.exists())
    files = [one for one in sorted(folder.rglob("*")) if one.is_file() and not _is_hidden(one.relative_to(folder))]
    if not files:
        raise RowsRefused(f"{path} has no files with rows")
    folders = {part.partition("=")[0] for one in files for part in one.relative_to(folder).parts[:-1] if "=" in part}
    lacking = sorted(name for name in folders if rows.takes(name))
    if lacking:
        raise RowsRefused(f"{path}: `{lacking[0]}` is in names of folders, which are not read: write it into the files")
    return pl.scan_parquet(files, glob=False)


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _read_lines(rows: StateRows, path: str, lines: Mapping[int, bytes]) -> pl.DataFrame:
    """Decodes lines, keyed by their numbers in the file, which may also have empty lines."""
    names: dict[str, None] = {}
    for number, line in lines.items():
        try:
            names |= dict.fromkeys(msgspec.json.decode(line, type=dict[str, msgspec.Raw]))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise RowsRefused(f"{path}, line {number}: {error}") from error
    decoded = JsonDecoder(list(rows.types(list(names)).items())).decode_values(list(lines.values()))
    for failure in decoded.failures:
        raise RowsRefused(f"{path}, line {list(lines)[failure.row]}: {failure.message}")
    return decoded.frame
