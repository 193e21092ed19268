"""The commands that examine a pipeline file without running it: validate, explain, schema."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tidegate.checks.pipeline_file import check_file, plan_file
from tidegate.checks.registry import Ask
from tidegate.cli.options import FORM, PIPELINE_FILE, start_options
from tidegate.config.errors import render_problems
from tidegate.config.load import LoadedPipeline, read_pipeline
from tidegate.plan.build import build_plan
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.graph import Plan
from tidegate.plan.upgrade_directives import give_up_columns
from tidegate.registry.transport import RegistryUnavailable

if TYPE_CHECKING:
    from tidegate.daemon.restore_point import StartOptions


@click.command()
@PIPELINE_FILE
@click.option("--format", "style", type=click.Choice(["text", "json", "github"]), default="text", help="Output format.")
@click.option(
    "--connect", is_flag=True, help="Also check brokers, registry, checkpoint directory, port and certificates."
)
@start_options
def validate(file: Path, style: str, connect: bool, options: StartOptions) -> int:
    """Check a pipeline file: all problems at once, each with its place. Exit code 2 if there are errors.

    If the checkpoint directory is on this machine and has checkpoints, their state is checked as well: exit code 4 if a
    run would be refused because of it. With --connect the exit code is that of a run that is refused before it starts:
    1, 2 or 4. The options of a start, from --restore to --drop, are those of that run. Nothing is changed, and a
    running daemon is not affected.
    """
    try:
        loaded, problems = check_file(file, os.environ, Ask.REGISTRY if connect else Ask.COPY)
        code = 2 if any(problem.severity == "error" for problem in problems) else 0
    except RegistryUnavailable as unavailable:
        loaded, code = read_pipeline(file, os.environ), unavailable.exit_code
        problems = (
            loaded.problem(("registry", "url"), unavailable.message, "start the registry, or correct its address"),
        )
    if connect and not code and loaded is not None:
        from tidegate.cli.doctor import find_problems

        found, code = find_problems(loaded, _plan(loaded, options), options)
        problems = tuple(sorted((*problems, *found)))
    elif not code and loaded is not None:
        from tidegate.cli.upgrade import find_state_problems

        refused = find_state_problems(loaded, _plan(loaded, options), options)
        code = 4 if refused else 0
        problems = tuple(sorted((*problems, *refused)))
    if problems or style == "json":
        click.echo(render_problems(problems, style))
    errors = sum(problem.severity == "error" for problem in problems)
    if style == "text":
        click.echo(
            f"{file}: {errors} error{'s' if errors != 1 else ''}" if errors else f"{file}: valid", err=bool(errors)
        )
    return code


def _plan(loaded: LoadedPipeline, options: StartOptions) -> Plan:
    return give_up_columns(build_plan(loaded), options.command_line.columns)


@click.command()
@PIPELINE_FILE
@FORM
def explain(file: Path, style: str) -> None:
    """Show operators, exchanges, state and every setting with its origin. Secrets are not shown.

    If the checkpoint directory is on this machine, aggregates that were added later show the checkpoint from which they
    count.
    """
    from tidegate.cli.upgrade import read_begun

    loaded, plan = plan_file(file, os.environ)
    explanation = derive_explanation(loaded, plan, read_begun(loaded))
    text = json.dumps(explanation, indent=2, ensure_ascii=False) if style == "json" else render_explanation(explanation)
    click.echo(loaded.secrets(text))


@click.command()
def schema() -> None:
    """Print the JSON Schema of the pipeline file, for editors."""
    from tidegate.config.reference import derive_json_schema

    click.echo(json.dumps(derive_json_schema(), indent=2))
