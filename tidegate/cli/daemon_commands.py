"""The commands for a pipeline that runs or has run: status, tap, checkpoint, stop, checkpoints. See `savepoints.py`."""

from __future__ import annotations

import os
import time
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tidegate.cli.control_client import (
    ANSWER_S,
    AnswerTimeout,
    ConnectOptions,
    DaemonAddress,
    DaemonLost,
    DaemonUnreachable,
    OrderFailed,
    ask_daemon,
    ask_own_status,
    ask_status,
    decode_answer,
    derive_reach,
    find_order_token,
    find_read_token,
    http_options,
)
from tidegate.cli.options import FORM, PIPELINE_FILE, TOKEN
from tidegate.cli.output import echo_json, printable, render_moment, render_table
from tidegate.cli.progress import find_early, find_waiting, render_diagnoses, render_operators, render_status
from tidegate.cli.savepoints import describe_directory, take_savepoint
from tidegate.config.fields.counts import render_count
from tidegate.config.load import derive_opener, read_sections
from tidegate.config.models import PipelineSettings
from tidegate.coordinator.entries import CheckpointEntry, JournalRefused
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ledger import key_of
from tidegate.daemon.checkpoint_requests import CheckpointDone
from tidegate.daemon.http.commands import ControlRequest
from tidegate.daemon.status import PipelineState
from tidegate.daemon.taps import ROWS, ROWS_MAX, TAP_S, TapAnswer, TapEnd
from tidegate.errors import TidegateError
from tidegate.formats.plain import parse_json, render_json
from tidegate.journal.savepoint import FoundSavepoint, find_savepoints
from tidegate.storage.base import StorageError
from tidegate.storage.open import StorageOpener
from tidegate.tables.source import read_journal

COMMIT_S: Final = 600.0
"""Additional to the checkpoint timeout: time to commit the output when brokers are unavailable."""
POLL_S: Final = 0.2
TABLE_WIDTH_MAX: Final = 1000
"""Characters. A table is as wide as its content, up to this limit."""


class StopFailed(TidegateError):
    """The daemon continues to run, or has exited without a final checkpoint."""

    code = "stop-failed"
    exit_code = 1
    retriable = False


class TokenMissing(TidegateError):
    """The daemon's token is not found here."""

    code = "token-missing"
    exit_code = 1
    retriable = False


@click.command()
@PIPELINE_FILE
@http_options
@FORM
def status(file: Path, given: ConnectOptions, style: str) -> int:
    """Show how the running pipeline of FILE is doing: its state and why, flow, lag, its newest checkpoint, operators.

    One line per operator shows its rows and its share of the slots' time; a slow step has the highest share. The last
    lines name problems and their remedies.

    The exit code is 1 if no daemon answers, or if the pipeline has failed.
    """
    settings = read_sections(file, os.environ, "name", "http")
    reach = derive_reach(settings, given)
    found = ask_own_status(settings, reach, find_read_token(settings, reach))
    if style == "json":
        echo_json(found)
    else:
        console = Console(highlight=False)
        _print_whole(console, render_status(found))
        if found.operators:
            console.print()
            _print_whole(console, render_operators(found.operators))
            operators = found.operators
            for line in find_early(operators):
                console.print(line, style="yellow", soft_wrap=True)
            for line in find_waiting(operators):
                console.print(line, soft_wrap=True)
        console.print()
        for line, style in render_diagnoses(found.diagnoses):
            console.print(Text(line, style=style), soft_wrap=True)
    return int(found.state is PipelineState.FAILED)


def _print_whole(console: Console, table: Table) -> None:
    """Prints a table at its full width whatever the output is, because a truncated number is useless.

    `width` of print is limited to the console's width.
    """
    width = console.measure(table, options=console.options.update_width(TABLE_WIDTH_MAX)).maximum
    console.width = max(width, console.width)
    if console.is_terminal:
        console.print(table, soft_wrap=True)
        return
    with console.capture() as drawn:
        console.print(table, soft_wrap=True)
    click.echo("\n".join(line.rstrip() for line in drawn.get().splitlines()))


@click.command()
@PIPELINE_FILE
@http_options
@TOKEN
def checkpoint(file: Path, given: ConnectOptions, token_file: Path | None) -> None:
    """Take a checkpoint of the running pipeline of FILE now, and print its number when its output is committed.

    It does not wait for the interval or the minimum pause. When as many checkpoints as allowed are in progress it is
    refused.
    """
    settings = read_sections(file, os.environ, "name", "http", "checkpoints")
    timeout_s = settings.checkpoints.timeout_ms / 1000 + COMMIT_S
    reach = derive_reach(settings, given)
    answer = ask_daemon(
        reach,
        "POST",
        "/checkpoints",
        ControlRequest(settings.name),
        timeout_s,
        find_order_token(settings, reach, token_file),
    )
    click.echo(decode_answer(answer, CheckpointDone, reach).checkpoint)


@click.command()
@PIPELINE_FILE
@http_options
@TOKEN
def token(file: Path, given: ConnectOptions, token_file: Path | None) -> None:
    """Print the token that authorizes commands to the running pipeline of FILE.

    The web page asks for it before it shows rows, keys and payloads of records. Anyone who has the token can also stop
    the pipeline.
    """
    settings = read_sections(file, os.environ, "name", "http")
    reach = derive_reach(settings, given)
    found = find_order_token(settings, reach, token_file)
    if found is None:
        raise TokenMissing(
            f"found no token of a daemon on port {reach.port}: run the command as the daemon's user, on its machine "
            "and with its TMPDIR, or set `http.token_file`",
            port=reach.port,
        )
    click.echo(found)


@click.command()
@PIPELINE_FILE
@http_options
@TOKEN
@click.option("--savepoint", is_flag=True, help="Take a savepoint first, and print its path.")
@click.option(
    "--directory", metavar="DIRECTORY", help="Directory of the savepoint, as in `tidegate savepoint FILE DIRECTORY`."
)
def stop(file: Path, given: ConnectOptions, token_file: Path | None, savepoint: bool, directory: str | None) -> int:
    """Stop the running pipeline of FILE: final checkpoint, commit, exit. Waits until the daemon has ended.

    The savepoint is complete once its path is printed, even if the stop fails. Records that are read between the
    savepoint and the final checkpoint are also committed.
    """
    if directory is not None and not savepoint:
        raise click.UsageError("--directory needs --savepoint")
    settings = read_sections(file, os.environ, "name", "http", "runtime", "checkpoints")
    reach = derive_reach(settings, given)
    kept = ""
    if savepoint:
        try:
            done = take_savepoint(settings, reach, describe_directory(directory), token_file)
        except (OrderFailed, AnswerTimeout) as error:
            raise StopFailed(
                f"the pipeline was not stopped and continues: {error.message}. To stop it without a savepoint, leave "
                "out --savepoint"
            ) from error
        click.echo(done.path)
        kept = f"; savepoint {done.path} is complete (checkpoint {done.checkpoint}) and is not affected"
    try:
        _stop(settings, reach, find_order_token(settings, reach, token_file))
    except TidegateError as error:
        if not kept:
            raise
        raise StopFailed(f"the pipeline was not stopped: {error.message}{kept}") from error
    click.echo("stopped")
    return 0


def _stop(settings: PipelineSettings, reach: DaemonAddress, token: str | None) -> None:
    """Stops the daemon and waits until it has exited. If it closes the connection, its journal shows what it has done.

    Raises StopFailed and the errors of `ask_daemon`.
    """
    try:
        ask_daemon(reach, "POST", "/stop", ControlRequest(settings.name), ANSWER_S, token)
    except DaemonLost:
        _refuse_unfinished(settings)
        return
    deadline = time.monotonic() + settings.runtime.shutdown_grace_ms / 1000 + ANSWER_S
    while time.monotonic() < deadline:
        try:
            state = ask_status(reach, token).state  # a token for orders also permits reading
        except DaemonUnreachable:
            _refuse_unfinished(settings)
            return
        if state is PipelineState.FAILED:
            raise StopFailed("the daemon failed before its final checkpoint was committed: see its log")
        time.sleep(POLL_S)
    raise StopFailed("the daemon is still running: see its log")


def _refuse_unfinished(settings: PipelineSettings) -> None:
    """Checks the journal of a daemon that exited without reporting how, if the journal can be read here.

    Raises StopFailed if the journal shows no final checkpoint.
    """
    try:
        storage = derive_opener(settings)(str(settings.checkpoints.directory), create=False)
        state = read_journal(storage)
    except (StorageError, JournalRefused) as error:
        click.echo(f"cannot tell whether its last checkpoint was final: {error.message}", err=True)
        return
    newest = state.newest_checkpoint
    if newest is not None and not state.ended_well:
        early = " (expected if it had read nothing yet)" if newest.final else ""
        raise StopFailed(
            f"the daemon ended without a final checkpoint{early}: see its log. Nothing is lost: the next start "
            f"continues from checkpoint {newest.id}"
        )


@click.command()
@PIPELINE_FILE
@FORM
def checkpoints(file: Path, style: str) -> None:
    """List the retained checkpoints of FILE and the savepoints in its checkpoint directory. No daemon is needed."""
    settings = read_sections(file, os.environ, "checkpoints")
    directory = str(settings.checkpoints.directory)
    rows = read_rows(directory, derive_opener(settings))
    if style == "json":
        echo_json(rows)
        return
    if not rows:
        click.echo(f"no checkpoints in {directory}")
        return
    click.echo(f"{'id':>10}  {'completed (UTC)':<19}  {'bytes':>15}  {'kind':<10}  output")
    for row in rows:
        click.echo(_line(row))


def _line(row: StatusRow) -> str:
    if row.id is None or row.completed_at_ms is None or row.size_bytes is None:
        return f"{'-':>10}  {'-':<19}  {'-':>15}  {row.kind:<10}  {row.output}"
    return f"{row.id:>10}  {render_moment(row.completed_at_ms)}  {row.size_bytes:>15,}  {row.kind:<10}  {row.output}"


class StatusRow(msgspec.Struct, frozen=True):
    """One line of the list of checkpoints and savepoints."""

    id: int | None
    completed_at_ms: int | None
    size_bytes: int | None
    """None, as `id` and `completed_at_ms`, for an unfinished savepoint or one with unreadable metadata."""
    kind: str
    """`begin`, `checkpoint`, `final`, `savepoint`, `unfinished` or `damaged`."""
    output: str
    """`committed`, or the known progress of the newest checkpoint; for a savepoint, its path and problem."""


def read_rows(directory: str, open_storage: StorageOpener) -> list[StatusRow]:
    """Returns the journal's checkpoints, oldest first, then savepoints; a damaged savepoint has its problem.

    Raises StorageError, and JournalRefused or ObjectCorrupt for the journal.
    """
    storage = open_storage(directory, create=False)
    state = read_journal(storage)
    rows = [_row(state, entry) for entry in state.retained]
    found, unread = find_savepoints(storage, open_storage)
    rows += map(_savepoint_row, found)
    return rows + [StatusRow(None, None, None, "damaged", f"{folder}: no permission to read it") for folder in unread]


def _savepoint_row(found: FoundSavepoint) -> StatusRow:
    if found.unfinished:
        told = f"{found.path} (can be deleted, unless it is being written now)"
        return StatusRow(None, None, None, "unfinished", told)
    kind, told = ("damaged", f"{found.path}: {found.problem}") if found.problem else ("savepoint", found.path)
    if found.savepoint is None:
        return StatusRow(None, None, None, kind, told)
    one = found.savepoint.checkpoint
    return StatusRow(one.id, one.completed_at_ms, one.size_bytes, kind, told)


def _row(state: JournalState, entry: CheckpointEntry) -> StatusRow:
    """Returns the row of a checkpoint. The newest one's transactions will be committed, but only a later entry confirms
    it.
    """
    one = entry.checkpoint
    listed = {key_of(committable) for committable in state.committables}
    waiting = sum(key_of(committable) in listed for committable in one.committables)
    output = f"decided, {render_count(waiting, 'transaction')} not confirmed yet" if waiting else "committed"
    kind = "final" if one.final else "begin" if one.starts else "checkpoint"
    return StatusRow(one.id, one.completed_at_ms, one.size_bytes, kind, output)


# -- `tidegate tap` ----------------------------------------------------------------------------------------------------

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
