"""The user code that runs now is named from another thread, and reported when it blocks the loop."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from tests.waiting import wait_until
from tidegate.user_code.running import BlockingWatch, RunningCode

CODE = """
def process(lock):
    helper(lock)

def helper(lock):
    lock.acquire()
"""


def test_the_innermost_line_of_user_code_is_named_from_another_thread() -> None:
    running, lock = RunningCode(), threading.Lock()
    assert running.describe() == ""
    names: dict[str, Any] = {}
    exec(compile(CODE, "visits.py", "exec"), names)  # the user's module, under its name

    def run() -> None:
        with running.of("visits"):
            names["process"](lock)

    with lock:
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: running.describe() == "visits (visits.py:6 in helper)", "the thread waits")
        assert running.step_here == ""
    thread.join(30)
    assert running.describe() == ""


def test_code_within_code_is_of_the_inner_step() -> None:
    running = RunningCode()
    with running.of("outer"):
        with running.of("inner"):
            assert running.step_here == "inner"
        assert running.step_here == "outer"
    assert running.step_here == ""


def test_code_that_blocks_is_reported_after_ten_seconds_and_each_time_they_have_doubled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    running = RunningCode()
    watch = BlockingWatch(0.5, running)
    with running.of("visits"):
        reported = [look for look in range(101) if watched(watch, 7.0, caplog)]
        assert reported == [20, 40, 80], "20 looks of half a second"
        assert not watched(watch, 8.0, caplog), "the loop has turned"
        assert [look for look in range(21) if watched(watch, 8.0, caplog)] == [19]
    assert not watched(watch, 8.0, caplog)
    assert watch.look(8.0) == ""


def watched(watch: BlockingWatch, turned_at: float, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether a look logs."""
    caplog.clear()
    assert watch.look(turned_at).startswith("visits") or not watch.look(turned_at)
    for record in caplog.records:
        assert record.levelno == logging.WARNING
        assert record.getMessage().startswith("the code of visits (")
    return bool(caplog.records)
