"""Options for what becomes of state that another definition has made: `--keep`, `--reset`, `--drop`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tidegate.config.interpolate import is_utf8
from tidegate.coordinator.upgrade import Spoken
from tidegate.ids import OperatorName

Command = TypeVar("Command", bound=Callable[..., Any])

_KEEP = "Once: the state of STEP is kept, although another definition has made it."
_RESET = "Once: STEP begins with empty state; the other steps continue."
_DROP = "Once: give up what the checkpoint has of a step or source that the file no longer has."


def require_utf8(what: str, text: str) -> str:
    """The text. Raises UsageError for other bytes, which no journal, order or value can have."""
    if not is_utf8(text):
        raise click.UsageError(f"{what}: {text[:100]!r} is not UTF-8 text")
    return text


def add_words(command: Command) -> Command:
    """The three options, each as often as there are steps."""
    for word, shown, text in (
        ("drop", "NAME", _DROP),
        ("reset", "STEP[=NOTE]", _RESET),
        ("keep", "STEP[=NOTE]", _KEEP),
    ):
        command = click.option(f"--{word}", metavar=shown, multiple=True, help=text)(command)
    return command


def read_words(keep: tuple[str, ...], reset: tuple[str, ...], drop: tuple[str, ...]) -> Spoken:
    """What was said, `STEP` or `STEP=NOTE`. Raises UsageError for what contradicts itself."""
    said = Spoken(_with_notes("keep", keep), _with_notes("reset", reset), tuple(map(OperatorName, drop)))
    for name in said.keep.keys() & said.reset.keys():
        raise click.UsageError(f"--keep {name} and --reset {name}: a state continues or begins empty, choose one")
    for name in {*said.keep, *said.reset} & {*said.drop}:
        raise click.UsageError(f"--drop {name} is for a step that the file no longer has: remove the other option")
    for text in drop:
        require_utf8("--drop", text)
        if "=" in text or not text:
            raise click.UsageError(f"--drop {text}: write the name of a step or source, and nothing else")
    return said


def _with_notes(word: str, given: tuple[str, ...]) -> dict[OperatorName, str]:
    found: dict[OperatorName, str] = {}
    for text in given:
        require_utf8(f"--{word}", text)
        name, equals, note = text.partition("=")
        if not name or (equals and not note):
            raise click.UsageError(f'--{word} {text}: write the name of a step, or STEP="why, and when"')
        if name in found:
            raise click.UsageError(f"--{word} {name} is given twice")
        found[OperatorName(name)] = note
    return found
