"""The terminal display: what it shows, how it lives with the log, and that nothing is drawn elsewhere."""

from __future__ import annotations

import io
import logging
import threading

import msgspec
import pytest
from rich.console import Console

from tidegate.cli.progress import ProgressDisplay, TerminalLines, open_console, render_status
from tidegate.daemon.status import CheckpointStatus, PipelineState, Status
from tidegate.ids import Attempt, CheckpointId

STATUS = Status(
    pipeline="shop",
    version="0.1.0",
    state=PipelineState.RUNNING,
    reason="",
    attempt=Attempt(3),
    uptime_seconds=60.0,
    records_in=1_000_000,
    records_out=900_000,
    records_in_per_second=52_345.6,
    records_out_per_second=41_000.0,
    records_committed=890_000,
    bad_records=0,
    lag_records=12_000,
    lag_age_seconds=1.5,
    last_checkpoint=CheckpointStatus(CheckpointId(42), 0.4, 0.123, 12_595, 4512),
    failed_checkpoints=0,
    restarts=2,
)


def render(status: Status, width: int = 120) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    console.print(render_status(status))
    file = console.file
    assert isinstance(file, io.StringIO)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def is_drawing() -> bool:
    return any(thread.name == "progress" for thread in threading.enumerate())


@pytest.fixture
def patient_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    """`stop` gives the drawing thread two seconds; a busy machine may need more for its last turn."""
    monkeypatch.setattr("tidegate.cli.progress.STOP_TIMEOUT_S", 60.0)


def test_it_shows_state_flow_and_checkpoint() -> None:
    assert render(STATUS) == [
        "shop        running  attempt 3, 2 restarts",
        "records     in 52,346/s   out 41,000/s   committed 890,000   lag 12,000",
        "checkpoint  42   400 ms ago   took 123 ms   12.3 KiB   4,512 records",
    ]


def test_it_says_what_is_not_known_yet_and_what_went_wrong() -> None:
    status = msgspec.structs.replace(
        STATUS,
        state=PipelineState.RESTARTING,
        reason="slot 1 is gone\ntraceback",
        restarts=1,
        bad_records=7,
        lag_records=None,
        last_checkpoint=None,
        failed_checkpoints=2,
    )
    assert render(status) == [
        "shop        restarting  attempt 3, 1 restart  slot 1 is gone",
        "records     in 52,346/s   out 41,000/s   committed 890,000   lag unknown   bad 7",
        "checkpoint  none yet   failed 2",
    ]


def test_at_least_once_says_nothing_about_commits() -> None:
    """Nothing is committed then: a zero would look as if no output had come out."""
    assert render(msgspec.structs.replace(STATUS, guarantee="at-least-once"))[1:] == [
        "records     in 52,346/s   out 41,000/s   lag 12,000",
        "checkpoint  42   400 ms ago   took 123 ms   12.3 KiB",
    ]


def test_it_stays_three_lines_on_a_narrow_terminal() -> None:
    lines = render(STATUS, width=40)
    assert len(lines) == 3
    assert all(len(line) <= 40 for line in lines)


def test_there_is_no_console_off_a_terminal() -> None:
    assert open_console(io.StringIO()) is None
    display = ProgressDisplay(None, lambda: STATUS)
    display.start()
    assert not is_drawing()
    display.stop()


@pytest.mark.usefixtures("patient_stop")
def test_log_lines_come_whole_above_the_display() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=60, _environ={"TERM": "xterm"})
    drawn = threading.Event()

    def snapshot() -> Status:
        drawn.set()
        return STATUS

    display = ProgressDisplay(console, snapshot)
    write = TerminalLines(console)
    display.start()
    assert drawn.wait(60)
    message = "a long line with [brackets] " + "x" * 100
    write(logging.WARNING, message)
    display.stop()
    assert message in output.getvalue()
    assert output.getvalue().rindex("checkpoint") > output.getvalue().index(message)
    assert output.getvalue().endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.usefixtures("patient_stop")
def test_the_last_state_is_drawn_at_the_end() -> None:
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=100, _environ={"TERM": "xterm"})
    current = [STATUS]
    display = ProgressDisplay(console, lambda: current[0])
    display.start()
    current[0] = msgspec.structs.replace(STATUS, state=PipelineState.FINISHED)
    display.stop()
    assert "finished" in output.getvalue()
    assert not is_drawing()
