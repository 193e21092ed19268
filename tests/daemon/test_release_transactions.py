"""What an attempt leaves in Kafka, and what is said where that is more than nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage, Fault
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, on_cluster
from tests.waiting import wait_until
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.entries import ClusterIdentity
from tidegate.coordinator.permit import CommitPermit
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.release_transactions import release_transactions
from tidegate.errors import Superseded, TidegateError
from tidegate.ids import MAIN_CLUSTER, Attempt, ClusterName, TransactionalId
from tidegate.journal.journal import Journal
from tidegate.kafka.errors import BrokerUnavailable, TransactionLost
from tidegate.sinks.outcome import CommitOutcome
from tidegate.storage.base import StorageError

T = TypeVar("T")
US = ClusterName("us")

LISTED = committable(1).transactional_id


class HangingStorage(FakeStorage):
    """One that gives no answer, to the calls named here, before somebody says so."""

    def __init__(self) -> None:
        super().__init__()
        self.answers = threading.Event()
        self.hangs: frozenset[str] = frozenset()
        self.asked = False

    def _answer(self, call: str) -> None:
        if call in self.hangs:
            self.asked = True
            self.answers.wait()

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self._answer("put")
        return super().put_if_absent(name, data)

    def exists(self, name: str) -> bool:
        self._answer("exists")
        return super().exists(name)

    def list(self, prefix: str) -> list[str]:
        self._answer("list")
        return super().list(prefix)


class Kafka:
    """Answers every commit with `outcome`, or raises it."""

    unavailable = False
    open: tuple[TransactionalId, ...] = ()

    def __init__(self, outcome: CommitOutcome | Exception = CommitOutcome.COMMITTED) -> None:
        self.outcome = outcome
        self.kept: Collection[TransactionalId] = ()
        self.since: Attempt | None = None

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
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
        return list(self.open)


def journal_with(*faults: Fault, records: int = 5, storage: FakeStorage | None = None) -> tuple[Journal, FakeStorage]:
    """Of a second attempt, whose newest checkpoint lists a transaction; then what happens to the next appends."""
    storage = storage or FakeStorage()
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
    thread: ThreadPoolExecutor | None = None,
    before_call: Callable[[Callable[[], object]], None] = lambda _call: None,
    there: Kafka | None = None,
) -> str:
    """`there` is another cluster, with a sink of its own."""

    async def in_journal_thread(call: Callable[[], T]) -> T:
        before_call(call)
        return call() if thread is None else await asyncio.get_running_loop().run_in_executor(thread, call)

    clusters = {MAIN_CLUSTER: kafka} | ({} if there is None else {US: there})
    sinks = [SimpleNamespace(topics=("out",), cluster=name) for name in clusters]
    plan = SimpleNamespace(pipeline="shop", exactly_once=True, operators=lambda _kind: sinks)
    services = SimpleNamespace(
        journal=journal,
        kafka=KafkaClusters(cast("Any", clusters)),
        clock=SYSTEM_CLOCK,
        in_journal_thread=in_journal_thread,
        metrics=metrics or PipelineMetrics("shop", "0"),
    )
    return asyncio.run(release_transactions(cast("Any", plan), cast("Any", services), cause, verified=verified))


def test_what_is_committed_is_on_record_and_older_attempts_are_still_this_daemons() -> None:
    """Its own entry about the end is nobody else's: what an older attempt has left open is aborted, too."""
    journal, _ = journal_with()
    kafka = Kafka()
    assert left_by(journal, kafka) == ""
    assert journal.state.committables == ()
    assert (kafka.kept, kafka.since) == (frozenset(), 0)


@pytest.mark.parametrize(
    ("outcome", "records"),
    [
        (CommitOutcome.ENDED_NOW, 9),
        (CommitOutcome.COMMITTED, 9),
        (CommitOutcome.STILL_OPEN, 0),
        (TransactionLost("it has timed out"), 0),
    ],
)
def test_records_that_are_committed_when_the_attempt_has_ended_are_counted(
    outcome: CommitOutcome | Exception, records: int
) -> None:
    """Also those that the attempt itself has committed, of a checkpoint that nobody could call completed any more."""
    journal, _ = journal_with(records=9)
    metrics = PipelineMetrics("shop", "0")
    left_by(journal, Kafka(outcome), metrics=metrics)
    assert metrics.snapshot().records_committed == records


def figure(metrics: PipelineMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tidegate_{name}", {"pipeline": "shop", **labels})


def test_transactions_that_the_end_of_an_attempt_commits_and_aborts_are_counted() -> None:
    journal, _ = journal_with()
    kafka, metrics = Kafka(CommitOutcome.ENDED_NOW), PipelineMetrics("shop", "0")
    kafka.open = (TransactionalId("shop.out.0.2-j.1"), TransactionalId("shop.out.0.2-j.2"))
    left_by(journal, kafka, metrics=metrics)
    assert figure(metrics, "transactions_total", result="committed") == 1
    assert figure(metrics, "transaction_commit_seconds_count") == 1
    assert figure(metrics, "transactions_total", result="aborted") == 2


@pytest.mark.parametrize("outcome", [CommitOutcome.ENDED_NOW, CommitOutcome.COMMITTED])
def test_a_transaction_that_the_attempt_has_committed_is_not_counted_again(outcome: CommitOutcome) -> None:
    journal, _ = journal_with()
    metrics = PipelineMetrics("shop", "0")
    metrics.transactions_committed(journal.state.committables, 0.1)
    left_by(journal, Kafka(outcome), metrics=metrics)
    assert figure(metrics, "transactions_total", result="committed") == 1


@pytest.mark.parametrize(("outcome", "open_s"), [(CommitOutcome.ENDED_NOW, 0.0), (CommitOutcome.STILL_OPEN, 600.0)])
def test_what_is_ended_grows_no_older(outcome: CommitOutcome, open_s: float) -> None:
    """While recoveries fail no attempt begins, and an alert was raised of a transaction that was aborted long ago."""
    journal, _ = journal_with()
    metrics = PipelineMetrics("shop", "0", elapsed=lambda: 1000.0)
    metrics.oldest_transaction(600.0)
    left_by(journal, Kafka(outcome), metrics=metrics)
    assert figure(metrics, "transaction_oldest_open_age_seconds") == open_s


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


@pytest.mark.parametrize("outcome", [CommitOutcome.STILL_OPEN, BrokerUnavailable("no answer from the coordinator")])
def test_what_is_decided_and_could_not_be_committed_is_told(outcome: CommitOutcome | TidegateError) -> None:
    """Readers wait for it, and nobody may start this pipeline again soon."""
    journal, _ = journal_with()
    kafka = Kafka(outcome)
    left = left_by(journal, kafka)
    assert kafka.kept == {LISTED}
    assert "transactions of checkpoint 1 are decided, but not committed yet" in left
    assert isinstance(outcome, CommitOutcome) or outcome.message in left
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


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Journal, HangingStorage, ThreadPoolExecutor]]:
    """A journal in a storage that can be made to hang, and the thread that it is used in."""
    monkeypatch.setattr("tidegate.daemon.release_transactions.JOURNAL_S", 0.02)
    storage = HangingStorage()
    journal, _ = journal_with(storage=storage)
    with ThreadPoolExecutor(1) as thread:
        try:
            yield journal, storage, thread
        finally:
            storage.answers.set()


@pytest.mark.parametrize("calls", [{"exists", "list"}, {"list"}])
def test_a_storage_that_is_away_does_not_keep_what_is_open_from_being_aborted(
    monkeypatch: pytest.MonkeyPatch, calls: set[str]
) -> None:
    """Its calls are tried for longer than an end may take; brokers answer all the while, and readers wait."""
    with hanging(monkeypatch) as (journal, storage, thread):
        storage.hangs = frozenset(calls)
        kafka = Kafka()
        assert left_by(journal, kafka, thread=thread) == ""
        assert (kafka.kept, kafka.since) == ({LISTED}, 0)
        assert storage.asked


def test_an_end_that_is_on_record_late_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage has answered before the journal is read, and after nobody waited for the entry any more."""
    with hanging(monkeypatch) as (journal, storage, thread):
        storage.hangs = frozenset({"exists"})

        def answer(call: Callable[[], object]) -> None:
            monkeypatch.setattr("tidegate.daemon.release_transactions.JOURNAL_S", 60.0)
            if call == journal.read:
                storage.answers.set()

        kafka = Kafka()
        assert left_by(journal, kafka, thread=thread, before_call=answer) == ""
        assert (kafka.kept, kafka.since) == (frozenset(), 0)


@pytest.mark.parametrize("call", ["exists", "put"])
def test_what_an_append_that_still_hangs_may_decide_is_neither_committed_nor_aborted(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with hanging(monkeypatch) as (journal, storage, thread):
        storage.hangs = frozenset({call})
        doubtful = committable(2, producer_id=200, pool_slot=1)
        checkpoint = completed(2, attempt=2, committables=[committable(1), doubtful])
        appending = thread.submit(journal.append_checkpoint, checkpoint)
        wait_until(lambda: storage.asked, "the append has begun")
        kafka = Kafka()
        left = left_by(journal, kafka, thread=thread)
        assert kafka.kept == {LISTED, doubtful.transactional_id}
        assert "it is not known whether checkpoint 2 is in the journal" in left
        storage.answers.set()
        appending.result()
        assert journal.doubtful is None


def left_by_late_append(monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> tuple[str, Kafka, Journal]:
    """The storage answers an append only when the end of the checkpoint before is to be recorded behind it."""
    with hanging(monkeypatch) as (journal, storage, thread):
        storage.hangs, storage.faults = frozenset({"put"}), list(faults)
        checkpoint = completed(2, attempt=2, committables=[committable(2, producer_id=200, pool_slot=1)])
        appending = thread.submit(journal.append_checkpoint, checkpoint)
        wait_until(lambda: storage.asked, "the append has begun")

        def answer(_call: Callable[[], object]) -> None:
            monkeypatch.setattr("tidegate.daemon.release_transactions.JOURNAL_S", 60.0)
            storage.answers.set()

        kafka = Kafka()
        left = left_by(journal, kafka, thread=thread, before_call=answer)
        assert (appending.exception() is None) == (not faults)
    return left, kafka, journal


def test_the_end_of_a_checkpoint_is_not_recorded_for_a_later_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has committed what the later one lists, and the next start would abort it."""
    left, kafka, journal = left_by_late_append(monkeypatch)
    late = committable(2, producer_id=200, pool_slot=1).transactional_id
    assert [one.transactional_id for one in journal.state.committables] == [late]
    assert late in kafka.kept
    assert "transactions of checkpoint 2 are decided, but not committed yet" in left


def test_the_end_of_a_checkpoint_is_not_recorded_behind_an_append_without_an_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, kafka, _ = left_by_late_append(monkeypatch, Fault.BLIND)
    assert committable(2, producer_id=200, pool_slot=1).transactional_id in kafka.kept
    assert "it is not known whether checkpoint 2 is in the journal" in left


def test_an_append_that_failed_before_anything_was_written_leaves_no_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage that is away, mostly. Its transactions are aborted with the rest; a doubt of before stays one."""
    journal, storage = journal_with(*[Fault.REFUSED] * 2)

    def fail(_name: str) -> bool:
        raise StorageError("memory: away")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "exists", fail)
        appended_in_vain(journal)
    assert [one.transactional_id for one in journal.maybe_listed] == [LISTED]
    doubtful = appended_in_vain(journal)
    monkeypatch.setattr(storage, "exists", fail)
    with pytest.raises(StorageError):
        journal.append_checkpoint(completed(3, attempt=2, committables=[committable(3, pool_slot=2)]))
    assert [one.transactional_id for one in journal.maybe_listed] == [LISTED, LISTED, doubtful]


# -- two clusters ------------------------------------------------------------------------------------------------------


def journal_of_two() -> Journal:
    """Its newest checkpoint lists a transaction in each of two clusters."""
    two = {**on_cluster({}), US: ClusterIdentity("cluster-2", {})}
    journal = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    journal.take_over(msgspec.structs.replace(IDENTITY, clusters=two), 1)
    there = msgspec.structs.replace(committable(1, 101, pool_slot=1), cluster=US)
    journal.append_checkpoint(completed(1, attempt=1, committables=[committable(1), there]))
    return journal


class Frozen(Kafka):
    """Nothing is answered."""

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        await asyncio.Event().wait()
        raise AssertionError(permit)


def test_what_is_left_in_two_clusters_is_ended_and_on_record() -> None:
    journal, here, there = journal_of_two(), Kafka(), Kafka()
    assert left_by(journal, here, there=there) == ""
    assert journal.state.committables == ()
    assert here.kept == there.kept == frozenset()


def test_while_one_cluster_is_away_the_other_is_left_clean() -> None:
    """It keeps all that the journal lists: no cluster may abort what is decided."""
    journal, here, there = journal_of_two(), Kafka(), Kafka()
    there.unavailable = True
    left = left_by(journal, here, there=there)
    assert here.kept == {one.transactional_id for one in journal.state.committables}
    assert len(here.kept) == 2
    assert there.since is None, "it was not asked"
    assert "not committed yet (no broker of cluster us answers). " in left
    assert left.endswith("blocked in out in us")


def test_a_cluster_that_has_just_frozen_does_not_keep_the_other_from_being_left_clean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.daemon.release_transactions.COMMIT_S", 0.0)
    journal, here, there = journal_of_two(), Kafka(), Frozen()
    left = left_by(journal, here, BrokerUnavailable("cluster us: no answer"), there=there)
    assert here.since is not None
    assert "not committed yet (not done within 0 s)" in left


def test_a_cluster_with_sources_only_blocks_nobody() -> None:
    journal, _ = journal_with()
    kafka, there = Kafka(), Kafka()
    there.unavailable = True
    sinks = [SimpleNamespace(topics=("out",), cluster=MAIN_CLUSTER)]
    services = SimpleNamespace(
        journal=journal,
        kafka=KafkaClusters(cast("Any", {MAIN_CLUSTER: kafka, US: there})),
        clock=SYSTEM_CLOCK,
        in_journal_thread=_at_once,
        metrics=PipelineMetrics("shop", "0"),
    )
    plan = SimpleNamespace(pipeline="shop", exactly_once=True, operators=lambda _kind: sinks)
    assert asyncio.run(release_transactions(cast("Any", plan), cast("Any", services), None)) == ""


async def _at_once(call: Callable[[], T]) -> T:
    return call()
