"""Renders the status of a pipeline: the live display of `tidegate run`, and the tables of `tidegate status`.

Display and log share one console, so that log lines scroll above the display and never through it. The log therefore
uses `TerminalLines` while a display may run. Without a terminal nothing is drawn.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, TextIO

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tidegate.config.fields.counts import render_count, render_seconds, render_size
from tidegate.daemon.operator_accounts import render_moment
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity, OperatorStatus, PipelineState, Status
from tidegate.operators.builtin.kafka_source import describe_early

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
    if status.brokers_unavailable_seconds and status.state is not PipelineState.WAITING:  # WAITING shows this itself
        outage = render_seconds(status.brokers_unavailable_seconds)
        state.append(f"  no broker answers for {outage}", style="bold red")
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


NUMBERS: Final = ("in", "out", "filtered", "failed", "in/s", "busy")
BUSY: Final = 0.005
"""Up to this ratio the table shows `0%`."""
NOTHING_WRONG: Final = "no problems found"
STYLES: Final = {DiagnosisSeverity.PROBLEM: "bold red", DiagnosisSeverity.NOTICE: "yellow"}
EVENT_TIME: Final = ("late", "watermark", "lag")


def render_operators(operators: Sequence[OperatorStatus]) -> Table:
    """Renders one line per operator in the order of the plan; `busy` is the share of its slots' time in the last few
    seconds.

    The event-time columns appear if any operator has a watermark.
    """
    timed = any(one.watermark_ms is not None for one in operators)
    headings = (*NUMBERS, *EVENT_TIME) if timed else NUMBERS
    grid = Table.grid(padding=(0, 2))
    for _ in ("operator", "kind"):
        grid.add_column(no_wrap=True)
    for _ in headings:
        grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    grid.add_row("operator", "kind", *headings, style="dim")
    busiest = find_busiest(operators)
    for one in operators:
        grid.add_row(
            one.name,
            one.kind,
            *(f"{number:,}" for number in (one.rows_in, one.rows_out, one.filtered, one.failed)),
            f"{one.rows_in_per_second:,.0f}",
            f"{one.busy_ratio:.0%}",
            *(_event_time(one) if timed else ()),
            "busiest" if one is busiest else "",
            style="bold" if one is busiest else "",
        )
    return grid


def render_diagnoses(diagnoses: Sequence[Diagnosis]) -> Iterator[tuple[str, str]]:
    """Yields lines with their styles: for each diagnosis its sentence and its remedy, or that no problems found."""
    if not diagnoses:
        yield NOTHING_WRONG, "green"
    for one in diagnoses:
        yield f"{one.severity} {one.code}: {one.sentence}", STYLES[one.severity]
        yield f"    {one.remedy}", ""


def find_waiting(operators: Sequence[OperatorStatus]) -> Iterator[str]:
    """Yields a line for every operator that keeps rows until another input has rows for them."""
    for one in operators:
        if one.waiting:
            yield f"{one.name}: {one.waiting}"


def find_early(operators: Sequence[OperatorStatus]) -> Iterator[str]:
    """Yields a line for every source that has event times before 1971."""
    for one in operators:
        if one.before_1971:
            yield describe_early(one.name, one.before_1971, one.before_1971_remedy)


def find_busiest(operators: Sequence[OperatorStatus]) -> OperatorStatus | None:
    """Returns the operator that takes the most of its slots' time, or None while all are idle."""
    busiest = max(operators, key=lambda one: one.busy_ratio, default=None)
    return busiest if busiest is not None and busiest.busy_ratio > BUSY else None


def _event_time(one: OperatorStatus) -> tuple[str, str, str]:
    if one.watermark_ms is None or one.event_time_lag_seconds is None:
        return f"{one.late:,}", "", ""
    lag = "idle" if one.idle else f"{one.event_time_lag_seconds:,.1f} s"
    return f"{one.late:,}", render_moment(one.watermark_ms), lag
