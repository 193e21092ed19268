"""`tidegate upgrade FILE`: shows what a start with this file would do with the existing state."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tidegate.checks.judge_start import place_refusal
from tidegate.checks.pipeline_file import plan_file
from tidegate.checks.upgrade_check import Migrated, Report, Target, check_upgrade, find_target, find_upgrade
from tidegate.cli.options import FORM, PIPELINE_FILE, directive_options
from tidegate.cli.output import render_table
from tidegate.config.errors import ConfigErrors, Problem, render_problems
from tidegate.config.fields.counts import render_count
from tidegate.config.fields.steps import KEEP
from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.coordinator.upgrade import CommandLineDirectives, StateChange, StepChange, UpgradeOutcome
from tidegate.coordinator.upgrade_decision import UNDECIDED
from tidegate.errors import TidegateError
from tidegate.ids import OperatorName
from tidegate.plan.graph import Plan
from tidegate.plan.upgrade_directives import give_up_columns
from tidegate.state.compatibility import Fit
from tidegate.storage.base import Storage
from tidegate.storage.open import scheme_of

if TYPE_CHECKING:
    from tidegate.daemon.restore_point import StartOptions

REFUSED = 4


@click.command()
@PIPELINE_FILE
@click.option("--from", "target", metavar="ID|PATH", help="A retained checkpoint or savepoint; default: the newest.")
@FORM
@click.option(
    "--migrate-dry-run",
    "migrate",
    is_flag=True,
    help="Also restore all state into a temporary directory (TMPDIR), which is then removed.",
)
@directive_options
def upgrade(
    file: Path,
    target: str | None,
    style: str,
    migrate: bool,
    directives: CommandLineDirectives,
) -> int:
    """Show what a run of FILE would do with existing state: which steps are kept, renamed, new, reset or dropped.

    Neither Kafka nor Spark is needed. Nothing is changed, and a running daemon is not affected. To upgrade, run
    `tidegate stop OLD`, then `tidegate run FILE`. Exit codes: 0 the state fits; 4 a run would be refused, or the
    checkpoint of --from is not retained; 2 the file, the command line or the path of --from is wrong; 1 the storage, or
    the disk of a dry run, fails.
    """
    try:
        loaded, plan = plan_file(file, os.environ)
    except ConfigErrors as errors:
        click.echo(render_problems(errors.problems, style), err=style == "text")
        return errors.exit_code
    plan = give_up_columns(plan, directives.columns)
    report = find_upgrade(loaded.settings, plan, target, directives, migrate=migrate)
    problems = derive_problems(loaded, report)
    if style == "json":
        click.echo(json.dumps(_as_json(report, problems), indent=2, ensure_ascii=False))
    else:
        click.echo(render_report(report, problems))
    return 0 if report.fits else REFUSED


def read_begun(loaded: LoadedPipeline) -> Mapping[OperatorName, Mapping[str, int]]:
    """Returns the checkpoints from which later added aggregates of each step count; empty unless readable here."""
    found = _find_local(loaded, None)
    return {} if found is None else found[0].identity.begun


def find_state_problems(loaded: LoadedPipeline, plan: Plan, options: StartOptions) -> list[Problem]:
    """Returns why a run would be refused because of existing checkpoints, as far as they are readable here."""
    found = _find_local(loaded, None if options.restore is None else options.restore.target)
    try:
        return [] if found is None else derive_problems(loaded, check_upgrade(plan, *found, options.command_line))
    except TidegateError:
        return []


def _find_local(loaded: LoadedPipeline, wanted: str | None) -> tuple[Target, Storage] | None:
    """Finds the target in a local checkpoint directory; None if there is none, or it cannot be read."""
    directory = str(loaded.settings.checkpoints.directory)
    if scheme_of(directory) != "file":
        return None
    try:
        target, states = find_target(directory, derive_opener(loaded.settings), wanted)
    except TidegateError:
        return None
    return None if target is None else (target, states)


def derive_problems(loaded: LoadedPipeline, report: Report) -> list[Problem]:
    """Returns the problems that prevent the upgrade, each with its place."""
    found = [place_refusal(loaded, one) for one in report.refusals]
    found += [
        loaded.problem(
            ("checkpoints", "directory"),
            f"state {one.state} of {one.step} cannot be restored: {one.failure}",
            report.repair if one.damaged else "",
        )
        for one in report.migrated
        if one.failure
    ]
    return sorted(found)


def _say_outcome(step: StepChange) -> str:
    return f"{step.outcome}, it was {step.was}" if step.was else str(step.outcome)


def _say_verdict_of(state: StateChange) -> str:
    return f"{state.verdict}: {state.reason}" if state.reason else state.verdict


def _say_verdict(report: Report) -> str:
    return "it fits: a run continues from there" if report.fits else "a run would be refused (exit code 4)"


def _say_nothing_there(report: Report) -> str:
    return f"pipeline {report.pipeline}: the checkpoint directory has no checkpoint; all state starts empty"


def _as_json(report: Report, problems: list[Problem]) -> dict[str, object]:
    return {
        "pipeline": report.pipeline,
        "from": report.target,
        "fits": report.fits,
        "steps": msgspec.to_builtins(report.upgrade.steps),
        "code": msgspec.to_builtins(report.upgrade.code),
        "files": msgspec.to_builtins(report.upgrade.files),
        "refusals": msgspec.to_builtins(report.refusals),
        "migrated": msgspec.to_builtins(report.migrated),
        "problems": msgspec.to_builtins(problems),
    }


def render_report(report: Report, problems: list[Problem]) -> str:
    """Renders the table, the results of a dry run and the problems."""
    if not report.target:
        return _say_nothing_there(report)
    lines = [f"pipeline {report.pipeline}, from {report.target}", ""]
    lines += _table(report)
    changes = (*report.upgrade.code, *report.upgrade.files)
    lines += ["", *map(str, changes)] if changes else []
    lines += map(_say_migrated, report.migrated)
    lines += ["", *map(str, problems)] if problems else []
    lines += ["", _say_verdict(report)]
    return "\n".join(lines)


def _say_migrated(one: Migrated) -> str:
    if one.failure:
        return f"dry run: {one.step}.{one.state}: cannot be restored, see below"
    entries = f"{one.entries:,} entry" if one.entries == 1 else f"{one.entries:,} entries"
    return (
        f"dry run: {one.step}.{one.state}: {entries} restored into {one.backend} from "
        f"{render_count(one.read_bytes, 'byte')} in {one.seconds:.2f} s by one reader"
    )


def _table(report: Report) -> list[str]:
    meant = {one.name for one in report.refusals if KEEP in one.choices}
    rows: list[tuple[str, ...]] = []
    for step in sorted(report.upgrade.steps, key=lambda one: (not one.source, one.name)):
        refused = step.outcome is UpgradeOutcome.REFUSED
        what = "refused: its state would have another meaning" if refused and step.name in meant else _say_outcome(step)
        rows.append(("source" if step.source else "step", step.name, "", "", what))
        for state in step.states:
            # For a refused step, only the form of the bytes is judged here.
            readable = refused and state.verdict not in (Fit.INCOMPATIBLE, UNDECIDED)
            verdict = f"readable {_say_verdict_of(state)}" if readable else _say_verdict_of(state)
            keys = "a list" if state.keys is None else f"{state.keys:,}"
            rows.append(("", f"  .{state.name}", keys, f"{state.size_bytes:,}", verdict))
        rows += [("", "", "", "", f"  {remark}") for remark in step.remarks]
    return render_table(("", "name", "keys", "bytes", "outcome"), rows, ("keys", "bytes"))
