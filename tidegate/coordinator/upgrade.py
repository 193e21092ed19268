"""What becomes of a checkpoint when the pipeline is another one now, as values: see `upgrade_decision.py`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from tidegate.coordinator.entries import Identity
from tidegate.coordinator.types import SourcePositions, StateHandle
from tidegate.ids import CheckpointId, OperatorName, StateName
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.plan.graph import Plan, UpgradeDirective
from tidegate.state.declaration import StateDeclaration, StateShape


class UpgradeOutcome(StrEnum):
    """What becomes of a source or of a step with state."""

    KEPT = "kept"
    RENAMED = "renamed"
    RESET = "reset"
    NEW = "new"
    DROPPED = "dropped"
    REFUSED = "refused"


class CommandLineDirectives(msgspec.Struct, frozen=True):
    """What the command line says: `--keep STEP[=NOTE]`, `--reset STEP[=NOTE]`, `--drop STEP` and
    `--drop STEP.COLUMN`.
    """

    keep: dict[OperatorName, str] = {}
    reset: dict[OperatorName, str] = {}
    drop: tuple[OperatorName, ...] = ()
    columns: tuple[tuple[OperatorName, str], ...] = ()
    """Of a step's state, given up as by `state: {drop: [...]}`; the plan has them in its words (`give_up_columns`)."""


class Definition(msgspec.Struct, frozen=True):
    """The pipeline as it is now, as far as a checkpoint is concerned."""

    fingerprints: Mapping[OperatorName, StateFingerprint]
    sources: Mapping[OperatorName, Mapping[str, int]]
    """Source -> topic -> number of partitions."""
    states: Mapping[OperatorName, tuple[StateDeclaration, ...]]
    """Of every step with state, with what the file says about older entries; empty tuples where only names count."""
    edges: frozenset[str]
    """Names of the edges by key."""
    words: Mapping[OperatorName, UpgradeDirective] = MappingProxyType({})
    command_line: CommandLineDirectives = CommandLineDirectives()
    plan: Plan | None = None
    """For the meanings and edges under former names; None where nothing is renamed."""


class WrittenState(msgspec.Struct, frozen=True):
    """A state in a checkpoint, by the headers of its files."""

    shape: StateShape
    keys: int | None = None
    """At most: a key that was changed between two increments is counted for each; None of a list, which has none, and
    where only one file was looked at."""
    size_bytes: int = 0


StoredStates = Mapping[tuple[OperatorName, StateName], WrittenState]
"""By the names in the checkpoint."""


class StateChange(msgspec.Struct, frozen=True):
    """One state."""

    name: StateName
    verdict: str
    reason: str = ""
    keys: int | None = None
    size_bytes: int = 0


class StepChange(msgspec.Struct, frozen=True):
    """A source, or a step with state; of now, or of the checkpoint where it is dropped."""

    name: OperatorName
    outcome: UpgradeOutcome
    source: bool = False
    was: OperatorName = OperatorName("")
    remarks: tuple[str, ...] = ()
    states: tuple[StateChange, ...] = ()


class UpgradeRefusal(msgspec.Struct, frozen=True):
    """Something that nobody has decided, with the choices."""

    name: OperatorName
    """The source or step that it is about, of now or of the checkpoint."""
    message: str
    remedy: str
    choices: dict[str, str] = {}
    """Word -> what it does to the output."""
    changes: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        """The message and the choices, as sentences: the remedy is another one."""
        return " ".join(f"{one}." for one in (self.message, *map(": ".join, self.choices.items())))

    def __str__(self) -> str:
        return f"{self.told} {self.remedy}"


class Upgrade(msgspec.Struct, frozen=True):
    """The decision. Only made by `decide_upgrade`."""

    steps: tuple[StepChange, ...] = ()
    refusals: tuple[UpgradeRefusal, ...] = ()
    renamed: dict[OperatorName, OperatorName] = {}
    """Name of now -> name in the checkpoint."""
    emptied: frozenset[OperatorName] = frozenset()
    """Names in the checkpoint of what is not restored."""
    edges: dict[str, str] = {}
    """Edges that have another name in the checkpoint: name of now -> that one."""
    words: dict[OperatorName, tuple[str, ...]] = {}
    """See Identity: what is spent with the first checkpoint of the attempt."""
    begun: dict[OperatorName, dict[str, CheckpointId]] = {}
    """See Identity."""

    def map_positions(self, positions: tuple[SourcePositions, ...]) -> tuple[SourcePositions, ...]:
        """Under the names of now, without sources that are given up."""
        now = {old: new for new, old in self.renamed.items()}
        return tuple(
            msgspec.structs.replace(one, source=now.get(one.source, one.source))
            for one in positions
            if one.source not in self.emptied
        )

    def map_states(self, states: tuple[StateHandle, ...]) -> tuple[StateHandle, ...]:
        """Under the names of now, without states that are given up; rows in flight stay."""
        now = {old: new for new, old in self.renamed.items()}
        return tuple(
            one if one.in_flight else msgspec.structs.replace(one, operator=now.get(one.operator, one.operator))
            for one in states
            if one.in_flight or one.operator not in self.emptied
        )

    def former(self, name: OperatorName) -> OperatorName:
        """What something of now is called in the checkpoint."""
        return self.renamed.get(name, name)


UNCHANGED: Final = Upgrade()


def derive_identity(old: Identity, now: Identity) -> Identity:
    """For the states and positions of an older checkpoint that is appended again: what they mean stays what it was."""
    return msgspec.structs.replace(
        now,
        topic_ids={**old.topic_ids, **now.topic_ids},
        parallelism=old.parallelism,
        fingerprints=old.fingerprints,
        words=old.words,
        begun=old.begun,
    )
