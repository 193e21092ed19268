"""The commands for a pipeline that runs, or has run: status, checkpoint, savepoint, stop, checkpoints."""

from __future__ import annotations

import http.client
import os
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import click
import msgspec
from rich.console import Console

from tidegate.cli.operator_table import find_stalled, render_operators
from tidegate.cli.progress import render_status
from tidegate.config.load import read_pipeline
from tidegate.config.models import PipelineSettings
from tidegate.coordinator.entries import CheckpointEntry, Writer
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ledger import key_of
from tidegate.coordinator.savepoint import METADATA, read_savepoint
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.commands import JSON, Order, OrderRefused
from tidegate.daemon.order_token import find_token, read_token
from tidegate.daemon.ordered import CheckpointDone
from tidegate.daemon.savepoints import SAVEPOINTS, SavepointDone
from tidegate.daemon.status import PipelineState, Status
from tidegate.daemon.work_directory import temporary_directory
from tidegate.errors import TidegateError
from tidegate.storage.open import open_storage

_FILE = click.argument("file", type=click.Path(path_type=Path))
_HTTP = click.option(
    "--http", "address", metavar="URL", help="Address of the daemon; default: http.host and http.port of FILE."
)
_FORM = click.option(
    "--format", "style", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
)
_TOKEN = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the command token; default: http.token_file of FILE, else the one that the daemon keeps here.",
)

Answer = TypeVar("Answer", bound=msgspec.Struct)

ANSWER_S: Final = 30.0
COPY_S: Final = 3600.0
"""On top of the checkpoint timeout: time to copy the state into the directory."""
COMMIT_S: Final = 600.0
"""On top of the checkpoint timeout: time to commit the output, when brokers are away."""
POLL_S: Final = 0.2
TABLE_WIDTH_MAX: Final = 1000
"""Characters; a table is as wide as what it says."""
HTTP_PORT: Final = 80
"""Of an address without one."""


class DaemonUnreachable(TidegateError):
    """No daemon answers where this pipeline's should."""

    code = "daemon-unreachable"
    exit_code = 1
    retriable = True


class OrderFailed(TidegateError):
    """The daemon has answered, but not done it."""

    code = "order-failed"
    exit_code = 1
    retriable = False


@click.command()
@_FILE
@_HTTP
@_FORM
def status(file: Path, address: str | None, style: str) -> int:
    """Show how the running pipeline of FILE is doing: its state and why, flow, lag, its newest checkpoint, operators.

    One line per operator shows its rows and the part of its slots' time that it takes: a slow step is the busiest.

    The exit code is 1 when no daemon answers, or when the pipeline has failed.
    """
    settings = read_pipeline(file, os.environ).settings
    base = derive_address(settings, address)
    found = _ask_status(base)
    if found.pipeline != settings.name:
        raise OrderFailed(
            f"the daemon at {base} runs pipeline {found.pipeline}, not {settings.name}", found=found.pipeline
        )
    if style == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        console = Console(highlight=False)
        console.print(render_status(found), soft_wrap=True)
        if found.operators:
            console.print()
            table = render_operators(found.operators)
            width = console.measure(table, options=console.options.update_width(TABLE_WIDTH_MAX)).maximum
            console.print(table, soft_wrap=True, width=max(width, console.width))  # a cut number says nothing
            for line in find_stalled(found.operators):
                console.print(line, style="yellow", soft_wrap=True)
    return int(found.state is PipelineState.FAILED)


@click.command()
@_FILE
@_HTTP
@_TOKEN
def checkpoint(file: Path, address: str | None, token_file: Path | None) -> None:
    """Take a checkpoint of the running pipeline of FILE now, and print its number when its output is committed.

    It does not wait for the interval or the minimum pause. When as many checkpoints as allowed are in progress it is
    refused.
    """
    settings = read_pipeline(file, os.environ).settings
    timeout_s = settings.checkpoints.timeout_ms / 1000 + COMMIT_S
    base = derive_address(settings, address)
    answer = ask_daemon(
        base, "POST", "/checkpoints", Order(settings.name), timeout_s, _token(settings, base, token_file)
    )
    click.echo(_decode(answer, CheckpointDone, base).checkpoint)


@click.command()
@_FILE
@click.argument("directory", required=False)
@_HTTP
@_TOKEN
def savepoint(file: Path, directory: str | None, address: str | None, token_file: Path | None) -> None:
    """Take a savepoint of the running pipeline of FILE and print its path.

    It is written to DIRECTORY (default: `savepoints` in the checkpoint directory), and nothing ever removes it.
    DIRECTORY must be below the checkpoint directory or one of `savepoints.roots`. A relative one is resolved here.
    """
    if directory == "":
        raise click.UsageError("DIRECTORY is empty: name one, or leave it out for the checkpoint directory's own")
    settings = read_pipeline(file, os.environ).settings
    target = directory if directory is None or "://" in directory else str(Path(directory).absolute())
    timeout_s = settings.checkpoints.timeout_ms / 1000 + COPY_S
    base = derive_address(settings, address)
    token = _token(settings, base, token_file)
    answer = ask_daemon(base, "POST", "/savepoints", Order(settings.name, target), timeout_s, token)
    click.echo(_decode(answer, SavepointDone, base).path)


@click.command()
@_FILE
@_HTTP
@_TOKEN
def stop(file: Path, address: str | None, token_file: Path | None) -> int:
    """Stop the running pipeline of FILE: final checkpoint, commit, exit. Waits until the daemon has ended."""
    settings = read_pipeline(file, os.environ).settings
    base = derive_address(settings, address)
    ask_daemon(base, "POST", "/stop", Order(settings.name), ANSWER_S, _token(settings, base, token_file))
    deadline = time.monotonic() + settings.runtime.shutdown_grace_ms / 1000 + ANSWER_S
    while time.monotonic() < deadline:
        try:
            state = _ask_status(base).state
        except DaemonUnreachable:
            click.echo("stopped")
            return 0
        if state is PipelineState.FAILED:
            click.echo("the daemon failed before its final checkpoint was committed: look at its log", err=True)
            return 1
        time.sleep(POLL_S)
    click.echo("the daemon still runs: look at its log", err=True)
    return 1


@click.command()
@_FILE
@_FORM
def checkpoints(file: Path, style: str) -> None:
    """List the retained checkpoints of FILE and the savepoints beside them. Only reads; no daemon is needed."""
    settings = read_pipeline(file, os.environ).settings
    rows = read_rows(str(settings.checkpoints.directory))
    if style == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2).decode())
        return
    if not rows:
        click.echo(f"no checkpoints in {settings.checkpoints.directory}")
        return
    click.echo(f"{'id':>10}  {'completed (UTC)':<19}  {'bytes':>15}  {'kind':<10}  output")
    for row in rows:
        click.echo(_line(row))


def _line(row: Row) -> str:
    if row.id is None or row.completed_at_ms is None or row.size_bytes is None:
        return f"{'-':>10}  {'-':<19}  {'-':>15}  {row.kind:<10}  {row.output}"
    at = datetime.fromtimestamp(row.completed_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return f"{row.id:>10}  {at}  {row.size_bytes:>15,}  {row.kind:<10}  {row.output}"


class Row(msgspec.Struct, frozen=True):
    """One line of the list."""

    id: int | None
    completed_at_ms: int | None
    size_bytes: int | None
    """None of a savepoint that is not finished."""
    kind: str
    """`begin`, `checkpoint`, `final`, `savepoint`, `unfinished`."""
    output: str
    """`committed`; for the newest what is known; a savepoint's path."""


def read_rows(directory: str) -> list[Row]:
    """Checkpoints of the journal, oldest first, then savepoints. Raises StorageError, JournalRefused, ObjectCorrupt."""
    storage = open_storage(directory, create=False)
    state = Journal(storage, Writer("reader", "", 0), retained=1, id_reserve=1).read()
    rows = [_row(state, entry) for entry in state.retained]
    files: dict[str, list[str]] = {}
    for name in storage.list(f"{SAVEPOINTS}/"):
        folder, _, file = name.removeprefix(f"{SAVEPOINTS}/").partition("/")
        files.setdefault(folder, []).append(file)
    return [*rows, *(_savepoint_row(f"{directory.rstrip('/')}/{SAVEPOINTS}/{name}", files[name]) for name in files)]


def _savepoint_row(path: str, files: list[str]) -> Row:
    """One that is being written looks like one that was given up: both have no metadata."""
    if METADATA not in files:
        return Row(None, None, None, "unfinished", f"{path} (can be deleted, unless it is being written now)")
    found = read_savepoint(open_storage(path, create=False)).checkpoint
    return Row(found.id, found.completed_at_ms, found.size_bytes, "savepoint", path)


def _row(state: JournalState, entry: CheckpointEntry) -> Row:
    """What the newest lists is decided, but only a later entry can show that it has been committed."""
    one = entry.checkpoint
    listed = {key_of(committable) for committable in state.committables}
    waiting = sum(key_of(committable) in listed for committable in one.committables)
    output = f"decided, {waiting} transactions not confirmed yet" if waiting else "committed"
    kind = "final" if one.final else "begin" if one.starts else "checkpoint"
    return Row(one.id, one.completed_at_ms, one.size_bytes, kind, output)


def derive_address(settings: PipelineSettings, given: str | None) -> str:
    """Where the daemon of a pipeline file listens, as seen from its own machine."""
    if given is not None:
        return given.rstrip("/")
    if settings.http.port == 0:
        raise click.UsageError("http.port is 0, so the port is in the daemon's log only: name it with --http URL")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.http.host, settings.http.host)  # noqa: S104 - compared
    return f"http://[{host}]:{settings.http.port}" if ":" in host else f"http://{host}:{settings.http.port}"


def _token(settings: PipelineSettings, base: str, given: Path | None) -> str | None:
    """None when there is none to be found: then the daemon, if there is one, says what is missing."""
    named = given or (Path(settings.http.token_file) if settings.http.token_file is not None else None)
    if named is not None:
        return read_token(named)
    _, port = _host_and_port(base)
    return find_token(temporary_directory(), port or HTTP_PORT)


def ask_daemon(
    base: str, method: str, path: str, order: Order | None, timeout_s: float, token: str | None = None
) -> bytes:
    """Raises OrderFailed with the daemon's own words, DaemonUnreachable. No proxy is asked: it is our own machine."""
    host, port = _host_and_port(base)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    body = None if order is None else msgspec.json.encode(order)
    headers = {"Content-Type": JSON} if token is None else {"Content-Type": JSON, "Authorization": SCHEME + token}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise DaemonUnreachable(
            f"no daemon answers at {base} ({error}); is the pipeline running on this machine, and is this its "
            "http.host and http.port?"
        ) from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OrderFailed(_words(text) or f"HTTP status {answer.status}", status=answer.status)
    return text


def _ask_status(base: str) -> Status:
    """Raises as ask_daemon and _decode."""
    return _decode(ask_daemon(base, "GET", "/status", None, ANSWER_S), Status, base)


def _decode(answer: bytes, kind: type[Answer], base: str) -> Answer:
    """Raises OrderFailed when something else than a daemon of this release answers."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise OrderFailed(f"what answers at {base} is not a Tidegate daemon of this release: {error}") from error


def _host_and_port(base: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(base)
        if parts.scheme == "http" and parts.hostname is not None and not parts.path:
            return parts.hostname, parts.port
    except ValueError as error:
        raise click.UsageError(f"{base} is not the address of a daemon ({error}): write http://host:port") from error
    raise click.UsageError(f"{base} is not the address of a daemon: write http://host:port")


def _words(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=OrderRefused).message
    except msgspec.DecodeError:
        return body.decode(errors="replace").strip()[:200]
