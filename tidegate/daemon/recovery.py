"""What happens between the end of one attempt and the start of the next, in this order and no other.

Take over by the journal (after that nobody older decides anything), end the transactions that the newest checkpoint
lists, and only then abort whatever else is open under our name; decide what every slot restores.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from tidegate.coordinator.coordinator import Coordinator, Job
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, decide_restore
from tidegate.coordinator.triggers import CheckpointSettings
from tidegate.daemon.decisions import Services, wall_clock_ms
from tidegate.daemon.metrics import TransactionResult
from tidegate.ids import OperatorName, SlotIndex, SubtaskId
from tidegate.plan.graph import AggregateOperator, Plan, SinkOperator, SourceOperator
from tidegate.sinks.errors import BrokerUnavailable
from tidegate.sinks.outcome import Outcome
from tidegate.storage.base import StorageError

logger = logging.getLogger(__name__)

COMMIT_PAUSE_S: Final = 0.5
COMMIT_DEADLINE_S: Final = 120.0


class Recovered(msgspec.Struct, frozen=True):
    """Everything a new attempt starts from."""

    restore: RestorePlan
    job: Job


async def recover(plan: Plan, services: Services) -> Recovered:
    """Raises RestoreRefused, TransactionLost, Superseded, BrokerUnavailable, StorageError ..."""
    facts = await read_facts(plan, services)
    journal = services.journal
    decide_restore(await _in_journal_thread(services, journal.read), facts)  # refuse before disturbing anybody
    state: JournalState = await _in_journal_thread(services, lambda: journal.take_over(facts.identity, wall_clock_ms()))
    restore = decide_restore(state, facts)
    await _end_listed(services, restore)
    if plan.exactly_once:
        await services.kafka.fence_leftovers(plan.pipeline, frozenset(), restore.attempt)
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


def make_coordinator(settings: CheckpointSettings, recovered: Recovered) -> Coordinator:
    """The coordinator of the attempt."""
    return Coordinator(settings, recovered.job)


async def read_facts(plan: Plan, services: Services) -> RestoreFacts:
    """The pipeline and the cluster as they are now."""
    operators = [node.operator for vertex in plan.vertices for node in vertex.nodes]
    sources = [operator for operator in operators if isinstance(operator, SourceOperator)]
    sinks = [operator for operator in operators if isinstance(operator, SinkOperator)]
    wanted = {topic for source in sources for topic in source.topics} | {sink.topic for sink in sinks}
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
    stateful: set[OperatorName] = {operator.name for operator in operators if isinstance(operator, AggregateOperator)}
    partitions = {source.name: {topic: topics[topic].partitions for topic in source.topics} for source in sources}
    return RestoreFacts(identity, partitions, frozenset(stateful))


async def _end_listed(services: Services, restore: RestorePlan) -> None:
    """The commits that a crash may have left undone; repeated until every one is definite."""
    permit = await _in_journal_thread(services, lambda: services.journal.recovery_permit(restore))
    if permit is None:
        return
    started = time.monotonic()
    while True:
        outcomes = await services.kafka.commit(permit)
        if Outcome.STILL_OPEN not in outcomes:
            break
        if time.monotonic() - started > COMMIT_DEADLINE_S:
            raise BrokerUnavailable(
                f"the transactions of checkpoint {permit.checkpoint} could not be ended in {COMMIT_DEADLINE_S:.0f} s; "
                f"nothing is lost as long as their timeout has not passed: look at the broker's transaction coordinator"
            )
        await asyncio.sleep(COMMIT_PAUSE_S)
    now = sum(outcome is Outcome.ENDED_NOW for outcome in outcomes)
    services.metrics.transactions_ended(TransactionResult.COMMITTED, [time.monotonic() - started] * now)
    logger.info(
        "checkpoint %d: %d transactions are committed (%d had been before)",
        permit.checkpoint,
        len(outcomes),
        len(outcomes) - now,
    )


async def _tidy(services: Services) -> None:
    try:
        swept = await _in_journal_thread(services, services.journal.sweep_orphans)
        removed = await _in_journal_thread(services, services.journal.clean_up)
    except StorageError as error:
        logger.warning("old checkpoint files were not removed: %s", error.message)
        return
    if swept or removed:
        logger.info("removed %d old checkpoint files", swept + removed)


def _is_source(plan: Plan, subtask: SubtaskId) -> bool:
    vertex = next(vertex for vertex in plan.vertices if vertex.id == subtask.vertex)
    return isinstance(vertex.nodes[0].operator, SourceOperator)


def _log_restore(restore: RestorePlan) -> None:
    if restore.checkpoint is None:
        logger.info("attempt %d starts without a checkpoint: sources begin as `start` says", restore.attempt)
    else:
        logger.info(
            "attempt %d restores checkpoint %d (attempt %d)",
            restore.attempt,
            restore.checkpoint.id,
            restore.checkpoint.attempt,
        )


async def _in_journal_thread(services: Services, call: Callable[[], Any]) -> Any:
    return await asyncio.get_running_loop().run_in_executor(services.journal_thread, call)
