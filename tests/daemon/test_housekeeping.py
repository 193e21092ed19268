"""What runs in parallel with the attempts: each turn for itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from tests.coordinator.values import completed, positions
from tests.support.clusters import alone
from tests.waiting import PATIENCE_S
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.housekeeping import ClusterHousekeeping, Housekeeping
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.errors import AttemptFailed
from tidegate.ids import MAIN_CLUSTER, Attempt, ClusterName, OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.task.report import SlotReport

PART = TopicPartition("orders", 0)
US = ClusterName("us")
BEHIND, AHEAD = OperatorName("behind"), OperatorName("ahead")


def keeping_house(services: object) -> ClusterHousekeeping:
    source = SimpleNamespace(name=BEHIND, cluster=MAIN_CLUSTER)
    plan = SimpleNamespace(
        pipeline="shop", exactly_once=False, operators=lambda kind: [source] if kind is SourceOperator else []
    )
    return ClusterHousekeeping(
        cast("Any", plan), cast("Any", services), cast("Any", None), lambda _error: None, MAIN_CLUSTER
    )


@pytest.mark.parametrize("error", [AttemptFailed("no broker"), KeyError("a mistake of our own")])
def test_a_turn_that_fails_is_told_once_and_followed_by_others(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also for a reason that nobody has thought of: nobody looks at these tasks, and zombies would not be fenced."""
    monkeypatch.setattr("tidegate.daemon.housekeeping.LAG_S", 0.0)
    turns: list[int] = []
    enough = asyncio.Event()

    async def ends(_positions: object) -> dict[TopicPartition, int]:
        turns.append(len(turns))
        if len(turns) < 4:
            raise error
        enough.set()
        return {}

    async def scene() -> None:
        services = SimpleNamespace(
            clock=SYSTEM_CLOCK,
            kafka=alone(SimpleNamespace(interruptions=0, unavailable=False, stable_offsets=ends)),
            metrics=SimpleNamespace(lags=lambda _cluster, _lags: None, reached=lambda _cluster: {}),
        )
        keeping = keeping_house(services)
        keeping._positions = {PART: 3}
        keeping.resume(Attempt(1))
        await asyncio.wait_for(enough.wait(), PATIENCE_S)
        keeping.pause()

    asyncio.run(scene())
    said = [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    assert len(said) == 1
    assert ("Traceback" in caplog.text) is isinstance(error, KeyError)


def test_lag_is_measured_from_what_was_read_and_not_from_the_last_checkpoint() -> None:
    """Else it would be a saw-tooth as high as what comes in an interval. A report may be older than a checkpoint."""
    found: list[dict[TopicPartition, tuple[int, int]]] = []
    other, third = TopicPartition("orders", 1), TopicPartition("orders", 2)
    ends = {PART: 10, other: 9, third: 4}

    async def stable_offsets(positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {part: ends[part] for part in positions}

    metrics = SimpleNamespace(
        lags=lambda _cluster, lags: found.append(lags), reached=lambda _cluster: {PART: 10, other: 6, third: 1}
    )
    keeping = keeping_house(
        SimpleNamespace(kafka=alone(SimpleNamespace(stable_offsets=stable_offsets)), metrics=metrics)
    )
    keeping._positions = {PART: 3, other: 8}
    asyncio.run(keeping._measure_lag())
    assert found == [{PART: (0, 10), other: (1, 8), third: (3, 1)}]
    assert keeping._positions == {PART: 3, other: 8}, "the group has what checkpoints have"


def test_positions_are_those_that_the_slots_of_this_attempt_have_reported_last() -> None:
    """Of a partition that two sources read, the one that is behind."""
    metrics = PipelineMetrics("shop", "0")
    first, second = PART, TopicPartition("orders", 1)

    def report(slot: int, attempt: Attempt, *found: tuple[OperatorName, TopicPartition, int]) -> None:
        positions = tuple(SourcePositions(source, ((part, at),)) for source, part, at in found)
        metrics.slot_report(attempt, slot, SlotReport(positions=positions))

    report(0, Attempt(1), (BEHIND, first, 3), (AHEAD, second, 9))
    report(1, Attempt(1), (AHEAD, first, 2))
    assert metrics.reached(MAIN_CLUSTER) == {first: 2, second: 9}
    report(1, Attempt(1), (AHEAD, first, 5))
    assert metrics.reached(MAIN_CLUSTER) == {first: 3, second: 9}
    report(0, Attempt(2), (BEHIND, first, 1))
    report(1, Attempt(1), (AHEAD, first, 8))
    assert metrics.reached(MAIN_CLUSTER) == {first: 1}


def test_each_cluster_has_turns_and_positions_of_its_own() -> None:
    """Both have a topic of this name. One cluster that hangs does not keep the other from being measured."""
    measured: dict[ClusterName, object] = {}
    enough = asyncio.Event()

    class Kept:
        """What is mirrored, by cluster."""

        mirrored: ClassVar[dict[ClusterName, object]] = {}

        async def record(self, cluster: ClusterName, positions: dict[TopicPartition, int]) -> None:
            self.mirrored[cluster] = dict(positions)

    async def ends(positions: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        return dict.fromkeys(positions, 10)

    async def hang(_positions: object) -> dict[TopicPartition, int]:
        await asyncio.Event().wait()
        raise AssertionError("it hangs")

    def lags(cluster: ClusterName, found: object) -> None:
        measured[cluster] = found
        enough.set()

    async def scene() -> None:
        edges = {
            MAIN_CLUSTER: SimpleNamespace(interruptions=0, unavailable=False, stable_offsets=hang),
            US: SimpleNamespace(interruptions=0, unavailable=False, stable_offsets=ends),
        }
        services = SimpleNamespace(
            clock=SYSTEM_CLOCK,
            kafka=KafkaClusters(cast("Any", edges)),
            metrics=SimpleNamespace(lags=lags, reached=lambda _cluster: {}),
        )
        sources = [SimpleNamespace(name=BEHIND, cluster=MAIN_CLUSTER), SimpleNamespace(name=AHEAD, cluster=US)]
        plan = SimpleNamespace(
            pipeline="shop", exactly_once=False, operators=lambda kind: sources if kind is SourceOperator else []
        )
        keeping = Housekeeping(cast("Any", plan), cast("Any", services), cast("Any", Kept()), lambda _error: None)
        keeping.completed(
            completed(1, at=[positions(str(BEHIND), {"orders": {0: 3}}), positions(str(AHEAD), {"orders": {0: 7}})])
        )
        keeping.resume(Attempt(1))
        await asyncio.wait_for(enough.wait(), PATIENCE_S)
        await keeping.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.daemon.housekeeping.LAG_S", 0.0)
        asyncio.run(scene())
    assert measured == {US: {PART: (3, 7)}}
    assert Kept.mirrored == {MAIN_CLUSTER: {PART: 3}, US: {PART: 7}}
