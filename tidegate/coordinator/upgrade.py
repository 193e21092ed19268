"""The result of comparing a checkpoint with a changed pipeline, as values; `upgrade_decision.py` decides it.

An upgrade directive in the file (`state: keep`) or on the command line (`--keep STEP`) applies to the first start that
has it. The first checkpoint of that attempt records it as applied (`Identity.applied_directives`), and a
later change needs another one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from tidegate.config.fields.steps import KEEP, RESET
from tidegate.coordinator.types import SourcePositions, StateHandle
from tidegate.ids import CheckpointId, OperatorName, StateName
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.plan.graph import Plan, UpgradeDirective
from tidegate.state.declaration import StateDeclaration, StateShape
from tidegate.user_code.describe import DIGEST_SHOWN, CodeMark


class UpgradeOutcome(StrEnum):
    """The effect of an upgrade on a source or on a step with state."""

    KEPT = "kept"
    RENAMED = "renamed"
    RESET = "reset"
    NEW = "new"
    DROPPED = "dropped"
    REFUSED = "refused"


class CommandLineDirectives(msgspec.Struct, frozen=True):
    """Upgrade directives on the command line.

    `--keep STEP[=NOTE]`, `--reset STEP[=NOTE]`, `--drop STEP`, `--drop STEP.COLUMN` and `--drop SOURCE.TOPIC`.
    """

    keep: dict[OperatorName, str] = {}
    reset: dict[OperatorName, str] = {}
    drop: tuple[OperatorName, ...] = ()
    columns: tuple[tuple[OperatorName, str], ...] = ()
    """Columns of a step's state to drop, as by `state: {drop: [...]}`, and topics of a source.

    The plan includes them (`give_up_columns`).
    """


class Definition(msgspec.Struct, frozen=True):
    """The current pipeline, as far as checkpoints are concerned."""

    fingerprints: Mapping[OperatorName, StateFingerprint]
    sources: Mapping[OperatorName, Mapping[str, int]]
    """Source -> topic -> number of partitions."""
    states: Mapping[OperatorName, tuple[StateDeclaration, ...]]
    """States of every step that has any, with the file's directives; empty tuples where only names matter."""
    edges: frozenset[str]
    """Names of the edges with keys."""
    directives: Mapping[OperatorName, UpgradeDirective] = MappingProxyType({})
    command_line: CommandLineDirectives = CommandLineDirectives()
    plan: Plan | None = None
    """For fingerprints and edges under former names; None if nothing is renamed."""
    code: Mapping[OperatorName, CodeMark] = MappingProxyType({})
    """The user code of each step that runs some."""
    files: Mapping[str, str] = MappingProxyType({})
    """The files of `code:` by name, with the SHA-256 of their content."""


class WrittenState(msgspec.Struct, frozen=True):
    """A state in a checkpoint, according to the headers of its files."""

    shape: StateShape
    keys: int | None = None
    """Upper bound: a key that changed between two increments counts in each.

    None for a list or if only one file was read.
    """
    size_bytes: int = 0


StoredStates = Mapping[tuple[OperatorName, StateName], WrittenState]
"""By the names in the checkpoint."""


class StateChange(msgspec.Struct, frozen=True):
    """The compatibility of one state."""

    name: StateName
    verdict: str
    reason: str = ""
    keys: int | None = None
    size_bytes: int = 0


class StepChange(msgspec.Struct, frozen=True):
    """A current source or step with state, or a dropped one of the checkpoint."""

    name: OperatorName
    outcome: UpgradeOutcome
    source: bool = False
    was: OperatorName = OperatorName("")
    remarks: tuple[str, ...] = ()
    states: tuple[StateChange, ...] = ()


class CodeChange(msgspec.Struct, frozen=True):
    """A step that runs other user code than the one that the checkpoint was made with."""

    name: OperatorName
    checkpoint: CheckpointId
    was: CodeMark
    now: CodeMark

    def __str__(self) -> str:
        changed = f"the code of {self.name} has changed since checkpoint {self.checkpoint}"
        return f"{changed}: it was {self.was}, and is {self.now}"


class FileChange(msgspec.Struct, frozen=True):
    """A file of `code:` that has changed since the checkpoint. `was` is empty if it is new, `now` if it is gone."""

    name: str
    checkpoint: CheckpointId
    was: str
    now: str

    def __str__(self) -> str:
        if not (self.was and self.now):
            return f"the file {self.name} is {'new' if self.now else 'gone'} since checkpoint {self.checkpoint}"
        was, now = self.was[:DIGEST_SHOWN], self.now[:DIGEST_SHOWN]
        return f"the file {self.name} has changed since checkpoint {self.checkpoint}: it was {was}, and is {now}"


class UpgradeRefusal(msgspec.Struct, frozen=True):
    """A change that needs the user's decision, with the choices."""

    name: OperatorName
    """The source or step concerned, under its current name or that in the checkpoint."""
    message: str
    remedy: str
    choices: dict[str, str] = {}
    """Directive -> its effect on the output."""
    changes: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The message and the choices as sentences, without the remedy."""
        return " ".join(f"{one}." for one in (self.message, *map(": ".join, self.choices.items())))

    def __str__(self) -> str:
        return f"{self.told} {self.remedy}"


class Upgrade(msgspec.Struct, frozen=True):
    """The decision; created only by `decide_upgrade`."""

    steps: tuple[StepChange, ...] = ()
    refusals: tuple[UpgradeRefusal, ...] = ()
    renamed: dict[OperatorName, OperatorName] = {}
    """Current name -> name in the checkpoint."""
    emptied: frozenset[OperatorName] = frozenset()
    """Names in the checkpoint of sources and steps that are not restored."""
    given_up: frozenset[tuple[OperatorName, StateName]] = frozenset()
    """States of kept steps that are not restored, by names in the checkpoint."""
    left: frozenset[tuple[OperatorName, str]] = frozenset()
    """Topics of kept sources whose positions are not restored, by names in the checkpoint."""
    code: tuple[CodeChange, ...] = ()
    """Changes of user code, which need no directive."""
    files: tuple[FileChange, ...] = ()
    """Changes of wheels and data files."""
    edges: dict[str, str] = {}
    """Current name -> name in the checkpoint, for edges where they differ."""
    applied_directives: dict[OperatorName, tuple[str, ...]] = {}
    """Directives recorded as applied with the first checkpoint of the attempt, as in Identity."""
    begun: dict[OperatorName, dict[str, CheckpointId]] = {}
    """Aggregates that begin at a checkpoint, as in Identity."""

    def map_positions(self, positions: tuple[SourcePositions, ...]) -> tuple[SourcePositions, ...]:
        """Returns positions under current names, without dropped sources and topics."""
        now = {old: new for new, old in self.renamed.items()}
        return tuple(
            msgspec.structs.replace(self._without_left(one), source=now.get(one.source, one.source))
            for one in positions
            if one.source not in self.emptied
        )

    def _without_left(self, one: SourcePositions) -> SourcePositions:
        left = {topic for source, topic in self.left if source == one.source}
        if not left:
            return one
        return msgspec.structs.replace(
            one,
            next_offsets=tuple(pair for pair in one.next_offsets if pair[0].topic not in left),
            end_offsets=tuple(pair for pair in one.end_offsets if pair[0].topic not in left),
            watermarks=tuple(pair for pair in one.watermarks if pair[0].topic not in left),
        )

    def map_states(self, states: tuple[StateHandle, ...]) -> tuple[StateHandle, ...]:
        """Returns states under current names, without dropped ones; rows in flight are kept."""
        now = {old: new for new, old in self.renamed.items()}
        return tuple(
            one if one.in_flight else msgspec.structs.replace(one, operator=now.get(one.operator, one.operator))
            for one in states
            if one.in_flight or (one.operator not in self.emptied and (one.operator, one.state) not in self.given_up)
        )

    def former(self, name: OperatorName) -> OperatorName:
        """Returns the name in the checkpoint for a current name."""
        return self.renamed.get(name, name)


UNCHANGED: Final = Upgrade()


APPLIED_MAX: Final = 50
"""Applied directives remembered per step; those still in the file are never forgotten."""
DROPPED_MAX: Final = 100
"""Dropped steps that the journal remembers."""
DROPPED: Final = "--drop"


# -- applied directives ------------------------------------------------------------------------------------------------


def directives_for(name: OperatorName, now: Definition) -> list[tuple[str, str]]:
    """Returns the directives for a step, and the texts under which they are recorded."""
    found = []
    for verb, notes in ((KEEP, now.command_line.keep), (RESET, now.command_line.reset)):
        if name in notes:
            found.append((verb, _text_of(f"--{verb}", notes[name])))
    directive = now.directives.get(name)
    if directive is not None and directive.verb:
        found.append((directive.verb, _text_of(directive.verb, directive.note)))
    return found


def _text_of(verb: str, note: str) -> str:
    return f"{verb}: {note}" if note else verb


def derive_applied(
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
            applied[name] = (*older, *texts)[-APPLIED_MAX:]
    for name in now.sources:  # a start without the option allows the next one to drop such a topic again
        others = (text for text in applied.get(name, ()) if not text.startswith(DROPPED))
        topics = (_text_of(DROPPED, topic) for source, topic in now.command_line.columns if source == name)
        applied[name] = (*others, *topics)
    for name in now.command_line.drop:
        gone.pop(name, None)
        gone[name] = (DROPPED,)
    return {**dict(list(gone.items())[-DROPPED_MAX:]), **{name: texts for name, texts in applied.items() if texts}}


def derive_dropped_topics(directive: UpgradeDirective | None, applied: Collection[str]) -> set[str]:
    """Returns the topics of a source whose positions this start drops; `applied` are the directives of its checkpoint.

    A source that finds such a topic again later keeps its new positions, although the option is still there.
    """
    topics = () if directive is None else directive.drop
    return {topic for topic in topics if _text_of(DROPPED, topic) not in applied}


def render_directive(text: str) -> str:
    """Renders a recorded directive as a user writes it."""
    verb, _, note = text.partition(": ")
    if verb.startswith("--"):
        return f'`{verb} STEP="{note}"`' if note else f"`{verb}`"
    return f'`state: {{{verb}: "{note}"}}`' if note else f"`state: {verb}`"


def advise(name: OperatorName, verbs: str, applied: str) -> str:
    """Explains how to write a directive with one of `verbs`, such as `keep or reset`.

    `applied` is a directive that was applied to an earlier change of the step, or empty.
    """
    first = verbs.split(maxsplit=1)[0]
    if applied:
        return (
            f"The directive {render_directive(applied)} was applied to an earlier change: write a new "
            f'note, `state: {{{first}: "why, and when"}}`, or for a single start --{first} {name}="why, and when"'
        )
    options = " or ".join(f"--{verb} {name}" for verb in verbs.split(" or "))
    begin = "Choose" if " or " in verbs else f"To {verbs} it, write"
    return f"{begin} `state: {verbs.replace(' or ', '` or `state: ')}` in the file, or for a single start {options}"
