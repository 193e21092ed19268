"""Words about changed state: which were said, how they are remembered, and which are spent. Pure.

A word of the file (`state: keep`) or of the command line (`--keep STEP`) counts at the first start that has it. From
that attempt's first checkpoint on it is spent: the journal has it (`Identity.words`), and a later change needs another.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.config.fields.upgrade_directives import KEEP, RESET
from tidegate.coordinator.upgrade import Definition
from tidegate.ids import OperatorName

WORDS_MAX: Final = 50
"""Spent words that are remembered of a step; those that the file still has are never forgotten."""
DROPPED_MAX: Final = 100
"""Steps that are gone of which the journal remembers that they were given up."""
DROPPED: Final = "--drop"


def directives_for(name: OperatorName, now: Definition) -> list[tuple[str, str]]:
    """Words for a step, and the texts by which they are remembered."""
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
    """What is spent once the first checkpoint of this start is complete."""
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
    """A remembered word as a user writes it."""
    verb, _, note = text.partition(": ")
    if verb.startswith("--"):
        return f'`{verb} STEP="{note}"`' if note else f"`{verb}`"
    return f'`state: {{{verb}: "{note}"}}`' if note else f"`state: {verb}`"


def say(name: OperatorName, words: str, applied: str) -> str:
    """How to say a word; `applied` is one that the step has, of an earlier change."""
    first = words.split(maxsplit=1)[0]
    if applied:
        return (
            f"The word {render_directive(applied)} was written for an earlier change, and counts once: write a new "
            f'note, `state: {{{first}: "why, and when"}}`, or for once --{first} {name}="why, and when"'
        )
    options = " or ".join(f"--{word} {name}" for word in words.split(" or "))
    begin = "Say which:" if " or " in words else f"To {words} write"
    return f"{begin} `state: {words.replace(' or ', '` or `state: ')}` in the file, or for once {options}"
