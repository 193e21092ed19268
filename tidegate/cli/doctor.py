"""`tidegate doctor FILE`: reports whether a deployment can keep its guarantee, and how to fix it otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tidegate.checks.findings import is_kept
from tidegate.checks.pipeline_file import plan_file
from tidegate.checks.render import render_findings
from tidegate.checks.schemas import Ask
from tidegate.cli.connect import find_findings
from tidegate.cli.pipeline_file import PIPELINE_FILE
from tidegate.config.errors import ConfigErrors, render_problems
from tidegate.daemon.restore_point import NO_OPTIONS


@click.command()
@PIPELINE_FILE
@click.option(
    "--format", "style", type=click.Choice(["text", "json", "github"]), default="text", help="Form of the findings."
)
@click.option("--spark", is_flag=True, help="Also start a Spark session, and look at the checkpoints from every slot.")
def doctor(file: Path, style: str, spark: bool) -> int:
    """Examine the deployment that FILE describes: brokers, topics, permissions, this machine.

    The last line is the verdict. Exit code 0: the guarantee of FILE can be kept; 1: there is a problem; 2: FILE is
    wrong. Records, offsets and settings are not touched, and a running daemon is not disturbed.
    """
    try:
        loaded, plan = plan_file(file, os.environ, Ask.EITHER)
    except ConfigErrors as errors:
        click.echo(render_problems(errors.problems, style), err=style == "text")
        return errors.exit_code
    findings = find_findings(loaded, plan, NO_OPTIONS, deep=True)
    if spark:
        from tidegate.checks.executors import try_executors

        findings += try_executors(loaded)
    click.echo(render_findings(loaded, findings, style))
    return 0 if is_kept(findings) else 1
