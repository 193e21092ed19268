"""The watch looks once a second, tells the metrics, and logs when a problem begins and ends."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.daemon.diagnosis.timeline import EMPTY
from tidegate.daemon.broker_watch import ProbeResult
from tidegate.daemon.diagnosis.facts import CheckpointLimits, Conditions, Observation, PlanFacts
from tidegate.daemon.diagnosis.watch import DiagnosisWatch
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.slot_metrics import LoopAge
from tidegate.daemon.status import Diagnosis, PipelineState
from tidegate.formats.failures import FailureKind
from tidegate.ids import MAIN_CLUSTER, Attempt, OperatorName
from tidegate.task.report import SlotReport


class Metrics:
    """Metrics that are set by the test."""

    def __init__(self) -> None:
        self.seen = Observation(status=EMPTY)
        self.looks = 0
        self.diagnoses: Sequence[Diagnosis] = ()
        self.broken = False

    def observe(self) -> Observation:
        self.looks += 1
        if self.broken:
            raise RuntimeError("a wrong rule")
        return self.seen

    def diagnosed(self, diagnoses: Sequence[Diagnosis]) -> None:
        self.diagnoses = diagnoses


class World:
    """A watch with a clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.metrics = Metrics()
        self.watch = DiagnosisWatch(self.metrics, CheckpointLimits(1.0, 60.0), PlanFacts(), lambda: self.now)

    def turn(self, times: int = 5) -> None:
        """The daemon's loop turns five times a second."""
        for _ in range(times):
            self.watch.look()
            self.now += 0.2


def test_it_looks_once_a_second() -> None:
    world = World()
    world.turn(50)
    assert world.metrics.looks == 10


def test_a_problem_is_logged_when_it_begins_and_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    caplog.set_level(logging.INFO)
    for age_s in (50.0, 51.0, 0.0):
        world.metrics.seen = Observation(status=replace(EMPTY, oldest_transaction_seconds=age_s))
        world.turn(10)
    begun, ended = caplog.messages
    assert begun.startswith("transaction-old: the oldest open transaction is 50.0 s old")
    assert ended == "transaction-old: resolved"


def test_a_problem_has_not_ended_while_another_one_explains_it(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    caplog.set_level(logging.INFO)
    old = replace(EMPTY, oldest_transaction_seconds=50.0)
    for status in (old, replace(old, state=PipelineState.FAILED, reason="no space left"), old):
        world.metrics.seen = Observation(status=status)
        world.turn(50)
    assert [message.partition(":")[0] for message in caplog.messages] == ["transaction-old"]


def test_what_is_logged_elsewhere_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.metrics.seen = Observation(status=EMPTY, conditions=Conditions(hanging={MAIN_CLUSTER: "readers wait"}))
    world.turn()
    assert [one.code for one in world.metrics.diagnoses] == ["readers-blocked"]
    world.metrics.seen = Observation(status=EMPTY)
    world.turn()
    assert (list(world.metrics.diagnoses), caplog.messages) == ([], [])


def test_a_wrong_rule_does_not_stop_the_daemon(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.metrics.broken = True
    world.turn(50)
    assert [message.partition(":")[0] for message in caplog.messages] == ["internal error in the diagnosis"]


def test_metrics_have_the_facts_and_show_the_diagnosis() -> None:
    clock = [100.0]
    metrics = PipelineMetrics("shop", "0", lambda: clock[0])
    watch = DiagnosisWatch(metrics, CheckpointLimits(1.0, 60.0), PlanFacts(), lambda: clock[0])

    def shown(code: str) -> float | None:
        return metrics.registry.get_sample_value("tidegate_diagnosis", {"pipeline": "shop", "code": code})

    metrics.state(PipelineState.RUNNING)
    watch.look()
    assert (metrics.snapshot().diagnoses, shown("transaction-old")) == ((), None)
    metrics.oldest_transaction(55.0)
    clock[0] += 2.0
    watch.look()
    found = metrics.snapshot().diagnoses
    assert [one.evidence["oldest_transaction_seconds"] for one in found] == [57.0]
    assert shown("transaction-old") == 1.0
    metrics.brokers(MAIN_CLUSTER, ProbeResult(9.0, "no broker answers", 0.1))
    metrics.registry_says("it is down", 2)
    metrics.degraded(MAIN_CLUSTER, "readers wait")
    conditions = metrics.observe().conditions
    assert conditions.outages[MAIN_CLUSTER].why == "no broker answers"
    assert (conditions.schemas, conditions.schemas_waiting) == ("records wait for a schema: it is down", 2)
    assert conditions.hanging == {MAIN_CLUSTER: "readers wait"}
    bad = {OperatorName("orders"): {FailureKind.WRONG_TYPE: 7}}
    metrics.slot_report(Attempt(1), 0, SlotReport(bad_records=bad), LoopAge(12.0, "score"))
    conditions = metrics.observe().conditions
    assert conditions.bad_kinds == {"orders": {"WRONG_TYPE": 7}}
    assert conditions.loops == {0: LoopAge(12.0, "score")}
    metrics.attempt_started(Attempt(2))
    assert metrics.observe().conditions.loops == {}
    metrics.oldest_transaction(None)
    clock[0] += 2.0
    watch.look()
    assert shown("transaction-old") == 0.0
