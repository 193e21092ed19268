"""Checks whether a Spark session can be created with the installed Spark, Java and Python, without starting anything.

It also checks whether executors on other machines could reach the daemon.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from tidegate.checks.findings import Finding, prevent_by, prevent_start, warn_of_start
from tidegate.config.encryption import leaves_machine
from tidegate.config.fields.base import Path
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import LoadedPipeline
from tidegate.spark.java import JavaMissing, find_java, read_java_version
from tidegate.spark.master import DRIVER_HOST, find_driver_host
from tidegate.spark.versions import (
    RuntimeProblem,
    decide_language_problems,
    decide_spark_problem,
    here,
    read_python,
    read_spark,
)

_PYTHON = "spark.pyspark.python"


def find_runtime_problems(loaded: LoadedPipeline) -> list[Finding]:
    """Find what would keep Spark from starting. The slots' interpreter is run, if it is on this machine."""
    spark = read_spark()
    problem = decide_spark_problem(spark, os.environ)
    if problem is not None:
        return [_place(loaded, problem)]
    try:
        java = read_java_version(find_java())
    except JavaMissing as error:
        return [prevent_by(("spark",), error)]
    program = reveal(loaded.settings.spark).get(_PYTHON) or os.environ.get("PYSPARK_PYTHON", "")
    workers = read_python(program) if program and loaded.settings.spark_master.startswith("local") else ""
    found = [_place(loaded, one) for one in decide_language_problems(spark.library, java, here(), workers)]
    return [*found, *find_address_problems(loaded)]


def find_address_problems(
    loaded: LoadedPipeline, resolve: Callable[[str], str] = socket.gethostbyname
) -> list[Finding]:
    """Judge the daemon's address that executors receive.

    An IPv6 address prevents a start, because daemon and slots listen on IPv4. An address that means the executor's own
    machine is a warning, because all executors may run on this machine.
    """
    master, properties = loaded.settings.spark_master, reveal(loaded.settings.spark)
    host = find_driver_host(master, properties, resolve)
    if ":" in host:
        found = f"executors cannot reach the daemon: `{DRIVER_HOST}` is {host}, and daemon and slots use IPv4"
        remedy = "set it to an IPv4 address of this machine, or a name that has one"
        return [prevent_start(("spark", DRIVER_HOST), found, remedy)]
    if not leaves_machine(master) or not host.startswith("127."):
        return []
    given = DRIVER_HOST in properties
    why = "is" if given else f"is not set, and the name of this machine ({socket.gethostname()}) means"
    place: Path = ("spark", DRIVER_HOST) if given else ("spark",)
    found = f"executors on other machines cannot reach the daemon: `{DRIVER_HOST}` {why} {host}"
    return [warn_of_start(place, found, f"set `{DRIVER_HOST}` to an IPv4 address of this machine that they reach")]


def _place(loaded: LoadedPipeline, problem: RuntimeProblem) -> Finding:
    path: Path = ("spark", problem.name) if problem.name in loaded.settings.spark else ("spark",)
    return prevent_start(path, problem.message, problem.remedy)
