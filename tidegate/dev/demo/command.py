"""`tidegate demo`: options, the temporary directory, the verdict."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.errors import TidegateError

if TYPE_CHECKING:
    from rich.console import Console

    from tidegate.dev.demo.show import DemoReport


@click.command()
@click.option("--master", default="local-cluster[2,1,512]", show_default=True, help="Spark master, e.g. local[2].")
@click.option("--orders", type=click.IntRange(10_000), default=300_000, show_default=True, help="Number of orders.")
@click.option(
    "--seed", type=click.IntRange(0, 2**31), default=1, show_default=True, help="Seed of the generated orders."
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep the directory with logs, data and checkpoints; after a failure it is always kept.",
)
def demo(master: str, orders: int, seed: int, keep: bool) -> int:
    """Run the example on a real broker, kill a slot, verify every record.

    Uses the broker of KAFKA_BOOTSTRAP, else starts one of its own. Exit code 0 only when both outputs hold every record
    exactly once and in order.
    """
    from rich.console import Console

    from tidegate.dev.demo.show import DemoDisplay, DemoSettings, Show

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both signals clean up and end the demo
    console = Console()
    directory = Path(tempfile.mkdtemp(prefix="tidegate-demo-"))
    settings = DemoSettings(orders=orders, before=orders // 3, per_second=orders / 15, seed=seed, master=master)
    try:
        with DemoDisplay(console) as display:
            report = Show(settings, directory, display).run()
        keep = keep or not report.exact  # logs, journal and the broker's data show what happened
    except TidegateError as error:
        click.echo(f"the demo failed: {error.message}", err=True)
        keep = True
        return error.exit_code
    except OSError as error:
        remedy = "correct its permissions, or name another place: TIDEGATE_CACHE for downloads, TMPDIR for all else"
        what = f"{error.filename} cannot be used: {error.strerror}; {remedy}" if error.filename else str(error)
        click.echo(f"the demo failed: {what}", err=True)
        keep = True
        return 1
    finally:
        if keep:
            click.echo(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return _tell(console, report)


def _tell(console: Console, report: DemoReport) -> int:
    """Prints the verdict and returns the exit code."""
    paid, totals = report.paid, report.totals
    overall = report.orders / report.processing_s
    rows = [
        ("orders in", f"{report.orders:,}"),
        ("paid orders out", f"{paid.found:,} of {paid.expected:,}"),
        ("running totals out", f"{totals.found:,} of {totals.expected:,}"),
        ("lost", f"{paid.lost + totals.lost}"),
        ("duplicated", f"{paid.doubled + totals.doubled}"),
        ("out of order", f"{paid.out_of_order + totals.out_of_order}"),
        ("wrong values", f"{paid.wrong + totals.wrong}"),
        ("records/s", f"{overall:,.0f} overall, kill and restart included, {report.peak_per_second:,.0f} at best"),
        ("recovery", f"{report.recovery_s:.1f} s from kill -9 to the next completed checkpoint"),
    ]
    console.print()
    for name, value in rows:
        console.print(f"  {name:<20}{value}", markup=False, highlight=False, soft_wrap=True)
    for example in (*paid.examples, *totals.examples):
        console.print(f"  e.g. {example}", markup=False, highlight=False, soft_wrap=True)
    verdict = "exactly once" if report.exact else "NOT exactly once: the output is wrong"
    console.print(f"  verdict: {verdict}", style="bold green" if report.exact else "bold red", highlight=False)
    return 0 if report.exact else 1
