"""Event time in metrics and in the status: how far operators have come, and whom a watermark waits for (W25)."""

from __future__ import annotations

import logging

import pytest

from tests.daemon.test_metrics import FIRST, ORDERS, SECOND, TOTALS, value
from tests.support.clocks import HandClock
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import STALL_S, OperatorAccounts, derive_holder, derive_watermark, render_moment
from tidegate.daemon.status import OperatorStatus
from tidegate.ids import OperatorName
from tidegate.operators.runtime import END_OF_TIME
from tidegate.task.report import OperatorCounts, SlotReport

KINDS = {ORDERS: "source", TOTALS: "aggregate"}
NOW_MS = 1_777_630_000_000


def make_metrics(clock: HandClock | None = None) -> PipelineMetrics:
    return PipelineMetrics("shop", "0.1.0", clock or HandClock(1000.0), OperatorAccounts(KINDS), lambda: NOW_MS)


def take(metrics: PipelineMetrics, operator: OperatorName, *slots: OperatorCounts) -> None:
    for slot, counts in enumerate(slots):
        metrics.slot_report(FIRST, slot, SlotReport(operators={operator: counts}))


def found(metrics: PipelineMetrics, operator: OperatorName) -> OperatorStatus:
    return next(one for one in metrics.snapshot().operators if one.name == operator)


def at(watermark_ms: int | None, *, idle: bool = False, held_back_by: str = "") -> OperatorCounts:
    return OperatorCounts(watermark_ms=watermark_ms, idle=idle, held_back_by=held_back_by)


def test_W25_an_operator_is_where_its_slowest_slot_is_that_is_not_idle() -> None:
    assert derive_watermark({}) is None
    assert derive_watermark({0: at(70), 1: at(50)}) == 50
    assert derive_watermark({0: at(70), 1: at(50, idle=True)}) == 70
    assert derive_watermark({0: at(70), 1: at(None)}) is None
    assert derive_watermark({0: at(70), 1: at(None, idle=True)}) == 70
    assert derive_watermark({0: at(70, idle=True), 1: at(50, idle=True)}) == 70
    assert derive_watermark({0: at(END_OF_TIME), 1: at(50)}) == 50


def test_W25_watermark_and_lag_are_gauges_and_watermarks_are_counted() -> None:
    metrics = make_metrics()
    assert value(metrics, "operator_watermark_timestamp_seconds", step="totals") is None
    counts = OperatorCounts(watermarks=3, watermark_ms=NOW_MS - 2500, late=4, gauges={"open_windows": 5})
    take(metrics, TOTALS, counts, counts)
    assert value(metrics, "operator_watermark_timestamp_seconds", step="totals") == (NOW_MS - 2500) / 1000
    assert value(metrics, "operator_event_time_lag_seconds", step="totals") == 2.5
    assert value(metrics, "operator_watermarks_total", step="totals", subtask="1") == 3
    assert value(metrics, "operator_rows_late_total", step="totals", subtask="1") == 4
    assert value(metrics, "operator_entries", step="totals", subtask="1", kind="open_windows") == 5
    one = found(metrics, TOTALS)
    assert (one.watermark_ms, one.event_time_lag_seconds, one.watermarks, one.late) == (NOW_MS - 2500, 2.5, 6, 8)
    assert (one.gauges, one.idle) == ({"open_windows": 10}, False)


def test_W25_the_end_of_event_time_is_no_moment_and_is_not_exported() -> None:
    metrics = make_metrics()
    take(metrics, TOTALS, at(5))
    take(metrics, TOTALS, at(END_OF_TIME))
    assert value(metrics, "operator_watermark_timestamp_seconds", step="totals") is None
    assert value(metrics, "operator_event_time_lag_seconds", step="totals") is None
    one = found(metrics, TOTALS)
    assert (one.watermark_ms, one.event_time_lag_seconds) == (None, None)


def test_a_watermark_and_what_is_held_belong_to_the_attempt_and_counts_go_on() -> None:
    metrics = make_metrics()
    take(metrics, TOTALS, OperatorCounts(watermarks=3, watermark_ms=5, gauges={"timers": 2}))
    metrics.attempt_started(SECOND)
    metrics.slot_report(SECOND, 0, SlotReport(operators={TOTALS: OperatorCounts(watermarks=1)}))
    one = found(metrics, TOTALS)
    assert (one.watermarks, one.watermark_ms, one.gauges) == (4, None, {})
    assert value(metrics, "operator_entries", step="totals", subtask="0", kind="timers") is None


def test_the_partition_that_holds_a_source_back_is_that_of_its_slowest_slot() -> None:
    slots = {0: at(70, held_back_by="in[0]"), 1: at(50, held_back_by="in[1]"), 2: at(60)}
    assert derive_holder(slots) == "in[1]"
    assert derive_holder({**slots, 3: at(None, held_back_by="in[3]")}) == "in[3]"
    assert derive_holder({0: at(70, held_back_by="in[0]"), 1: at(50, idle=True, held_back_by="in[1]")}) == "in[0]"
    assert derive_holder({0: at(70)}) == ""


def stalling(rows: int, watermark_ms: int | None = 50) -> OperatorCounts:
    return OperatorCounts(rows_in=rows, watermark_ms=watermark_ms, held_back_by="in[3]")


def test_a_watermark_that_stands_although_rows_arrive_is_named_with_its_partition_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    with caplog.at_level(logging.WARNING):
        take(metrics, ORDERS, stalling(10))
        clock.now += STALL_S - 1
        take(metrics, ORDERS, stalling(20))
        assert value(metrics, "source_watermark_stalled_seconds", step="orders") == 0
        assert caplog.messages == []
        for rows in (30, 40):
            clock.now += 1
            take(metrics, ORDERS, stalling(rows))
    assert value(metrics, "source_watermark_stalled_seconds", step="orders") == STALL_S + 1
    one = found(metrics, ORDERS)
    assert (one.stalled_seconds, one.held_back_by) == (STALL_S + 1, "in[3]")
    (line,) = caplog.messages
    what = "source orders: the watermark has been at 1970-01-01T00:00:00.050Z for 30.0 s although rows arrive"
    assert line.startswith(f"{what}: it waits for in[3], of which no newer event time was read; check its lag and ")


def test_a_stall_is_over_when_the_watermark_moves_and_the_next_one_is_named_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    with caplog.at_level(logging.WARNING):
        for rows, watermark_ms in ((10, 50), (20, 50), (30, 60), (40, 60)):
            take(metrics, ORDERS, stalling(rows, watermark_ms))
            clock.now += STALL_S
        take(metrics, ORDERS, stalling(50, 70))
    assert [line.partition(" for ")[0] for line in caplog.messages] == [
        "source orders: the watermark has been at 1970-01-01T00:00:00.050Z",
        "source orders: the watermark has been at 1970-01-01T00:00:00.060Z",
    ]
    assert found(metrics, ORDERS).stalled_seconds is None
    assert value(metrics, "source_watermark_stalled_seconds", step="orders") == 0


def test_a_watermark_that_stands_because_no_rows_arrive_is_no_stall(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    for _ in range(3):
        take(metrics, ORDERS, stalling(10))
        clock.now += STALL_S
    assert caplog.messages == []
    assert found(metrics, ORDERS).stalled_seconds is None


def test_a_source_without_a_first_watermark_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    for rows in (10, 20):
        take(metrics, ORDERS, stalling(rows, None))
        clock.now += STALL_S
    assert caplog.messages[0].startswith("source orders: no watermark for 30.0 s although rows arrive")


def test_moments_outside_the_calendar_are_shown_as_numbers() -> None:
    assert render_moment(1_777_629_600_000) == "2026-05-01T10:00:00.000Z"
    assert render_moment(1 << 62) == f"{1 << 62} ms"
