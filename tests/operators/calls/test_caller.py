"""Calls on their own thread: handed over, fetched, and closed in bounded time, whatever hangs."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager, suppress

import pytest

from tests.waiting import wait_until
from tidegate.formats.failures import FailureKind
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.calls.caller import JOIN_TIMEOUT_S, CallPolicy, CallsFailed, CallTarget, ThreadCaller

POLICY = CallPolicy(timeout_ms=60_000, retries=0, backoff_ms=1, budget_ms=60_000)
PATIENCE_S = 30.0


class Echo:
    """Answers with what it is asked; a number is waited for that many times."""

    def __init__(self) -> None:
        self.life: list[str] = []
        self.open_error: BaseException | None = None

    async def open(self) -> None:
        self.life.append("open")
        if self.open_error is not None:
            raise self.open_error

    async def _ask(self, request: object) -> object:
        self.life.append("ask")
        if request == "hang":
            await asyncio.Event().wait()
        if request == "stubborn":
            while True:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    continue
        if request == "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        if request == "fail":
            raise ValueError("as asked")
        return request

    def ask(self, request: object) -> Awaitable[object]:
        return self._ask(request)

    async def close(self) -> None:
        self.life.append("close")


class Slot:
    """What a slot does with a caller."""

    def __init__(self, target: CallTarget) -> None:
        self.woken = threading.Event()
        self.caller = ThreadCaller("look[0]", target, POLICY, self.woken.set)

    def ask(self, *requests: object) -> list[PendingCall]:
        calls = [PendingCall(None, row) for row in range(len(requests))]
        self.caller.submit(list(zip(calls, requests, strict=True)))
        return calls

    def wait_for(self, count: int) -> list[PendingCall]:
        taken: list[PendingCall] = []
        while len(taken) < count:
            assert self.woken.wait(PATIENCE_S), "nobody wakes the slot"
            self.woken.clear()
            taken += self.caller.take()
        return taken


@contextmanager
def slot_of(target: CallTarget) -> Iterator[Slot]:
    slot = Slot(target)
    try:
        yield slot
    finally:
        slot.caller.close()


def test_answers_come_back_and_the_slot_is_woken() -> None:
    with slot_of(Echo()) as slot:
        calls = slot.ask(1, 2, 3)
        assert slot.wait_for(3) == calls
        assert [call.answer for call in calls] == [1, 2, 3]


def test_a_target_is_opened_before_the_first_call_and_closed_after_the_last() -> None:
    echo = Echo()
    with slot_of(echo) as slot:
        slot.ask(1)
        slot.wait_for(1)
    assert echo.life == ["open", "ask", "close"]


def test_a_failure_comes_back_as_one() -> None:
    with slot_of(Echo()) as slot:
        (call,) = slot.ask("fail")
        slot.wait_for(1)
        assert call.failure is not None
        assert (call.failure.kind, call.failure.message) == (
            FailureKind.CALL_FAILED,
            "ValueError: as asked, at test_caller.py:51 in _ask (1 attempt)",
        )


def test_a_call_that_cancels_its_own_task_fails_and_is_not_lost() -> None:
    """Old helpers for time limits do so: the row would be waited for without end."""
    with slot_of(Echo()) as slot:
        call, _ = slot.ask("cancel", 2)
        slot.wait_for(2)
        assert call.failure is not None
        assert (
            call.failure.message == "the call was cancelled from within: CancelledError, at test_caller.py:49 in _ask"
        )


def test_a_call_that_hangs_holds_up_no_other() -> None:
    with slot_of(Echo()) as slot:
        _, second = slot.ask("hang", 2)
        assert slot.wait_for(1) == [second]


def test_a_target_that_cannot_be_opened_ends_the_attempt() -> None:
    echo = Echo()
    echo.open_error = OSError("no such host")
    with slot_of(echo) as slot:
        slot.ask(1)
        assert slot.woken.wait(PATIENCE_S)
        with pytest.raises(CallsFailed, match=r"look\[0\] have ended: `open` failed: OSError: no such host"):
            slot.caller.take()
    wait_until(lambda: echo.life == ["open", "close"], "what was opened is closed", PATIENCE_S)


@pytest.mark.slow
@pytest.mark.parametrize("request_", ["hang", "stubborn"])
def test_closing_ends_in_bounded_time_while_calls_hang(request_: str) -> None:
    echo = Echo()
    with slot_of(echo) as slot:
        slot.ask(request_)
        wait_until(lambda: "ask" in echo.life, "the call is under way", PATIENCE_S)
        started = time.monotonic()
        slot.caller.close()
        assert time.monotonic() - started < JOIN_TIMEOUT_S + 5
    assert echo.life[-1] == "close"


def test_closing_what_was_never_asked_does_nothing() -> None:
    echo = Echo()
    with slot_of(echo):
        pass
    assert echo.life == []


class Blocking(Echo):
    """Blocks the loop, or ignores its cancellation."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    async def _ask(self, request: object) -> object:
        if request == "block":
            self.released.wait(PATIENCE_S)
        while request == "stubborn" and not self.released.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.01)
        return request


def test_a_call_that_blocks_all_others_is_named(caplog: pytest.LogCaptureFixture) -> None:
    target = Blocking()
    caller = ThreadCaller("look[0]", target, POLICY, lambda: None, check_s=0.001)
    try:
        caller.submit([(PendingCall(None, 0), "block")])
        wait_until(lambda: "blocked" in caplog.text, "it is said", PATIENCE_S)
    finally:
        target.released.set()
        caller.close()
    said = "a call of look[0] has blocked all calls of its slot for 0.01 s, at test_caller.py:174 in _ask. "
    assert said in caplog.text
    assert "to_thread" in caplog.text


def test_a_call_that_ignores_its_cancellation_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.operators.calls.caller.GRACE_S", 0.0)
    target = Blocking()
    policy = CallPolicy(timeout_ms=1, retries=0, backoff_ms=1, budget_ms=1)
    caller = ThreadCaller("look[0]", target, policy, lambda: None, check_s=0.001)
    try:
        caller.submit([(PendingCall(None, 0), "stubborn")])
        wait_until(lambda: "not ended" in caplog.text, "it is said", PATIENCE_S)
    finally:
        target.released.set()
        caller.close()
    (line,) = [one for one in caplog.messages if "not ended" in one]
    assert line.startswith("1 of the calls of look[0] has not ended 0s after their budget of 1ms, at test_caller.py:")
    assert "Let `CancelledError` pass" in line


def test_calls_that_answer_are_not_reported(caplog: pytest.LogCaptureFixture) -> None:
    target = Blocking()
    with slot_of(target) as slot:
        slot.ask(*range(50))
        slot.wait_for(50)
    assert [one for one in caplog.records if one.name.startswith("tidegate.operators.calls")] == []


def test_as_many_calls_block_in_threads_as_are_under_way() -> None:
    """In a queue for one of Python's few threads a call's time would run out before it begins."""
    count = 2 * (min(32, (os.cpu_count() or 1) + 4))
    together = threading.Barrier(count)

    class Blocking(Echo):
        def ask(self, request: object) -> Awaitable[object]:
            return asyncio.to_thread(together.wait, PATIENCE_S)

    slot = Slot(Blocking())
    try:
        slot.ask(*range(count))
        assert all(call.failure is None for call in slot.wait_for(count))
    finally:
        slot.caller.close()
