"""`tidegate tap`: shows rows that leave a step of a running pipeline."""

from __future__ import annotations

import os
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from tidegate.cli.control_client import (
    ANSWER_S,
    ConnectOptions,
    ask_daemon,
    ask_own_status,
    decode_answer,
    derive_reach,
    find_order_token,
    http_options,
)
from tidegate.cli.options import PIPELINE_FILE, TOKEN
from tidegate.cli.output import printable, render_table
from tidegate.config.fields.counts import render_count
from tidegate.config.load import read_sections
from tidegate.daemon.tap_resource import ROWS, ROWS_MAX, TapAnswer
from tidegate.daemon.taps import TAP_S, TapEnd
from tidegate.formats.plain import parse_json, render_json

CELL_CHARACTERS_MAX: Final = 60
WHY: Final = {
    TapEnd.ROWS: "",
    TapEnd.BYTES: "the next row would exceed the limit of 100 kB",
    TapEnd.TIME: f"no more came within {TAP_S:g} s",
    TapEnd.RESTART: "the slots have ended: see `tidegate status`",
}
"""Why there are not more rows."""


@click.command()
@PIPELINE_FILE
@click.argument("step")
@click.option(
    "--rows",
    type=click.IntRange(1, ROWS_MAX),
    default=ROWS,
    show_default=True,
    help="Number of rows, taken from all slots.",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Output format: a table, or a JSON object per row, with whole values.",
)
@http_options
@TOKEN
def tap(file: Path, step: str, rows: int, style: str, given: ConnectOptions, token_file: Path | None) -> None:
    """Show the next rows that leave STEP of the running pipeline of FILE.

    STEP is a source, a step, an output of a step as STEP.OUTPUT, or a sink, for which the rows are those that it
    writes. Columns that no later step reads are missing. Those of http.redact are shown as ***. Rows of a checkpoint
    that fails are processed again. The daemon logs each call.
    """
    settings = read_sections(file, os.environ, "name", "http")
    reach = derive_reach(settings, given)
    token = find_order_token(settings, reach, token_file)
    ask_own_status(settings, reach, token)
    query = urlencode({"step": step, "rows": rows})
    answer = decode_answer(ask_daemon(reach, "GET", f"/api/v1/tap?{query}", None, ANSWER_S, token), TapAnswer, reach)
    found = [parse_json(bytes(row)) for row in answer.rows]
    lines = map(render_json, found) if style == "json" else _render_rows(found)
    for line in lines:
        click.echo(line)
    if why := WHY[answer.ended]:
        click.echo(f"{render_count(len(found), 'row')} of {step}: {why}", err=True)


def _render_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Renders a table. Columns in which all values are numbers are right-aligned; long values are cut."""
    if not rows:
        return []
    titles = list(dict.fromkeys(name for row in rows for name in row))
    numeric = {title for title in titles if all(isinstance(row.get(title), int | Decimal | None) for row in rows)}
    cells = [[_render_cell(row.get(title)) for title in titles] for row in rows]
    return render_table([printable(title) for title in titles], cells, {printable(title) for title in numeric})


def _render_cell(value: Any) -> str:
    text = printable(value if isinstance(value, str) else render_json(value, spaced=True))
    return text if len(text) <= CELL_CHARACTERS_MAX else f"{text[: CELL_CHARACTERS_MAX - 1]}…"
