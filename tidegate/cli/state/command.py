"""`tidegate state`: lists and reads the contents of checkpoints and savepoints. `write.py` creates savepoints."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tidegate.cli.control_client import OF
from tidegate.cli.output import echo_json, render_table
from tidegate.cli.start_options import require_utf8
from tidegate.cli.state.write import write
from tidegate.clock import describe_stamp
from tidegate.config.storages import opener_of_file
from tidegate.process.garbage import collect_rarely

if TYPE_CHECKING:
    from tidegate.tables.listing import StateInfo, StateListing

_SOURCE = click.argument("source")
_FROM = click.option(
    "--from", "checkpoint", metavar="CHECKPOINT", help="A retained checkpoint by its number, or newest (the default)."
)
_FORM = click.option(
    "--format", "style", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
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
@_FORM
def list_states(source: str, checkpoint: str | None, file: Path | None, style: str) -> None:
    """List the states of SOURCE: step, keys, bytes, files, columns; and rows in flight."""
    from tidegate.tables.listing import read_listing
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
    from tidegate.cli.state.output import write_rows
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


state.add_command(write)
