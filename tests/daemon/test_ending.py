"""How a recovery goes on where records of a lost transaction are gone, and somebody has accepted that."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, committable, completed, positions
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.types import Committable
from tidegate.daemon.ending import end_listed
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.stages import Whole
from tidegate.ids import OperatorName
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


def test_where_all_records_are_gone_the_journal_says_that_nothing_is_to_be_ended() -> None:
    journal = Journal(FakeStorage(), ME, retained=2, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    at = positions("orders", {"orders": {0: 7}})
    journal.append_checkpoint(completed(1, at=(at,), committables=[committable(1)]))
    facts = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 1}}, frozenset())
    whole = Whole(decide_restore(journal.take_over(IDENTITY, 2), facts), facts)

    async def at_once(call: Any) -> Any:
        return call()

    async def search() -> None:
        raise AssertionError("nothing is waited for")

    services = SimpleNamespace(
        journal=journal,
        kafka=Kafka(),
        clock=SYSTEM_CLOCK,
        in_journal_thread=at_once,
        metrics=PipelineMetrics("shop", "1"),
    )
    plan = SimpleNamespace(pipeline="shop", operators=lambda _kind: [])
    ended = asyncio.run(end_listed(cast("Any", plan), cast("Any", services), whole, 60_000, search))
    assert ended.restore.checkpoint is not None
    assert (ended.restore.checkpoint.positions, ended.restore.committables) == ((at,), ())
    assert journal.leaving_permit() is None
    assert journal.read().committables == ()
