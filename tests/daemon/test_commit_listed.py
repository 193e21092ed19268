"""How a recovery ends what is listed: where records are gone and that is accepted, and where it takes long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, committable, completed, positions
from tests.sinks.leaping import LeapingClock
from tests.support.clusters import alone
from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.committable import Committable
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.daemon import commit_listed as ending
from tidegate.daemon.commit_listed import COMMIT_DEADLINE_S, Search, commit_listed
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.recovery_stages import StateVerified, TransactionsResolved
from tidegate.ids import OperatorName
from tidegate.journal.journal import Journal
from tidegate.kafka.errors import TransactionLost
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import LostTransaction, SalvageOrder, Settlement

AT = positions("orders", {"orders": {0: 7}})


class Kafka:
    """Has aborted all that was decided, and nothing is left to be written again."""

    async def commit(self, _permit: CommitPermit) -> list[CommitOutcome]:
        raise TransactionLost("aborted by the broker")

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        assert hold
        outcomes = (CommitOutcome.LOST,) * len(permit.committables)
        return Settlement(outcomes, (), tuple(LostTransaction(one, "lost.") for one in permit.committables))

    async def salvage(self, order: SalvageOrder, _sinks: object) -> tuple[Committable, ...]:
        assert len(order.lost) == 1
        return ()


class LongLogs(Kafka):
    """Every look takes minutes; the second one finds the marker that a search has written."""

    def __init__(self, clock: LeapingClock) -> None:
        self.clock = clock
        self.asked: list[str] = []

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        self.asked.append("commit")
        self.clock.sleep(3 * COMMIT_DEADLINE_S)
        return [
            CommitOutcome.COMMITTED if "search" in self.asked else CommitOutcome.STILL_OPEN for _ in permit.committables
        ]


def end(kafka: Kafka, search: Search, clock: Clock = SYSTEM_CLOCK) -> tuple[TransactionsResolved, Journal]:
    """A recovery from a checkpoint that lists one transaction, and the journal after it."""
    journal = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, at=(AT,), committables=[committable(1)]))
    facts = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 1}}, frozenset())
    whole = StateVerified(decide_restore(journal.take_over(IDENTITY, 2), facts), facts)

    async def at_once(call: Any) -> Any:
        return call()

    services = SimpleNamespace(
        journal=journal,
        kafka=alone(kafka),
        clock=clock,
        in_journal_thread=at_once,
        metrics=PipelineMetrics("shop", "1"),
    )
    plan = SimpleNamespace(pipeline="shop", operators=lambda _kind: [])
    return asyncio.run(commit_listed(cast("Any", plan), cast("Any", services), whole, 60_000, search)), journal


def test_where_all_records_are_gone_the_journal_says_that_nothing_is_to_be_ended() -> None:
    async def search() -> None:
        raise AssertionError("nothing is waited for")

    ended, journal = end(Kafka(), search)
    assert ended.restore.checkpoint is not None
    assert (ended.restore.checkpoint.positions, ended.restore.committables) == ((AT,), ())
    assert journal.release_permit() is None
    assert journal.read().committables == ()


def test_however_long_logs_are_read_what_a_search_has_mended_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "COMMIT_PAUSE_S", 0)
    kafka = LongLogs(clock := LeapingClock(speed=1))

    async def search() -> None:
        kafka.asked.append("search")

    _, journal = end(kafka, search, clock)
    assert kafka.asked == ["commit", "search", "commit"]
    assert journal.release_permit() is None
