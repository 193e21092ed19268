"""What becomes an event: states, failed attempts with their tracebacks, checkpoints, savepoints, holds, commands."""

from __future__ import annotations

from typing import Any, cast

import msgspec

from tests.coordinator.values import ATTEMPT, SUBTASKS, TOTALS, running
from tests.daemon.http.orders import ORDER, Daemon, post
from tests.support.clocks import HandClock
from tidegate.coordinator.events import DeclineReceived, Event, SavepointWritten, SubtaskRunning, TriggerRequested
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.coordinator.types import Decline
from tidegate.daemon.attempt_slots import derive_slot_error
from tidegate.daemon.http.redaction import redact_events
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts
from tidegate.daemon.pipeline_history import (
    DETAIL_CHARACTERS_MAX,
    EVENTS_MAX,
    INTERVAL_S,
    STEPS_MAX,
    EventKind,
    EventLog,
    PipelineEvent,
    PipelineSeries,
    StepSeries,
    TimeSeries,
)
from tidegate.daemon.source_holds import SourceHold
from tidegate.daemon.status import CheckpointStatus, OperatorStatus, PipelineState, Status, SubtaskStatus
from tidegate.ids import Attempt, CheckpointId, OperatorName
from tidegate.process.logs import set_secrets
from tidegate.task.messages import SlotFailed


def told(metrics: PipelineMetrics) -> list[tuple[str, str]]:
    """Kinds and texts, oldest first, without the start."""
    return [(one.kind.value, one.text) for one in reversed(metrics.events)][1:]


def failure(followed_by: FollowedBy, attempt: int | None = 3) -> FailureRecord:
    return FailureRecord(
        failed_at_ms=1,
        attempt=None if attempt is None else Attempt(attempt),
        code="slot-failed",
        cause="slot 0: division by zero",
        ran_ms=5,
        followed_by=followed_by,
    )


def test_a_daemon_begins_with_its_start() -> None:
    metrics = PipelineMetrics("shop", "0.1.0", now_ms=lambda: 77)
    assert metrics.events == (PipelineEvent(at_ms=77, kind=EventKind.STARTED, text="tidegate 0.1.0 has started"),)


def test_a_new_state_is_an_event_and_the_same_again_is_none() -> None:
    metrics = PipelineMetrics("shop", "0")
    metrics.state(PipelineState.RESTORING)
    metrics.attempt_started(Attempt(4))
    for _ in range(2):
        metrics.state(PipelineState.RUNNING)
    metrics.registry_says("it does not answer", 2)
    metrics.state(PipelineState.STOPPING)
    assert told(metrics) == [
        ("state", "restoring"),
        ("running", "records flow"),
        ("state", "degraded: records wait for a schema: it does not answer"),
        ("state", "stopping"),
    ]
    assert [one.attempt for one in metrics.events] == [4, 4, 4, None, None]


def test_a_failed_attempt_is_one_event_with_the_traceback_of_the_slot() -> None:
    trace = 'Traceback:\n  File "visits.py", line 14\nZeroDivisionError'
    failed = SlotFailed("program-error", "division by zero", retriable=True, exit_code=1, traceback=trace)
    error = derive_slot_error(cast("Any", "slot 0"), failed)
    metrics = PipelineMetrics("shop", "0")
    metrics.attempt_failed(failure(FollowedBy.RESTART), "\n".join(error.__notes__))
    metrics.state(PipelineState.RESTARTING, "slot 0: division by zero")
    metrics.attempt_failed(failure(FollowedBy.GAVE_UP, attempt=None))
    assert told(metrics) == [
        ("restarted", "attempt 3 failed: slot 0: division by zero"),
        ("failed", "the pipeline failed: slot 0: division by zero"),
    ]
    assert metrics.events[1].detail == f"slot-failed: slot 0: division by zero\n{trace}"


def test_a_failed_checkpoint_and_a_savepoint_are_events() -> None:
    metrics, coordinator = PipelineMetrics("shop", "0"), running()
    events: list[Event] = [SubtaskRunning(subtask, 0) for subtask in sorted(SUBTASKS)]
    events += [TriggerRequested(0), DeclineReceived(Decline(ATTEMPT, CheckpointId(1), TOTALS, "disk full"), 9)]
    for event in events:
        metrics.coordinator_answered(event, coordinator.handle(event))
    metrics.coordinator_answered(SavepointWritten(CheckpointId(7), 1), ())
    (failed, *_), savepoint = told(metrics)
    assert failed == "checkpoint_failed"
    assert savepoint == ("savepoint", "savepoint 7 is complete")
    assert "disk full" in metrics.events[1].detail


def test_a_hold_begins_and_ends_once() -> None:
    metrics, orders = PipelineMetrics("shop", "0"), OperatorName("orders")
    for reason in ("until prices has caught up", "until prices has caught up (2 of 3)"):
        metrics.on_hold({orders: SourceHold("gate", reason, 1)})
    metrics.on_hold({})
    metrics.upgraded(["step totals is reset"])
    assert told(metrics) == [
        ("hold", "orders is on hold until prices has caught up"),
        ("resumed", "orders is no longer on hold"),
        ("upgraded", "step totals is reset"),
    ]


def test_a_command_is_an_event_and_one_of_a_stranger_is_none() -> None:
    daemon, metrics = Daemon(), PipelineMetrics("shop", "0")
    server = HttpServer("127.0.0.1", 0, metrics)
    server.start()
    try:
        server.commands.serve(daemon, daemon.loop, "the token")
        assert post(server, "/checkpoints", ORDER, authorization="Bearer the token")[0] == 200
        assert post(server, "/checkpoints", ORDER, authorization="Bearer another")[0] == 401
    finally:
        server.stop()
        daemon.close()
    assert told(metrics) == [("command", "command /checkpoints from 127.0.0.1: done")]


def test_events_are_bounded_and_leave_without_secrets() -> None:
    log = EventLog()
    for number in range(EVENTS_MAX + 5):
        log.add(
            PipelineEvent(at_ms=number, kind=EventKind.STATE, text="login with hunter22", detail="hunter22" * 10_000)
        )
    assert [log.events[0].at_ms, log.events[-1].at_ms] == [EVENTS_MAX + 4, 5]
    assert len(log.events[0].detail) == DETAIL_CHARACTERS_MAX
    set_secrets(["hunter22"])
    try:
        shown = redact_events(log.events).events[0]
    finally:
        set_secrets([])
    assert shown.text == "login with ***"
    assert "hunter22" not in shown.detail


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
