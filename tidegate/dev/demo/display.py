"""The output of the demo: its steps as lines, and below them the state of the pipeline."""

from __future__ import annotations

import time
from typing import Final, Self

from rich.console import Console
from rich.live import Live

from tidegate.cli.progress import render_status
from tidegate.config.fields.counts import render_count
from tidegate.daemon.status import Status

PLAIN_LINE_EVERY_S: Final = 2.0
REDRAW_EVERY_S: Final = 0.25


class DemoDisplay:
    """Prints the demo's progress: `step` prints a line, and `show` receives every status.

    A context manager, because it may control the cursor.
    """

    def __init__(self, console: Console) -> None:
        self.peak_per_second = 0.0
        """The highest input rate so far."""
        self._console = console
        self._started = time.monotonic()
        self._shown = 0.0
        self._said = ""
        moving = console.is_terminal and not console.is_dumb_terminal
        self._live = Live(console=console, auto_refresh=False, transient=True) if moving else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._live is not None:
            self._live.stop()

    def step(self, text: str, style: str = "") -> None:
        """Prints a line that stays."""
        elapsed = time.monotonic() - self._started
        self._console.print(f"{elapsed:6.1f} s  {text}", style=style, markup=False, highlight=False, soft_wrap=True)

    def show(self, status: Status) -> None:
        """Shows the newest status, at a readable rate."""
        self.peak_per_second = max(self.peak_per_second, status.records_in_per_second)
        now = time.monotonic()
        if now - self._shown < (PLAIN_LINE_EVERY_S if self._live is None else REDRAW_EVERY_S):
            return
        self._shown = now
        if self._live is not None:
            self._live.update(render_status(status), refresh=True)
        elif (line := _line(status)) != self._said:
            self._said = line
            self.step(line)


def _line(status: Status) -> str:
    lag = "unknown" if status.lag_records is None else f"{status.lag_records:,}"
    checkpoint = "none yet" if status.last_checkpoint is None else str(status.last_checkpoint.id)
    return (
        f"  {status.state.value}, attempt {status.attempt}, {render_count(status.restarts, 'restart')}: "
        f"in {status.records_in_per_second:,.0f}/s, committed {status.records_committed:,}, lag {lag}, "
        f"checkpoint {checkpoint}"
    )
