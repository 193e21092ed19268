"""`tidegate broker`: the development broker in the foreground."""

from __future__ import annotations

import re
import signal
import tempfile
import threading
from pathlib import Path

import click

from tidegate.dev.broker import BrokerFailed, DevelopmentBroker
from tidegate.dev.topics.cluster import BROKER_PORT
from tidegate.errors import TidegateError

_TOPIC = re.compile(r"([A-Za-z0-9._-]{1,249}):([1-9][0-9]{0,3})")
_WATCH_S = 0.5


class TopicOption(click.ParamType[tuple[str, int]]):
    """`NAME:PARTITIONS` on the command line, as a pair."""

    name = "topic"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Returns the name and the number of partitions."""
        if isinstance(value, tuple):
            return value
        found = _TOPIC.fullmatch(value)
        if found is None:
            self.fail(f"{value!r} is not NAME:PARTITIONS, for example orders:4", param, ctx)
        return found[1], int(found[2])


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"Port on 127.0.0.1; 0 picks a free one. Default: the previous port of DIR, else {BROKER_PORT}.",
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Keep the data in this directory, and reuse it at the next start. Without this option, data is deleted at the "
    "end.",
)
@click.option(
    "--topic",
    "topics",
    type=TopicOption(),
    multiple=True,
    metavar="NAME:PARTITIONS",
    help="Create this topic unless it exists; may be repeated.",
)
def broker(port: int | None, directory: Path | None, topics: tuple[tuple[str, int], ...]) -> None:
    """Run a real single-node Kafka for development.

    Prints its address when it is ready, and runs until SIGINT or SIGTERM. The first run downloads Kafka (45 MB) into a
    cache. Not for production: one node, one copy, loopback only.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both signals request a clean stop
    try:
        if directory is not None:
            new = DevelopmentBroker.is_new(directory)
            chosen = (BROKER_PORT if new else 0) if port is None else port
            _run(DevelopmentBroker(directory, chosen), dict(topics))
        else:
            chosen = BROKER_PORT if port is None else port
            with tempfile.TemporaryDirectory(prefix="tidegate-broker-", ignore_cleanup_errors=True) as data:
                _run(DevelopmentBroker(Path(data), chosen), dict(topics))
    except KeyboardInterrupt:
        return
    except TidegateError as error:
        click.echo(f"Error: {error.message}", err=True)
        raise SystemExit(error.exit_code) from error
    except OSError as error:
        where = error.filename or directory or tempfile.gettempdir()
        remedy = "correct its permissions, or choose another by --dir (downloads: TIDEGATE_CACHE)"
        raise click.ClickException(f"{where} cannot be used: {error.strerror or error}; {remedy}") from error


def _run(server: DevelopmentBroker, topics: dict[str, int]) -> None:
    """Starts the broker, creates topics, prints the address and watches.

    Ends with KeyboardInterrupt, or with BrokerFailed if Kafka ends.
    """
    try:
        server.start()
        server.create_topics(topics, existing_ok=True)
        click.echo(server.bootstrap)
        never = threading.Event()
        while server.pid is not None:
            never.wait(_WATCH_S)
        raise BrokerFailed(f"the broker at {server.bootstrap} ended by itself: {server.explain_end()}")
    finally:
        server.stop()
