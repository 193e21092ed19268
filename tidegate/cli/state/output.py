"""Writes rows of a state as a table, as JSON lines or as a Parquet file. Large state is streamed in parts.

JSON has the same form as that of sinks (docs/formats/json.md): decimals as numbers with all their digits, timestamps in
ISO 8601, binary in base64. The module imports Polars, so commands import it only when they run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from tidegate.cli.output import printable, render_table
from tidegate.errors import TidegateError

if TYPE_CHECKING:
    import polars as pl

    from tidegate.tables.table import StateTable

_NUMERIC = frozenset({"tinyint", "smallint", "int", "bigint", "float", "double", "decimal"})


def write_rows(
    table: StateTable, frames: Iterator[pl.DataFrame], style: str, limit: int | None, output: Path | None
) -> None:
    """Writes all rows, or up to `limit` of them. Raises ClickException when the file cannot be written."""
    limited = _Limited(frames, limit)
    try:
        if style == "parquet":
            assert output is not None
            _write_parquet(table, limited, output)
            return
        with nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8") as target:
            if style == "json":
                for frame in limited:
                    target.writelines(f"{line}\n" for line in table.render_json(frame))
            else:
                _write_table(table, limited, target)
    except OSError as error:
        if output is None:
            raise
        raise click.ClickException(f"{output} cannot be written: {error.strerror or error}") from error


class _Limited:
    """Yields frames up to a number of rows. Afterwards `more` tells whether rows were left out."""

    def __init__(self, frames: Iterator[pl.DataFrame], limit: int | None) -> None:
        self._frames = frames
        self._left = limit
        self.more = False

    def __iter__(self) -> Iterator[pl.DataFrame]:
        for frame in self._frames:
            if self._left is None:
                yield frame
                continue
            part = frame.head(min(self._left, frame.height))
            self._left -= part.height
            if part.height:
                yield part
            if part.height < frame.height:
                self.more = True
                return


def _write_table(table: StateTable, frames: _Limited, target: TextIO) -> None:
    import polars as pl

    from tidegate.formats.columns import polars_type
    from tidegate.formats.json_text import json_text

    def text(name: str, kind: Any) -> pl.Expr:
        column = pl.col(name)
        if isinstance(polars_type(kind), pl.String):
            return column.fill_null("null")
        return json_text(column, kind).str.strip_chars('"').alias(name)

    parts = (frame.select(text(c.name, c.type) for c in table.columns) for frame in frames)
    cells = [tuple(map(printable, row)) for part in parts for row in part.iter_rows()]
    titles = [printable(column.name) for column in table.columns]
    right = frozenset(printable(column.name) for column in table.columns if column.type.kind in _NUMERIC)
    target.writelines(f"{line}\n" for line in render_table(titles, cells, right))
    if frames.more:
        target.write("... more rows: give --limit, or --format json or parquet\n")


def _write_parquet(table: StateTable, frames: _Limited, output: Path) -> None:
    """Writes row groups as they arrive, without collecting them."""
    from polars.exceptions import PolarsError
    from polars.io.plugins import register_io_source

    from tidegate.formats.bisection import first_line

    refused: list[TidegateError] = []

    def rows(*_requested: object) -> Iterator[pl.DataFrame]:
        """Yields all columns and rows, whatever Polars requests."""
        try:
            yield from frames
        except TidegateError as error:
            refused.append(error)  # Polars converts it to text
            raise

    try:
        register_io_source(rows, schema=table.empty().schema).sink_parquet(output)
    except PolarsError as error:
        for one in refused:
            raise one from error
        raise click.ClickException(f"{output} cannot be written: {first_line(error)}") from error
