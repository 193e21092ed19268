"""Releases the transactions of an attempt when it ends for any reason: commits those that are decided, aborts the rest.

An open transaction blocks every read-committed reader of its partitions, including for records of other producers,
until the broker's timeout. So nothing is left to the next attempt, which may come after a backoff, a week later, or
never. The journal records when all listed transactions have ended, because Kafka eventually forgets ended transactions
(ADR 20).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.permit import CommitPermit
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.metrics import TransactionResult
from tidegate.daemon.services import Services
from tidegate.errors import Superseded, TidegateError
from tidegate.ids import Attempt, ClusterName
from tidegate.kafka.errors import BrokerUnavailable, TransactionGone, TransactionLost, TransactionUndecidable
from tidegate.plan.clusters import derive_sink_topics
from tidegate.plan.graph import Plan
from tidegate.sinks.outcome import CommitOutcome
from tidegate.storage.base import StorageError

logger = logging.getLogger(__name__)

T = TypeVar("T")

RELEASE_S: Final = 10.0
COMMIT_S: Final = 6.0
"""How long to wait for commits in one cluster, so that open transactions in another one are still aborted."""
JOURNAL_S: Final = 1.0
"""How long to wait for each journal call.

Two calls and the remaining work must also fit into the exit after a second signal.
"""


async def release_transactions(
    plan: Plan, services: Services, cause: BaseException | None, *, verified: bool = True
) -> str:
    """Releases the transactions of this daemon's attempts, the last of which ended with `cause`.

    Returns an empty text if Kafka is clean; otherwise a text for the log about what may be left open and why.

    It is called when no task of the attempt can decide anything: its last append has a result, or never will. Until the
    newest checkpoint is `verified`, its transactions are not touched: if its state is damaged, falling back to the last
    intact checkpoint is possible only while they are open.
    """
    if not plan.exactly_once or not services.journal.state.attempt:
        return ""
    decided = why = ""
    kafka = _find_answering(services.kafka, cause)
    silent = (services.kafka.clusters.keys() - kafka.clusters.keys()) & derive_sink_topics(plan).keys()
    if silent:
        why = _tell_silent(services.kafka, silent)
    try:
        if kafka.clusters:
            decided = await asyncio.wait_for(
                _commit_and_abort(plan, services, kafka, cause, verified=verified), RELEASE_S
            )
    except TimeoutError:
        why = f"not done within {RELEASE_S:g} s"
    except TidegateError as error:
        why = error.message
    if not (decided or why):
        services.metrics.oldest_transaction(None)  # the next attempt may begin much later
        return ""
    blocked = f"readers of committed records may be blocked in {_tell_topics(plan, silent)}"
    if decided:
        return f"{decided}. Until the next start, which ends or repeats them, {blocked}"
    return (
        f"transactions of attempt {services.journal.state.attempt} that no checkpoint lists may still be open ({why}). "
        f"Until the next start aborts them, or Kafka does after `checkpoints.transaction_timeout`, {blocked}"
    )


def _tell_topics(plan: Plan, silent: Collection[ClusterName]) -> str:
    """Lists the topics where transactions may be open: those of clusters that do not answer, else of all."""
    written = derive_sink_topics(plan)
    topics = {name: written[name] for name in written if name in silent} or written
    several = len(written) > 1
    return ", ".join(f"{topic} in {name}" if several else topic for name in sorted(topics) for topic in topics[name])


def _tell_silent(kafka: KafkaClusters, silent: Collection[ClusterName]) -> str:
    """Describes which clusters do not answer."""
    if len(silent) == len(kafka.clusters):
        return "no broker answers"
    return f"no broker of cluster {', '.join(sorted(silent))} answers"


def _find_answering(kafka: KafkaClusters, cause: BaseException | None) -> KafkaClusters:
    """Returns the clusters to ask: none known to be unavailable, and not the only one if it has ended the attempt."""
    if isinstance(cause, BrokerUnavailable) and len(kafka.clusters) == 1:
        return KafkaClusters({})
    return kafka.answering


def describe_undone(state: JournalState) -> str:
    """Describes what a daemon leaves undone if it is stopped before its first recovery.

    Empty if no transactions are listed: with `mode: at-least-once`, or when all are recorded as ended.
    """
    newest = state.newest_checkpoint
    if newest is None or not newest.committables:
        return ""
    topics = ", ".join(sorted({written.partition.topic for one in newest.committables for written in one.written}))
    return (
        f"stopped before anything was read. Transactions of checkpoint {newest.id} are decided, but may not be "
        "committed yet. Nothing is lost: the next start commits them. Until then, readers of committed records may "
        f"be blocked in {topics}"
    )


async def _commit_and_abort(
    plan: Plan, services: Services, kafka: KafkaClusters, cause: BaseException | None, *, verified: bool
) -> str:
    """Releases the transactions in these clusters; describes those that are or may be decided and are not committed."""
    journal = services.journal
    superseded = isinstance(cause, Superseded)
    owned = not superseded and journal.identity is not None
    before = journal.state.newest_checkpoint
    left = await _end_listed(services, kafka, verified=verified) if owned else ""
    found = None
    try:
        found = await _ask_journal(services, journal.read)
    except TidegateError as error:  # vanished, damaged or unreachable: the last known journal is used
        logger.debug("the journal was not read at the end: %s", error.message)
    # This follows the read, so that it includes this daemon's own entry about the end, and the transactions of an
    # append that is still in progress.
    own = journal.state
    keep = {one.transactional_id for one in journal.maybe_listed}
    if found is not None:
        keep |= {one.transactional_id for one in found.committables}
        owned &= found.next_sequence == own.next_sequence
    # If another daemon has taken over, only the ids of this attempt still belong to this one.
    since = Attempt(0) if owned else own.attempt
    behind = Attempt(own.attempt + 1)
    fenced = await kafka.fence_leftovers(plan.pipeline, keep, behind, own.journal, others=(), since=since)
    services.metrics.transactions_ended(TransactionResult.ABORTED, len(fenced))
    lefts = [left] if left else []
    if owned and own.newest_checkpoint not in (None, before) and own.committables:
        lefts.append(f"transactions of checkpoint {own.newest_checkpoint.id} are decided, but not committed yet")
    if journal.doubtful is not None and not superseded:
        doubtful = f"whether checkpoint {journal.doubtful.id} is in the journal"
        lefts.append(f"it is not known {doubtful}: its transactions are open")
    return "; ".join(lefts)


async def _end_listed(services: Services, kafka: KafkaClusters, *, verified: bool) -> str:
    """Commits what the newest checkpoint lists and records that. Describes what is not committed and why.

    The next recovery resolves whatever is left.
    """
    journal = services.journal
    permit = journal.release_permit()
    if permit is None:
        return ""
    left = f"transactions of checkpoint {permit.checkpoint} are decided, but not committed yet"
    if not verified:
        return f"{left} (its state was not verified)"
    parts = dict(permit.parts)
    ended = await asyncio.gather(
        *(_end_in(services, kafka.clusters[name], part) for name, part in parts.items() if name in kafka.clusters)
    )
    whys = [why for _, why in ended if why]
    if silent := parts.keys() - kafka.clusters.keys():
        whys.append(_tell_silent(services.kafka, silent))
    if whys:
        return f"{left} ({'; '.join(dict.fromkeys(whys))})"
    if all(done for done, _ in ended):

        def record() -> None:
            if journal.identity is not None:  # an append of the attempt may have had no outcome meanwhile
                journal.append_ended(permit.checkpoint, services.clock.now_ms())

        try:
            await _ask_journal(services, record)
        except TidegateError as error:
            logger.debug("checkpoint %d is committed, which is not on record: %s", permit.checkpoint, error.message)
    return ""


async def _end_in(services: Services, edge: KafkaEdge, permit: CommitPermit) -> tuple[bool, str]:
    """Commits the transactions in one cluster. Returns whether that is done, and otherwise why not, if it matters."""
    started = services.clock.monotonic()
    try:
        outcomes = await asyncio.wait_for(edge.commit(permit), COMMIT_S)
    except TimeoutError:
        return False, f"not done within {COMMIT_S:g} s"
    except (TransactionLost, TransactionGone, TransactionUndecidable) as error:  # left to the recovery
        logger.debug("transactions of checkpoint %d: %s", permit.checkpoint, error.message)
        return False, ""
    except TidegateError as error:
        return False, error.message
    pairs = list(zip(permit.committables, outcomes, strict=True))
    now = [one for one, outcome in pairs if outcome is CommitOutcome.ENDED_NOW]
    committed = [one for one, outcome in pairs if outcome.committed]
    services.metrics.transactions_committed(now, services.clock.monotonic() - started)
    services.metrics.committed(committed, since=services.journal.state.attempt)
    if len(committed) < len(outcomes):
        return False, "some commits are not confirmed"
    return True, ""


async def _ask_journal(services: Services, call: Callable[[], T]) -> T:
    """Calls the journal like `in_journal_thread`, but raises StorageError if that takes too long.

    Retries for an unavailable object store may take longer than the whole shutdown, and open transactions have to be
    aborted regardless. The call continues in its thread.
    """
    try:
        async with asyncio.timeout(JOURNAL_S):
            return await services.in_journal_thread(call)
    except TimeoutError as error:
        raise StorageError(f"the storage has not answered within {JOURNAL_S:g} s") from error
