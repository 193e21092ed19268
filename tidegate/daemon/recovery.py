"""What happens between the end of one attempt and the start of the next, in this order and no other.

Take over by the journal (after that nobody older decides anything), end the transactions that the newest checkpoint
lists, fix where sources begin that have no position yet, and only then abort whatever else is open under our name;
decide what every slot restores.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Final

import msgspec

from tidegate.coordinator.entries import Identity
from tidegate.coordinator.job import Job
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_restore
from tidegate.daemon.beginning import fix_beginnings
from tidegate.daemon.choosing import Choosing, RestoreOption
from tidegate.daemon.decisions import Services
from tidegate.daemon.ending import end_listed
from tidegate.daemon.hanging import HangingCheck
from tidegate.errors import TidegateError
from tidegate.ids import SlotIndex, SubtaskId
from tidegate.plan.graph import AggregateOperator, Plan, SinkOperator, SourceOperator
from tidegate.sinks.errors import TransactionUndecidable
from tidegate.storage.base import StorageError
from tidegate.task.inflight import derive_shapes

logger = logging.getLogger(__name__)

LOOK_TRIES: Final = 3
"""A daemon that still runs may be quicker than a look; then the takeover, which stops it, comes before the next one."""


class Recovered(msgspec.Struct, frozen=True):
    """Everything a new attempt starts from."""

    restore: RestorePlan
    job: Job


async def recover(
    plan: Plan,
    services: Services,
    transaction_timeout_ms: int,
    option: RestoreOption | None = None,
    *,
    verify: bool = False,
) -> Recovered:
    """`transaction_timeout_ms` is for transactions that replace lost ones; `option` and `verify` are for Choosing.

    Raises RestoreRefused, SavepointRefused, TransactionLost, Superseded, BrokerUnavailable, StorageError ...
    """
    journal = services.journal
    before, facts, choosing = await _look_first(plan, services, option, verify=verify)
    identity = facts.identity
    state: JournalState = await services.in_journal_thread(
        lambda: journal.take_over(identity, services.clock.now_ms(), choosing.used)
    )
    for text in journal.passed_over:
        logger.error(
            "passed over, because a newer checkpoint is whole (to go back behind it is not possible): %s", text
        )
    if state.newest_checkpoint != before.newest_checkpoint:  # another daemon went on, and may know new partitions
        choosing.facts = facts = await read_facts(plan, services)
    restore = decide_restore(state, facts)
    restore = await choosing.settle(restore) or restore
    hanging = HangingCheck(plan, services)
    try:
        restore = await end_listed(plan, services, restore, transaction_timeout_ms)
    except TransactionUndecidable:  # where the marker of an abort is missing, nothing says that it was one
        report = await hanging.look()
        if report is None or (report.left and not report.mended):
            raise
        # Written now, or by another daemon meanwhile: the markers are read once more.
        restore = await end_listed(plan, services, restore, transaction_timeout_ms)
    restore = await choosing.go_back(restore) or restore
    restore = await fix_beginnings(plan, services, restore, choosing.facts)
    state = journal.state
    if plan.exactly_once:
        await services.kafka.fence_leftovers(plan.pipeline, frozenset(), restore.attempt)
        await hanging.look()
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


async def _look_first(
    plan: Plan, services: Services, option: RestoreOption | None, *, verify: bool
) -> tuple[JournalState, RestoreFacts, Choosing]:
    """Refuse before disturbing anybody, but not for what a daemon that still runs has changed or cleaned up meanwhile.

    The facts are newer than the journal that they are compared with. Raises what `recover` raises.
    """
    journal = services.journal
    tries_left = LOOK_TRIES
    while True:
        tries_left -= 1
        before = await services.in_journal_thread(journal.read)
        facts = await read_facts(plan, services)
        choosing = Choosing(services, facts, option, verify=verify)
        try:
            decide_restore(before, facts)
            await choosing.look(before)
        except TidegateError as refusal:
            moved = (await services.in_journal_thread(journal.read)).next_sequence != before.next_sequence
            if refusal.retriable or not moved or (option is not None and not tries_left):
                raise
            logger.info("the journal has moved on while it was looked at: %s", refusal.message)
            if tries_left:
                continue
        return before, facts, choosing


async def read_facts(plan: Plan, services: Services) -> RestoreFacts:
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
    )
    stateful = frozenset(operator.name for operator in plan.operators(AggregateOperator))
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
        ": the begin" if checkpoint.starts and not checkpoint.states else "",
    )
