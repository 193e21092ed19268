"""Situations of a pipeline that the pages are shown, as functions that make one up. `SITUATIONS` has all by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.browser.recording import Phases, Recording
from tidegate.coordinator.events import FORCED, SAVEPOINT, AttemptEnded, CheckpointFailure
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.daemon.broker_watch import ProbeResult
from tidegate.daemon.status import PipelineState
from tidegate.ids import MAIN_CLUSTER, SlotIndex, SubtaskId, VertexId

NOW_MS: Final = 1_796_040_000_000
"""The wall clock of the tests: 2026-11-30T12:00:00Z."""
HOSTILE: Final = '<img src=x onerror="window.hurt=1"><script>window.hurt=1</script>&amp;\u202e'
"""Text that comes from records and messages and must be shown as it is."""


def healthy(now_ms: int) -> Recording:
    """Twenty minutes without an incident; one savepoint, and one checkpoint that took longer."""
    recording = Recording("healthy", now_ms, minutes=20)
    recording.begin_attempt()
    recording.run(800)
    recording.checkpoint(SAVEPOINT)
    recording.run(300)
    slow = SubtaskId(VertexId("paid_orders"), SlotIndex(3))
    recording.checkpoint(FORCED, {slow: Phases(9.0, 210.0, 12.0, 640.0, 0.0, 2_600_000, 1_200)})
    recording.run(100)
    return recording


def restarting(now_ms: int) -> Recording:
    """A slot was killed: the second of two failures, and another attempt follows in some seconds."""
    recording = Recording("restarting", now_ms, minutes=20)
    recording.begin_attempt(1)
    recording.run(600)
    _fail(
        recording,
        "slot-lost",
        "slot 2 (process 20417 on 10.0.0.14) was lost: its control connection ended (ConnectionResetError)",
    )
    recording.wait(6)
    recording.begin_attempt(2)
    recording.run(580)
    recording.checkpoint(missing=frozenset({SubtaskId(VertexId("per_minute"), SlotIndex(1))}))
    recording.wait(2)
    _fail(
        recording,
        "slot-lost",
        "slot 1 (process 22553 on 10.0.0.13) was lost: its control connection ended (ConnectionResetError)",
    )
    return recording


def _fail(recording: Recording, code: str, cause: str) -> None:
    metrics, now_ms = recording.metrics, int(recording.clock.now * 1000)
    metrics.coordinator_answered(AttemptEnded(now_ms), [])
    metrics.restarted(code)
    metrics.attempt_failed(
        FailureRecord(
            failed_at_ms=recording.now_ms(),
            attempt=recording.attempt,
            code=code,
            cause=cause,
            ran_ms=592_000,
            followed_by=FollowedBy.RESTART,
            restart_after_ms=4_000,
        ),
    )
    metrics.state(PipelineState.RESTARTING, cause)
    recording.beat()


def stalled_watermark(now_ms: int) -> Recording:
    """Partition 2 of `orders` has had no new event times for nine minutes, so no window closes."""
    recording = Recording("stalled-watermark", now_ms, minutes=15)
    recording.begin_attempt()
    recording.run(360)
    recording.stalled_ms = recording.now_ms()
    recording.run(540)
    return recording


def dead_letters(now_ms: int) -> Recording:
    """A producer sends amounts that are no numbers: dead letters are written."""
    recording = Recording("dead-letters", now_ms, minutes=15)
    recording.begin_attempt()
    recording.run(600)
    recording.failing = 0.7
    recording.run(300)
    return recording


def hundred_subtasks(now_ms: int) -> Recording:
    """A hundred slots, one of which has four times the work of the others."""
    recording = Recording("hundred-subtasks", now_ms, parallelism=100, minutes=3)
    recording.scale[61] = 4.0
    recording.lag_growth[61] = 210.0
    recording.begin_attempt()
    recording.run(170, step_s=10)
    slow = {
        SubtaskId(VertexId("paid_orders"), SlotIndex(slot)): Phases(12.0, 40.0 + 9 * (slot % 13), 6.0, 180.0 + 3 * slot)
        for slot in range(100)
    }
    recording.checkpoint(changes=slow)
    recording.run(10, step_s=10, checkpoints=False)
    return recording


def failed_checkpoint(now_ms: int) -> Recording:
    """Two subtasks did not acknowledge a checkpoint in time; another one is under way, whose upload is slow."""
    recording = Recording("failed-checkpoint", now_ms, minutes=10)
    recording.begin_attempt()
    recording.run(480)
    stuck = frozenset(SubtaskId(VertexId("paid_orders"), SlotIndex(slot)) for slot in (1, 3))
    recording.checkpoint(missing=stuck, failure=CheckpointFailure.EXPIRED)
    recording.run(60, checkpoints=False)
    recording.checkpoint(failure=CheckpointFailure.DECLINED, detail="no space left on device")
    recording.run(45)
    recording.checkpoint(missing=stuck)
    recording.run(15, checkpoints=False)
    return recording


def brokers_unavailable(now_ms: int) -> Recording:
    """No broker has answered for 40 seconds."""
    recording = Recording("brokers-unavailable", now_ms, minutes=10)
    recording.begin_attempt()
    recording.run(560)
    for unavailable_s in range(1, 41):
        outage = ProbeResult(
            unavailable_s=unavailable_s, why="no broker answers at localhost:9092: Connection refused", took_s=1.0
        )
        recording.metrics.brokers(MAIN_CLUSTER, outage)
        recording.wait(1)
    return recording


def starting(now_ms: int) -> Recording:
    """A daemon that has just started: no attempt, no checkpoint, no figure."""
    return Recording("starting", now_ms, minutes=0)


def hostile(now_ms: int) -> Recording:
    """Causes and reasons contain markup, as records and exceptions may."""
    recording = Recording("hostile", now_ms, minutes=5)
    recording.begin_attempt()
    recording.run(250)
    recording.checkpoint(failure=CheckpointFailure.DECLINED, detail=HOSTILE)
    _fail(recording, "attempt-failed", HOSTILE)
    return recording


SITUATIONS: Final[dict[str, Callable[[int], Recording]]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        healthy,
        restarting,
        stalled_watermark,
        dead_letters,
        hundred_subtasks,
        failed_checkpoint,
        brokers_unavailable,
        starting,
        hostile,
    )
}
