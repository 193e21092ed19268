"""What an attempt leaves in Kafka, and what is said where that is more than nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from tests.coordinator.fake_storage import FakeStorage, Fault
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.permit import CommitPermit
from tidegate.daemon.leaving import leave
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.errors import Superseded, TidegateError
from tidegate.ids import Attempt, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, TransactionLost
from tidegate.sinks.outcome import Outcome
from tidegate.storage.base import StorageError

T = TypeVar("T")

LISTED = committable(1).transactional_id


class Kafka:
    """Answers every commit with `outcome`, or raises it."""

    away = False

    def __init__(self, outcome: Outcome | Exception = Outcome.COMMITTED) -> None:
        self.outcome = outcome
        self.kept: Collection[TransactionalId] = ()
        self.since: Attempt | None = None

    async def commit(self, permit: CommitPermit) -> list[Outcome]:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return [self.outcome] * len(permit.committables)

    async def fence_leftovers(
        self,
        _pipeline: str,
        keep: Collection[TransactionalId],
        _behind: Attempt,
        _journal: str,
        others: Collection[str],
        since: Attempt,
    ) -> list[TransactionalId]:
        assert others == ()
        self.kept, self.since = frozenset(keep), since
        return []


def journal_with(*faults: Fault, records: int = 5) -> tuple[Journal, FakeStorage]:
    """Of a second attempt, whose newest checkpoint lists a transaction; then what happens to the next appends."""
    storage = FakeStorage()
    journal = Journal(storage, ME, retained=2, id_reserve=5)
    for at_ms in (1, 2):
        journal.take_over(IDENTITY, at_ms)
    journal.append_checkpoint(completed(1, attempt=2, committables=[committable(1, records=records)]))
    storage.faults = list(faults)
    return journal, storage


def left_by(
    journal: Journal,
    kafka: Kafka,
    cause: BaseException | None = None,
    *,
    verified: bool = True,
    metrics: PipelineMetrics | None = None,
) -> str:
    async def at_once(call: Callable[[], T]) -> T:
        return call()

    plan = SimpleNamespace(
        pipeline="shop", exactly_once=True, operators=lambda _kind: [SimpleNamespace(topics=("out",))]
    )
    services = SimpleNamespace(
        journal=journal,
        kafka=kafka,
        clock=SYSTEM_CLOCK,
        in_journal_thread=at_once,
        metrics=metrics or PipelineMetrics("shop", "0"),
    )
    return asyncio.run(leave(cast("Any", plan), cast("Any", services), cause, verified=verified))


def test_what_is_committed_is_on_record_and_older_attempts_are_still_this_daemons() -> None:
    """Its own entry about the end is nobody else's: what an older attempt has left open is aborted, too."""
    journal, _ = journal_with()
    kafka = Kafka()
    assert left_by(journal, kafka) == ""
    assert journal.state.committables == ()
    assert (kafka.kept, kafka.since) == (frozenset(), 0)


@pytest.mark.parametrize(
    ("outcome", "records"),
    [(Outcome.ENDED_NOW, 9), (Outcome.COMMITTED, 9), (Outcome.STILL_OPEN, 0), (TransactionLost("it has timed out"), 0)],
)
def test_records_that_are_committed_when_the_attempt_has_ended_are_counted(
    outcome: Outcome | Exception, records: int
) -> None:
    """Also those that the attempt itself has committed, of a checkpoint that nobody could call completed any more."""
    journal, _ = journal_with(records=9)
    metrics = PipelineMetrics("shop", "0")
    left_by(journal, Kafka(outcome), metrics=metrics)
    assert metrics.snapshot().records_committed == records


def test_who_was_superseded_touches_nothing_but_its_own_attempt() -> None:
    journal, storage = journal_with()
    newer = Journal(storage, OTHER, retained=2, id_reserve=5)
    newer.take_over(IDENTITY, 3)
    kafka = Kafka()
    left_by(journal, kafka, Superseded("by another one"))
    assert (kafka.kept, kafka.since) == ({LISTED}, 2)


def test_who_is_superseded_and_does_not_know_it_yet_touches_nothing_but_its_own_attempt() -> None:
    journal, storage = journal_with()
    Journal(storage, OTHER, retained=2, id_reserve=5).take_over(IDENTITY, 3)
    kafka = Kafka()
    left_by(journal, kafka)
    assert (kafka.kept, kafka.since) == ({LISTED}, 2)


@pytest.mark.parametrize("outcome", [Outcome.STILL_OPEN, BrokerUnavailable("no answer from the coordinator")])
def test_what_is_decided_and_could_not_be_committed_is_told(outcome: Outcome | TidegateError) -> None:
    """Readers wait for it, and nobody may start this pipeline again soon."""
    journal, _ = journal_with()
    kafka = Kafka(outcome)
    left = left_by(journal, kafka)
    assert kafka.kept == {LISTED}
    assert "transactions of checkpoint 1 are decided, but not committed yet" in left
    assert isinstance(outcome, Outcome) or outcome.message in left
    assert "blocked in out" in left


def test_what_a_first_recovery_has_not_looked_at_is_not_committed() -> None:
    """Its state may be damaged: then the last whole checkpoint can be gone back to only while that output is open."""
    journal, _ = journal_with()
    kafka = Kafka(AssertionError("nothing is committed"))
    left = left_by(journal, kafka, verified=False)
    assert kafka.kept == {LISTED}
    assert "transactions of checkpoint 1 are decided, but not committed yet (its state was not verified)" in left


def test_a_lost_transaction_is_open_no_more_and_is_the_recoverys_to_tell() -> None:
    journal, _ = journal_with()
    kafka = Kafka(TransactionLost("it has timed out"))
    assert left_by(journal, kafka) == ""
    assert kafka.kept == {LISTED}


def appended_in_vain(journal: Journal) -> TransactionalId:
    doubtful = committable(2, producer_id=200, pool_slot=1)
    with pytest.raises(StorageError):
        journal.append_checkpoint(completed(2, attempt=2, committables=[committable(1), doubtful]))
    return doubtful.transactional_id


def test_what_an_append_without_an_answer_may_have_decided_is_told() -> None:
    """A full disk, say: it may neither be committed nor aborted before somebody has taken that entry's place."""
    journal, _ = journal_with(*[Fault.REFUSED] * 4)
    doubtful = appended_in_vain(journal)
    kafka = Kafka()
    left = left_by(journal, kafka)
    assert kafka.kept == {LISTED, doubtful}
    assert "it is not known whether checkpoint 2 is in the journal: its transactions are open" in left
    assert "blocked in out" in left
    assert "checkpoint 1" not in left, "which is committed"


def test_an_entry_in_the_place_of_one_in_doubt_ends_the_doubt() -> None:
    """The end of what is committed is such an entry; the transactions of the other are aborted then."""
    journal, _ = journal_with(Fault.LATE, Fault.LATE)
    appended_in_vain(journal)
    kafka = Kafka()
    assert left_by(journal, kafka) == ""
    assert kafka.kept == frozenset()


def test_a_takeover_ends_the_doubt() -> None:
    journal, _ = journal_with(Fault.REFUSED, Fault.REFUSED)
    appended_in_vain(journal)
    journal.take_over(IDENTITY, 3)
    assert [one.transactional_id for one in journal.maybe_listed] == [LISTED]
