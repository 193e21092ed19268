"""Counts of operators over slots and attempts: they only grow, whatever restarts, and the slow step can be named."""

from __future__ import annotations

import pytest

from tests.daemon.test_metrics import FIRST, ORDERS, SECOND, TOTALS, value
from tests.support.clocks import HandClock
from tests.task.topologies import plan_of, sink_node, source_node, totals_node, vertex
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts, derive_kinds, derive_total
from tidegate.daemon.status import OperatorStatus
from tidegate.operators.waiting import Waiting
from tidegate.task.report import OperatorCounts, SlotReport

KINDS = {ORDERS: "source", TOTALS: "aggregate"}


def make_metrics(clock: HandClock | None = None) -> PipelineMetrics:
    return PipelineMetrics("shop", "0.1.0", clock or HandClock(1000.0), OperatorAccounts(KINDS))


def report(rows_in: int, rows_out: int = 0, filtered: int = 0, failed: int = 0, busy_ms: float = 0.0) -> SlotReport:
    counts = OperatorCounts(rows_in=rows_in, rows_out=rows_out, filtered=filtered, failed=failed, busy_ms=busy_ms)
    return SlotReport(operators={TOTALS: counts})


def totals(metrics: PipelineMetrics) -> OperatorStatus:
    return next(one for one in metrics.snapshot().operators if one.name == TOTALS)


def test_every_operator_of_the_plan_is_there_before_the_first_report_in_its_order() -> None:
    found = make_metrics().snapshot().operators
    assert [(one.name, one.kind, one.rows_in, one.subtasks) for one in found] == [
        ("orders", "source", 0, ()),
        ("totals", "aggregate", 0, ()),
    ]


def test_slots_are_summed_and_shown_one_by_one() -> None:
    metrics = make_metrics()
    metrics.slot_report(FIRST, 1, report(10, 6, 3, 1, busy_ms=500))
    metrics.slot_report(FIRST, 0, report(5, 5, busy_ms=250))
    found = totals(metrics)
    assert (found.rows_in, found.rows_out, found.filtered, found.failed, found.busy_seconds) == (15, 11, 3, 1, 0.75)
    assert [(one.slot, one.rows_in, one.busy_seconds) for one in found.subtasks] == [(0, 5, 0.25), (1, 10, 0.5)]
    assert value(metrics, "operator_rows_in_total", step="totals", subtask="1") == 10
    assert value(metrics, "operator_rows_out_total", step="totals", subtask="1") == 6
    assert value(metrics, "operator_rows_filtered_total", step="totals") == 3
    assert value(metrics, "operator_rows_failed_total", step="totals") == 1
    assert value(metrics, "operator_busy_seconds_total", step="totals", subtask="0") == 0.25
    metrics.slot_report(FIRST, 0, SlotReport(operators={TOTALS: OperatorCounts(blocked_ms=1500)}))
    assert value(metrics, "operator_blocked_seconds_total", step="totals", subtask="0") == 1.5
    assert totals(metrics).blocked_seconds == 1.5


def test_counts_go_on_through_attempts_and_late_reports_add_nothing() -> None:
    metrics = make_metrics()
    metrics.slot_report(FIRST, 0, report(10))
    metrics.slot_report(FIRST, 0, report(8))
    assert totals(metrics).rows_in == 10
    metrics.slot_report(SECOND, 0, report(4))
    metrics.slot_report(FIRST, 0, report(50))
    assert totals(metrics).rows_in == 14
    assert value(metrics, "operator_rows_in_total", step="totals", subtask="0") == 14


def test_rates_and_the_busy_part_are_over_the_last_seconds_and_all_slots() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    for second in range(11):
        metrics.slot_report(FIRST, 0, report(100 * second, 10 * second, busy_ms=900.0 * second))
        metrics.slot_report(FIRST, 1, report(100 * second, 10 * second, busy_ms=100.0 * second))
        clock.now += 1
    clock.now -= 1
    found = totals(metrics)
    assert found.rows_in_per_second == pytest.approx(200, rel=0.2)
    assert found.rows_out_per_second == pytest.approx(20, rel=0.2)
    assert found.busy_ratio == pytest.approx(0.5, rel=0.2)
    clock.now += 3600
    assert totals(metrics).busy_ratio == pytest.approx(0, abs=0.001)


def test_how_slots_spend_their_time_goes_on_through_attempts() -> None:
    metrics = make_metrics()
    for attempt in (FIRST, SECOND):
        metrics.slot_report(attempt, 0, SlotReport(busy_seconds=0.5, backpressured_seconds=0.25, idle_seconds=0.125))
    (slot,) = metrics.snapshot().slots
    assert (slot.slot, slot.busy_seconds, slot.backpressured_seconds, slot.idle_seconds) == (0, 1.0, 0.5, 0.25)


def test_a_watermark_is_the_lowest_of_all_slots_and_belongs_to_the_attempt() -> None:
    metrics = make_metrics()
    for slot, watermark_ms in ((0, 70), (1, 50)):
        counts = OperatorCounts(watermark_ms=watermark_ms)
        metrics.slot_report(FIRST, slot, SlotReport(operators={TOTALS: counts}))
    assert totals(metrics).watermark_ms == 50
    metrics.attempt_started(SECOND)
    assert totals(metrics).watermark_ms is None
    assert derive_total({0: OperatorCounts(watermark_ms=7), 1: OperatorCounts()}).watermark_ms is None


def test_kinds_come_from_the_plan() -> None:
    chain = vertex(source_node("read", children=(1,)), totals_node("total", children=(2,)), sink_node("write"))
    assert derive_kinds(plan_of(1, [chain])) == {"read": "source", "total": "aggregate", "write": "sink"}


def early(count: int) -> SlotReport:
    return SlotReport(operators={ORDERS: OperatorCounts(before_1971=count)})


def test_event_times_before_1971_are_counted_shown_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    metrics = PipelineMetrics("shop", "0.1.0", HandClock(1000.0), OperatorAccounts(KINDS, {ORDERS: "do this"}))
    metrics.slot_report(FIRST, 0, early(0))
    (before, _) = metrics.snapshot().operators
    assert (before.before_1971, before.before_1971_remedy, caplog.messages) == (0, "", [])
    for attempt, slot, count in ((FIRST, 0, 3), (FIRST, 1, 1), (FIRST, 0, 5), (SECOND, 0, 2)):
        metrics.slot_report(attempt, slot, early(count))
    (found, _) = metrics.snapshot().operators
    assert (found.before_1971, found.before_1971_remedy) == (8, "do this")
    assert value(metrics, "source_rows_before_1971_total", step="orders") == 8
    assert caplog.messages == ["source orders: 3 records have event times before 1971; do this"]


def waiting(rows: int, until_ms: int) -> SlotReport:
    gauges = {"waiting_rows": rows, "waiting_until_ms": until_ms, "left_rows": 5}
    return SlotReport(operators={TOTALS: OperatorCounts(gauges=gauges)})


def test_what_waits_for_whom_is_added_up_with_the_latest_time() -> None:
    waits = {TOTALS: Waiting(("order",), ("payment",))}
    metrics = PipelineMetrics("shop", "0.1.0", HandClock(1000.0), OperatorAccounts(KINDS, waits=waits))
    metrics.slot_report(FIRST, 0, waiting(2, 5000))
    metrics.slot_report(FIRST, 1, waiting(1, 7000))
    found = totals(metrics)
    assert found.waiting == "3 rows of `order` wait for `payment` until event time 1970-01-01T00:00:07.000Z"
    assert found.gauges == {"waiting_rows": 3, "waiting_until_ms": 7000, "left_rows": 10}
    assert value(metrics, "operator_entries", step="totals", subtask="0", kind="waiting_rows") == 2
    assert value(metrics, "operator_entries", step="totals", subtask="0", kind="waiting_until_ms") is None
    metrics.slot_report(FIRST, 0, waiting(0, 0))
    metrics.slot_report(FIRST, 1, SlotReport(operators={TOTALS: OperatorCounts(gauges={"waiting_rows": 0})}))
    assert totals(metrics).waiting == ""
