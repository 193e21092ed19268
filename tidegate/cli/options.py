"""Arguments and options that several commands share: FILE, topic names, where a start begins, upgrade directives."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from pydantic_core import PydanticCustomError

from tidegate.config.fields.types import check_topic
from tidegate.config.values import is_utf8
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.ids import OperatorName
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS

if TYPE_CHECKING:
    from tidegate.daemon.restore_point import StartOptions

FORM: Final = click.option(
    "--format", "style", type=click.Choice(["text", "json"]), default="text", help="Output format."
)
OF: Final = click.option(
    "--of",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Open addresses with `checkpoints.storage` of this pipeline file instead of the environment.",
)
TOKEN: Final = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the command token; default: http.token_file of FILE, else the daemon's own file on this machine.",
)
PIPELINE_FILE: Final = click.argument("file", type=click.Path(readable=False, path_type=Path))
"""Click does not check the file. An unreadable file is reported as a problem like all others, also with `--format
json`.
"""


_KEEP = "Keep the state of STEP although its definition has changed. Applies once."
_RESET = "Start STEP with empty state; the other steps continue. Applies once."
_DROP = (
    "Discard what the checkpoint has of a step or source, of an aggregate or column of a step, or of a topic of a "
    "source, that no longer exists. Applies once."
)
_RESTORE = "Restore this retained checkpoint or savepoint. Applies once."
_REPEAT_OUTPUT = "With --restore: allow output after that point to be written again."
_BEGIN_ANEW = "Start with an empty checkpoint directory although Kafka has a record of the pipeline."


def require_utf8(what: str, text: str) -> str:
    """Returns the text. Raises UsageError for other bytes, which journals, orders and values cannot contain."""
    if not is_utf8(text):
        raise click.UsageError(f"{what}: {text[:100]!r} is not UTF-8 text")
    return text


def directive_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--keep`, `--reset` and `--drop`, which the command receives as one argument `directives`."""

    @click.option("--keep", metavar="STEP[=NOTE]", multiple=True, help=_KEEP)
    @click.option("--reset", metavar="STEP[=NOTE]", multiple=True, help=_RESET)
    @click.option("--drop", metavar="NAME[.PART]", multiple=True, help=_DROP)
    @wraps(command)
    def wrapped(
        *arguments: Any, keep: tuple[str, ...], reset: tuple[str, ...], drop: tuple[str, ...], **more: Any
    ) -> Any:
        return command(*arguments, directives=read_directives(keep, reset, drop), **more)

    return wrapped


def start_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the directives and where a start begins, if not at the newest checkpoint, as one argument `options`."""

    @click.option("--restore", metavar="ID|PATH", help=_RESTORE)
    @click.option("--repeat-output", is_flag=True, help=_REPEAT_OUTPUT)
    @click.option("--begin-anew", is_flag=True, help=_BEGIN_ANEW)
    @directive_options
    @wraps(command)
    def wrapped(
        *arguments: Any,
        restore: str | None,
        repeat_output: bool,
        begin_anew: bool,
        directives: CommandLineDirectives,
        **more: Any,
    ) -> Any:
        return command(*arguments, options=_read_start(restore, repeat_output, begin_anew, directives), **more)

    return wrapped


def _read_start(
    restore: str | None, repeat_output: bool, begin_anew: bool, directives: CommandLineDirectives
) -> StartOptions:
    """Builds the start options. Raises UsageError for contradictory ones."""
    if restore is not None and not restore.strip():
        raise click.UsageError("--restore is empty: name a retained checkpoint or the directory of a savepoint")
    if repeat_output and restore is None:
        raise click.UsageError("--repeat-output needs --restore: name a checkpoint or savepoint")
    if begin_anew and restore is not None and not repeat_output:
        raise click.UsageError(
            "--begin-anew uses `start` of the sources, --restore a checkpoint: choose one. To restore a checkpoint "
            "again that the pipeline has already continued from, add --repeat-output"
        )
    from tidegate.daemon.restore_point import RestoreOption, StartOptions

    option = None if restore is None else RestoreOption(restore, repeat_output)
    return StartOptions(option, begin_anew, None, directives)


def read_directives(keep: tuple[str, ...], reset: tuple[str, ...], drop: tuple[str, ...]) -> CommandLineDirectives:
    """Parses the directives, `STEP` or `STEP=NOTE`. Raises UsageError for contradictory ones."""
    whole = tuple(OperatorName(text) for text in drop if _is_whole(text))
    parts = [text.partition(".") for text in drop if not _is_whole(text)]
    columns = tuple((OperatorName(name), column) for name, _, column in parts)
    said = CommandLineDirectives(_with_notes("keep", keep), _with_notes("reset", reset), whole, columns)
    for name in said.keep.keys() & said.reset.keys():
        raise click.UsageError(f"--keep {name} and --reset {name}: choose one")
    for name in {*said.keep, *said.reset} & {*said.drop}:
        raise click.UsageError(f"--drop {name} is for a step that the file no longer has: remove the other option")
    for text in drop:
        require_utf8("--drop", text)
        if "=" in text or not all(text.split(".", 1)):
            raise click.UsageError(f"--drop {text}: write the name of a step or source, STEP.COLUMN or SOURCE.TOPIC")
    return said


def _is_whole(text: str) -> bool:
    """Returns whether a name is not that of a column. The planner adds `dead_letters.retry`, which holds positions."""
    return "." not in text or text.startswith(f"{DEAD_LETTERS}.")


def _with_notes(option: str, given: tuple[str, ...]) -> dict[OperatorName, str]:
    found: dict[OperatorName, str] = {}
    for text in given:
        require_utf8(f"--{option}", text)
        name, equals, note = text.partition("=")
        if not name or (equals and not note):
            raise click.UsageError(f'--{option} {text}: write the name of a step, or STEP="why, and when"')
        if name in found:
            raise click.UsageError(f"--{option} {name} is given twice")
        found[OperatorName(name)] = note
    return found


def require_topic(name: str, place: str = "") -> str:
    """Returns the name. Raises UsageError, prefixed with `place`, if it cannot be a topic name, without asking a
    broker.
    """
    try:
        return check_topic(name)
    except PydanticCustomError as error:
        remedy = (error.context or {}).get("remedy", "")
        if re.fullmatch(r"[\w.-]+:\d+", name):
            remedy = "write the number of partitions as --partitions; only `tidegate broker` takes NAME:PARTITIONS"
        raise click.UsageError(f"{place}{error}{'; ' if remedy else ''}{remedy}") from error
