"""Recovery: the steps between the end of one attempt and the start of the next, in a fixed order.

Take over the journal, after which no older daemon can decide anything. Resolve the transactions that the newest
checkpoint lists. Fix the starting offsets of sources that have no position yet. Write the ownership record to Kafka.
Only then abort all other transactions that are open under the pipeline's name. Each stage takes a value that only the
stage before it creates (`recovery_stages.py`).
"""

from __future__ import annotations

import logging

import msgspec

from tidegate.config.fields.counts import render_count
from tidegate.coordinator.clusters import adopt_clusters, find_moved_sinks
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.recovery import Offsets, RestoreFacts, RestorePlan, merge_by_cluster
from tidegate.coordinator.types import Job
from tidegate.coordinator.upgrade import StepChange, UpgradeOutcome
from tidegate.daemon.commit_listed import commit_listed
from tidegate.daemon.hanging_transactions import HangingChecks
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.ownership import Ownership
from tidegate.daemon.preflight import Preflight, decide_newest, read_facts, run_preflight
from tidegate.daemon.recovery_stages import OffsetsAssigned, Recovered, StateVerified, TakenOver
from tidegate.daemon.restore_point import NO_OPTIONS, StartOptions
from tidegate.daemon.services import Services
from tidegate.daemon.start_offsets import fix_start_offsets
from tidegate.ids import CheckpointId, ClusterName, SlotIndex, SubtaskId
from tidegate.kafka.errors import KafkaRefused
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.clusters import derive_source_clusters
from tidegate.plan.graph import Plan
from tidegate.storage.base import StorageError
from tidegate.user_code.shipping import put_code

logger = logging.getLogger(__name__)


async def recover(
    plan: Plan,
    services: Services,
    ownership: Ownership,
    transaction_timeout_ms: int,
    options: StartOptions = NO_OPTIONS,
    *,
    first: bool = False,
) -> Recovered:
    """Runs the recovery and returns what the next attempt starts from.

    `transaction_timeout_ms` applies to transactions that replace lost ones. `first` marks the first recovery of a
    daemon: only there do the consents in `options` apply, and it reads the newest checkpoint's state before anything
    else.

    Raises RestoreRefused, SavepointRefused, OwnershipConflict, TransactionLost, TransactionGone, Superseded,
    BrokerUnavailable, StorageError ...
    """
    hanging = HangingChecks(plan, services)
    look = await run_preflight(plan, services, options, first=first, verify=first)
    owned = await take_over(plan, services, ownership, look, patiently=first)
    whole = await look.restore_point.get_round_damage(owned)
    if look.before.identity is not None:
        for text in find_moved_sinks(look.before.identity, whole.facts.identity):
            logger.warning("%s", text)
    services.kafka.accept_gone(_find_accepted(options, whole) if first else None)
    try:
        ended = await commit_listed(plan, services, whole, transaction_timeout_ms, hanging.look)
    finally:
        services.kafka.accept_gone(None)
    decided = await look.restore_point.go_back(ended)
    placed = await fix_start_offsets(plan, services, decided)
    recovered = await clear(plan, services, ownership, placed, hanging)
    await _ship_code(services)
    _log_restore(placed, services, begins=decided.restore.checkpoint is None)
    return recovered


def _find_accepted(options: StartOptions, whole: StateVerified) -> CheckpointId | None:
    """Returns the checkpoint of `--accept-gone`.

    The option applies to no other checkpoint, because a supervisor repeats it at every start.
    """
    named, newest = options.accept_gone, whole.restore.checkpoint
    if named is not None and (newest is None or newest.id != named):
        found = "there is no checkpoint" if newest is None else f"the newest checkpoint is {newest.id}"
        logger.warning("--accept-gone %d has no effect: %s; remove the option", named, found)
    return named


async def take_over(
    plan: Plan, services: Services, ownership: Ownership, look: Preflight, *, patiently: bool
) -> TakenOver:
    """Appends the takeover and writes the ownership record to Kafka.

    Raises Superseded, RestoreRefused, BrokerUnavailable, StorageError.
    """
    journal, facts = services.journal, look.facts
    state: JournalState = await services.in_journal_thread(
        lambda: journal.take_over(facts.identity, services.clock.now_ms(), look.used, look.replaced)
    )
    for text in journal.passed_over:
        logger.error("ignored, because a newer checkpoint is intact (going back beyond it is not possible): %s", text)
    if state.newest_checkpoint is not None:
        await ownership.claim(_mirrored(state, facts), patiently=patiently)
    if state.newest_checkpoint != look.before.newest_checkpoint:
        # Another daemon has continued, and may know new partitions.
        facts = msgspec.structs.replace(await read_facts(plan, services, state), command_line=facts.command_line)
    return TakenOver(decide_newest(state, facts, replaced=look.goes_back), facts)


def _mirrored(state: JournalState, facts: RestoreFacts) -> dict[ClusterName, Offsets]:
    """Returns positions in existing topics only.

    Topics of a removed source may be gone, and Kafka rejects their offsets.
    """
    newest, identity, now = state.newest_checkpoint, state.identity, facts.identity
    assert newest is not None, "there are positions to mirror"
    assert identity is not None, "an identity comes with them"
    there: dict[ClusterName, set[str]] = {}
    for source, topics in facts.sources.items():
        there.setdefault(now.sources[source], set()).update(topics)
    known = merge_by_cluster(newest.positions, adopt_clusters(identity, now).sources)
    return {
        name: {part: offset for part, offset in known.get(name, {}).items() if part.topic in topics}
        for name, topics in there.items()
    }


async def clear(
    plan: Plan, services: Services, ownership: Ownership, placed: OffsetsAssigned, hanging: HangingChecks
) -> Recovered:
    """Records the positions in Kafka, then aborts leftover transactions and removes files that no checkpoint needs.

    Raises Superseded, BrokerUnavailable.
    """
    restore = placed.restore
    await ownership.record_all(merge_by_cluster(restore.positions, derive_source_clusters(plan)))
    state = services.journal.state
    services.journal.adopt(restore.upgrade)
    await _fence(plan, services, restore)
    if plan.exactly_once:
        await hanging.check_twice()
    await _tidy(services)
    return Recovered(restore, _derive_job(plan, restore, state))


async def _fence(plan: Plan, services: Services, restore: RestorePlan) -> None:
    """Fences older attempts, even for an at-least-once pipeline: one of them may have been exactly-once.

    An at-least-once pipeline is not refused if its user lacks permission for this.
    """
    try:
        fenced = await services.kafka.fence_leftovers(
            plan.pipeline, (), restore.attempt, services.journal.state.journal
        )
        services.metrics.transactions_ended(TransactionResult.ABORTED, len(fenced))
    except KafkaRefused as error:
        if plan.exactly_once:
            raise
        logger.warning(
            "transactions that the pipeline may have left open in exactly-once mode are not aborted: %s", error.message
        )


def _derive_job(plan: Plan, restore: RestorePlan, state: JournalState) -> Job:
    slots = [SlotIndex(slot) for slot in range(plan.parallelism)]
    reading = [vertex for vertex in plan.vertices if isinstance(vertex.nodes[0].operator, SourceOperator)]
    return Job(
        attempt=restore.attempt,
        sources=frozenset(SubtaskId(vertex.id, slot) for vertex in reading for slot in slots),
        subtasks=frozenset(SubtaskId(vertex.id, slot) for vertex in plan.vertices for slot in slots),
        first_checkpoint=restore.first_checkpoint,
        reserved_to=state.reserved_to,
        retained=tuple(entry.checkpoint for entry in state.retained),
    )


async def _tidy(services: Services) -> None:
    try:
        swept = await services.in_journal_thread(services.journal.sweep_orphans)
        removed = await services.in_journal_thread(services.journal.clean_up)
    except StorageError as error:
        logger.warning("old checkpoint files were not removed: %s", error.message)
        return
    logger.debug("%s removed that no checkpoint needs", render_count(swept + removed, "file"))


async def _ship_code(services: Services) -> None:
    """Puts the files of `code:` where the slots fetch them. Raises CodeFileChanged, StorageError."""
    files = services.files
    if files is not None:
        written = await services.in_journal_thread(lambda: put_code(services.storage, files))
        if written:
            logger.info("%d bytes of `code` were copied to %s", written, services.storage.location)


def _log_restore(placed: OffsetsAssigned, services: Services, *, begins: bool) -> None:
    """Logs what is restored. `begins` means that no checkpoint existed before the one with the starting offsets."""
    restore, checkpoint = placed.restore, placed.checkpoint
    if begins:
        logger.info("attempt %d starts a new pipeline: there is nothing to restore", restore.attempt)
    else:
        logger.info(
            "attempt %d restores checkpoint %d (of attempt %d)", restore.attempt, checkpoint.id, checkpoint.attempt
        )
    steps = list(map(_describe_step, filter(_is_notable, restore.upgrade.steps)))
    code = list(map(str, (*restore.upgrade.code, *restore.upgrade.files)))
    for line in steps:
        logger.warning("%s", line)
    for line in code:
        logger.info("%s", line)
    services.metrics.upgraded([*steps, *code])


def _is_notable(step: StepChange) -> bool:
    return step.outcome not in (UpgradeOutcome.KEPT, UpgradeOutcome.NEW) or bool(step.remarks)


def _describe_step(step: StepChange) -> str:
    what = "source" if step.source else "step"
    was = f" (formerly {step.was})" if step.was else ""
    told = f": {'; '.join(step.remarks)}" if step.remarks else ""
    return f"{what} {step.name}{was} is {step.outcome}{told}"
