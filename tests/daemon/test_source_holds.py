"""What slots, log, metrics and status are told about sources on hold."""

from __future__ import annotations

import logging

import pytest

from tests.coordinator.test_gating import CUSTOMERS, JOIN, ORDERS, join_of
from tests.daemon.test_metrics import value
from tests.support.clocks import HandClock
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts
from tidegate.daemon.source_holds import SourceHolds
from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.plan.graph import Plan
from tidegate.task.messages import HoldSources, InputCaughtUp
from tidegate.task.report import OperatorCounts, SlotReport

ATTEMPT = Attempt(3)


class Held:
    """The holds of one attempt, and what comes of them."""

    def __init__(self, plan: Plan) -> None:
        self.clock = HandClock(1000.0)
        self.metrics = PipelineMetrics(
            "shop", "0.1.0", self.clock, OperatorAccounts({ORDERS: "source", CUSTOMERS: "source"})
        )
        self.metrics.attempt_started(ATTEMPT)
        self.sent: list[tuple[int, set[OperatorName]]] = []
        self.holds = SourceHolds(plan, ATTEMPT, self._send, self.metrics.on_hold, lambda: int(self.clock() * 1000))

    def _send(self, slot: SlotIndex, order: HoldSources) -> None:
        assert order.attempt == ATTEMPT
        self.sent.append((slot, set(order.sources)))

    def report(self, slot: int, **marks_ms: int | None) -> None:
        operators = {OperatorName(name): OperatorCounts(watermark_ms=at_ms) for name, at_ms in marks_ms.items()}
        self.metrics.slot_report(ATTEMPT, slot, SlotReport(operators=operators))
        self.holds.on_report(SlotIndex(slot), operators)

    def seen(self, source: OperatorName) -> tuple[str, float | None]:
        (one,) = [one for one in self.metrics.snapshot().operators if one.name == source]
        return one.on_hold, one.on_hold_seconds

    def count(self, reason: str) -> float | None:
        return value(self.metrics, "source_on_hold", step="orders", reason=reason)


def test_a_closed_gate_is_seen_until_it_opens(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    held = Held(join_of(gates=True))
    held.holds.begin()
    assert held.sent == [(0, {ORDERS}), (1, {ORDERS})]
    held.clock.now += 5
    held.holds.on_caught_up(SlotIndex(1), InputCaughtUp(JOIN, 1))
    assert held.seen(ORDERS) == ("until `latest` of `join` has caught up (1 of 2 slots)", 5)
    assert held.seen(CUSTOMERS) == ("", None)
    assert held.count("gate") == 2
    held.clock.now += 5
    held.holds.on_caught_up(SlotIndex(0), InputCaughtUp(JOIN, 1))
    assert held.sent[2:] == [(0, set()), (1, set())]
    assert held.seen(ORDERS) == ("", None)
    assert held.count("gate") == 0
    assert [one.getMessage() for one in caplog.records] == [
        "source orders is on hold until `latest` of `join` has caught up (0 of 2 slots)",
        "`latest` of `join` has caught up after 10.0 s: orders is no longer on hold",
    ]


def test_a_source_that_is_too_far_ahead_is_seen_with_how_far(caplog: pytest.LogCaptureFixture) -> None:
    held = Held(join_of(ahead_ms=600_000))
    held.holds.begin()
    held.report(0, orders=2_000_000, customers=0)
    held.report(1, orders=900_000, customers=200_000)
    held.clock.now += 2
    why = "while it is 33m20s of event time ahead of customers (`join` allows 10m)"
    assert held.seen(ORDERS) == (why, 2)
    assert held.count("lead") == 2
    held.report(0, customers=None)
    assert held.seen(ORDERS)[0] == "until customers has event time for `join`, or is idle"
    held.report(1, customers=400_000)
    held.report(0, customers=400_000)
    assert held.count("lead") == 1
    held.report(0, customers=1_900_000)
    held.report(1, customers=1_900_000)
    assert held.seen(ORDERS) == ("", None)
    assert held.count("lead") == 0
    assert not caplog.records, "a lead comes and goes"


def test_a_new_attempt_begins_without_holds() -> None:
    held = Held(join_of(gates=True))
    held.holds.begin()
    held.metrics.attempt_started(Attempt(4))
    assert held.seen(ORDERS) == ("", None)
    assert held.count("gate") == 0
