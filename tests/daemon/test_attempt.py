"""An attempt that fails while Spark still holds its slots, and one whose slots report too many dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.triggers import AttemptPhase
from tidegate.daemon.attempt import AttemptRunner
from tidegate.daemon.control_server import BLOCKED_MS, SlotConnection
from tidegate.daemon.instructions import CoordinatorFailed
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.status import PipelineState
from tidegate.daemon.taps import TapEnd, TappedRows
from tidegate.errors import AttemptFailed, PipelineStopped, TidegateError
from tidegate.formats.failures import FailureKind
from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.operators.builtin.dead_letters import DeadLetterOperator, make_sink
from tidegate.task.bad_records import TooManyDeadLetters
from tidegate.task.messages import Heartbeat, Hello, RowsTapped
from tidegate.task.report import SlotReport


class HangingJob:
    """Its slots return when the test says so."""

    def __init__(self, ended: Callable[[str | None], None]) -> None:
        self._ended = ended

    def release(self) -> None:
        self._ended(None)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        pass


class Parts:
    """A runner between parts that do nothing."""

    def __init__(self, before: PipelineState, *letters: DeadLetterOperator) -> None:
        self.metrics = PipelineMetrics("shop", "0")
        self.metrics.state(before)
        self.job: HangingJob | None = None
        nothing: Callable[..., Any] = SimpleNamespace
        plan = nothing(
            operators=lambda kind: [one for one in letters if kind is type(one)],
            parallelism=2,
            vertices=(),
            edges=(),
            exactly_once=True,
            pipeline="shop",
        )
        services = nothing(
            metrics=self.metrics, clock=SYSTEM_CLOCK,
            make_token=lambda: "token", journal=nothing(state=nothing(attempt=0)), storage=nothing(),
            in_journal_thread=self._at_once,
        )  # fmt: skip
        server = nothing(port=1, admit=lambda *_: None, dismiss=lambda: None, wait_closed=self._closed)
        coordinator = nothing(handle=lambda _event: (), next_deadline_ms=lambda: None, phase=AttemptPhase.RUNNING)
        recovered = nothing(restore=nothing(attempt=Attempt(1), slots=()))
        settings = nothing(
            slots=nothing(unaligned_after_ms=None, transaction_timeout_ms=0),
            start_timeout_s=60.0,
            look_s=1.0,
            new_topics_s=60.0,
        )
        host = nothing(spark=nothing(job=self._make_job), server=server, address="")
        listener = nothing(on_running=lambda _attempt: None, on_completed=lambda _checkpoint: None)
        self.runner = AttemptRunner(plan, recovered, coordinator, services, host, settings, listener)

    async def _closed(self, _slots: object) -> None:
        pass

    async def _at_once(self, _call: object) -> None:
        """The directory is shared."""

    def _make_job(self, _bootstrap: object, _slots: int, ended: Callable[[str | None], None]) -> HangingJob:
        self.job = HangingJob(ended)
        return self.job


@pytest.fixture(autouse=True)
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.daemon.attempt.CAUSE_GRACE_S", 0.0)


async def state_while_slots_hang(error: TidegateError, before: PipelineState) -> tuple[PipelineState, str]:
    parts = Parts(before)
    running = asyncio.create_task(parts.runner.run())
    await asyncio.sleep(0)
    parts.runner.fail(error)
    await asyncio.wait([parts.runner._outcome])
    found = parts.metrics.current_state
    assert not running.done()
    assert parts.job is not None
    parts.job.release()
    with pytest.raises(type(error)):
        await running
    return found


def test_a_failed_attempt_is_not_running_while_its_slots_are_waited_for() -> None:
    found = asyncio.run(state_while_slots_hang(AttemptFailed("a slot was lost"), PipelineState.RUNNING))
    assert found == (PipelineState.RESTARTING, "a slot was lost")


def test_a_pipeline_that_stops_does_not_look_as_if_it_came_back() -> None:
    found = asyncio.run(state_while_slots_hang(AttemptFailed("a slot was lost"), PipelineState.STOPPING))
    assert found == (PipelineState.STOPPING, "")


def test_what_no_attempt_can_cure_is_not_told_as_a_restart() -> None:
    found = asyncio.run(state_while_slots_hang(PipelineStopped("a bad record"), PipelineState.RUNNING))
    assert found == (PipelineState.RUNNING, "")


async def cause_of_failing_checkpoints(loop_age_ms: int) -> str:
    """The error when checkpoints fail while a slot runs user code, and its loop last turned that long ago."""
    parts = Parts(PipelineState.RUNNING)
    slot = SlotConnection(Hello(Attempt(1), "", 0, 1, "here", 1, "", ""), cast("Any", None))
    slot.index, slot.user_code, slot.loop_age_ms = SlotIndex(0), "visits (visits.py:14 in process)", loop_age_ms
    parts.runner._slots.connections.append(slot)
    parts.runner._executor._fail(CoordinatorFailed("4 checkpoints have failed", cause="checkpoint-failures"))
    (error,) = parts.runner._failures
    assert error.fields == {"cause": "checkpoint-failures"}
    return error.message


def test_checkpoints_that_fail_are_blamed_on_user_code_that_blocks_a_slot() -> None:
    assert asyncio.run(cause_of_failing_checkpoints(BLOCKED_MS)) == (
        "4 checkpoints have failed; the code of visits (visits.py:14 in process) has blocked slot 0 for 5 s"
    )
    assert asyncio.run(cause_of_failing_checkpoints(BLOCKED_MS - 1)) == "4 checkpoints have failed"


async def too_many_letters(per_minute_max: int) -> str:
    """What the attempt ends with when each of two slots reports four; empty when it goes on."""
    parts = Parts(PipelineState.RUNNING, make_sink("dead", "shop", per_minute_max, {}))
    running = asyncio.create_task(parts.runner.run())
    await asyncio.sleep(0)
    letters = {OperatorName("orders"): {FailureKind.WRONG_TYPE: 4}}
    for slot in (0, 1, 0):
        report = SlotReport(bad_records=letters, dead_letters=letters)
        parts.runner._slots.on_heartbeat(SlotIndex(slot), Heartbeat(0, report, {}), 1000)
    if not parts.runner._failures:
        running.cancel()
        return ""
    assert parts.job is not None
    parts.job.release()
    with pytest.raises(TooManyDeadLetters) as stop:
        await running
    return stop.value.message


def test_dead_letters_of_all_slots_together_stop_the_pipeline() -> None:
    assert "more than 7 dead letters in a minute" in asyncio.run(too_many_letters(7))
    assert asyncio.run(too_many_letters(8)) == ""


def conclude(runner: AttemptRunner) -> None:
    runner.fail(AttemptFailed("a slot was lost"))
    runner._conclude()


async def runs_after(end: Callable[[AttemptRunner], None]) -> bool:
    """Whether an attempt runs when its slots report that they do in the moment after `end`."""
    parts = Parts(PipelineState.RESTORING)
    running = asyncio.create_task(parts.runner.run())
    await asyncio.sleep(0)
    end(parts.runner)
    for slot in (0, 1):
        await parts.runner._slots.check_running(SimpleNamespace(hello=SimpleNamespace(host="here")), SlotIndex(slot))  # type: ignore[arg-type]  # all that is used
    assert parts.job is not None
    parts.job.release()
    await asyncio.gather(running, return_exceptions=True)
    return parts.runner.is_running


@pytest.mark.parametrize("end", [AttemptRunner.cancel, conclude])
def test_an_attempt_that_has_ended_does_not_begin_to_run(end: Callable[[AttemptRunner], None]) -> None:
    """A stop would be a success although nothing was committed, and a failed attempt would look as if it ran."""
    assert not asyncio.run(runs_after(end))


def test_a_job_that_ends_when_its_daemon_has_gone_is_nobodys_business_any_more() -> None:
    """A JVM that hung until then. Its thread printed a traceback after the last line of the log."""

    async def make() -> AttemptRunner:
        return Parts(PipelineState.RUNNING).runner

    asyncio.run(make())._on_job_ended_in_thread(None)


async def tap_while_an_attempt_ends() -> tuple[TappedRows, TappedRows]:
    """Returns the rows of a tap that the end cuts off, and those of one that comes after it."""
    parts = Parts(PipelineState.RUNNING)
    running = asyncio.create_task(parts.runner.run())
    await asyncio.sleep(0)
    tapping = asyncio.create_task(parts.runner.copy_rows((), 10))
    await asyncio.sleep(0)
    slot = cast("Any", SimpleNamespace(index=SlotIndex(1)))
    parts.runner._slots.on_message(slot, RowsTapped(1, (b"{}",)))
    parts.runner.fail(AttemptFailed("a slot was lost"))
    found = await tapping
    assert parts.job is not None
    parts.job.release()
    with pytest.raises(AttemptFailed):
        await running
    return found, await parts.runner.copy_rows((), 10)


def test_a_tap_ends_with_its_attempt() -> None:
    found = asyncio.run(tap_while_an_attempt_ends())
    assert found == (TappedRows((b"{}",), TapEnd.RESTART), TappedRows((), TapEnd.RESTART))
