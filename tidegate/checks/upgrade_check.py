"""Determines what a start with this file would do with a checkpoint or savepoint, without Kafka, Spark or a daemon.

The decision is that of a start, in `coordinator/upgrade_decision.py`. Cluster, topics and partitions are assumed to be
those of the checkpoint; `validate --connect` compares them. Nothing is written, and a running daemon is not affected.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from tidegate.checks.unfit_state import refuse_unfit_rows
from tidegate.config.load import derive_opener
from tidegate.config.models import PipelineSettings
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.recovery import RestoreFacts, refuse_other_identity, refuse_unfit
from tidegate.coordinator.restore_target import find_retained
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.coordinator.upgrade import (
    CommandLineDirectives,
    StoredStates,
    Upgrade,
    UpgradeRefusal,
    derive_dropped_topics,
)
from tidegate.coordinator.upgrade_decision import decide_upgrade
from tidegate.errors import BEGIN_ANEW, PipelineStopped, TidegateError
from tidegate.ids import CheckpointId, OperatorName, StateName, is_checkpoint_number
from tidegate.journal.savepoint import COPY_AGAIN, read_savepoint
from tidegate.journal.state_files import find_cut, read_parts, read_stored
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.evolving import evolve
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration
from tidegate.state.errors import StateUnreadable
from tidegate.state.keygroups import key_groups_of_keys
from tidegate.state.local_directory import LocalDirectory
from tidegate.state.operator_list import OperatorList
from tidegate.state.order import Row
from tidegate.storage.base import ObjectCorrupt, ObjectMissing, Storage
from tidegate.storage.open import StorageOpener
from tidegate.tables.source import read_journal
from tidegate.task.inflight import derive_shapes
from tidegate.task.ports import OperatorState
from tidegate.task.restore import restore_states, unknown_state

FREE_TIMES: Final = 2
"""How many times the size of a state's files must be free: a store rewrites its content while it is filled."""

Owner = tuple[OperatorName, StateName]
Declared = Mapping[Owner, StateDeclaration]
"""The declarations by present names, with the file's directives about older entries."""


class ScratchTooSmall(PipelineStopped):
    """The disk of the scratch directory has no room for a dry run; the upgrade itself may still be possible."""

    code = "scratch-too-small"
    exit_code = 1


class Migrated(msgspec.Struct, frozen=True):
    """The result for one state that was restored."""

    step: OperatorName
    state: StateName
    backend: str
    """The backend it was restored into; lists are always in memory."""
    entries: int
    """Entries of the restored state; several increments of a key count once."""
    read_bytes: int
    """Size of its files."""
    seconds: float
    """Time to read and fill, with one reader, one key group after another."""
    failure: str = ""
    """Why it cannot be restored. The remedy for damage is left out, because it depends on where the files are."""
    damaged: bool = False
    """True if its files are missing or not as written."""


def measure_free(place: Path) -> int:
    """Measure the free bytes on the disk of a directory. Raises OSError."""
    return shutil.disk_usage(place).free


def restore_into_scratch(
    storage: Storage,
    handles: Sequence[StateHandle],
    declared: Declared,
    backend: str,
    *,
    parent: Path | None = None,
    free: Callable[[Path], int] = measure_free,
) -> Iterator[Migrated]:
    """Restore the states of these handles, which have their present names, one after another.

    `parent` is where the scratch directory is created, by default the system's temporary directory.

    Raises ScratchTooSmall before anything is restored, LocalStateFailed, and StorageError unless it is damage.
    """
    states: dict[Owner, list[StateHandle]] = {}
    for handle in handles:
        if not handle.in_flight:
            states.setdefault((handle.operator, handle.state), []).append(handle)
    base = Path(tempfile.gettempdir()) if parent is None else parent
    if backend != "memory":
        _refuse_small(base, states, free(base))
    with closing(LocalDirectory(base)) as scratch:
        for owner, own in states.items():
            yield _restore(storage, owner, own, declared, _Opener(backend, scratch.path))


def _refuse_small(base: Path, states: Mapping[Owner, Sequence[StateHandle]], free_bytes: int) -> None:
    """Refuse a disk without room for the largest state: only one is restored at a time."""
    for (step, state), own in states.items():
        size = sum(one.size_bytes for one in own)
        if free_bytes < FREE_TIMES * size:
            raise ScratchTooSmall(
                f"a dry run of state {state} of {step}, {size:,} bytes, needs {FREE_TIMES * size:,} bytes on the disk "
                f"of {base}, which has {free_bytes:,}: make room, or set TMPDIR to a directory on another disk; "
                "without --migrate-dry-run nothing is written",
                directory=str(base),
            )


class _Opener:
    def __init__(self, backend: str, scratch: Path) -> None:
        self._backend = backend
        self._open = choose_backend(backend, 1, scratch)

    def name(self, declaration: StateDeclaration) -> str:
        return self._backend if declaration.keyed else "memory"

    def open(self, step: OperatorName, declaration: StateDeclaration) -> OperatorState:
        if not declaration.keyed:
            return OperatorList(step, declaration)
        shape = declaration.shape
        counting = slice(shape.prefix, len(shape.keys) - shape.suffix)
        kinds = [field.type for field in shape.keys[counting]]

        def groups_of(keys: list[Row]) -> Sequence[int]:
            return key_groups_of_keys(keys, kinds, shape.max_parallelism)

        found: Any = self._open(step, declaration, groups_of)
        return found  # type: ignore[no-any-return]  # files may be of any kind


def _restore(
    storage: Storage, owner: Owner, handles: Sequence[StateHandle], declared: Declared, opener: _Opener
) -> Migrated:
    step, name = owner
    size = sum(one.size_bytes for one in handles)
    begun = time.perf_counter()
    declaration = declared.get(owner)
    if declaration is None:
        known = [state for operator, state in declared if operator == step]
        return Migrated(step, name, "", 0, size, 0.0, unknown_state(step, name, known).message)
    # Like a slot: the key groups of this pipeline, whichever groups a file holds.
    share = Share(range(declaration.shape.max_parallelism if declaration.keyed else 1))
    read = partial(read_parts, storage, key_groups=share.key_groups)
    backend = opener.name(declaration)
    with closing(opener.open(step, declaration)) as state:
        try:
            restore_states(step, {name: state}, handles, read, share)
        except (ObjectCorrupt, ObjectMissing) as error:
            problem = str(error.fields.get("problem", error.message))
            return Migrated(step, name, backend, 0, size, time.perf_counter() - begun, problem, damaged=True)
        except StateUnreadable as error:
            return Migrated(step, name, backend, 0, size, time.perf_counter() - begun, error.message)
        return Migrated(step, name, backend, len(state), size, time.perf_counter() - begun)


class Target(msgspec.Struct, frozen=True):
    """What would be restored."""

    title: str
    checkpoint: CompletedCheckpoint
    identity: Identity
    saved: bool = False
    """True for a savepoint, which a pipeline of any name may restore."""


class Report(msgspec.Struct, frozen=True):
    """The outcome for every source and step. `target` is empty if there is nothing to continue from."""

    pipeline: str
    target: str
    upgrade: Upgrade
    refusals: tuple[UpgradeRefusal, ...]
    migrated: tuple[Migrated, ...] = ()
    repair: str = ""
    """How to repair damaged files of the target."""

    @property
    def fits(self) -> bool:
        """True if a start would succeed."""
        return not self.refusals and not any(one.failure for one in self.migrated)


def find_target(directory: str, open_storage: StorageOpener, wanted: str | None) -> tuple[Target | None, Storage]:
    """Find the newest checkpoint, or the named retained checkpoint or savepoint, and the storage of its states.

    For a named target only the state is examined. Whether `--repeat-output` is required, or earlier journal entries are
    missing, is left to `validate --connect`. Raises RestoreRefused, SavepointRefused, JournalRefused, StorageError.
    """
    if wanted is not None and not is_checkpoint_number(wanted):
        folder = open_storage(wanted, create=False)
        savepoint = read_savepoint(folder)
        return Target(f"savepoint {wanted}", savepoint.checkpoint, savepoint.identity, saved=True), folder
    storage = open_storage(directory, create=False)
    state = read_journal(storage, may_repeat=wanted is not None)
    if wanted is not None:
        found = find_retained(state, CheckpointId(int(wanted)))
        return Target(found.title, found.checkpoint, found.identity), storage
    newest, identity = state.newest_checkpoint, state.identity
    if newest is None or identity is None:
        return None, storage
    return Target(f"checkpoint {newest.id} of {directory}", newest, identity), storage


def check_upgrade(
    plan: Plan,
    target: Target | None,
    storage: Storage,
    command_line: CommandLineDirectives,
    *,
    migrate: str = "",
) -> Report:
    """Check the upgrade to this plan.

    `migrate` is the backend into which every state is restored for a dry run; empty for none. Raises StorageError, and
    for a dry run what `restore_into_scratch` raises.
    """
    if target is None:
        return Report(plan.pipeline, "", Upgrade(), ())
    if target.saved:
        identity = msgspec.structs.replace(target.identity, pipeline=plan.pipeline)
        target = msgspec.structs.replace(target, identity=identity)
    checkpoint, identity = target.checkpoint, target.identity
    facts = derive_offline_facts(plan, checkpoint, identity, command_line)
    stored = read_stored(storage, checkpoint.states, every=True)
    upgrade = decide_upgrade(checkpoint, identity, facts.definition, stored)
    refusals = _all_refusals(plan, storage, target, facts, upgrade, stored)
    repair = COPY_AGAIN if target.saved else f"restore it from a backup, or start with {BEGIN_ANEW}"
    cut = "" if refusals else find_cut(storage, checkpoint.states)
    if cut and not _has_gone(storage, target):
        refusals = (
            UpgradeRefusal(OperatorName(""), f"{target.title} is damaged: {cut}", f"{repair[:1].upper()}{repair[1:]}"),
        )
    if refusals:
        return Report(plan.pipeline, target.title, upgrade, refusals)
    handles = upgrade.map_states(checkpoint.states)
    declared = _evolved(plan, upgrade)
    migrated = tuple(restore_into_scratch(storage, handles, declared, migrate)) if migrate else ()
    return Report(plan.pipeline, target.title, upgrade, refusals, migrated, repair)


def _has_gone(storage: Storage, target: Target) -> bool:
    """Return whether a running daemon has removed the target meanwhile."""
    return not target.saved and all(
        entry.checkpoint.id != target.checkpoint.id for entry in read_journal(storage, may_repeat=True).retained
    )


def _all_refusals(
    plan: Plan, storage: Storage, target: Target, facts: RestoreFacts, upgrade: Upgrade, stored: StoredStates
) -> tuple[UpgradeRefusal, ...]:
    try:
        refuse_other_identity(target.identity, facts.identity)
        if upgrade.refusals:
            return upgrade.refusals
        refuse_unfit(target.checkpoint, target.identity, facts, stored)
        refuse_unfit_rows(storage, plan, target.checkpoint.states, upgrade)
    except TidegateError as error:  # another pipeline, other key groups, rows in flight of another shape
        message, _, remedy = error.message.partition("; ")
        remedy = remedy[:1].upper() + remedy[1:]
        return (UpgradeRefusal(OperatorName(str(error.fields.get("operator", ""))), message, remedy),)
    return ()


def derive_offline_facts(
    plan: Plan, checkpoint: CompletedCheckpoint, old: Identity, command_line: CommandLineDirectives
) -> RestoreFacts:
    """Derive the facts of the present pipeline on the cluster as of the checkpoint."""
    counts: dict[str, int] = {}
    topics: dict[OperatorName, set[str]] = {}
    for one in checkpoint.positions:
        for at, _ in one.next_offsets:
            counts[at.topic] = max(counts.get(at.topic, 0), at.partition + 1)
            topics.setdefault(one.source, set()).add(at.topic)
    sources: dict[OperatorName, Mapping[str, int]] = {}
    for source in plan.operators(SourceOperator):
        directive = plan.directives.get(source.name)
        was = source.name if directive is None else directive.was
        held = topics.get(source.name) or topics.get(was) or set()
        held = held - derive_dropped_topics(directive, old.applied_directives.get(source.name, ()))
        read = {topic for topic in held if source.matches(topic)} if source.pattern else set(source.topics)
        sources[source.name] = {topic: counts.get(topic, 1) for topic in sorted(read)}
    identity = Identity(
        pipeline=plan.pipeline,
        clusters=old.clusters,
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        fingerprints=derive_fingerprints(plan),
        code=plan.code,
        files=plan.digests,
    )
    stateful = frozenset(node.operator.name for node in plan.nodes if node.operator.states(plan.max_parallelism))
    edges = frozenset(shape.name for shape in derive_shapes(plan).values())
    return RestoreFacts(identity, sources, stateful, edges, plan, command_line)


# -- reading as a start would ------------------------------------------------------------------------------------------


def _evolved(plan: Plan, upgrade: Upgrade) -> dict[tuple[OperatorName, StateName], StateDeclaration]:
    """Derive the declared states by present names, with the file's directives about older entries."""
    found = {}
    for node in plan.nodes:
        name = node.operator.name
        directive = plan.directives.get(name)
        for one in node.operator.states(plan.max_parallelism):
            found[name, one.name] = (
                one if directive is None else evolve(one, directive, renamed=name in upgrade.renamed)
            )
    return found


def find_upgrade(
    settings: PipelineSettings,
    plan: Plan,
    wanted: str | None,
    command_line: CommandLineDirectives,
    *,
    migrate: bool = False,
) -> Report:
    """Find the target and check the upgrade. Raises what `find_target` raises."""
    target, states = find_target(settings.checkpoints.directory, derive_opener(settings), wanted)
    return check_upgrade(plan, target, states, command_line, migrate=settings.state.backend if migrate else "")
