"""`tidegate upgrade --check FILE`: what a start with this file would do with the state that is there."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from tidegate.cli.output import render_table
from tidegate.cli.words import add_words, read_words
from tidegate.config.errors import ConfigErrors, Problem, render_problems
from tidegate.config.load import LoadedPipeline
from tidegate.config.storages import derive_opener
from tidegate.coordinator.upgrade import Spoken, StepChange
from tidegate.daemon.start.check import place_refusal
from tidegate.daemon.start.expression_check import plan_file
from tidegate.daemon.start.upgrade_check import Report, Target, check_upgrade, find_target, find_upgrade
from tidegate.errors import TidegateError
from tidegate.ids import OperatorName
from tidegate.plan.graph import Plan
from tidegate.storage.base import Storage
from tidegate.storage.open import scheme_of

REFUSED = 4


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--check", is_flag=True, help="Only look: this is all that the command does.")
@click.option("--from", "target", metavar="ID|PATH", help="A retained checkpoint or savepoint; default: the newest.")
@click.option(
    "--format", "style", type=click.Choice(["text", "json", "github"]), default="text", help="Form of the output."
)
@click.option("--migrate-dry-run", "migrate", is_flag=True, help="Read all state as a start would, and keep nothing.")
@add_words
def upgrade(
    file: Path,
    check: bool,
    target: str | None,
    style: str,
    migrate: bool,
    keep: tuple[str, ...],
    reset: tuple[str, ...],
    drop: tuple[str, ...],
) -> int:
    """Show what a run of FILE would do with the state of its pipeline: steps kept, renamed, new, reset, dropped.

    Needs neither Kafka nor Spark, changes nothing, and a running daemon is not disturbed. Exit codes: 0 it fits,
    4 a run would be refused, 2 the file is wrong.
    """
    if not check:
        raise click.UsageError(
            "say --check: an upgrade itself is `tidegate stop OLD`, then `tidegate run NEW`; this shows it before"
        )
    spoken = read_words(keep, reset, drop)
    try:
        loaded, plan = plan_file(file, os.environ)
    except ConfigErrors as errors:
        click.echo(render_problems(errors.problems, style), err=style == "text")
        return errors.exit_code
    report = find_upgrade(loaded.settings, plan, target, spoken, migrate=migrate)
    problems = derive_problems(loaded, report)
    if style == "json":
        click.echo(json.dumps(_as_json(report, problems), indent=2, ensure_ascii=False))
    elif style == "github":
        click.echo(render_problems(problems, style))
    else:
        click.echo(render_report(report, problems))
    return 0 if report.fits else REFUSED


def read_begun(loaded: LoadedPipeline) -> Mapping[OperatorName, Mapping[str, int]]:
    """Since when aggregates count that were added to a step, as far as this machine sees the journal."""
    found = _find_local(loaded)
    return {} if found is None else found[0].identity.begun


def _find_local(loaded: LoadedPipeline) -> tuple[Target, Storage] | None:
    """The newest checkpoint of a directory on this machine; None where there is none, or it cannot be read."""
    directory = str(loaded.settings.checkpoints.directory)
    if scheme_of(directory) != "file":
        return None
    try:
        target, states = find_target(directory, derive_opener(loaded.settings), None)
    except TidegateError:
        return None
    return None if target is None else (target, states)


def find_state_problems(loaded: LoadedPipeline, plan: Plan) -> list[Problem]:
    """What a run would be refused for because of the checkpoints that are there, as far as this machine sees them.

    A directory that is not here, or cannot be read, is nothing against the file.
    """
    found = _find_local(loaded)
    if found is None:
        return []
    try:
        return derive_problems(loaded, check_upgrade(plan, *found, Spoken(), headers=False))
    except TidegateError:
        return []


def derive_problems(loaded: LoadedPipeline, report: Report) -> list[Problem]:
    """What stands against the upgrade, at its places."""
    found = [place_refusal(loaded, one) for one in report.refusals]
    found += [
        loaded.problem(("checkpoints", "directory"), f"state {one.state} of {one.step} cannot be taken: {one.failure}")
        for one in report.migrated
        if one.failure
    ]
    return sorted(found)


def _as_json(report: Report, problems: list[Problem]) -> dict[str, object]:
    return {
        "pipeline": report.pipeline,
        "from": report.target,
        "fits": report.fits,
        "steps": msgspec.to_builtins(report.upgrade.steps),
        "refusals": msgspec.to_builtins(report.refusals),
        "forecast": msgspec.to_builtins(report.forecast),
        "migrated": msgspec.to_builtins(report.migrated),
        "problems": msgspec.to_builtins(problems),
    }


def render_report(report: Report, problems: list[Problem]) -> str:
    """The table, then the problems or what it will take."""
    if not report.target:
        return f"pipeline {report.pipeline}: its checkpoint directory holds no checkpoint; everything begins new"
    lines = [f"pipeline {report.pipeline}, from {report.target}", ""]
    lines += _table(report.upgrade.steps)
    if report.forecast is not None:
        cast = report.forecast
        told = f"restore: about {cast.restore_s:.1f} s for {cast.state_bytes:,} bytes"
        rate = f"an estimate: one reader takes {cast.bytes_per_s / 1e6:.3g} MB/s here"
        lines += ["", f"{told} ({rate}); the first checkpoint writes all of it again"]
    for one in report.migrated:
        told = one.failure or f"{one.entries:,} entries, {one.read_bytes:,} -> {one.written_bytes:,} bytes"
        lines.append(f"dry run: {one.step}.{one.state}: {told} in {one.seconds:.2f} s")
    lines += ["", *map(str, problems)] if problems else []
    lines += ["", "it fits: a run continues from there" if report.fits else "a run would be refused (exit code 4)"]
    return "\n".join(lines)


def _table(steps: tuple[StepChange, ...]) -> list[str]:
    rows: list[tuple[str, ...]] = []
    for step in sorted(steps, key=lambda one: (not one.source, one.name)):
        kind = "source" if step.source else "step"
        what = f"{step.outcome}, it was {step.was}" if step.was else str(step.outcome)
        rows.append((kind, step.name, "", "", what))
        for state in step.states:
            verdict = f"{state.verdict}: {state.reason}" if state.reason else state.verdict
            keys = "" if state.keys is None else f"{state.keys:,}"
            rows.append(("", f"  .{state.name}", keys, f"{state.size_bytes:,}", verdict))
        rows += [("", "", "", "", f"  {remark}") for remark in step.remarks]
    return render_table(("", "name", "keys", "bytes", "what becomes of it"), rows, ("keys", "bytes"))
