"""The terminal display: three lines below the log that show the state of the pipeline. Without a terminal nothing is
drawn.

Display and log share one console, so that log lines scroll above the display and never through it. The log therefore
uses `TerminalLines` while a display may run.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegate.config.fields.counts import render_count, render_seconds, render_size
from tidegate.daemon.status import PipelineState, Status

REFRESH_S: Final = 0.5
STOP_TIMEOUT_S: Final = 2.0
STALE_S: Final = 10.0
"""A lag that was measured longer ago is shown with its age."""
STATE_STYLES: Final = {
    PipelineState.STARTING: "cyan",
    PipelineState.RESTORING: "cyan",
    PipelineState.RUNNING: "green",
    PipelineState.WAITING: "red",
    PipelineState.DEGRADED: "red",
    PipelineState.RESTARTING: "yellow",
    PipelineState.STOPPING: "cyan",
    PipelineState.FINISHED: "green",
    PipelineState.FAILED: "red",
}
LEVEL_STYLES: Final = {logging.WARNING: "yellow", logging.ERROR: "red", logging.CRITICAL: "bold red"}


def open_console(stream: TextIO | None = None) -> Console | None:
    """Returns the console for the display: standard error if it is a terminal that can move its cursor, else None."""
    console = Console(file=stream if stream is not None else sys.stderr)
    return console if console.is_terminal and not console.is_dumb_terminal else None


class TerminalLines:
    """Prints log lines above the display, with warnings and errors in colour.

    A line is never wrapped or interpreted.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, level: int, text: str) -> None:
        """Prints one line. Blocks while the terminal is stopped (Ctrl-S) and raises OSError when it is gone."""
        with suppress(SystemExit):  # raised by rich when the reader of a pipe has gone; rich is quiet afterwards
            self._console.print(Text(text, style=LEVEL_STYLES.get(level, ""), no_wrap=True), soft_wrap=True)
        if self._console.quiet:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


class ProgressDisplay:
    """Draws `snapshot()` twice a second on its own thread. Without a console `start` and `stop` do nothing."""

    def __init__(self, console: Console | None, snapshot: Callable[[], Status]) -> None:
        self._console = console
        self._snapshot = snapshot
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts drawing."""
        if self._console is None or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, args=(self._console,), name="progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Draws the last state, leaves it on the screen and restores the cursor, within STOP_TIMEOUT_S."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_S)

    def _run(self, console: Console) -> None:
        # Standard output is not redirected: what a command prints there may be the input of another program.
        first = render_status(self._snapshot())
        with Live(first, console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False) as live:
            while not self._ended.wait(REFRESH_S):
                live.update(render_status(self._snapshot()), refresh=True)
            live.update(render_status(self._snapshot()), refresh=True)


def render_status(status: Status) -> Table:
    """Renders the display: one line each for state, flow and checkpoints."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True, min_width=len("checkpoint"))
    grid.add_column(no_wrap=True, overflow="ellipsis")
    state = Text(status.state.value, style=f"bold {STATE_STYLES[status.state]}")
    state.append(f"  attempt {status.attempt}, {render_count(status.restarts, 'restart')}", style="default not bold")
    if status.brokers_away_seconds and status.state is not PipelineState.WAITING:  # WAITING shows this itself
        away = render_seconds(status.brokers_away_seconds)
        state.append(f"  no broker answers for {away}", style="bold red")
    if status.reason:
        state.append(f"  {status.reason.splitlines()[0]}", style="default not bold")
    grid.add_row(status.pipeline, state)
    lag = "unknown" if status.lag_records is None else f"{status.lag_records:,}"
    if status.lag_seconds:
        lag += f", {render_seconds(status.lag_seconds)}"
    if status.lag_age_seconds is not None and status.lag_age_seconds > STALE_S:
        lag += f" ({render_seconds(status.lag_age_seconds)} ago)"
    bad = f"   bad {status.bad_records:,}" if status.bad_records else ""
    bad += f" ({render_count(status.dead_letters, 'dead letter')})" if status.dead_letters else ""
    grid.add_row(
        "records",
        f"in {status.records_in_per_second:,.0f}/s   out {status.records_out_per_second:,.0f}/s   "
        f"{_committed_text(status)}lag {lag}{bad}",
    )
    grid.add_row("checkpoint", _checkpoint_text(status))
    return grid


def _committed_text(status: Status) -> str:
    return f"committed {status.records_committed:,}   " if status.guarantee == "exactly-once" else ""


def _checkpoint_text(status: Status) -> str:
    last = status.last_checkpoint
    failed = f"   failed {status.failed_checkpoints}" if status.failed_checkpoints else ""
    if last is None:
        return f"none yet{failed}"
    records = f"   {last.records_committed:,} records" if status.guarantee == "exactly-once" else ""
    return (
        f"{last.id}   {render_seconds(last.age_seconds)} ago   took {render_seconds(last.duration_seconds)}   "
        f"{render_size(last.size_bytes)}{records}{failed}"
    )
