"""Upgrade directives: which were given, how they are recorded, and which have been applied. Pure.

A directive in the file (`state: keep`) or on the command line (`--keep STEP`) applies to the first start that has it.
The first checkpoint of that attempt records it as applied (`Identity.words`), and a later change needs another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.config.fields.upgrade_directives import KEEP, RESET
from tidegate.coordinator.upgrade import Definition
from tidegate.ids import OperatorName

WORDS_MAX: Final = 50
"""Applied directives remembered per step; those still in the file are never forgotten."""
DROPPED_MAX: Final = 100
"""Dropped steps that the journal remembers."""
DROPPED: Final = "--drop"


def directives_for(name: OperatorName, now: Definition) -> list[tuple[str, str]]:
    """Returns the directives for a step, and the texts under which they are recorded."""
    said = []
    for verb, notes in ((KEEP, now.command_line.keep), (RESET, now.command_line.reset)):
        if name in notes:
            said.append((verb, _text_of(f"--{verb}", notes[name])))
    words = now.words.get(name)
    if words is not None and words.verb:
        said.append((words.verb, _text_of(words.verb, words.note)))
    return said


def _text_of(verb: str, note: str) -> str:
    return f"{verb}: {note}" if note else verb


def spend(
    before: Mapping[OperatorName, tuple[str, ...]], now: Definition, names: Mapping[OperatorName, OperatorName]
) -> dict[OperatorName, tuple[str, ...]]:
    """Returns the applied directives once the first checkpoint of this start is complete."""
    applied: dict[OperatorName, tuple[str, ...]] = {}
    gone: dict[OperatorName, tuple[str, ...]] = {}
    for old, texts in before.items():
        name = names.get(old, old)
        kept = name in now.states or name in now.sources
        (applied if kept else gone)[name] = texts
    for name in now.states:
        texts = tuple(text for _, text in directives_for(name, now))
        if texts or name in applied:
            older = tuple(text for text in applied.get(name, ()) if text not in texts)
            applied[name] = (*older, *texts)[-WORDS_MAX:]
    for name in now.command_line.drop:
        gone.pop(name, None)
        gone[name] = (DROPPED,)
    return {**dict(list(gone.items())[-DROPPED_MAX:]), **applied}


def render_directive(text: str) -> str:
    """Renders a recorded directive as a user writes it."""
    verb, _, note = text.partition(": ")
    if verb.startswith("--"):
        return f'`{verb} STEP="{note}"`' if note else f"`{verb}`"
    return f'`state: {{{verb}: "{note}"}}`' if note else f"`state: {verb}`"


def say(name: OperatorName, words: str, applied: str) -> str:
    """Explains how to write a directive; `applied` is one that the step has from an earlier change."""
    first = words.split(maxsplit=1)[0]
    if applied:
        return (
            f"The word {render_directive(applied)} was written for an earlier change, and counts once: write a new "
            f'note, `state: {{{first}: "why, and when"}}`, or for once --{first} {name}="why, and when"'
        )
    options = " or ".join(f"--{word} {name}" for word in words.split(" or "))
    begin = "Say which:" if " or " in words else f"To {words} write"
    return f"{begin} `state: {words.replace(' or ', '` or `state: ')}` in the file, or for once {options}"
