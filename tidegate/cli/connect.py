"""Surveys a deployment for `validate --connect` and `doctor` without starting the pipeline."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tidegate.checks.facts import StartTarget
from tidegate.checks.findings import Finding, derive_exit_code, derive_problems, find_preventing, prevent_by
from tidegate.checks.survey import survey
from tidegate.cli.control_client import ask_daemon, find_read_token
from tidegate.cli.daemon_address import ConnectOptions, derive_reach
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.config.storages import derive_opener
from tidegate.coordinator.entries import Writer
from tidegate.daemon.control_token import check_token_file
from tidegate.daemon.http.server import HttpUnavailable, explain_unavailable
from tidegate.daemon.http.tls import TlsRefused, make_context
from tidegate.daemon.kafka_clusters import open_clusters
from tidegate.daemon.restore_point import NO_OPTIONS, StartOptions
from tidegate.daemon.start_target import StoredTarget, open_checkpoints
from tidegate.daemon.stores import Stores
from tidegate.errors import TidegateError
from tidegate.journal.journal import Journal
from tidegate.plan.graph import Plan
from tidegate.spark.work_directory import WorkDirectory
from tidegate.storage.base import StorageError

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
    for word, named in (("token_file", http.token_file), ("read_token_file", http.read_token_file)):
        try:
            if named is not None:
                check_token_file(Path(named))
        except TidegateError as error:
            findings.append(prevent_by(("http", word), error))
    if http.tls is not None:
        try:
            make_context(http.tls)
        except TlsRefused as refused:
            findings.append(prevent_by(("http", "tls", str(refused.fields["word"])), refused))
    return findings


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
