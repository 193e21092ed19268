"""The examination before a takeover: the journal, Kafka's record of the pipeline, and the current cluster.

The preflight only reads. A start that is refused here has changed nothing, even if another daemon is running. The
checks before a start also use it, to determine what a start would continue from.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec
from typing_extensions import override

from tidegate.checks.facts import Comparison, StartTarget
from tidegate.checks.unfit_state import refuse_unfit_state
from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.coordinator.clusters import find_twice
from tidegate.coordinator.entries import ClusterIdentity, Identity
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ownership import Known, decide_owner, refuse_repeated
from tidegate.coordinator.recovery import (
    RestoreFacts,
    RestorePlan,
    RestoreRefused,
    decide_chosen,
    decide_replaced,
    decide_restore,
    merge_positions,
    refuse_unfit,
)
from tidegate.coordinator.restore_target import RestoreTarget, derive_chosen
from tidegate.coordinator.upgrade import Upgrade, UpgradeOutcome, derive_dropped_topics
from tidegate.daemon.restore_point import NO_OPTIONS, RestorePointSelector, StartOptions
from tidegate.daemon.services import Stores
from tidegate.daemon.start_offsets import find_ahead, find_lost_input
from tidegate.errors import PipelineStopped, TidegateError
from tidegate.ids import ClusterName, OperatorName
from tidegate.journal.journal import Used
from tidegate.journal.state_files import read_stored
from tidegate.kafka.facts import TopicFacts
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.clusters import derive_sink_clusters, derive_sink_topics, derive_source_clusters
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.storage.base import Storage
from tidegate.task.inflight import derive_shapes

logger = logging.getLogger(__name__)

PREFLIGHT_TRIES: Final = 3
"""How many times the journal is read while a running daemon changes it.

After these the takeover, which stops that daemon, precedes the next read.
"""


class DuplicateCluster(PipelineStopped):
    """Two names in the file stand for one Kafka cluster."""

    code = "duplicate-cluster"
    exit_code = 2


class Preflight(msgspec.Struct, frozen=True):
    """The findings before the takeover. Made by `run_preflight`."""

    before: JournalState
    facts: RestoreFacts
    restore_point: RestorePointSelector
    replaced: tuple[str, ...]
    """The journals that this start replaces, as decided by `decide_owner`."""
    used: Used
    """The numbers that other histories of the pipeline have used."""
    target: RestoreTarget | None
    """The requested restore target, which will become the newest checkpoint."""

    @property
    def goes_back(self) -> bool:
        """True if the start will not continue from the newest checkpoint."""
        return self.target is not None

    def decide_restore(self) -> RestorePlan:
        """Decides what the start will continue from. Raises RestoreRefused."""
        if self.target is None:
            return decide_restore(self.before, self.facts)
        return decide_chosen(self.before, derive_chosen(self.target, self.facts.identity), self.facts)


async def run_preflight(plan: Plan, services: Stores, options: StartOptions, *, first: bool, verify: bool) -> Preflight:
    """Refuses a start before it affects a running daemon, but not for changes that such a daemon has made meanwhile.

    `checks/survey.py` calls it as well: before a takeover, and for `validate --connect`. With `first`, the consents
    in `options` apply. With `verify`, the newest checkpoint's state is read. A refusal that repeats itself is not
    caused by a journal that changes.

    The facts are read after the journal that they are compared with, and the journal after Kafka's record of the
    pipeline, which follows it. Raises what `recover` raises.
    """
    journal, said = services.journal, ""
    tries_left = PREFLIGHT_TRIES
    while True:
        tries_left -= 1
        known = await services.kafka.read_known(plan.pipeline)
        before = await services.in_journal_thread(journal.read)
        facts = msgspec.structs.replace(await read_facts(plan, services, before), command_line=options.command_line)
        restore_point = RestorePointSelector(services, facts, options.restore, verify=verify)
        target: RestoreTarget | None = None
        replaced: tuple[str, ...] = ()
        try:
            target = await _find_restore_target(services, before, facts, restore_point, options)
            if target is None and options.restore is not None and first and verify:
                # Logged once: not for a check, nor in later recoveries.
                path = options.restore.target
                logger.info("--restore has no effect: the newest checkpoint already continues from %s", path)
            place, granted = services.storage.location, options if first else NO_OPTIONS
            replaced = _decide_owner(before, known, target, granted, place)
        except TidegateError as refusal:
            moved = (await services.in_journal_thread(journal.read)).next_sequence != before.next_sequence
            last = options.restore is not None and not tries_left
            if refusal.retriable or not moved or last or refusal.message == said:
                raise
            said = refusal.message
            logger.info("the journal changed while it was read, reading it again: %s", refusal.message)
            if tries_left:
                continue
        newest = before.newest_checkpoint
        if options.begin_anew and options.restore is None and newest is not None and first and verify:
            logger.warning(
                "--begin-anew has no effect: %s has checkpoints, and the pipeline continues from the newest, %d. To "
                "use `start` of the sources, stop the pipeline, empty the directory and start it again. Otherwise "
                "remove the option",
                services.storage.location,
                newest.id,
            )
        used = restore_point.used
        if known.record is not None:  # also if it is of this journal, because the directory may be an old copy
            used = Used(max(used.attempt, known.record.attempt), max(used.checkpoint, known.record.checkpoint))
        return Preflight(before, facts, restore_point, replaced, used, target)


async def _find_restore_target(
    services: Stores,
    before: JournalState,
    facts: RestoreFacts,
    restore_point: RestorePointSelector,
    options: StartOptions,
) -> RestoreTarget | None:
    """Returns the target that replaces the newest checkpoint; if None, the newest or its fallback can be restored.

    Raises what `recover` raises.
    """
    target: RestoreTarget | None = None
    if options.restore is not None:
        found = await restore_point.look(before)
        target = found if isinstance(found, RestoreTarget) else None
    try:
        decide_newest(before, facts, replaced=target is not None)
        if options.restore is None:
            await restore_point.look(before)
    except TidegateError as error:
        raise await _inspect(services, before, facts, error) from error
    return target


def decide_newest(state: JournalState, facts: RestoreFacts, *, replaced: bool) -> RestorePlan:
    """Decides how to restore the newest checkpoint; `replaced`: a target will replace it. Raises RestoreRefused."""
    return decide_replaced(state, facts) if replaced else decide_restore(state, facts)


async def _inspect(services: Stores, before: JournalState, facts: RestoreFacts, error: TidegateError) -> TidegateError:
    """Returns the refusal, more exact with the headers of the states: it names the directives that would help."""
    newest, identity = before.newest_checkpoint, before.identity
    if not isinstance(error, RestoreRefused) or not error.refusals or newest is None or identity is None:
        return error
    stored = await services.in_journal_thread(lambda: read_stored(services.storage, newest.states))
    try:
        refuse_unfit(newest, identity, facts, stored)
    except RestoreRefused as exact:
        return exact
    return error  # headers only add to the refusals of names and fingerprints


def _decide_owner(
    before: JournalState, known: Known, target: RestoreTarget | None, options: StartOptions, place: str
) -> tuple[str, ...]:
    """Decides whether this start may take the pipeline over.

    Consent to repeated output applies to one restore. It does not count if that restore is already done (`target` is
    None), or if the directory has since been lost or replaced. `--begin-anew` alone applies to an empty directory only,
    not to one that has reappeared or to a copy. Raises OwnershipConflict.
    """
    if target is not None and not options.begin_anew:
        refuse_repeated(before, known, target, place=place)
    consent = options.repeats_output if target is not None else options.begin_anew and before.newest is None
    return decide_owner(before, known, place=place, consent=consent)


async def read_facts(plan: Plan, services: Stores, state: JournalState) -> RestoreFacts:
    """Reads the current pipeline and its clusters. `state` holds the topics that a pattern has found before."""
    sources, sinks = derive_source_clusters(plan), derive_sink_clusters(plan)
    read, listed = await _find_topics(plan, services, state)
    named: dict[ClusterName, set[str]] = {name: set(topics) for name, topics in derive_sink_topics(plan).items()}
    for source, names in read.items():
        named.setdefault(sources[source], set()).update(names)
    found = await services.kafka.cluster_facts(
        {name: topics - listed.get(name, {}).keys() for name, topics in named.items()}
    )
    if twice := find_twice((name, cluster_id) for name, (cluster_id, _) in found.items()):
        raise DuplicateCluster(twice)
    topics = {name: {**listed.get(name, {}), **facts} for name, (_, facts) in found.items()}
    clusters = {
        name: ClusterIdentity(
            cluster_id, {topic: topics[name][topic].topic_id for topic in sorted(named.get(name, ()))}
        )
        for name, (cluster_id, _) in found.items()
    }
    fingerprint = hashlib.sha256(msgspec.json.encode((plan.vertices, plan.edges))).hexdigest()[:16]
    identity = Identity(
        pipeline=plan.pipeline,
        clusters=clusters,
        sources=sources,
        sinks=sinks,
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        fingerprint=fingerprint,
        fingerprints=derive_fingerprints(plan),
        code=plan.code,
        files=plan.digests,
    )
    stateful = frozenset(node.operator.name for node in plan.nodes if node.operator.states(plan.max_parallelism))
    partitions = {
        source: {topic: topics[sources[source]][topic].partitions for topic in names} for source, names in read.items()
    }
    edges = frozenset(shape.name for shape in derive_shapes(plan).values())
    unbounded = frozenset(source.name for source in plan.operators(SourceOperator) if source.until == "never")
    return RestoreFacts(identity, partitions, stateful, edges, plan, unbounded=unbounded)


async def _find_topics(
    plan: Plan, services: Stores, state: JournalState
) -> tuple[dict[OperatorName, tuple[str, ...]], dict[ClusterName, dict[str, TopicFacts]]]:
    """Returns the topics of every source, and the facts already known about those that a pattern has found.

    Matching topics with positions in the newest checkpoint are always included: a broker that has just started may not
    list all topics, and a deleted topic must be noticed, unless this start drops its positions. A position whose topic
    no longer matches is refused, like that of a topic that was removed from a list.
    """
    sources = plan.operators(SourceOperator)
    read = {source.name: source.topics for source in sources}
    by_pattern = [source for source in sources if source.pattern]
    if not by_pattern:
        return read, {}
    newest = state.newest_checkpoint
    known = merge_positions(() if newest is None else newest.positions)
    applied = {} if state.identity is None else state.identity.applied_directives
    everything = await services.kafka.all_topics({source.cluster for source in by_pattern})
    listed: dict[ClusterName, dict[str, TopicFacts]] = {}
    for source in by_pattern:
        directive = plan.directives.get(source.name)
        was = source.name if directive is None else directive.was
        nexts, _ = known.get(source.name) or known.get(was) or ({}, {})
        held = {part.topic for part in nexts} - derive_dropped_topics(directive, applied.get(source.name, ()))
        matching = {name: facts for name, facts in everything[source.cluster].items() if source.matches(name)}
        listed.setdefault(source.cluster, {}).update(matching)
        read[source.name] = tuple(sorted({*matching, *filter(source.matches, held)}))
    return read, listed


def open_checkpoints(loaded: LoadedPipeline) -> Storage:
    """Opens the checkpoint directory of a pipeline file. Raises StorageError."""
    return derive_opener(loaded.settings)(str(loaded.settings.checkpoints.directory))


class StoredTarget(StartTarget):
    """Implements `StartTarget` for a start with these options. It opens `stores.kafka`, which the caller closes."""

    def __init__(self, stores: Stores, options: StartOptions) -> None:
        self._stores = stores
        self._options = options

    @override
    async def try_storage(self) -> None:
        await self._stores.in_journal_thread(self._stores.storage.probe)

    @override
    async def read_journal(self) -> JournalState:
        return await self._stores.in_journal_thread(self._stores.journal.read)

    @override
    async def compare(self, plan: Plan) -> Comparison:
        stores = self._stores
        await stores.kafka.open()
        look = await run_preflight(plan, stores, self._options, first=True, verify=False)
        newest, identity = look.before.newest_checkpoint, look.before.identity
        if not look.goes_back and newest is not None and identity is not None:
            upgrade = await stores.in_journal_thread(
                lambda: refuse_unfit_state(stores.storage, newest, identity, look.facts)
            )
            _log_dropped_state(upgrade)
        restore = look.decide_restore()
        return Comparison(
            await find_lost_input(plan, stores.kafka, restore, continuing=False),
            await find_lost_input(plan, stores.kafka, restore, continuing=True),
            tuple(find_ahead(plan, restore, stores.clock.now_ms())),
            look.goes_back,
        )


def _log_dropped_state(upgrade: Upgrade) -> None:
    """Logs how much state the next checkpoint will drop."""
    for step in upgrade.steps:
        if step.outcome in (UpgradeOutcome.DROPPED, UpgradeOutcome.RESET):
            for state in step.states:
                logger.warning(
                    "step %s is %s: up to %s keys of its state %s, %s bytes, are discarded with the next checkpoint",
                    step.name,
                    step.outcome,
                    f"{state.keys or 0:,}",
                    state.name,
                    f"{state.size_bytes:,}",
                )
