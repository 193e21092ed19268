"""What happens between the end of one attempt and the start of the next, in this order and no other.

Take over by the journal (after that nobody older decides anything), end the transactions that the newest checkpoint
lists, fix where sources begin that have no position yet, record in Kafka whose the pipeline is now, and only then abort
whatever else is open under our name; decide what every slot restores.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec

from tidegate.coordinator.entries import Identity
from tidegate.coordinator.job import Job
from tidegate.coordinator.journal import Used
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.owner import decide_owner
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_restore, merge_offsets
from tidegate.daemon.beginning import fix_beginnings
from tidegate.daemon.choosing import Choosing, StartOptions
from tidegate.daemon.decisions import Services
from tidegate.daemon.ending import end_listed
from tidegate.daemon.hanging import HangingCheck
from tidegate.daemon.owning import Ownership
from tidegate.daemon.stores import Stores
from tidegate.errors import TidegateError
from tidegate.ids import SlotIndex, SubtaskId
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.plan.meaning import derive_meanings
from tidegate.storage.base import StorageError
from tidegate.task.inflight import derive_shapes

logger = logging.getLogger(__name__)

NO_OPTIONS: Final = StartOptions()
LOOK_TRIES: Final = 3
"""A daemon that still runs may be quicker than a look; then the takeover, which stops it, comes before the next one."""


class Recovered(msgspec.Struct, frozen=True):
    """Everything a new attempt starts from."""

    restore: RestorePlan
    job: Job


async def recover(
    plan: Plan,
    services: Services,
    ownership: Ownership,
    transaction_timeout_ms: int,
    options: StartOptions = NO_OPTIONS,
    *,
    first: bool = False,
) -> Recovered:
    """`transaction_timeout_ms` is for transactions that replace lost ones. What somebody has agreed to in `options`
    holds for the `first` recovery of a daemon, which also reads the newest checkpoint's state before all else.

    Raises RestoreRefused, SavepointRefused, PipelineKnown, TransactionLost, TransactionGone, Superseded,
    BrokerUnavailable, StorageError ...
    """
    journal = services.journal
    look = await look_first(plan, services, options, first=first, verify=first)
    choosing, identity = look.choosing, look.facts.identity
    state: JournalState = await services.in_journal_thread(
        lambda: journal.take_over(identity, services.clock.now_ms(), look.used, look.replaced)
    )
    for text in journal.passed_over:
        logger.error(
            "passed over, because a newer checkpoint is whole (going back to before it is not possible): %s", text
        )
    if state.newest_checkpoint is not None:
        await ownership.claim(merge_offsets(state.newest_checkpoint.positions), patiently=first)
    if state.newest_checkpoint != look.before.newest_checkpoint:  # another daemon went on, and may know new partitions
        choosing.facts = await read_facts(plan, services)
    restore = decide_restore(state, choosing.facts)
    restore = await choosing.settle(restore) or restore
    hanging = HangingCheck(plan, services)
    services.kafka.accept_gone = first and options.accept_gone
    restore = await end_listed(plan, services, restore, transaction_timeout_ms, hanging.look)
    services.kafka.accept_gone = False
    restore = await choosing.go_back(restore) or restore
    restore = await fix_beginnings(plan, services, restore, choosing.facts)
    assert restore.checkpoint is not None, "where the sources begin is a checkpoint"
    await ownership.record(merge_offsets(restore.checkpoint.positions))
    state = journal.state
    if plan.exactly_once:
        await services.kafka.fence_leftovers(plan.pipeline, (), restore.attempt, state.journal)
        await hanging.look_twice()
    await _tidy(services)
    _log_restore(restore)
    subtasks = frozenset(
        SubtaskId(vertex.id, SlotIndex(slot)) for vertex in plan.vertices for slot in range(plan.parallelism)
    )
    sources = frozenset(subtask for subtask in subtasks if _is_source(plan, subtask))
    job = Job(
        attempt=restore.attempt,
        sources=sources,
        subtasks=subtasks,
        first_checkpoint=restore.first_checkpoint,
        reserved_to=state.reserved_to,
        retained=tuple(entry.checkpoint for entry in state.retained),
    )
    return Recovered(restore, job)


class Look(msgspec.Struct, frozen=True):
    """What was found before the takeover."""

    before: JournalState
    facts: RestoreFacts
    choosing: Choosing
    replaced: tuple[str, ...]
    """See decide_owner."""
    used: Used
    """Numbers that other histories of the pipeline have used."""


async def look_first(plan: Plan, services: Stores, options: StartOptions, *, first: bool, verify: bool) -> Look:
    """Refuse before disturbing anybody, but not for what a daemon that still runs has changed or cleaned up meanwhile.

    `start_check.py` asks it, too: before Spark starts, and for `validate --connect`. `first`: what was agreed to in
    `options` holds. `verify`: read the newest checkpoint's state. A refusal that is repeated does not come from a
    journal that moves.

    The facts are newer than the journal that they are compared with, and the journal is newer than what Kafka says
    about the pipeline, which follows it. Raises what `recover` raises.
    """
    journal, said = services.journal, ""
    tries_left = LOOK_TRIES
    while True:
        tries_left -= 1
        known = await services.kafka.read_known(plan.pipeline)
        before = await services.in_journal_thread(journal.read)
        facts = await read_facts(plan, services)
        choosing = Choosing(services, facts, options.restore, verify=verify)
        replaced: tuple[str, ...] = ()
        try:
            decide_restore(before, facts)
            await choosing.look(before)
            replaced = decide_owner(
                before, known, place=services.storage.location, consent=first and options.repeats_output
            )
        except TidegateError as refusal:
            moved = (await services.in_journal_thread(journal.read)).next_sequence != before.next_sequence
            last = options.restore is not None and not tries_left
            if refusal.retriable or not moved or last or refusal.message == said:
                raise
            said = refusal.message
            logger.info("the journal has moved on while it was looked at: %s", refusal.message)
            if tries_left:
                continue
        used = choosing.used
        if replaced and known.record is not None:
            used = Used(max(used.attempt, known.record.attempt), max(used.checkpoint, known.record.checkpoint))
        return Look(before, facts, choosing, replaced, used)


async def read_facts(plan: Plan, services: Stores) -> RestoreFacts:
    """The pipeline and the cluster as they are now."""
    sources = plan.operators(SourceOperator)
    wanted = {topic for source in sources for topic in source.topics}
    wanted |= {sink.topic for sink in plan.operators(SinkOperator)}
    cluster_id, topics = await services.kafka.cluster_facts(wanted)
    fingerprint = hashlib.sha256(msgspec.json.encode((plan.vertices, plan.edges))).hexdigest()[:16]
    identity = Identity(
        pipeline=plan.pipeline,
        cluster_id=cluster_id,
        topic_ids={name: topics[name].topic_id for name in sorted(wanted)},
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        fingerprint=fingerprint,
        meanings=derive_meanings(plan),
    )
    stateful = frozenset(node.operator.name for node in plan.nodes if node.operator.states(plan.max_parallelism))
    partitions = {source.name: {topic: topics[topic].partitions for topic in source.topics} for source in sources}
    edges = frozenset(shape.name for shape in derive_shapes(plan).values())
    return RestoreFacts(identity, partitions, stateful, edges)


async def _tidy(services: Services) -> None:
    try:
        swept = await services.in_journal_thread(services.journal.sweep_orphans)
        removed = await services.in_journal_thread(services.journal.clean_up)
    except StorageError as error:
        logger.warning("old checkpoint files were not removed: %s", error.message)
        return
    if swept or removed:
        logger.info("removed %d old checkpoint files", swept + removed)


def _is_source(plan: Plan, subtask: SubtaskId) -> bool:
    vertex = next(vertex for vertex in plan.vertices if vertex.id == subtask.vertex)
    return isinstance(vertex.nodes[0].operator, SourceOperator)


def _log_restore(restore: RestorePlan) -> None:
    checkpoint = restore.checkpoint
    assert checkpoint is not None, "where the sources begin is a checkpoint"
    logger.info(
        "attempt %d restores checkpoint %d (attempt %d)%s",
        restore.attempt,
        checkpoint.id,
        checkpoint.attempt,
        ": the beginning" if checkpoint.starts and not checkpoint.states else "",
    )
