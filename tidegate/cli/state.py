"""`tidegate state`: lists and reads the contents of checkpoints and savepoints as tables, and writes a savepoint from
rows.

Rows are printed as a table, as JSON lines or as a Parquet file; large state is streamed in parts. JSON has the same
form as that of sinks (docs/formats/json.md): decimals as numbers with all their digits, timestamps in ISO 8601, binary
in base64.
"""

from __future__ import annotations

import gc
import os
import re
import secrets
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

import click
import msgspec

from tidegate.cli.options import FORM, OF, PIPELINE_FILE, require_utf8
from tidegate.cli.output import echo_json, printable, render_table
from tidegate.clock import SYSTEM_CLOCK, describe_stamp
from tidegate.config.fields.counts import render_count
from tidegate.config.load import opener_of_file
from tidegate.errors import TidegateError
from tidegate.process.limits import collect_rarely

if TYPE_CHECKING:
    import polars as pl

    from tidegate.coordinator.types import SourcePositions
    from tidegate.operators.builtin.kafka_source import SourceOperator
    from tidegate.plan.graph import Plan
    from tidegate.tables.query import StateInfo, StateListing
    from tidegate.tables.table import StateTable

_SOURCE = click.argument("source")
_FROM = click.option(
    "--from", "checkpoint", metavar="CHECKPOINT", help="A retained checkpoint by its number, or newest (the default)."
)
TABLE_ROWS: Final = 20
"""Rows of a table on a terminal, unless --limit is given."""
_NUMBERS: Final = frozenset({"keys", "bytes", "files"})


@click.group()
@click.pass_context
def state(context: click.Context) -> None:
    """Read the state in checkpoints and savepoints as tables, or write a savepoint from rows. See docs/state.md.

    SOURCE is a pipeline file, a checkpoint directory or a savepoint; `SOURCE@42` is checkpoint 42 of it. No daemon,
    broker or Spark is needed. The pipeline may run meanwhile, and is not changed.
    """
    before = gc.get_threshold()
    collect_rarely()
    context.call_on_close(lambda: gc.set_threshold(*before))


@state.command(name="list")
@_SOURCE
@_FROM
@OF
@FORM
def list_states(source: str, checkpoint: str | None, file: Path | None, style: str) -> None:
    """List the states of SOURCE: step, keys, bytes, files, columns; and rows in flight."""
    from tidegate.tables.query import read_listing
    from tidegate.tables.source import open_snapshot

    listing = read_listing(open_snapshot(source, checkpoint, os.environ, opener_of_file(file)))
    if style == "json":
        echo_json(listing)
    else:
        click.echo(_render_listing(listing))


@state.command()
@_SOURCE
@click.argument("step")
@_FROM
@click.option("--state", "name", metavar="NAME", help="Which state, where the step has several.")
@click.option("--where", metavar="SQL", help="Only rows for which this Spark SQL condition is true.")
@click.option("--key", "keys", multiple=True, metavar="COLUMN=VALUE", help="Only this key; may be repeated.")
@click.option("--limit", type=click.IntRange(0), help=f"Maximum number of rows; {TABLE_ROWS} by default for a table.")
@click.option("--raw", is_flag=True, help="Accumulators of aggregates as they are, not their results.")
@click.option(
    "--format", "style", type=click.Choice(["table", "json", "parquet"]), default="table", help="Form of the rows."
)
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
@OF
def read(
    source: str,
    step: str,
    checkpoint: str | None,
    name: str | None,
    where: str | None,
    keys: tuple[str, ...],
    limit: int | None,
    raw: bool,
    style: str,
    output: Path | None,
    file: Path | None,
) -> None:
    """Print the state of STEP in SOURCE, one row per key.

    With all columns of a key given by --key, only the files that can have it are read to the end.
    """
    from tidegate.cli.state import write_rows
    from tidegate.tables.files import choose_state, read_shape
    from tidegate.tables.query import Query
    from tidegate.tables.source import open_snapshot
    from tidegate.tables.table import StateTable

    if style == "parquet" and output is None:
        raise click.UsageError("--format parquet is binary: name a file with --output")
    wanted = _split(keys)
    if where is not None:
        require_utf8("--where", where)
    snapshot = open_snapshot(source, checkpoint, os.environ, opener_of_file(file))
    chosen = choose_state(snapshot, step, name)
    shape = read_shape(snapshot, chosen)
    table = StateTable(shape, raw=raw)
    query = Query(shape, table, wanted, where)
    if limit is None and style == "table" and output is None:
        limit = TABLE_ROWS
    write_rows(table, query.read(snapshot, chosen), style, limit, output)


def _split(keys: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in keys:
        name, equals, value = require_utf8("--key", text).partition("=")
        if not equals or not name:
            raise click.UsageError(f"--key {text}: write COLUMN=VALUE")
        if name in found:
            raise click.UsageError(f"--key {name} is given twice: a row has one value of it")
        found[name] = value
    return found


def _render_listing(listing: StateListing) -> str:
    """Renders the output of `tidegate state list`."""
    about = f"pipeline {listing.pipeline}, checkpoint {listing.checkpoint}"
    moment = f"completed {describe_stamp(listing.completed_at_ms)}"
    size = f"parallelism {listing.parallelism}, {listing.max_parallelism} key groups"
    lines = [f"{listing.source}: {about}, {moment}, {size}"]
    if listing.states:
        titles = ("step", "state", "form", "keys", "bytes", "files", "serializer", "columns")
        lines += ["", *render_table(titles, [_cells(state) for state in listing.states], _NUMBERS)]
    else:
        lines.append("no state")
    for one in listing.in_flight:
        lines.append(f"rows in flight on {', '.join(one.edges)}: {one.bytes:,} bytes in {one.files} files")
    return "\n".join(lines)


def _cells(state: StateInfo) -> Sequence[str]:
    keys = f"{state.keys:,}" if state.keys is not None else f"{state.entries:,} and {state.changes:,} changes"
    columns = ", ".join(f"{column.name} {column.type}" for column in state.columns)
    return (
        *(state.step, state.state, state.form, keys, f"{state.bytes:,}", f"{state.files:,}"),
        *(state.serializer, columns),
    )


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
    from tidegate.formats.text import json_text

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


@state.command()
@click.argument("savepoint")
@PIPELINE_FILE
@click.option(
    "--step", "steps", multiple=True, required=True, metavar="NAME", help="Step whose state the matching --input has."
)
@click.option(
    "--input", "inputs", multiple=True, required=True, metavar="PATH", help="Parquet, or JSON lines (.jsonl)."
)
@click.option(
    "--positions",
    multiple=True,
    metavar="SOURCE=OFFSETS",
    help="Offsets at which a source continues, by partition as JSON: "
    """'{"0": 17, "1": 4}', or for several topics '{"orders": {"0": 17}}'. The default is `start` in FILE.""",
)
def write(
    savepoint: str, file: Path, steps: tuple[str, ...], inputs: tuple[str, ...], positions: tuple[str, ...]
) -> None:
    """Write SAVEPOINT, a new folder, for the pipeline of FILE: the state of each --step from the rows of its --input.

    `tidegate run FILE --restore SAVEPOINT` starts with it. docs/state.md describes the columns of an input.
    """
    if len(steps) != len(inputs):
        raise click.UsageError(f"{len(steps)} --step and {len(inputs)} --input: each step has one input, in this order")
    from tidegate.checks.pipeline_file import plan_file

    loaded, plan = plan_file(file, os.environ)
    from tidegate.config.load import derive_opener
    from tidegate.tables.rows import StateRows, read_input
    from tidegate.tables.writing import (
        StepRows,
        check_rows,
        choose_declaration,
        derive_identity,
        write_rows_savepoint,
    )

    parts = []
    for step, path in zip(steps, inputs, strict=True):
        rows = StateRows(choose_declaration(plan, step), f"step {step!r}, {path}")
        parts.append(StepRows(step, read_input(rows, path)))
    states = check_rows(plan, parts)
    given = derive_positions(plan, positions)
    made = write_rows_savepoint(
        plan,
        states,
        given,
        derive_opener(loaded.settings)(savepoint if "://" in savepoint else str(Path(savepoint).absolute())),
        identity=derive_identity(plan),
        token=secrets.token_hex(),
        now_ms=SYSTEM_CLOCK.now_ms(),
    )
    keys = sum(part.frame.height for part in parts)
    click.echo(
        f"{savepoint}: {render_count(keys, 'key')} of {render_count(len(parts), 'step')}, "
        f"{render_count(made.checkpoint.size_bytes, 'byte')}"
    )


def derive_positions(plan: Plan, texts: Sequence[str]) -> list[SourcePositions]:
    """Derives the positions of sources from `--positions`. Raises UsageError."""
    from tidegate.operators.builtin.kafka_source import SourceOperator

    sources = {str(source.name): source for source in plan.operators(SourceOperator)}
    given: dict[str, SourcePositions] = {}
    for text in texts:
        name, equals, offsets = text.partition("=")
        if not equals or name not in sources:
            raise click.UsageError(f"--positions {text}: write SOURCE=OFFSETS; sources are {', '.join(sources)}")
        if name in given:
            raise click.UsageError(f"--positions {name} is given twice")
        given[name] = _parse_offsets(sources[name], offsets)
    return list(given.values())


def _parse_offsets(source: SourceOperator, offsets_json: str) -> SourcePositions:
    from tidegate.coordinator.types import SourcePositions
    from tidegate.ids import TopicPartition

    text = f"--positions {source.name}={offsets_json}"
    try:
        if re.match(r'\s*\{\s*"[0-9]+"\s*:\s*-?[0-9]', offsets_json) and len(source.topics) == 1:
            by_topic = {source.topics[0]: msgspec.json.decode(offsets_json, type=dict[int, int])}
        else:
            by_topic = msgspec.json.decode(offsets_json, type=dict[str, dict[int, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise click.UsageError(
            f"""{text}: write the offset of each partition as JSON, '{{"0": 17}}' ({error})"""
        ) from error
    unknown = [
        topic for topic in by_topic if not (topic in source.topics or (source.pattern and source.matches(topic)))
    ]
    if unknown:
        raise click.UsageError(f"{text}: {source.name} does not read topic {unknown[0]}")
    offsets = {TopicPartition(topic, n): at for topic, found in by_topic.items() for n, at in found.items()}
    if any(offset < 0 for offset in offsets.values()):
        raise click.UsageError(f"{text}: an offset must not be negative")
    for topic, found in by_topic.items():
        missing = [str(n) for n in range(max(found, default=0)) if n not in found]
        if missing:
            raise click.UsageError(
                f"{text}: {topic} has partitions without an offset ({', '.join(missing[:20])}): give each an offset, "
                "0 to read it from its beginning"
            )
    return SourcePositions(source.name, tuple(sorted(offsets.items())))
