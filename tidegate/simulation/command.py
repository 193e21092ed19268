"""`tidegate simulate`: try to break the protocol with planned faults, without Kafka and Spark."""

from __future__ import annotations

import secrets
import sys
from typing import Final

import click

from tidegate.simulation.campaign import ENOUGH_FAULTS, Tally, play_in_processes
from tidegate.simulation.reach import HEADING, derive_rows

PROGRESS_S: Final = 30.0
"""Between two lines of progress, on standard error."""
FIRST_MAX: Final = 1_000_000_000
"""Of a first seed that nobody has given."""


@click.command()
@click.option("--seeds", default=200, show_default=True, help="Number of schedules.")
@click.option("--first", type=int, default=None, help="First seed; random if not given.")
@click.option("--processes", default=1, show_default=True, help="Number of processes that play them.")
@click.option("--budget", type=float, default=None, help="Start no more schedules after this many seconds.")
@click.option("--windows", is_flag=True, help="Pass over the seven in ten that have no windows.")
def simulate(seeds: int, first: int | None, processes: int, budget: float | None, *, windows: bool) -> None:
    """Play random schedules of records and faults under a virtual clock and check the committed output.

    A schedule counts when at least 5 of its faults really happened. Exit code 1 when one was violated (its story and
    the smallest schedule that still fails are printed), or when something was reached less often than required, which
    is not asked of --windows.
    """
    begin = secrets.randbelow(FIRST_MAX) if first is None else first
    click.echo(f"seeds from {begin} on; repeat with --first {begin}")
    tally, rate, told_s = Tally(), 0.0, 0.0
    for latest, elapsed_s in play_in_processes(begin, seeds, processes, budget, windows=windows):
        for story in latest.stories[len(tally.stories) :]:
            click.echo(story)
        tally, rate = latest, latest.played / elapsed_s
        if elapsed_s - told_s >= PROGRESS_S:
            told_s = elapsed_s
            violations = len(tally.failed)
            shown = (
                f"{tally.drawn} of {seeds} seeds, {tally.played} with windows"
                if windows
                else f"{tally.played} of {seeds}"
            )
            click.echo(f"{shown} played, {violations} violations, {rate:.1f} schedules/s", err=True)
    missed = _tell_reach(tally)
    click.echo(
        f"played {tally.played} from seed {begin}: {tally.attempts} attempts, {tally.checkpoints} checkpoints, "
        f"{tally.refusals} refusals of damaged files; recovered within {tally.recovered_s:.1f} s, readers were blocked "
        f"for {tally.standing_s:.1f} s at most; "
        f"{tally.played - tally.counted} with fewer than {ENOUGH_FAULTS} faults, or fewer than half of those planned, "
        "are not counted"
    )
    if tally.failed:
        click.echo(f"failed seeds: {', '.join(map(str, tally.failed))}")
    if missed and not windows:
        click.echo(f"reached too rarely: {', '.join(missed)}")
    click.echo(
        f"{tally.counted} schedules, {len(tally.failed)} violations, {tally.faults} faults, {rate:.1f} schedules/s"
    )
    sys.exit(1 if tally.failed or (missed and not windows) else 0)


def _tell_reach(tally: Tally) -> list[str]:
    """The table; what was reached too rarely."""
    rows = derive_rows(tally.reach, tally.played)
    click.echo(HEADING)
    for row in rows:
        click.echo(str(row))
    return [row.what for row in rows if row.missed]
