"""When the outputs are searched for hanging transactions, and what is reported: once, to people, probes and metrics."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.daemon.hanging_transactions import LOADING_S, LOOK_S, RESTLESS_S, UNSEEN_S, HangingCheck
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.status import PipelineState
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import MAIN_CLUSTER, OperatorName, ProducerId, TopicPartition, TransactionalId, VertexId
from tidegate.kafka.errors import KafkaRefused
from tidegate.kafka.facts import OpenBrokerTransaction
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.plan.graph import Node, Plan, Vertex
from tidegate.sinks.hanging_transactions import (
    RIPE_S,
    HangingTransaction,
    HangingVerdict,
    ResolveReport,
    UnresolvedTransaction,
)

OPENED = OpenBrokerTransaction(TopicPartition("out", 3), ProducerId(9, 5), 120, -1)
OWN = TransactionalId("shop.out.0.1-j.2")


def hanging(verdict: HangingVerdict) -> HangingTransaction:
    return HangingTransaction(OPENED, verdict, None if verdict is HangingVerdict.UNSEEN else OWN, 5)


def left(verdict: HangingVerdict, why: str = "nothing was tried") -> ResolveReport:
    return ResolveReport(frozenset({OPENED}), (), (UnresolvedTransaction(hanging(verdict), why),))


NOTHING = ResolveReport(frozenset())


class Scene:
    """The check over answers that are given; every look is counted."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.interruptions = 0
        self.bootstrap = "b:9092"
        self.unavailable = False
        self.answer: ResolveReport | Exception = NOTHING
        self.asked: list[tuple[str, list[str]]] = []
        self.metrics = PipelineMetrics("shop", "1")
        self.metrics.state(PipelineState.RUNNING)
        sink = SinkOperator(OperatorName("out"), "out", "json", (), None, None, BadRecordPolicy.FAIL, {})
        plan = Plan("shop", 1, 128, True, (Vertex(VertexId("out"), (Node(sink, (), ()),)),), ())
        clock = SimpleNamespace(monotonic=lambda: self.now)
        kafka = SimpleNamespace(clusters={MAIN_CLUSTER: self})
        services = SimpleNamespace(kafka=kafka, clock=clock, metrics=self.metrics)
        self.check = HangingCheck(plan, cast("Any", services), MAIN_CLUSTER)

    async def resolve(self, pipeline: str, topics: Collection[str]) -> ResolveReport:
        self.asked.append((pipeline, list(topics)))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def turn(self, seconds: float) -> int:
        """The time goes on; how many looks there were in all."""
        self.now += seconds
        asyncio.run(self.check.check_if_due())
        return len(self.asked)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"pipeline": "shop", **labels})

    def state(self) -> PipelineState:
        return self.metrics.current_state[0]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_outputs_are_looked_at_now_and_then_and_at_once_behind_an_outage(scene: Scene) -> None:
    assert scene.turn(0) == 1
    assert scene.turn(LOOK_S - 1) == 1
    assert scene.turn(1) == 2
    scene.interruptions = 3
    assert scene.turn(1) == 3
    assert scene.turn(1) == 3
    assert {(pipeline, *topics) for pipeline, topics in scene.asked} == {("shop", "out")}


def test_a_look_that_is_not_possible_is_told_once_and_tried_again_soon(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.answer = KafkaRefused("not authorized")
    assert scene.turn(0) == 1
    assert scene.turn(1) == 2
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    scene.answer = NOTHING
    assert scene.turn(1) == 3
    assert scene.turn(1) == 3


def test_a_written_marker_is_a_warning_and_a_count_and_no_state(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.answer = ResolveReport(frozenset({OPENED}), resolved=(hanging(HangingVerdict.COMMIT),))
    scene.turn(0)
    assert "commit marker was missing in out[3]" in caplog.text
    assert scene.value("tidegate_missing_markers_written_total", cluster="kafka", end="commit") == 1
    assert scene.value("tidegate_missing_markers_written_total", cluster="kafka", end="abort") == 0
    assert scene.state() is PipelineState.RUNNING


@pytest.mark.parametrize(
    ("verdict", "owner"),
    [
        (HangingVerdict.COMMIT, "own"),
        (HangingVerdict.ABORT, "own"),
        (HangingVerdict.UNSURE, "own"),
        (HangingVerdict.FOREIGN, "foreign"),
    ],
)
def test_what_hangs_still_is_an_error_once_and_a_degraded_pipeline_until_it_is_gone(
    scene: Scene, caplog: pytest.LogCaptureFixture, verdict: HangingVerdict, owner: str
) -> None:
    scene.answer = left(verdict)
    scene.turn(0)
    scene.turn(LOOK_S)
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1
    assert scene.state() is PipelineState.DEGRADED
    assert "are blocked at offset 120 of out[3]" in scene.metrics.current_state[1]
    assert scene.value("tidegate_hanging_transactions", cluster="kafka", owner=owner) == 1
    scene.answer = NOTHING
    scene.turn(LOOK_S)
    assert scene.metrics.current_state == (PipelineState.RUNNING, "")
    assert scene.value("tidegate_hanging_transactions", cluster="kafka", owner=owner) == 0


def test_only_a_running_pipeline_becomes_degraded(scene: Scene) -> None:
    for state in set(PipelineState) - {PipelineState.RUNNING, PipelineState.DEGRADED}:
        scene.metrics.state(state, "why")
        scene.answer = left(HangingVerdict.COMMIT)
        scene.turn(LOOK_S)
        scene.answer = NOTHING
        scene.turn(LOOK_S)
        assert scene.metrics.current_state == (state, "why")


def test_a_transaction_of_an_unknown_owner_is_looked_for_again_soon_and_told_when_it_cannot_be_in_order(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.answer = left(HangingVerdict.UNSEEN)
    assert scene.turn(0) == 1
    assert scene.turn(2) == 2, "its coordinator may have been loading"
    scene.turn(LOADING_S)
    count = len(scene.asked)
    assert scene.turn(2) == count
    scene.turn(UNSEEN_S - LOADING_S - 10)
    assert not [record for record in caplog.records if record.levelno == logging.ERROR]
    assert scene.state() is PipelineState.RUNNING
    scene.turn(LOOK_S)
    assert "no transactional id that this user may see owns it" in caplog.text
    assert scene.state() is PipelineState.DEGRADED


WAITING = ResolveReport(
    frozenset({OPENED}), waiting=(UnresolvedTransaction(hanging(HangingVerdict.COMMIT), "leaders move"),)
)
STRANGE = ResolveReport(
    frozenset({OPENED}), waiting=(UnresolvedTransaction(hanging(HangingVerdict.UNSEEN), "leaders move"),)
)
MENDED = ResolveReport(frozenset({OPENED}), resolved=(hanging(HangingVerdict.COMMIT),))


def test_X08_what_waits_for_a_second_look_is_looked_at_soon_and_reported_only_when_the_cluster_does_not_rest(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.answer = WAITING
    assert scene.turn(0) == 1
    assert scene.turn(2) == 2
    scene.turn(RESTLESS_S - 2)
    assert not caplog.records
    assert scene.state() is PipelineState.RUNNING
    scene.turn(1)
    assert "could not be written: leaders move. Writing is retried at every check" in caplog.text
    assert scene.state() is PipelineState.DEGRADED
    scene.answer = MENDED
    scene.turn(2)
    assert scene.state() is PipelineState.RUNNING


@pytest.mark.parametrize(
    ("answer", "looks"), [(WAITING, 2), (NOTHING, 1), (left(HangingVerdict.UNSEEN), 1), (STRANGE, 1)]
)
def test_a_pipeline_that_ends_soon_looks_again_only_where_something_waits(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, answer: ResolveReport, looks: int
) -> None:
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("tidegate.daemon.hanging_transactions.asyncio.sleep", wait)
    scene.answer = answer
    asyncio.run(scene.check.check_twice())
    assert len(scene.asked) == looks
    assert waited == [RIPE_S] * (looks - 1)
