"""`validate --connect`: what a start would be refused for, asked without being one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tidegate.cli.running import ask_daemon, derive_address
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.journal import Journal
from tidegate.daemon.choosing import StartOptions
from tidegate.daemon.http.server import HttpUnavailable, explain_unavailable
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.order_token import check_token_file
from tidegate.daemon.start.check import check_start, open_checkpoints
from tidegate.daemon.start.start_problems import StartProblem, StartRefused, derive_exit_code
from tidegate.daemon.stores import Stores
from tidegate.daemon.work_directory import WorkDirectory
from tidegate.errors import TidegateError
from tidegate.plan.graph import Plan
from tidegate.settings.secrets import reveal

PATIENCE_S: Final = 10.0
"""For brokers that do not answer; a start has more, because they may be starting, too."""
NEIGHBOUR_S: Final = 2.0


def find_problems(loaded: LoadedPipeline, plan: Plan) -> tuple[list[Problem], int]:
    """Every problem, and the exit code of a start."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # every failure is a problem with its place
    problems = [*_look_around(loaded), *asyncio.run(_ask(loaded, plan))]
    return [one.problem for one in problems], derive_exit_code(problems)


async def _ask(loaded: LoadedPipeline, plan: Plan) -> list[StartProblem]:
    settings = loaded.settings
    kafka = KafkaEdge(reveal(settings.kafka), connect_timeout_s=PATIENCE_S)
    try:
        storage = open_checkpoints(loaded)
    except StartRefused as refused:
        return [*refused.problems, *await check_start(loaded, plan, None, StartOptions(), PATIENCE_S)]
    reader = Writer("reader", socket.gethostname(), os.getpid())
    journal = Journal(storage, reader, retained=settings.checkpoints.retained, id_reserve=1)
    with ThreadPoolExecutor(1, "journal") as thread:
        try:
            stores = Stores(storage, journal, thread, kafka)
            return await check_start(loaded, plan, stores, StartOptions(), PATIENCE_S)
        finally:
            await kafka.close()


def _look_around(loaded: LoadedPipeline) -> list[StartProblem]:
    """What a start needs of this machine."""
    problems = []
    trouble = _port_trouble(loaded)
    if trouble is not None:
        problems.append(StartProblem(loaded.problem(("http", "port"), trouble.message), trouble.exit_code, trouble))
    try:
        WorkDirectory().remove()
    except TidegateError as error:
        problems.append(StartProblem(loaded.problem((), error.message), error.exit_code, error))
    named = loaded.settings.http.token_file
    try:
        if named is not None:
            check_token_file(Path(named))
    except TidegateError as error:
        problems.append(StartProblem(loaded.problem(("http", "token_file"), error.message), error.exit_code, error))
    return problems


def _port_trouble(loaded: LoadedPipeline) -> HttpUnavailable | None:
    """A port that the daemon of this very pipeline has is not a problem."""
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
        about = json.loads(ask_daemon(derive_address(loaded.settings, None), "GET", "/", None, NEIGHBOUR_S))
    except (TidegateError, ValueError):
        return False
    return isinstance(about, dict) and about.get("pipeline") == loaded.settings.name
