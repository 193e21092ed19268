"""The options of commands that use a Kafka cluster without a pipeline file: --bootstrap and --kafka."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from tidegate.config.errors import PathProblem
from tidegate.config.properties import decide_kafka_problems, decide_login_problems, property_problem
from tidegate.config.values import InterpolationFailed, derive_interpolated

BROKER_PORT: Final = 9092
"""Default port of the development broker."""
DEFAULT_BOOTSTRAP: Final = f"127.0.0.1:{BROKER_PORT}"
BOOTSTRAP_VARIABLE: Final = "KAFKA_BOOTSTRAP"

Command = TypeVar("Command", bound=Callable[..., Any])


def cluster_options(command: Command) -> Command:
    """Adds both options. The command receives `bootstrap` (text) and `kafka` (texts NAME=VALUE)."""
    kafka = click.option(
        "--kafka",
        multiple=True,
        metavar="NAME=VALUE",
        help="A librdkafka property, for instance security.protocol=ssl; ${VAR} and ${file:/path} are replaced. May be "
        "repeated.",
    )
    bootstrap = click.option(
        "--bootstrap",
        default=DEFAULT_BOOTSTRAP,
        envvar=BOOTSTRAP_VARIABLE,
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT",
        help="Brokers; the default is where `tidegate broker` listens.",
    )
    return bootstrap(kafka(command))


def derive_written(bootstrap: str, kafka: tuple[str, ...]) -> dict[str, str]:
    """Returns the properties as written, including variables. Raises UsageError for anything that is not NAME=VALUE."""
    written = {"bootstrap.servers": bootstrap}
    for text in kafka:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"--kafka {text!r} is not NAME=VALUE, for example --kafka security.protocol=ssl")
        written[name.strip()] = value
    return written


def resolve_properties(written: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the properties for clients. Raises UsageError with everything that is wrong with them."""
    wrong: list[PathProblem] = []
    resolved: dict[str, str] = {}
    for name, text in written.items():
        try:
            resolved[name] = derive_interpolated(text, environ, _read_file).text
        except InterpolationFailed as error:
            wrong += [property_problem(name, message, remedy) for message, remedy in error.problems]
    wrong += decide_kafka_problems(resolved, "both")
    wrong += decide_login_problems(resolved) if not wrong else []
    if wrong:
        raise click.UsageError("\n".join(f"{one.path[-1]}: {one.message}; {one.remedy}".rstrip("; ") for one in wrong))
    return resolved


def _read_file(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")
