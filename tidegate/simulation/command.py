"""`tidegate simulate`: try to break the protocol with planned faults, without Kafka and Spark."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Final

import click
import msgspec

from tidegate.simulation.campaign import ENOUGH_FAULTS, ONLY, CampaignCounts, play_in_processes
from tidegate.simulation.reach import HEADING, derive_rows

PROGRESS_S: Final = 30.0
"""Time between two progress lines on standard error."""
FIRST_MAX: Final = 1_000_000_000
"""Upper bound of a random first seed."""


class Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of the --table file: a run that another one can continue."""

    first: int
    only: str
    counts: CampaignCounts


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=200, show_default=True, help="Number of schedules.")
@click.option("--first", type=int, default=None, help="First seed; random if not given.")
@click.option(
    "--processes", type=click.IntRange(1), default=1, show_default=True, help="Number of processes that play them."
)
@click.option("--budget", type=float, default=None, help="Start no schedule after this many seconds.")
@click.option("--only", type=click.Choice([*ONLY]), default=None, help="Skip seeds without these.")
@click.option(
    "--table",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Save the table in this file. If it exists, continue that run until --seeds have been played in all.",
)
def simulate(
    seeds: int, first: int | None, processes: int, budget: float | None, table: Path | None, only: str | None
) -> None:
    """Play random schedules of records and faults under a virtual clock and check the committed output.

    A schedule counts when at least 5 of its faults really happened. Exit code 1 when one was violated (its story and
    the smallest schedule that still fails are printed), or when something was reached less often than required, which
    does not apply to --only.
    """
    kept = _read_table(table, first, only or "") if table is not None and table.exists() else None
    if kept is None:
        kept = Kept(secrets.randbelow(FIRST_MAX) if first is None else first, only or "", CampaignCounts())
    if table is not None:
        _write_table(table, kept)
    begin, counts, rate, told_s = kept.first, kept.counts, 0.0, 0.0
    click.echo(f"seeds from {begin} on; repeat with --first {begin}")
    if counts.drawn:
        click.echo(f"{counts.drawn} of {seeds} are in {table}")
    rest = max(0, seeds - counts.drawn)
    for more, elapsed_s in play_in_processes(begin + counts.drawn, rest, processes, budget, only=kept.only):
        latest = kept.counts.plus(more)
        for story in latest.stories[len(counts.stories) :]:
            click.echo(story)
        counts, rate = latest, more.played / elapsed_s
        if table is not None:
            _write_table(table, Kept(begin, kept.only, counts))
        if elapsed_s - told_s >= PROGRESS_S:
            told_s = elapsed_s
            violations = len(counts.failed)
            shown = (
                f"{counts.drawn} of {seeds} seeds, {counts.played} with {only}"
                if only
                else f"{counts.played} of {seeds}"
            )
            click.echo(f"{shown} played, {violations} violations, {rate:.1f} schedules/s", err=True)
    missed = _tell_reach(counts)
    click.echo(
        f"played {counts.played} from seed {begin}: {counts.attempts} attempts, {counts.checkpoints} checkpoints, "
        f"{counts.refusals} refusals of damaged files; recovered within {counts.recovered_s:.1f} s, readers were "
        f"blocked for {counts.standing_s:.1f} s at most; "
        f"{counts.played - counts.counted} with fewer than {ENOUGH_FAULTS} faults, or fewer than half of those "
        "planned, are not counted"
    )
    if counts.failed:
        click.echo(f"failed seeds: {', '.join(map(str, counts.failed))}")
    if missed and not only:
        click.echo(f"reached too rarely: {', '.join(missed)}")
    click.echo(
        f"{counts.counted} schedules, {len(counts.failed)} violations, {counts.faults} faults, {rate:.1f} schedules/s"
    )
    sys.exit(1 if counts.failed or (missed and not only) else 0)


def _read_table(file: Path, first: int | None, only: str) -> Kept:
    """Raises UsageError, FileError."""
    try:
        kept = msgspec.json.decode(file.read_bytes(), type=Kept)
    except OSError as error:
        raise click.FileError(str(file), error.strerror) from error
    except msgspec.DecodeError as error:
        raise click.UsageError(
            f"--table {file}: {error}; it is not a table of this command; name another file"
        ) from error
    if first not in (None, kept.first) or only != kept.only:
        told = f" with --only {kept.only}" if kept.only else ""
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


def _tell_reach(counts: CampaignCounts) -> list[str]:
    """Prints the table. Returns the situations that were reached too rarely."""
    rows = derive_rows(counts.reach, counts.played)
    click.echo(HEADING)
    for row in rows:
        click.echo(str(row))
    return [row.what for row in rows if row.missed]
