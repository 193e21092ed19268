"""What the JVM prints: chatter for debugging, everything else a warning."""

from __future__ import annotations

import logging
import os

import pytest

from tidegate.spark.gateway import JvmOutput

REJECTED = (
    "java.util.concurrent.RejectedExecutionException: Task Future(<not completed>) rejected from "
    "java.util.concurrent.ThreadPoolExecutor@20d2a452[Shutting down, pool size = 1, active threads = 1]"
)
TRACE = (REJECTED, "\tat java.base/java.lang.Thread.run(Thread.java:840)", "Caused by: x.Y", "\t... 3 more")


def warned(caplog: pytest.LogCaptureFixture, lines: tuple[str, ...], *, ending: bool) -> list[str]:
    """The lines that become warnings."""
    output = JvmOutput()
    if ending:
        output.session_ends()
    caplog.set_level(logging.DEBUG, "spark")
    with output.writer() as descriptor:
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
    output.wait_end(10)
    assert len(caplog.records) == len(lines)
    return [record.message for record in caplog.records if record.levelno == logging.WARNING]


def test_work_too_late_for_a_closing_session_is_chatter_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    lines = (*TRACE, "java.lang.OutOfMemoryError: Java heap space", "\tat a.B.c(B.java:1)", *TRACE)
    assert warned(caplog, lines, ending=True) == list(lines[4:6])


def test_while_the_session_lives_the_same_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, TRACE, ending=False) == list(TRACE)


def test_a_pool_that_refuses_for_another_reason_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    full = REJECTED.replace("Shutting down", "Running")
    assert warned(caplog, (full, TRACE[1]), ending=True) == [full, TRACE[1]]


def test_known_lines_of_a_start_are_chatter(caplog: pytest.LogCaptureFixture) -> None:
    assert warned(caplog, ("WARNING: Using incubator modules: x", "Picked up JAVA_TOOL_OPTIONS"), ending=False) == []
