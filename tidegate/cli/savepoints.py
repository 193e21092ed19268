"""`tidegate savepoint`: takes a savepoint of a running pipeline; lists, verifies and deletes savepoints with storage
alone.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import msgspec

from tidegate.cli.control_client import (
    AnswerTimeout,
    ConnectOptions,
    DaemonAddress,
    DaemonUnreachable,
    OrderFailed,
    ask_daemon,
    decode_answer,
    derive_reach,
    find_order_token,
    http_options,
)
from tidegate.cli.options import FORM, OF, PIPELINE_FILE, TOKEN, require_utf8
from tidegate.cli.output import echo_json, render_moment, render_table
from tidegate.config.fields.counts import render_count
from tidegate.config.fields.units import derive_duration_ms
from tidegate.config.load import derive_opener, opener_of_file, read_sections
from tidegate.config.models import PipelineSettings
from tidegate.coordinator.entries import JournalRefused
from tidegate.daemon.checkpoint_requests import SavepointDone
from tidegate.daemon.http.commands import ControlRequest
from tidegate.ids import ClusterName
from tidegate.journal.reading import list_entries
from tidegate.journal.savepoint import (
    COPY_AGAIN,
    Examination,
    FoundSavepoint,
    SavepointNeeded,
    SavepointRefused,
    examine_savepoint,
    find_savepoints,
    read_savepoint,
    refuse_needed,
    remove_savepoint,
)
from tidegate.storage.base import ObjectCorrupt, Storage, StorageError
from tidegate.storage.local import remove_empty
from tidegate.storage.open import StorageOpener, open_storage, scheme_of
from tidegate.tables.source import SnapshotKind, kind_of, read_journal

COPY_S: Final = 3600.0
"""Additional to the checkpoint timeout: time to copy the state into the directory."""
AGAIN_S: Final = 1.0
ANSWER_MIN_S: Final = 1.0
UNAVAILABLE: Final = 503
"""HTTP status: no savepoint can be taken now, but one may be possible later."""
DAMAGED: Final = 4
"""Exit code, the same as that of a start that finds damage."""


class SavepointCommand(click.Group):
    """The group that lets `tidegate savepoint FILE` take a savepoint. A file named like a subcommand is written
    `./list`.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Treats everything that is not a subcommand as the pipeline file."""
        if args and args[0] not in self.commands:
            args = ["take", *args]
        return super().resolve_command(ctx, args)


@click.group(
    cls=SavepointCommand, context_settings={"ignore_unknown_options": True}, subcommand_metavar="FILE | COMMAND"
)
def savepoint() -> None:
    """Take a savepoint of the running pipeline of FILE, or list, verify and delete savepoints.

    `tidegate savepoint FILE` is short for `tidegate savepoint take FILE`.
    """


class _Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns seconds."""
        if isinstance(value, str):
            with suppress(ValueError):
                return derive_duration_ms(value) / 1000
        return self.fail(f"{value!r} is not a duration: write a number with its unit, such as 30s or 10m", param, ctx)


@savepoint.command()
@PIPELINE_FILE
@click.argument("directory", required=False)
@http_options
@TOKEN
@click.option(
    "--wait", is_flag=True, help="Retry while no savepoint can be taken, for example because the pipeline is starting."
)
@click.option("--timeout", "timeout_s", type=_Duration(), metavar="DURATION", help="Time limit, such as 30s or 10m.")
def take(
    file: Path,
    directory: str | None,
    given: ConnectOptions,
    token_file: Path | None,
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Take a savepoint of the running pipeline of FILE and print its path when it is complete.

    It is written to DIRECTORY (default: `savepoints` in the checkpoint directory), and kept until you delete it.
    DIRECTORY must be below the checkpoint directory or one of `savepoints.roots`. A relative path is resolved on this
    machine.
    """
    target = describe_directory(directory)
    settings = read_sections(file, os.environ, "name", "http", "checkpoints")
    reach = derive_reach(settings, given)
    click.echo(take_savepoint(settings, reach, target, token_file, wait=wait, timeout_s=timeout_s).path)


def describe_directory(given: str | None) -> str | None:
    """Makes the directory absolute, because the daemon may have another working directory. None: that of the
    checkpoints.
    """
    if given == "":
        raise click.UsageError("DIRECTORY is empty: name one, or leave it out for the default")
    if given is None or "://" in given:
        return given
    return require_utf8("DIRECTORY", str(Path(given).absolute()))


def take_savepoint(
    settings: PipelineSettings,
    reach: DaemonAddress,
    directory: str | None,
    token_file: Path | None,
    *,
    wait: bool = False,
    timeout_s: float | None = None,
) -> SavepointDone:
    """Orders a savepoint and waits until it is complete.

    With `wait` it also waits until one can be taken, and stderr shows the reason for the delay. Raises OrderFailed,
    DaemonUnreachable, AnswerTimeout.
    """
    limit_s = settings.checkpoints.timeout_ms / 1000 + COPY_S if timeout_s is None else timeout_s
    deadline = time.monotonic() + limit_s
    reason = ""
    while True:
        left_s = max(ANSWER_MIN_S, deadline - time.monotonic())
        try:
            token = find_order_token(settings, reach, token_file)
            answer = ask_daemon(reach, "POST", "/savepoints", ControlRequest(settings.name, directory), left_s, token)
            return decode_answer(answer, SavepointDone, reach)
        except AnswerTimeout as late:
            raise AnswerTimeout(
                f"no savepoint was complete after {limit_s:,.0f} s. If it completes later, `tidegate savepoint list` "
                "shows it"
            ) from late
        except (OrderFailed, DaemonUnreachable) as error:
            again = isinstance(error, DaemonUnreachable) or error.fields.get("status") == UNAVAILABLE
            if not (wait and again) or time.monotonic() + AGAIN_S >= deadline:
                raise
            if error.message != reason:
                reason = error.message
                click.echo(f"waiting: {reason}", err=True)
        time.sleep(AGAIN_S)


class SavepointRow(msgspec.Struct, frozen=True):
    """One line of the list of savepoints."""

    path: str
    whole: bool
    problem: str
    """Why the savepoint is not whole."""
    verified: bool
    """Every byte was read; otherwise only metadata and names."""
    taken_at_ms: int | None = None
    pipeline: str | None = None
    checkpoint: int | None = None
    size_bytes: int | None = None
    keys: int | None = None
    parallelism: int | None = None


@savepoint.command(name="list")
@click.argument("place", metavar="FILE|DIRECTORY")
@click.option("--verify", "verified", is_flag=True, help="Also read every file, as `verify` does.")
@OF
@FORM
def list_savepoints(place: str, verified: bool, file: Path | None, style: str) -> None:
    """List the savepoints of the pipeline of FILE (checkpoint directory and `savepoints.roots`), or those below
    DIRECTORY.

    Only metadata and file names are read, unless --verify is given. No daemon is needed.
    """
    directories, opener = _directories(place, file)
    rows: dict[str, SavepointRow] = {}
    for directory in directories:
        found, unread = find_savepoints(opener(directory, create=False), opener)
        rows |= {one.path: _row(one, opener, verified=verified) for one in found}
        for folder in unread:
            click.echo(f"not searched (no permission to read it): {folder}", err=True)
    if style == "json":
        echo_json(list(rows.values()))
        return
    if not rows:
        click.echo(f"no savepoints in {' or '.join(directories)}")
        return
    _print(list(rows.values()))


def _directories(place: str, of: Path | None) -> tuple[list[str], StorageOpener]:
    """Returns the directories to search and their opener. An address is opened with the settings of `of`, or the
    environment.
    """
    kind = SnapshotKind.DIRECTORY if "://" in place else kind_of(place)
    named = kind is SnapshotKind.NOTHING and place.endswith(
        (".yaml", ".yml")
    )  # the first savepoint may create the directory
    if kind is not SnapshotKind.FILE and not named:
        return [place if "://" in place else str(Path(place).absolute())], opener_of_file(of)
    settings = read_sections(Path(place), os.environ, "checkpoints", "savepoints")
    return [str(settings.checkpoints.directory), *settings.savepoints.roots], derive_opener(settings)


def _row(found: FoundSavepoint, opener: StorageOpener, *, verified: bool) -> SavepointRow:
    one, problem, keys = found.savepoint, found.problem, None
    if one is None:
        return SavepointRow(found.path, whole=False, problem=problem, verified=verified)
    keys = one.keys
    if verified:
        try:
            examined = examine_savepoint(opener(found.path, create=False))
            problem, keys = "; ".join(examined.problems[:1]), examined.keys
        except StorageError as error:  # concerns this savepoint only; the others are still examined
            problem = error.message
    return SavepointRow(
        found.path,
        whole=not problem,
        problem=problem,
        verified=verified,
        taken_at_ms=one.written_at_ms,
        pipeline=one.identity.pipeline,
        checkpoint=one.checkpoint.id,
        size_bytes=one.checkpoint.size_bytes,
        keys=keys,
        parallelism=one.identity.parallelism,
    )


def _print(rows: list[SavepointRow]) -> None:
    titles = ("taken (UTC)", "pipeline", "checkpoint", "bytes", "keys", "parallelism", "files", "path")
    cells = [
        (
            *(render_moment(row.taken_at_ms), row.pipeline or "-"),
            *(_count(row.checkpoint), _count(row.size_bytes), _count(row.keys), _count(row.parallelism)),
            *(("whole" if row.verified else "complete") if row.whole else "DAMAGED", row.path),
        )
        for row in rows
    ]
    click.echo("\n".join(render_table(titles, cells, ("checkpoint", "bytes", "keys", "parallelism"))))
    for row in rows:
        if row.problem:
            click.echo(f"{row.path}: {row.problem}")


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


@savepoint.command()
@click.argument("path")
@OF
@FORM
def verify(path: str, file: Path | None, style: str) -> int:
    """Read the whole savepoint in PATH, and verify checksums, state headers and metadata.

    The exit code is 0 if it is intact, 4 if it is damaged, 2 if PATH is not a savepoint. Neither a daemon nor Kafka is
    needed.
    """
    examined = examine_savepoint(opener_of_file(file)(path, create=False))
    if style == "json":
        echo_json(_verdict(path, examined))
    else:
        click.echo("\n".join(_told(path, examined)))
    return DAMAGED if examined.problems else 0


class SavepointVerdict(msgspec.Struct, frozen=True):
    """The output of `verify --format json`."""

    path: str
    whole: bool
    problems: tuple[str, ...]
    extra: tuple[str, ...]
    pipeline: str
    clusters: dict[ClusterName, str]
    checkpoint: int
    taken_at_ms: int
    parallelism: int
    files: int
    size_bytes: int
    keys: int


def _verdict(path: str, examined: Examination) -> SavepointVerdict:
    identity, checkpoint = examined.savepoint.identity, examined.savepoint.checkpoint
    return SavepointVerdict(
        path=path,
        whole=not examined.problems,
        problems=examined.problems,
        extra=examined.extra,
        pipeline=identity.pipeline,
        clusters={name: one.id for name, one in identity.clusters.items()},
        checkpoint=checkpoint.id,
        taken_at_ms=examined.savepoint.written_at_ms,
        parallelism=identity.parallelism,
        files=len(checkpoint.states),
        size_bytes=checkpoint.size_bytes,
        keys=examined.keys,
    )


def _told(path: str, examined: Examination) -> list[str]:
    one = _verdict(path, examined)
    about = (
        f"pipeline {one.pipeline}, checkpoint {one.checkpoint}, taken {render_moment(one.taken_at_ms)} UTC at "
        f"parallelism {one.parallelism}: {render_count(one.files, 'file')} of state, "
        f"{render_count(one.size_bytes, 'byte')}, {render_count(one.keys, 'key')}"
    )
    lines = [f"{path}: {'whole' if one.whole else 'DAMAGED'}", about, *one.problems]
    if one.problems:
        lines.append(COPY_AGAIN)
    if one.extra:
        lines.append(f"{render_count(len(one.extra), 'file')} not part of the savepoint (first: {one.extra[0]})")
    return lines


@savepoint.command()
@click.argument("path")
@click.option(
    "--of",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Pipeline file of a pipeline that may need it; also used to open addresses.",
)
@click.option("--force", is_flag=True, help="Delete it even if a pipeline was restored from it, or is being restored.")
@click.option(
    "--unfinished", is_flag=True, help="Delete it even if it is incomplete. Not for one that is being written."
)
def delete(path: str, file: Path | None, force: bool, unfinished: bool) -> None:
    """Delete the savepoint in PATH. Other files are kept.

    This is refused if the pipeline of the enclosing checkpoint directory, or the one of --of, was restored from it: a
    start with the same `--restore` would read it again.
    """
    settings = None if file is None else read_sections(file, os.environ, "checkpoints")
    opener = open_storage if settings is None else derive_opener(settings)
    folder = opener(path, create=False)
    if not force:
        for directory in _owners(path, None if settings is None else settings.checkpoints.directory, opener):
            _refuse_needed(folder, opener(directory, create=False), unfinished=unfinished)
    removed = remove_savepoint(folder, unfinished=unfinished)
    if scheme_of(path) == "file":
        remove_empty(path)
    click.echo(f"deleted {path} ({render_count(removed, 'file')})")


def _owners(path: str, directory: str | None, opener: StorageOpener) -> list[str]:
    """Returns the checkpoint directories whose journals are consulted: every enclosing one and the one named."""
    above = (path if "://" in path else str(Path(path).absolute())).rstrip("/")
    scheme, _, _ = above.rpartition("://")
    found = [] if directory is None else [directory]
    while (above := above.rpartition("/")[0]).removeprefix(f"{scheme}:").strip("/"):
        if list_entries(opener(above, create=False)):
            found.append(above)
    return found


def _refuse_needed(folder: Storage, checkpoints: Storage, *, unfinished: bool) -> None:
    try:
        found = read_savepoint(folder)
    except (SavepointRefused, ObjectCorrupt):
        if unfinished:
            return  # nothing can be restored from it
        raise
    try:
        origin = read_journal(checkpoints).origin
    except (JournalRefused, ObjectCorrupt) as error:
        raise SavepointNeeded(
            f"cannot tell whether {checkpoints.location} needs it ({error.message}). It may be the only state left "
            "to restore there. If not, delete it with --force"
        ) from error
    refuse_needed(found, checkpoints, origin)
