"""Determines what a start with this file would do with a checkpoint or savepoint, without Kafka, Spark or a daemon.

The decision is that of a start, in `coordinator/upgrade_decision.py`. Cluster, topics and partitions are assumed to be
those of the checkpoint; `validate --connect` compares them. Nothing is written, and a running daemon is not affected.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from tidegate.checks.dry_run import Migrated, restore_into_scratch
from tidegate.checks.unfit_state import refuse_unfit_rows
from tidegate.config.models import PipelineSettings
from tidegate.config.storages import derive_opener
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.recovery import RestoreFacts, refuse_other_identity, refuse_unfit
from tidegate.coordinator.restore_target import find_retained
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.coordinator.upgrade import CommandLineDirectives, StoredStates, Upgrade, UpgradeRefusal
from tidegate.coordinator.upgrade_decision import decide_upgrade
from tidegate.errors import BEGIN_ANEW, TidegateError
from tidegate.ids import CheckpointId, OperatorName, StateName, is_checkpoint_number
from tidegate.journal.savepoint import COPY_AGAIN, read_savepoint
from tidegate.journal.state_files import find_cut, read_state, read_stored
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.evolving import evolve
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.state.declaration import StateDeclaration
from tidegate.state.snapshot import read_entries, read_header
from tidegate.storage.base import Storage
from tidegate.storage.checksum import unseal
from tidegate.storage.open import StorageOpener
from tidegate.tables.source import read_journal
from tidegate.task.inflight import derive_shapes

FORECAST_BYTES_MIN: Final = 1_000_000
"""Smaller states are restored instantly, and are too small to measure the read speed."""
SAMPLE_S: Final = 1.0
"""Maximum duration of measuring the read speed."""


class Target(msgspec.Struct, frozen=True):
    """What would be restored."""

    title: str
    checkpoint: CompletedCheckpoint
    identity: Identity
    saved: bool = False
    """True for a savepoint, which a pipeline of any name may restore."""


class Forecast(msgspec.Struct, frozen=True):
    """An estimate based on the speed at which one file was read here."""

    state_bytes: int
    """The size of the states that are kept: what is read, and approximately what the first checkpoint writes."""
    bytes_per_s: float
    restore_s: float


class Report(msgspec.Struct, frozen=True):
    """The outcome for every source and step. `target` is empty if there is nothing to continue from."""

    pipeline: str
    target: str
    upgrade: Upgrade
    refusals: tuple[UpgradeRefusal, ...]
    forecast: Forecast | None = None
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
    headers: bool = True,
) -> Report:
    """Check the upgrade to this plan.

    `migrate` is the backend into which every state is restored for a dry run; empty for none. Without `headers` one
    file of each state is enough. Raises StorageError, and for a dry run what `restore_into_scratch` raises.
    """
    if target is None:
        return Report(plan.pipeline, "", Upgrade(), ())
    if target.saved:
        identity = msgspec.structs.replace(target.identity, pipeline=plan.pipeline)
        target = msgspec.structs.replace(target, identity=identity)
    checkpoint, identity = target.checkpoint, target.identity
    facts = derive_offline_facts(plan, checkpoint, identity, command_line)
    stored = read_stored(storage, checkpoint.states, every=headers)
    upgrade = decide_upgrade(checkpoint, identity, facts.definition, stored)
    refusals = _all_refusals(plan, storage, target, facts, upgrade, stored)
    repair = COPY_AGAIN if target.saved else f"put it back from a backup, or start with {BEGIN_ANEW}"
    cut = find_cut(storage, checkpoint.states) if headers and not refusals else ""
    if cut and not _has_gone(storage, target):
        refusals = (
            UpgradeRefusal(OperatorName(""), f"{target.title} is damaged: {cut}", f"{repair[:1].upper()}{repair[1:]}"),
        )
    if refusals or not headers:
        return Report(plan.pipeline, target.title, upgrade, refusals)
    handles = upgrade.map_states(checkpoint.states)
    declared = _evolved(plan, upgrade)
    migrated = tuple(restore_into_scratch(storage, handles, declared, migrate)) if migrate else ()
    forecast = _forecast_of(migrated, plan) if migrated else _forecast(plan, checkpoint, storage, upgrade)
    return Report(plan.pipeline, target.title, upgrade, refusals, forecast, migrated, repair)


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
        was = plan.words[source.name].was if source.name in plan.words else source.name
        known = topics.get(source.name) or topics.get(was) or set()
        read = {topic for topic in known if source.matches(topic)} if source.pattern else set(source.topics)
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
        words = plan.words.get(name)
        for one in node.operator.states(plan.max_parallelism):
            found[name, one.name] = one if words is None else evolve(one, words, renamed=name in upgrade.renamed)
    return found


def _forecast(plan: Plan, checkpoint: CompletedCheckpoint, storage: Storage, upgrade: Upgrade) -> Forecast | None:
    """Estimate how long a restore takes. None if the states are too small to measure."""
    handles = [one for one in upgrade.map_states(checkpoint.states) if not one.in_flight]
    whole = sum(one.size_bytes for one in handles)
    if whole < FORECAST_BYTES_MIN:
        return None
    declared = _evolved(plan, upgrade)
    begun, read = time.perf_counter(), 0
    for handle in sorted(handles, key=lambda one: -one.size_bytes):
        with suppress(TidegateError):  # a dry run reports damage, and a start finds a fallback
            _read(storage, handle, declared, plan.max_parallelism)
            read += handle.size_bytes
        if time.perf_counter() - begun > SAMPLE_S:
            break
    rate = read / max(time.perf_counter() - begun, 1e-6)
    return Forecast(whole, rate, whole / rate / plan.parallelism if read else 0.0)


def _forecast_of(migrated: tuple[Migrated, ...], plan: Plan) -> Forecast | None:
    """Estimate from the times of a dry run."""
    whole, seconds = sum(one.read_bytes for one in migrated), sum(one.seconds for one in migrated)
    if whole < FORECAST_BYTES_MIN or any(one.failure for one in migrated):
        return None
    return Forecast(whole, whole / max(seconds, 1e-6), seconds / plan.parallelism)


def _read(
    storage: Storage,
    handle: StateHandle,
    declared: Mapping[tuple[OperatorName, StateName], StateDeclaration],
    max_parallelism: int,
) -> tuple[StateName, dict[int, list[object]]]:
    """Read the entries of a file by key group, as the present step sees them. Raises StateUnreadable, ObjectCorrupt."""
    data = unseal(handle.path, read_state(storage, handle))
    header, _ = read_header(data)
    declaration = declared[handle.operator, header.state]
    groups = range(max_parallelism if declaration.keyed else 1)
    parts = read_entries(data, groups, handle.operator, declaration)
    return header.state, dict(zip((one.group for one in header.groups), map(list, parts), strict=True))


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
