"""Every call goes to the cluster that it concerns, and none waits for one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.values import committable
from tidegate.committable import Committable
from tidegate.coordinator.permit import CommitPermit, issue_permit
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.ids import MAIN_CLUSTER, Attempt, CheckpointId, ClusterName, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import LostTransaction, SalvageOrder

US = ClusterName("us")
NEAR, ALSO_NEAR = committable(1, pool_slot=1), committable(1, producer_id=101, pool_slot=2)
FAR = msgspec.structs.replace(committable(1, pool_slot=3), cluster=US)
"""Its producer has the same id and epoch as that of NEAR, and it is in partition 0 of a topic of the same name."""


class Edge:
    """A cluster that remembers what it was asked."""

    def __init__(self, outcome: CommitOutcome, error: Exception | None = None) -> None:
        self.outcome, self.error = outcome, error
        self.committed: list[Committable] = []
        self.kept: list[TransactionalId] = []
        self.salvaged: list[Committable] = []

    async def commit(self, permit: CommitPermit) -> list[CommitOutcome]:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        self.committed += permit.committables
        return [self.outcome] * len(permit.committables)

    async def fence_leftovers(self, _pipeline: str, keep: Collection[TransactionalId], *_: object) -> Sequence[Any]:
        self.kept += sorted(keep)
        return [*keep][:1]

    async def salvage(self, order: SalvageOrder, _sinks: object) -> tuple[Committable, ...]:
        self.salvaged += [one.committable for one in order.lost]
        return tuple(self.salvaged)


def clusters(near: Edge, far: Edge) -> KafkaClusters:
    return KafkaClusters({MAIN_CLUSTER: cast("Any", near), US: cast("Any", far)})


def test_transactions_are_committed_in_their_cluster_and_outcomes_keep_the_order() -> None:
    near, far = Edge(CommitOutcome.ENDED_NOW), Edge(CommitOutcome.LOST)
    permit = issue_permit(CheckpointId(1), (NEAR, FAR, ALSO_NEAR))
    outcomes = asyncio.run(clusters(near, far).commit(permit))
    assert outcomes == [CommitOutcome.ENDED_NOW, CommitOutcome.LOST, CommitOutcome.ENDED_NOW]
    assert (near.committed, far.committed) == ([NEAR, ALSO_NEAR], [FAR])


def test_a_cluster_that_fails_keeps_the_other_one_from_nothing() -> None:
    near, far = Edge(CommitOutcome.ENDED_NOW, BrokerUnavailable("no answer")), Edge(CommitOutcome.ENDED_NOW)
    with pytest.raises(BrokerUnavailable):
        asyncio.run(clusters(near, far).commit(issue_permit(CheckpointId(1), (NEAR, FAR))))
    assert far.committed == [FAR]


def test_no_cluster_fences_what_is_to_be_kept_in_any() -> None:
    """A sink may have moved: which cluster a transactional id belongs to is not known from the file."""
    near, far = Edge(CommitOutcome.ENDED_NOW), Edge(CommitOutcome.ENDED_NOW)
    keep = frozenset({NEAR.transactional_id, FAR.transactional_id})
    fenced = asyncio.run(clusters(near, far).fence_leftovers("shop", keep, Attempt(2), "j"))
    assert near.kept == far.kept == sorted(keep)
    assert len(fenced) == 2


def test_lost_transactions_are_salvaged_in_their_cluster_alone() -> None:
    near, far = Edge(CommitOutcome.LOST), Edge(CommitOutcome.LOST)
    lost = (LostTransaction(FAR, ""),)
    order = SalvageOrder("shop", "j", Attempt(2), CheckpointId(2), CheckpointId(1), 1000, lost)
    assert asyncio.run(clusters(near, far).salvage(order, [])) == (FAR,)
    assert (near.salvaged, far.salvaged) == ([], [FAR])
