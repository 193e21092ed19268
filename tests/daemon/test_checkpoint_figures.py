"""Records of a transaction count once, whoever commits it, and those of other daemons not at all."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, committable, completed, positions
from tests.support.clusters import alone
from tidegate.clock import SYSTEM_CLOCK
from tidegate.committable import Committable
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.daemon.checkpoint_figures import CommitAccount
from tidegate.daemon.commit_listed import commit_listed
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.recovery_stages import StateVerified
from tidegate.ids import Attempt, OperatorName
from tidegate.journal.journal import Journal
from tidegate.kafka.errors import TransactionLost
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import LostTransaction, SalvageOrder, Settlement

FIRST, SECOND = (committable(number, producer_id=100 + number, records=10 * number) for number in (1, 2))
OWN = FIRST.attempt


def of_attempt(number: int, one: Committable = FIRST) -> Committable:
    return msgspec.structs.replace(one, attempt=Attempt(number))


def test_committables_of_an_older_attempt_were_counted_in_its_time() -> None:
    account = CommitAccount()
    assert account.completed(completed(2, attempt=OWN, committables=[of_attempt(OWN - 1), SECOND])) == {"out": 20}


def test_what_the_end_of_an_attempt_commits_counts_unless_its_checkpoint_has_completed() -> None:
    account = CommitAccount()
    account.begin(OWN)
    assert account.completed(completed(1, attempt=OWN, committables=[FIRST])) == {"out": 10}
    assert account.ended([FIRST, SECOND]) == {"out": 20}
    assert account.ended([FIRST, SECOND]) == {}, "the next recovery asks again"


def test_a_checkpoint_does_not_count_what_the_recovery_before_it_has() -> None:
    account = CommitAccount()
    account.begin(OWN)
    assert account.ended([FIRST]) == {"out": 10}
    assert account.completed(completed(2, attempt=OWN, committables=[FIRST, SECOND])) == {"out": 20}


def test_what_another_daemon_has_decided_is_not_counted() -> None:
    """It may have committed and counted it: Kafka's answer is the same."""
    account = CommitAccount()
    assert account.ended([FIRST]) == {}
    account.begin(Attempt(OWN + 1))
    account.begin(Attempt(OWN + 2))
    assert account.ended([FIRST, of_attempt(OWN + 1, SECOND)]) == {"out": 20}


def test_a_transaction_that_kafka_says_again_is_committed_is_counted_once() -> None:
    """It confirms each commit as often as it is asked: by the attempt, by its end, by the next recovery."""
    account = CommitAccount()
    assert account.end([FIRST]) == 1
    assert account.end([FIRST, SECOND]) == 1
    assert account.end([FIRST, SECOND]) == 0


def test_what_is_remembered_of_ended_transactions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.daemon.checkpoint_figures.ENDED_MAX", 1)
    account = CommitAccount()
    assert account.end([FIRST, SECOND]) == 2
    assert account.end([SECOND]) == 0, "the newest ones are"
    assert account.end([FIRST]) == 1


class HalfLost:
    """Has aborted one of two transactions; its records are written again in one that is committed."""

    def __init__(self) -> None:
        self.salvaged = False

    async def commit(self, _permit: CommitPermit) -> list[CommitOutcome]:
        if not self.salvaged:
            raise TransactionLost("aborted by the broker")
        return [CommitOutcome.ENDED_NOW]

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        assert hold
        committed, lost = permit.committables
        return Settlement(
            (CommitOutcome.COMMITTED, CommitOutcome.LOST), (committed,), (LostTransaction(lost, "lost."),)
        )

    async def salvage(self, order: SalvageOrder, _sinks: object) -> tuple[Committable, ...]:
        self.salvaged = True
        return (of_attempt(order.attempt, committable(1, producer_id=300, records=7)),)


@pytest.mark.parametrize(("first", "records"), [(1, 10 + 7), (2, 7)], ids=["own", "of-another-daemon"])
def test_a_recovery_counts_what_it_finds_committed_and_what_it_writes_again(first: int, records: int) -> None:
    journal = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    listed = [of_attempt(1), of_attempt(1, committable(1, producer_id=101, pool_slot=1))]
    journal.append_checkpoint(completed(1, at=(positions("orders", {"orders": {0: 7}}),), committables=listed))
    facts = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 1}}, frozenset())
    whole = StateVerified(decide_restore(journal.take_over(IDENTITY, 2), facts), facts)
    metrics = PipelineMetrics("shop", "1")
    metrics.attempt_started(Attempt(first))

    async def at_once(call: Any) -> Any:
        return call()

    async def search() -> None:
        raise AssertionError("nothing is waited for")

    services = SimpleNamespace(
        journal=journal, kafka=alone(HalfLost()), clock=SYSTEM_CLOCK, in_journal_thread=at_once, metrics=metrics
    )
    plan = SimpleNamespace(pipeline="shop", operators=lambda _kind: [])
    asyncio.run(commit_listed(cast("Any", plan), cast("Any", services), whole, 60_000, search))
    assert metrics.snapshot().records_committed == records
