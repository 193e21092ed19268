"""`tidegate doctor FILE`: whether a deployment can keep its promise, and what mends it where it cannot."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import click

from tidegate.checks.examine import examine, judge_start
from tidegate.checks.expression_check import plan_file
from tidegate.checks.findings import Finding, is_kept
from tidegate.checks.render import render_findings
from tidegate.checks.schemas import Ask
from tidegate.checks.start_problems import StartLook
from tidegate.checks.start_target import StartTarget
from tidegate.checks.survey import look_at_start
from tidegate.cli.connect import PATIENCE_S, look_around, with_target
from tidegate.cli.pipeline_file import PIPELINE_FILE
from tidegate.config.errors import ConfigErrors, render_problems
from tidegate.config.load import LoadedPipeline
from tidegate.daemon.choosing import NO_OPTIONS
from tidegate.plan.graph import Plan
from tidegate.storage.base import StorageError


@click.command()
@PIPELINE_FILE
@click.option(
    "--format", "style", type=click.Choice(["text", "json", "github"]), default="text", help="Form of the findings."
)
@click.option("--spark", is_flag=True, help="Also start a Spark session, and look at the checkpoints from every slot.")
def doctor(file: Path, style: str, spark: bool) -> int:
    """Look at the deployment that FILE names: brokers, topics, permissions, this machine.

    The last line is the verdict. Exit code 0: the promise of FILE can be kept; 1: a problem stands against it; 2: FILE
    is wrong. Records, offsets and settings are not touched, and a running daemon is not disturbed.
    """
    try:
        loaded, plan = plan_file(file, os.environ, Ask.EITHER)
    except ConfigErrors as errors:
        click.echo(render_problems(errors.problems, style), err=style == "text")
        return errors.exit_code
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # every failure is a finding
    findings = find(loaded, plan)
    if spark:
        from tidegate.checks.executors import try_executors

        findings += try_executors(loaded)
    click.echo(render_findings(loaded, findings, style))
    return 0 if is_kept(findings) else 1


def find(loaded: LoadedPipeline, plan: Plan) -> list[Finding]:
    """All findings, in the order of the checks."""

    async def ask(target: StartTarget | StorageError) -> tuple[StartLook, list[Finding]]:
        look = await look_at_start(loaded, plan, target, PATIENCE_S)
        return look, await examine(loaded, plan, look, PATIENCE_S)

    look, findings = asyncio.run(with_target(loaded, NO_OPTIONS, ask))
    return [*judge_start([*look_around(loaded), *look.problems], findings), *findings]
