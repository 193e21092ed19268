"""`tidegate doctor FILE`: reports whether a deployment can keep its guarantee, and how to fix it otherwise.

The survey without a running pipeline is also that of `validate --connect`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import wrap
from typing import Any, Final

import click

from tidegate.checks.facts import StartTarget
from tidegate.checks.findings import (
    CHECKS,
    Finding,
    Severity,
    derive_exit_code,
    derive_problems,
    describe_subject,
    find_preventing,
    is_kept,
    prevent_by,
)
from tidegate.checks.machine import check_certificates
from tidegate.checks.pipeline_file import plan_file
from tidegate.checks.registry import Ask
from tidegate.checks.survey import survey
from tidegate.cli.control_client import ConnectOptions, ask_daemon, derive_reach, find_read_token
from tidegate.cli.options import FORM, PIPELINE_FILE
from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.errors import ConfigErrors, Problem, render_problems
from tidegate.config.fields.counts import render_count
from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.coordinator.entries import Writer
from tidegate.daemon.control_token import check_token_file
from tidegate.daemon.http.server import HttpUnavailable, explain_unavailable
from tidegate.daemon.http.tls import TlsRefused, make_context
from tidegate.daemon.kafka_clusters import open_clusters
from tidegate.daemon.preflight import StoredTarget, open_checkpoints
from tidegate.daemon.restore_point import NO_OPTIONS, StartOptions
from tidegate.daemon.services import Stores
from tidegate.errors import TidegateError
from tidegate.journal.journal import Journal
from tidegate.plan.graph import Plan
from tidegate.spark.work_directory import WorkDirectory
from tidegate.storage.base import StorageError


@click.command()
@PIPELINE_FILE
@FORM
@click.option(
    "--spark", is_flag=True, help="Also start a Spark session, and test the checkpoint directory from every slot."
)
def doctor(file: Path, style: str, spark: bool) -> int:
    """Examine the deployment that FILE describes: brokers, topics, permissions, this machine.

    The last line is the verdict. Exit code 0: the guarantee of FILE can be kept; 1: there is a problem; 2: FILE is
    wrong. Records, offsets and settings are not touched, and a running daemon is not affected.
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


PATIENCE_S: Final = 10.0
"""Timeout for brokers that do not answer. A start waits longer, because the brokers may also be starting."""
NEIGHBOUR_S: Final = 2.0


def find_problems(loaded: LoadedPipeline, plan: Plan, options: StartOptions = NO_OPTIONS) -> tuple[list[Problem], int]:
    """Find every problem, and the exit code of a start with these options."""
    strict = loaded.settings.strict
    findings = find_findings(loaded, plan, options, deep=strict)
    return derive_problems(loaded, findings), derive_exit_code(find_preventing(findings, strict=strict))


def find_findings(loaded: LoadedPipeline, plan: Plan, options: StartOptions, *, deep: bool) -> list[Finding]:
    """Survey the deployment with the options of a start."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # every failure becomes a finding with its place
    return asyncio.run(_survey(loaded, plan, options, deep=deep))


async def _survey(loaded: LoadedPipeline, plan: Plan, options: StartOptions, *, deep: bool) -> list[Finding]:
    known = check_this_machine(loaded)

    async def ask(target: StartTarget | StorageError) -> list[Finding]:
        return await survey(loaded, plan, target, PATIENCE_S, deep=deep, known=known)

    try:
        storage = open_checkpoints(loaded)
    except StorageError as error:
        return await ask(error)
    settings = loaded.settings
    kafka = open_clusters(settings, PATIENCE_S)
    reader, retained = Writer("reader", socket.gethostname(), os.getpid()), settings.checkpoints.retained
    journal = Journal(storage, reader, retained=retained, id_reserve=1, may_repeat=options.repeats_output)
    with ThreadPoolExecutor(1, "journal") as thread:
        try:
            stores = Stores(storage, journal, thread, kafka, open_storage=derive_opener(settings))
            return await ask(StoredTarget(stores, options))
        finally:
            await kafka.close()


def check_this_machine(loaded: LoadedPipeline) -> list[Finding]:
    """Check what a start needs of this machine: its port, a work directory, tokens, certificates."""
    findings, http = [], loaded.settings.http
    if (trouble := _port_trouble(loaded)) is not None:
        findings.append(prevent_by(("http", "port"), trouble))
    try:
        WorkDirectory().remove()
    except TidegateError as error:
        findings.append(prevent_by((), error))
    for option, named in (("token_file", http.token_file), ("read_token_file", http.read_token_file)):
        try:
            if named is not None:
                check_token_file(Path(named))
        except TidegateError as error:
            findings.append(prevent_by(("http", option), error))
    if http.tls is not None:
        try:
            make_context(http.tls)
        except TlsRefused as refused:
            findings.append(prevent_by(("http", "tls", str(refused.fields["option"])), refused))
    return [*findings, *check_certificates(loaded.settings, SYSTEM_CLOCK.now_ms())]


def _port_trouble(loaded: LoadedPipeline) -> HttpUnavailable | None:
    """Find out why the port is unavailable. A port that this pipeline's own daemon uses is not a problem."""
    host, port = loaded.settings.http.host, loaded.settings.http.port
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        if _is_own_daemon(loaded):
            return None
        return explain_unavailable(host, port, error)
    return None


def _is_own_daemon(loaded: LoadedPipeline) -> bool:
    try:
        reach = derive_reach(loaded.settings, ConnectOptions())
        token = find_read_token(loaded.settings, reach)
        about = json.loads(ask_daemon(reach, "GET", "/", None, NEIGHBOUR_S, token))
    except (TidegateError, ValueError):
        return False
    return isinstance(about, dict) and about.get("pipeline") == loaded.settings.name


WIDTH: Final = 118


def render_findings(loaded: LoadedPipeline, findings: Sequence[Finding], style: str) -> str:
    """Render findings as `text` or `json`, without secrets of the pipeline file."""
    if style == "json":
        return loaded.secrets(json.dumps(_document(loaded, findings), indent=2, ensure_ascii=False))
    return loaded.secrets("\n".join([*_table(loaded, findings), "", *_verdict(loaded, findings)]))


def _table(loaded: LoadedPipeline, findings: Sequence[Finding]) -> list[str]:
    """Render a line per finding, and for those that are not `ok` also the expected value and the remedy."""
    lines, last = [], ""
    for one in findings:
        title = CHECKS[one.check].title if one.check != last else ""
        last = one.check
        head = f"{one.severity.value:<8} {title:<22} "
        subject = describe_subject(loaded, one) or (loaded.display(one.place) if one.check == "start" else "")
        text = f"{subject}: {one.value}" if subject else one.value
        lines += _wrapped(head, text)
        if one.severity is not Severity.OK:
            lines += _wrapped(" " * len(head) + "should be: ", one.expected) if one.expected else []
            lines += [" " * len(head) + f"fix: {one.remedy}"] if one.remedy else []
    return lines


def _wrapped(head: str, text: str) -> list[str]:
    """Wrap a text. Commands are never wrapped, so that they can be copied."""
    first, *more = wrap(text, WIDTH - len(head), break_long_words=False, break_on_hyphens=False) or [""]
    return [head + first, *(" " * len(head) + line for line in more)]


def _verdict(loaded: LoadedPipeline, findings: Sequence[Finding]) -> list[str]:
    guarantee = loaded.settings.checkpoints.mode.replace("-", " ")
    problems = [one for one in findings if one.severity is Severity.PROBLEM]
    counted = render_count(sum(one.severity is Severity.WARNING for one in findings), "warning")
    if unknown := sum(one.severity is Severity.UNKNOWN for one in findings):
        counted += f", {unknown} unknown"
    if not problems:
        return [f"{guarantee}: yes ({counted})"]
    lines = [f"{guarantee}: no: {render_count(len(problems), 'problem')}, {counted}"]
    return [*lines, *(f"  {_title(loaded, one)}: {one.value}" for one in problems)]


def _title(loaded: LoadedPipeline, finding: Finding) -> str:
    subject = describe_subject(loaded, finding)
    return f"{finding.check} ({subject})" if subject else finding.check


def _document(loaded: LoadedPipeline, findings: Sequence[Finding]) -> dict[str, Any]:
    rows = []
    for one in findings:
        line, column = loaded.position(one.place)
        row = {name: getattr(one, name) for name in ("check", "value", "expected", "remedy", "subject", "cluster")}
        place = {"path": loaded.display(one.place), "line": line, "column": column}
        rows.append({**row, "severity": one.severity.value, "prevents_start": one.prevents_start, **place})
    return {
        "file": loaded.file,
        "pipeline": loaded.settings.name,
        "guarantee": loaded.settings.checkpoints.mode,
        "kept": is_kept(findings),
        "exactly_once": is_kept(findings) and loaded.settings.checkpoints.mode == "exactly-once",
        "findings": rows,
    }
