"""`validate --connect`: what a start would be refused for, asked without being one."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from tidegate.checks.start_problems import StartProblem, derive_exit_code
from tidegate.checks.start_target import StartTarget
from tidegate.checks.survey import check_start
from tidegate.cli.orders import ask_daemon, find_read_token
from tidegate.cli.reach import Given, derive_reach
from tidegate.config.errors import Problem
from tidegate.config.load import LoadedPipeline
from tidegate.config.storages import derive_opener
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.journal import Journal
from tidegate.daemon.choosing import NO_OPTIONS, StartOptions
from tidegate.daemon.http.server import HttpUnavailable, explain_unavailable
from tidegate.daemon.http.tls import TlsRefused, make_context
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.order_token import check_token_file
from tidegate.daemon.start_target import StoredTarget, open_checkpoints
from tidegate.daemon.stores import Stores
from tidegate.errors import TidegateError
from tidegate.plan.graph import Plan
from tidegate.settings.secrets import reveal
from tidegate.spark.work_directory import WorkDirectory
from tidegate.storage.base import StorageError

PATIENCE_S: Final = 10.0
"""For brokers that do not answer; a start has more, because they may be starting, too."""
NEIGHBOUR_S: Final = 2.0

T = TypeVar("T")


def find_problems(loaded: LoadedPipeline, plan: Plan, options: StartOptions = NO_OPTIONS) -> tuple[list[Problem], int]:
    """Every problem, and the exit code of a start with these options."""
    logging.getLogger("kafka").setLevel(logging.CRITICAL)  # every failure is a problem with its place

    def check(target: StartTarget | StorageError) -> Awaitable[list[StartProblem]]:
        return check_start(loaded, plan, target, PATIENCE_S)

    problems = [*look_around(loaded), *asyncio.run(with_target(loaded, options, check))]
    return [one.problem for one in problems], derive_exit_code(problems)


async def with_target(
    loaded: LoadedPipeline, options: StartOptions, ask: Callable[[StartTarget | StorageError], Awaitable[T]]
) -> T:
    """Answer `ask` about what a start with these options would continue from. The clients are closed afterwards."""
    settings = loaded.settings
    try:
        storage = open_checkpoints(loaded)
    except StorageError as error:
        return await ask(error)
    kafka = KafkaEdge(reveal(settings.kafka), connect_timeout_s=PATIENCE_S)
    reader, retained = Writer("reader", socket.gethostname(), os.getpid()), settings.checkpoints.retained
    journal = Journal(storage, reader, retained=retained, id_reserve=1, may_repeat=options.repeats_output)
    with ThreadPoolExecutor(1, "journal") as thread:
        try:
            stores = Stores(storage, journal, thread, kafka, open_storage=derive_opener(settings))
            return await ask(StoredTarget(stores, options))
        finally:
            await kafka.close()


def look_around(loaded: LoadedPipeline) -> list[StartProblem]:
    """What a start needs of this machine."""
    problems = []
    trouble = _port_trouble(loaded)
    if trouble is not None:
        problems.append(StartProblem(loaded.problem(("http", "port"), trouble.message), trouble.exit_code, trouble))
    try:
        WorkDirectory().remove()
    except TidegateError as error:
        problems.append(StartProblem(loaded.problem((), error.message), error.exit_code, error))
    for word in ("token_file", "read_token_file"):
        named = getattr(loaded.settings.http, word)
        try:
            if named is not None:
                check_token_file(Path(named))
        except TidegateError as error:
            problems.append(StartProblem(loaded.problem(("http", word), error.message), error.exit_code, error))
    if loaded.settings.http.tls is not None:
        try:
            make_context(loaded.settings.http.tls)
        except TlsRefused as refused:
            place = loaded.problem(("http", "tls", str(refused.fields["word"])), refused.message)
            problems.append(StartProblem(place, refused.exit_code, refused))
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
        reach = derive_reach(loaded.settings, Given())
        token = find_read_token(loaded.settings, reach)
        about = json.loads(ask_daemon(reach, "GET", "/", None, NEIGHBOUR_S, token))
    except (TidegateError, ValueError):
        return False
    return isinstance(about, dict) and about.get("pipeline") == loaded.settings.name
