"""What a recovery makes of what is listed: what it counts, and how it continues where records are gone."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, committable, completed, positions
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.types import Committable
from tidegate.daemon.ending import end_listed
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.stages import Ended, Whole
from tidegate.ids import Attempt, OperatorName
from tidegate.kafka.errors import TransactionLost
from tidegate.sinks.outcome import Outcome
from tidegate.sinks.salvage import LostTransaction, SalvageOrder, Settlement


class Kafka:
    """Has aborted all that was decided, and nothing is left to be written again."""

    async def commit(self, _permit: CommitPermit) -> list[Outcome]:
        raise TransactionLost("aborted by the broker")

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        assert hold
        outcomes = (Outcome.LOST,) * len(permit.committables)
        return Settlement(outcomes, (), tuple(LostTransaction(one, "lost.") for one in permit.committables))

    async def salvage(self, order: SalvageOrder, _sinks: object) -> tuple[Committable, ...]:
        assert len(order.lost) == 1
        return ()


class HalfSalvaging(Kafka):
    """Has aborted one of two transactions, whose records are written again in one that is committed."""

    def __init__(self) -> None:
        self.answers: list[Outcome] = []

    async def commit(self, permit: CommitPermit) -> list[Outcome]:
        return self.answers or await super().commit(permit)

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        committed, lost = permit.committables
        return Settlement((Outcome.COMMITTED, Outcome.LOST), (committed,), (LostTransaction(lost, "lost."),))

    async def salvage(self, order: SalvageOrder, _sinks: object) -> tuple[Committable, ...]:
        self.answers = [Outcome.ENDED_NOW]
        return (msgspec.structs.replace(committable(1, producer_id=300, records=7), attempt=order.attempt),)


AT = positions("orders", {"orders": {0: 7}})


def end(kafka: Kafka, *listed: Committable, metrics: PipelineMetrics | None = None) -> tuple[Journal, Ended]:
    """What a recovery makes of a checkpoint that lists these."""
    journal = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, at=(AT,), committables=listed))
    facts = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 1}}, frozenset())
    whole = Whole(decide_restore(journal.take_over(IDENTITY, 2), facts), facts)

    async def at_once(call: Any) -> Any:
        return call()

    async def search() -> None:
        raise AssertionError("nothing is waited for")

    services = SimpleNamespace(
        journal=journal,
        kafka=kafka,
        clock=SYSTEM_CLOCK,
        in_journal_thread=at_once,
        metrics=metrics or PipelineMetrics("shop", "0"),
    )
    plan = SimpleNamespace(pipeline="shop", operators=lambda _kind: [])
    return journal, asyncio.run(end_listed(cast("Any", plan), cast("Any", services), whole, 60_000, search))


@pytest.mark.parametrize(("first", "records"), [(1, 5 + 7), (2, 7)], ids=["own", "of another daemon"])
def test_records_that_a_recovery_commits_and_writes_again_are_counted(first: int, records: int) -> None:
    """Not those that another daemon has decided: it may have committed and counted them."""
    metrics = PipelineMetrics("shop", "0")
    metrics.attempt_started(Attempt(first))
    listed = [
        msgspec.structs.replace(committable(1, 100 + slot, pool_slot=slot), attempt=Attempt(1)) for slot in (0, 1)
    ]
    end(HalfSalvaging(), *listed, metrics=metrics)
    assert metrics.snapshot().records_committed == records


def test_where_all_records_are_gone_the_journal_says_that_nothing_is_to_be_ended() -> None:
    journal, ended = end(Kafka(), committable(1))
    assert ended.restore.checkpoint is not None
    assert (ended.restore.checkpoint.positions, ended.restore.committables) == ((AT,), ())
    assert journal.leaving_permit() is None
    assert journal.read().committables == ()
