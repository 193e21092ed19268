"""`tidegate simulate`: try to break the protocol with planned faults, without Kafka and Spark."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from tidegate.simulation.campaign import ENOUGH_FAULTS, Tally, play_in_processes
from tidegate.simulation.reach import HEADING, derive_rows

PROGRESS_S: Final = 30.0
"""Between two lines of progress, on standard error."""
FIRST_MAX: Final = 1_000_000_000
"""Of a first seed that nobody has given."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What --table holds: a run that another one can continue."""

    first: int
    windows: bool
    tally: Tally


@click.command()
@click.option("--seeds", default=200, show_default=True, help="Number of schedules.")
@click.option("--first", type=int, default=None, help="First seed; random if not given.")
@click.option("--processes", default=1, show_default=True, help="Number of processes that play them.")
@click.option("--budget", type=float, default=None, help="Start no more schedules after this many seconds.")
@click.option("--windows", is_flag=True, help="Pass over the seven in ten that have no windows.")
@click.option(
    "--table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep what was reached in this file; if it exists, continue that run until --seeds in all are played.",
)
def simulate(
    seeds: int, first: int | None, processes: int, budget: float | None, table: Path | None, *, windows: bool
) -> None:
    """Play random schedules of records and faults under a virtual clock and check the committed output.

    A schedule counts when at least 5 of its faults really happened. Exit code 1 when one was violated (its story and
    the smallest schedule that still fails are printed), or when something was reached less often than required, which
    is not asked of --windows.
    """
    kept = _read_table(table, first, windows) if table is not None and table.exists() else None
    if kept is None:
        kept = Kept(secrets.randbelow(FIRST_MAX) if first is None else first, windows, Tally())
    if table is not None:
        _write_table(table, kept)
    begin, tally, rate, told_s = kept.first, kept.tally, 0.0, 0.0
    click.echo(f"seeds from {begin} on; repeat with --first {begin}")
    if tally.drawn:
        click.echo(f"{tally.drawn} of {seeds} are in {table}")
    rest = max(0, seeds - tally.drawn)
    for more, elapsed_s in play_in_processes(begin + tally.drawn, rest, processes, budget, windows=windows):
        latest = kept.tally.plus(more)
        for story in latest.stories[len(tally.stories) :]:
            click.echo(story)
        tally, rate = latest, more.played / elapsed_s
        if table is not None:
            _write_table(table, Kept(begin, windows, tally))
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


def _read_table(file: Path, first: int | None, windows: bool) -> Kept:
    """Raises UsageError, FileError."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from error
    except msgspec.DecodeError as error:
        raise click.UsageError(f"--table {file}: {error}; it is no table of this command, name another file") from error
    if first not in (None, kept.first) or windows != kept.windows:
        told = " with --windows" if kept.windows else ""
        raise click.UsageError(
            f"--table {file}: it is of seeds from {kept.first} on{told}; give the same options, or another file"
        )
    return kept


def _write_table(file: Path, kept: Kept) -> None:
    """Raises FileError."""
    new = file.with_name(file.name + ".new")
    try:
        new.write_bytes(msgspec.json.encode(kept))
        new.replace(file)
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from error


def _tell_reach(tally: Tally) -> list[str]:
    """The table; what was reached too rarely."""
    rows = derive_rows(tally.reach, tally.played)
    click.echo(HEADING)
    for row in rows:
        click.echo(str(row))
    return [row.what for row in rows if row.missed]
