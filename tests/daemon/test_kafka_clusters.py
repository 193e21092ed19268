"""Calls to several clusters: each goes to its cluster, all at once, and one that fails keeps no other from ending."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Collection, Coroutine, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import msgspec
import pytest

from tests.coordinator.values import committable
from tests.waiting import PATIENCE_S
from tidegate.committable import Committable
from tidegate.coordinator.ledger import key_of
from tidegate.coordinator.ownership import Known, OwnerRecord
from tidegate.coordinator.permit import CommitPermit, issue_permit
from tidegate.coordinator.restore_target import TransactionStatus
from tidegate.coordinator.start_offsets import UnassignedSource
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.errors import TidegateError
from tidegate.ids import MAIN_CLUSTER, Attempt, CheckpointId, ClusterName, OperatorName, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, TransactionLost
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import LostTransaction, SalvageOrder, Settlement

T = TypeVar("T")
US = ClusterName("us")


def placed(number: int, cluster: ClusterName, checkpoint: int = 1) -> Committable:
    return msgspec.structs.replace(committable(checkpoint, number, pool_slot=number), cluster=cluster)


HERE, THERE, ALSO_HERE = placed(1, MAIN_CLUSTER), placed(2, US), placed(3, MAIN_CLUSTER)
PERMIT = issue_permit(CheckpointId(1), (HERE, THERE, ALSO_HERE))


class Edge:
    """One cluster. It answers when `met` others have been asked as well, or raises `error`."""

    def __init__(self, outcome: CommitOutcome = CommitOutcome.COMMITTED, error: TidegateError | None = None) -> None:
        self.outcome = outcome
        self.error = error
        self.asked: list[Any] = []
        self.done = 0
        self.unavailable = self.explains_failures = False
        self.accept_gone: object = None

    async def _answer(self, asked: object, answer: T) -> T:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        for _ in range(5):  # one that has failed already must not cut this short
            await asyncio.sleep(0)
        self.done += 1
        return answer

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        return await self._answer(permit.committables, [self.outcome] * len(permit.committables))

    async def settle(self, permit: CommitPermit, *, hold: bool) -> Settlement:
        lost = tuple(LostTransaction(one, "lost.") for one in permit.committables)
        found = Settlement((CommitOutcome.LOST,) * len(lost), (), lost)
        if self.outcome is CommitOutcome.COMMITTED:
            found = Settlement((self.outcome,) * len(lost), permit.committables, ())
        return await self._answer(hold, found)

    async def find_transaction_statuses(self, wanted: Sequence[Committable]) -> dict[object, TransactionStatus]:
        return await self._answer(wanted, {key_of(one): TransactionStatus.OPEN for one in wanted})

    async def abort(self, wanted: Sequence[Committable]) -> None:
        await self._answer(wanted, None)

    async def abort_held(self, order: SalvageOrder, settlement: Settlement) -> None:
        await self._answer((order.lost, settlement.held), None)

    async def salvage(self, order: SalvageOrder, sinks: dict[str, object]) -> tuple[Committable, ...]:
        return await self._answer(sinks, tuple(one.committable for one in order.lost))

    async def fence_leftovers(self, *what: object) -> list[TransactionalId]:
        return await self._answer(what, [TransactionalId(f"of-{id(self)}")])

    async def read_known(self, pipeline: str) -> Known:
        return await self._answer(pipeline, Known())

    async def read_beginnings(
        self, wanted: Sequence[tuple[Any, UnassignedSource]], _now: dt.datetime
    ) -> list[SourcePositions]:
        return await self._answer(None, [SourcePositions(one.name, ()) for one, _ in wanted])


def clusters(here: Edge, there: Edge) -> KafkaClusters:
    return KafkaClusters({MAIN_CLUSTER: cast("KafkaEdge", here), US: cast("KafkaEdge", there)})


def run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(call, PATIENCE_S))


def test_each_transaction_is_committed_in_its_cluster_and_outcomes_are_in_order() -> None:
    here, there = Edge(), Edge(CommitOutcome.STILL_OPEN)
    outcomes = run(clusters(here, there).commit(PERMIT))
    assert outcomes == [CommitOutcome.COMMITTED, CommitOutcome.STILL_OPEN, CommitOutcome.COMMITTED]
    assert (here.asked, there.asked) == ([(HERE, ALSO_HERE)], [(THERE,)])


def test_a_cluster_without_a_part_is_not_asked() -> None:
    here, there = Edge(), Edge(error=BrokerUnavailable("away"))
    run(clusters(here, there).commit(issue_permit(CheckpointId(1), (HERE,))))
    assert there.asked == []


def test_one_that_fails_keeps_the_other_from_nothing_and_what_lasts_is_raised() -> None:
    here, there = Edge(), Edge(error=BrokerUnavailable("away"))
    with pytest.raises(BrokerUnavailable):
        run(clusters(here, there).commit(PERMIT))
    assert here.done == 1
    both = clusters(Edge(error=BrokerUnavailable("away")), Edge(error=TransactionLost("lost")))
    with pytest.raises(TransactionLost):
        run(both.commit(PERMIT))


def test_a_mistake_of_our_own_is_not_hidden_by_an_outage() -> None:
    async def call(name: ClusterName, _edge: KafkaEdge) -> None:
        raise BrokerUnavailable("away") if name == US else KeyError("a mistake")

    with pytest.raises(KeyError):
        run(clusters(Edge(), Edge()).each(call))


def test_lost_transactions_are_settled_and_salvaged_where_they_are() -> None:
    """A sink that has moved gives no properties to the cluster that it wrote to."""
    here, there = Edge(), Edge(CommitOutcome.LOST)
    both = clusters(here, there)
    settled = run(both.settle(PERMIT, hold=True))
    assert settled.outcomes == (CommitOutcome.COMMITTED, CommitOutcome.LOST, CommitOutcome.COMMITTED)
    assert (settled.committed, [one.committable for one in settled.lost]) == ((HERE, ALSO_HERE), [THERE])
    order = SalvageOrder("shop", "j", Attempt(2), CheckpointId(2), CheckpointId(1), 1000, settled.lost)
    sinks = [
        SimpleNamespace(name="stays", cluster=US, kafka={"linger.ms": "1"}),
        SimpleNamespace(name="moved", cluster=MAIN_CLUSTER, kafka={"linger.ms": "2"}),
    ]
    assert run(both.salvage(order, cast("Any", sinks))) == (THERE,)
    assert there.asked[-1] == {"stays": {"linger.ms": "1"}}
    assert here.asked == [True], "nothing was lost there"


def test_held_transactions_are_aborted_where_they_are() -> None:
    here, there = Edge(), Edge()
    lost = tuple(LostTransaction(one, "lost.") for one in (HERE, THERE))
    order = SalvageOrder("shop", "j", Attempt(2), CheckpointId(2), CheckpointId(1), 1000, lost)
    held = placed(9, US, 2)
    run(clusters(here, there).abort_held(order, Settlement((), (), lost, (held,))))
    assert (here.asked, there.asked) == ([(lost[:1], ())], [(lost[1:], (held,))])


def test_a_rewind_looks_at_and_aborts_each_transaction_in_its_cluster() -> None:
    here, there = Edge(), Edge()
    both = clusters(here, there)
    assert len(run(both.find_transaction_statuses([HERE, THERE]))) == 2
    run(both.abort([THERE]))
    assert (here.asked, there.asked) == ([[HERE]], [[THERE], [THERE]])


def test_every_cluster_is_fenced_with_all_that_is_to_be_kept() -> None:
    here, there = Edge(), Edge()
    keep = {HERE.transactional_id, THERE.transactional_id}
    assert len(run(clusters(here, there).fence_leftovers("shop", keep, Attempt(3), "j"))) == 2
    assert here.asked[0][1] == there.asked[0][1] == keep


def test_starting_offsets_are_looked_up_in_the_cluster_of_each_source() -> None:
    wanted = [
        (SimpleNamespace(name=name, cluster=cluster), UnassignedSource(OperatorName(name), ()))
        for name, cluster in (("a", US), ("b", MAIN_CLUSTER), ("c", US))
    ]
    found = run(clusters(Edge(), Edge()).read_beginnings(cast("Any", wanted), dt.datetime.now(dt.UTC)))
    assert [one.source for one in found] == ["a", "b", "c"]


def test_what_the_clusters_know_of_a_pipeline_is_one_knowledge() -> None:
    old, new = (OwnerRecord("j", Attempt(number), "me", CheckpointId(1), "p") for number in (1, 2))
    parts = {
        MAIN_CLUSTER: Known(old, True, (TransactionalId("shop.a.0.1-j.0"),), ("j",), ("j",)),
        US: Known(new, False, (TransactionalId("shop.b.0.1-k.0"),), (), ("k",)),
    }

    class Knowing(Edge):
        def __init__(self, known: Known) -> None:
            super().__init__()
            self.known = known

        async def read_known(self, _pipeline: str) -> Known:
            return self.known

    found = run(clusters(*(Knowing(one) for one in parts.values())).read_known("shop"))
    assert found == Known(new, True, ("shop.a.0.1-j.0", "shop.b.0.1-k.0"), ("j",), ("j", "k"))  # type: ignore[arg-type]  # ids are texts


def test_the_pipeline_waits_while_any_cluster_is_away() -> None:
    async def scene() -> list[bool]:
        edges = [KafkaEdge({}), KafkaEdge({})]
        both = KafkaClusters({MAIN_CLUSTER: edges[0], US: edges[1]})
        edges[1].note(answering=False)
        seen = [both.unavailable, not edges[0].unavailable, list(both.answering.clusters) == [MAIN_CLUSTER]]
        waiting = asyncio.ensure_future(both.wait_answering())
        await asyncio.sleep(0)
        edges[0].note(answering=False)  # while the other one comes back
        edges[1].note(answering=True)
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append(not waiting.done())
        edges[0].note(answering=True)
        await asyncio.wait_for(waiting, PATIENCE_S)
        seen.append(both.explains_failures)
        for edge in edges:
            await edge.close()
        return seen

    assert asyncio.run(scene()) == [True] * 5


def test_an_error_names_its_cluster_where_the_file_has_several() -> None:
    class Client:
        interruptions = 0

        def cluster_id(self) -> str:
            raise KafkaRefused("not authorized", topic="t")

        def topics(self, _topics: Collection[str]) -> dict[str, object]:
            return {}

        def close(self) -> None:
            pass

    async def fail(name: str) -> TidegateError:
        edge = KafkaEdge({}, cast("Any", SimpleNamespace(connect=lambda _kafka, _timeout: Client())), name=name)
        await edge.open()
        try:
            await edge.cluster_facts(["t"])
        except KafkaRefused as error:
            return error
        finally:
            await edge.close()
        raise AssertionError("it is refused")

    named, alone = run(fail("us")), run(fail(""))
    assert (named.message, str(named), named.fields) == (
        "cluster us: not authorized",
        "cluster us: not authorized",
        {"topic": "t", "cluster": "us"},
    )
    assert (alone.message, alone.fields) == ("not authorized", {"topic": "t"})


def test_the_consent_to_what_is_gone_holds_for_every_cluster() -> None:
    here, there = Edge(), Edge()
    clusters(here, there).accept_gone(CheckpointId(7))
    assert (here.accept_gone, there.accept_gone) == (7, 7)
