"""`tidegate simulate`: try to break the protocol with planned faults, without Kafka and Spark."""

from __future__ import annotations

import sys
from typing import Final

import click

from tidegate.simulation.campaign import ENOUGH_FAULTS, Tally, play_in_processes

PROGRESS_S: Final = 30.0
"""Between two lines of progress, on standard error."""


@click.command()
@click.option("--seeds", default=200, show_default=True, help="How many schedules.")
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--processes", default=1, show_default=True, help="How many processes play them.")
@click.option("--budget", type=float, default=None, help="Begin no further schedules after so many seconds.")
def simulate(seeds: int, first: int, processes: int, budget: float | None) -> None:
    """Play random schedules of records and faults under a virtual clock and check the committed output.

    A schedule counts when at least 5 of its faults really happened. Exit code 1 when one was violated; its story and
    the smallest schedule that still fails are printed.
    """
    tally, rate, told_s = Tally(), 0.0, 0.0
    for latest, elapsed_s in play_in_processes(first, seeds, processes, budget):
        for story in latest.stories[len(tally.stories) :]:
            click.echo(story)
        tally, rate = latest, latest.played / elapsed_s
        if elapsed_s - told_s >= PROGRESS_S:
            told_s = elapsed_s
            violations = len(tally.failed)
            click.echo(f"{tally.played} of {seeds} played, {violations} violations, {rate:.1f} schedules/s", err=True)
    click.echo(
        f"played {tally.played} from seed {first}: {tally.attempts} attempts, {tally.checkpoints} checkpoints, "
        f"{tally.refusals} refusals of damaged files; "
        f"{tally.played - tally.counted} with fewer than {ENOUGH_FAULTS} faults are not counted"
    )
    if tally.failed:
        click.echo(f"failed seeds: {', '.join(map(str, tally.failed))}")
    click.echo(
        f"{tally.counted} schedules, {len(tally.failed)} violations, {tally.faults} faults, {rate:.1f} schedules/s"
    )
    sys.exit(1 if tally.failed else 0)
