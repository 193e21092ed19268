"""`tidegate test` and `tidegate preview`: run a pipeline without Kafka and Spark."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from tidegate.checks.pipeline_file import plan_file
from tidegate.cli.options import FORM, PIPELINE_FILE
from tidegate.config.load import LoadedPipeline

if TYPE_CHECKING:
    from tidegate.plan.graph import Plan
    from tidegate.testing.cases import RunOutcome
    from tidegate.testing.feed import ProducedRecord
    from tidegate.testing.preview import Previewed


@click.command()
@PIPELINE_FILE
@click.option("-k", "pattern", metavar="TEXT", help="Only cases whose names contain this text.")
@click.option(
    "--parallelism", type=click.IntRange(1, 16), help="Number of slots of cases that do not set it; default: 1."
)
@FORM
def test(
    file: Path,
    pattern: str | None,
    parallelism: int | None,
    style: str,
) -> int:
    """Run the cases in `tests:` of FILE, without Kafka and Spark, under virtual time. See `tidegate docs testing`.

    Each case runs twice, the second time with a restart from a checkpoint in its middle, which must not change the
    output. Exit code 1 if a case fails, 2 if the file cannot be run.
    """
    loaded, plan = plan_file(file, os.environ)
    return 0 if _run(loaded, plan, pattern, parallelism, style).passed else 1


def _run(
    loaded: LoadedPipeline,
    plan: Plan,
    pattern: str | None,
    parallelism: int | None,
    style: str,
) -> RunOutcome:
    """Runs the chosen cases and prints each as it ends."""
    cases = loaded.settings.tests
    if not cases:
        raise click.ClickException(f"{loaded.file} has no `tests:`; `tidegate docs testing` shows how to write some")
    from rich.console import Console

    from tidegate.testing.cases import choose_cases, run_cases
    from tidegate.testing.render import ResultPrinter, render_json

    chosen = choose_cases(cases, pattern)
    if not chosen:
        known = ", ".join(repr(case.name) for case in cases)
        raise click.UsageError(f"no case of {loaded.file} has {pattern!r} in its name; it has: {known}")
    printer = ResultPrinter(Console(file=sys.stdout, highlight=False), loaded)
    outcome = run_cases(
        loaded, plan, chosen, parallelism, printer.print_case if style == "text" else lambda _result: None
    )
    if style == "text":
        printer.print_summary(outcome.results, outcome.left_out, outcome.seconds)
    else:
        click.echo(render_json(loaded, outcome.results))
    return outcome


@click.command()
@PIPELINE_FILE
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="[SOURCE=]FILE",
    help=("Lines of JSON; - for standard input. With several sources SOURCE=FILE, which may be repeated."),
)
@click.option("--step", "steps", multiple=True, metavar="NAME", help="Show the output of this step or source.")
@click.option("--steps", "all_steps", is_flag=True, help="Show the output of every source and step.")
@click.option(
    "--records", is_flag=True, help="Each line is a record: an object with value, key, timestamp, headers, ..."
)
@click.option("--limit", type=click.IntRange(1), help="Maximum number of records of each sink or step.")
@FORM
def preview(
    file: Path,
    inputs: tuple[str, ...],
    steps: tuple[str, ...],
    all_steps: bool,
    records: bool,
    limit: int | None,
    style: str,
) -> int:
    """Run the pipeline of FILE over the lines of a file, without Kafka and Spark, and print its output.

    Each line is the value of a record; with --records it is a whole record, as `tidegate topic read --format json`
    prints it. The input ends with the file. Bad records are reported on standard error and left out, unless the source
    has `bad_records: fail`.
    """
    loaded, plan = plan_file(file, os.environ)
    from tidegate.checks.registry import copies_of
    from tidegate.testing.preview import Preview, StepUnknown, tap_steps, tappable

    known = tappable(loaded)
    tapped = known if all_steps else list(dict.fromkeys(steps))
    for name in tapped:
        if name not in known:
            raise StepUnknown(f"{file} has no step or source {name!r}; it has: {', '.join(known)}")
    if tapped:
        loaded, plan = tap_steps(loaded, tapped)
    registry = loaded.settings.registry
    copies = None if registry is None else copies_of(registry).of_id
    given = _read_inputs(loaded, plan, inputs, whole=records)
    run = Preview(loaded, plan, lambda where: click.echo(f"skipped: {where}", err=True), copies)
    places = tapped or list(loaded.settings.sinks)
    _print_records(run.run(given, tapped), places, limit, style, with_keys=not tapped)
    for line in run.notes:
        click.echo(f"note: {line}", err=True)
    return 0


def _read_inputs(loaded: LoadedPipeline, plan: Plan, inputs: Sequence[str], *, whole: bool) -> Iterable[ProducedRecord]:
    """Returns the records of all files, one file after the other."""
    from tidegate.testing.preview import choose_source, read_file

    given: list[Iterable[ProducedRecord]] = []
    for text in inputs:
        chosen, path = choose_source(loaded, text)
        lines = click.File("rb").convert(path, None, click.get_current_context())
        given.append(read_file(loaded, plan, chosen, cast("BinaryIO", lines), whole=whole))
    return chain.from_iterable(given)


def _print_records(
    found: Iterable[Previewed], places: Sequence[str], limit: int | None, style: str, *, with_keys: bool
) -> None:
    """Prints records, in JSON as they arrive, otherwise grouped by place. The output of a step has no key yet."""
    from tidegate.testing.preview import render_field, render_fields

    shown: dict[str, list[str]] = {place: [] for place in places}
    counts = dict.fromkeys(places, 0)
    for one in found:
        counts[one.place] += 1
        if limit is not None and counts[one.place] > limit:
            continue
        record = {name: value for name, value in one.record.items() if with_keys or name != "key"}
        if style == "json":
            click.echo(render_fields({"from": one.place, **record}))
        else:
            shown[one.place].append(render_fields(record) if with_keys else render_field(record["value"]))
    for place, texts in shown.items() if style == "text" else ():
        click.secho(f"{place}: {counts[place]} record{'s' if counts[place] != 1 else ''}", bold=True)
        for text in texts:
            click.echo(f"  {text}")
        if counts[place] > len(texts):
            click.echo(f"  ({counts[place] - len(texts)} more)")
