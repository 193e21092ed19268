"""The time series: a point every five seconds, bounded, with nothing where nothing is known."""

from __future__ import annotations

import msgspec

from tests.support.clocks import HandClock
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts
from tidegate.daemon.pipeline_history import INTERVAL_S, STEPS_MAX, PipelineSeries, StepSeries, TimeSeries
from tidegate.daemon.status import CheckpointStatus, OperatorStatus, Status, SubtaskStatus
from tidegate.ids import CheckpointId, OperatorName

NO_FIGURES = {"rows_in": 0, "rows_out": 0, "filtered": 0, "failed": 0, "busy_seconds": 0.0}


def operator(
    name: str, *, blocked_s: float = 0.0, failed: int = 0, subtasks: int = 1, **more: object
) -> OperatorStatus:
    figures = NO_FIGURES | {"failed": failed, "blocked_seconds": blocked_s}
    status = msgspec.convert(
        {
            **figures,
            "name": name,
            "kind": "filter",
            "rows_in_per_second": 10.0,
            "rows_out_per_second": 1 / 3,
            "busy_ratio": 0.5,
            "subtasks": [{**figures, "slot": slot} for slot in range(subtasks)],
            **more,
        },
        OperatorStatus,
    )
    assert all(isinstance(one, SubtaskStatus) for one in status.subtasks)
    return status


def status(*operators: OperatorStatus, committed: int = 0, **more: object) -> Status:
    base = PipelineMetrics("shop", "0").snapshot()
    return msgspec.structs.replace(base, operators=operators, records_committed=committed, **more)


def test_a_point_has_the_figures_of_the_status_and_null_where_nothing_is_known() -> None:
    series = TimeSeries()
    series.observe(status(operator("a")), 0.0, 1000)
    checkpoint = CheckpointStatus(CheckpointId(3), 1.0, 0.25, 1024, 50)
    last = status(
        operator("a", blocked_s=5.0, failed=2, subtasks=2, gauges={"waiting_rows": 7}),
        committed=50,
        lag_records=9,
        last_checkpoint=checkpoint,
        oldest_transaction_seconds=1.5,
    )
    series.observe(last, 5.0, 6000)
    assert series.read().steps == {}
    found = series.read(0, [OperatorName("a")])
    assert (found.interval_ms, found.at_ms) == (5000, [1000, 6000])
    json = msgspec.json.decode(msgspec.json.encode(found))
    assert json["pipeline"]["records_committed_per_second"] == [0, 10]
    assert json["pipeline"]["lag_records"] == [None, 9]
    assert json["pipeline"]["checkpoint_ms"] == [None, 250]
    assert json["pipeline"]["state_bytes"] == [None, 1024]
    assert json["pipeline"]["oldest_transaction_seconds"] == [None, 1.5]
    assert json["steps"]["a"] == {
        "rows_in_per_second": [10, 10],
        "rows_out_per_second": [0.333, 0.333],
        "busy_ratio": [0.5, 0.5],
        "blocked_ratio": [0, 0.5],
        "event_time_lag_seconds": [None, None],
        "failed": [0, 2],
        "late": [0, 0],
        "waiting_rows": [None, 7],
    }


def test_a_point_is_due_every_five_seconds() -> None:
    clock = HandClock(100.0)
    metrics = PipelineMetrics("shop", "0", clock, now_ms=lambda: int(clock() * 1000))
    for _ in range(51):
        metrics.beat()
        clock.now += 0.25
    assert metrics.history(0).at_ms == [100_000, 105_000, 110_000]
    assert metrics.history(100_000).at_ms == [105_000, 110_000]
    assert metrics.history(105_000).pipeline.records_in_per_second == [0]
    assert metrics.history(110_000).at_ms == []


def test_points_and_steps_are_bounded() -> None:
    series = TimeSeries(points_max=3, steps_max=2)
    for number in range(5):
        series.observe(status(operator("a"), operator("b"), operator("c")), number * INTERVAL_S, number)
    found = series.read(0, [OperatorName(name) for name in "cba"])
    assert found.at_ms == [2, 3, 4]
    assert list(found.steps) == ["b", "a"]
    for one in (found.pipeline, *found.steps.values()):
        assert {len(values) for values in msgspec.structs.asdict(one).values()} == {3}


def test_a_step_that_appears_later_has_nothing_before() -> None:
    series = TimeSeries()
    series.observe(status(), 0.0, 1)
    series.observe(status(operator("late")), 5.0, 2)
    json = msgspec.json.decode(msgspec.json.encode(series.read(0, [OperatorName("late")])))
    assert json["steps"]["late"]["busy_ratio"] == [None, 0.5]


def test_an_hour_of_the_most_steps_takes_less_than_ten_megabytes() -> None:
    names = [OperatorName(f"step-{number}") for number in range(STEPS_MAX)]
    metrics = PipelineMetrics("shop", "0", operators=OperatorAccounts(dict.fromkeys(names, "filter")))
    series, point = TimeSeries(), metrics.snapshot()
    for number in range(3):
        series.observe(point, number * INTERVAL_S, number)
    columns = len(PipelineSeries.__struct_fields__) + STEPS_MAX * len(StepSeries.__struct_fields__)
    sizes = [array.itemsize for one in series._steps.values() for array in one._series.values()]
    assert set(sizes) == {8}
    assert columns * 8 * 720 < 10_000_000
