"""The rows that a step emits: checked and converted when they are emitted, and made a frame at the end of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from typing_extensions import override

from tidegate.formats.columns import make_column
from tidegate.operators.kinds.python.running.scope import RunningScope
from tidegate.operators.kinds.python.running.values import RecordConverter, show
from tidegate.operators.spec import Columns
from tidegate.python import Out

if TYPE_CHECKING:
    from tidegate.operators.kinds.python import PythonOperator

ROWS_KEPT: Final = 20_000
"""With more rows than this, what has been emitted leaves before the next row is processed."""
ROWS_OF_ONE_MAX: Final = 100_000
"""The number of rows that one row or one timer may emit on an output."""
_LIMIT: Final = ROWS_KEPT + ROWS_OF_ONE_MAX


class EmittedRows:
    """The rows of one output."""

    def __init__(self, declared: Columns, output: Columns, what: str, scope: RunningScope) -> None:
        """`output`: the columns that are read; none if nothing reads the output."""
        remedy = "emit a value of that type, or change the column in the pipeline file"
        self._converter = RecordConverter(declared, what, remedy)
        names = {name for name, _ in output}
        self._columns = [
            (name, kind, attrgetter(f"f{index}")) for index, (name, kind) in enumerate(declared) if name in names
        ]
        self._records: list[Any] = []
        self.rows: list[int] = []
        """The number of the row that has emitted each of them (`RunningScope.row`)."""
        self._what = what
        self._scope = scope

    def add(self, values: Mapping[str, Any]) -> None:
        """Adds what the current row emits. Raises TypeError."""
        record = self._converter.convert(values)
        if not self._columns:
            return
        rows = self.rows
        if len(rows) >= ROWS_KEPT:
            self._scope.emitted_many = True
            if len(rows) >= _LIMIT:
                raise RuntimeError(f"{self._what}: one row may emit at most {ROWS_OF_ONE_MAX} rows")
        self._records.append(record)
        rows.append(self._scope.row)

    def drop(self, row: int) -> None:
        """Drops what a row has emitted. No other row has emitted anything after it."""
        rows = self.rows
        kept = len(rows)
        while kept and rows[kept - 1] == row:
            kept -= 1
        del rows[kept:], self._records[kept:]

    def take(self) -> tuple[list[pl.Series], list[int]]:
        """Returns the columns of all rows, and which row has emitted each."""
        records, rows = self._records, self.rows
        self._records, self.rows = [], []
        return [make_column(name, kind, list(map(read, records))) for name, kind, read in self._columns], rows


class RowOut(Out):
    """What a step emits to."""

    def __init__(self, operator: PythonOperator, scope: RunningScope) -> None:
        self._scope = scope
        self._main = EmittedRows(operator.main, operator.pruned_columns(), "the output", scope)
        self._outputs = {
            "": self._main,
            **{
                name: EmittedRows(columns, operator.pruned_columns(name), f"the output `{name}`", scope)
                for name, columns in operator.others.items()
            },
        }

    @override
    def emit(self, row: Any = None, /, **columns: Any) -> None:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        self._main.add(columns if row is None else _join(row, columns))

    @override
    def to(self, output: str, row: Any = None, /, **columns: Any) -> None:
        scope = self._scope
        if scope.thread != get_ident():
            scope.refuse()
        found = self._outputs.get(output) if output else None
        if found is None:
            known = ", ".join(f"`{name}`" for name in self._outputs if name) or "none"
            raise ValueError(f"there is no output {show(output)}: declare it under `outputs` (there: {known})")
        found.add(columns if row is None else _join(row, columns))

    def emit_all(self, found: Any) -> None:
        """Emits what a function has returned: a mapping, several of them, or None."""
        if found is None:
            return
        if isinstance(found, dict | Mapping):  # a dict is recognized faster
            self.emit(found)
        elif isinstance(found, Iterable) and not isinstance(found, str | bytes):
            for one in found:
                self.emit(one)
        else:
            raise TypeError(f"the function gave {show(found)}: return a mapping, a list of mappings, or None")

    def drop(self) -> None:
        """Drops what the current row has emitted."""
        for one in self._outputs.values():
            one.drop(self._scope.row)

    def take(self) -> Iterator[tuple[str, list[pl.Series], list[int]]]:
        """Yields the name of each output that has rows, their columns, and which row has emitted each of them."""
        for name, one in self._outputs.items():
            if one.rows:
                yield name, *one.take()


def _join(row: Any, columns: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(row, dict | Mapping):
        raise TypeError(f"{show(row)} is no row: emit a mapping, or the columns as keywords")
    return {**row, **columns} if columns or not isinstance(row, dict) else row
