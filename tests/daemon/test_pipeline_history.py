"""What becomes an event: states, failed attempts with their tracebacks, checkpoints, savepoints, holds, commands."""

from __future__ import annotations

from typing import Any, cast

from tests.coordinator.values import ATTEMPT, SUBTASKS, TOTALS, running
from tests.daemon.http.orders import ORDER, Daemon, post
from tidegate.coordinator.events import DeclineReceived, Event, SavepointWritten, SubtaskRunning, TriggerRequested
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.coordinator.types import Decline
from tidegate.daemon.attempt_slots import derive_slot_error
from tidegate.daemon.http.redaction import redact_events
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.pipeline_history import DETAIL_CHARACTERS_MAX, EVENTS_MAX, EventKind, EventLog, PipelineEvent
from tidegate.daemon.source_holds import SourceHold
from tidegate.daemon.status import PipelineState
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
