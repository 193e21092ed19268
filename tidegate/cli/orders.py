"""Orders to a running daemon, as the commands give them: where it listens, with which token, and what it answers."""

from __future__ import annotations

import http.client
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from tidegate.config.models import PipelineSettings
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.commands import JSON, Order, OrderRefused
from tidegate.daemon.order_token import find_token, read_token
from tidegate.daemon.status import Status
from tidegate.daemon.work_directory import temporary_directory
from tidegate.errors import UNDECODABLE, TidegateError

FILE: Final = click.argument("file", type=click.Path(path_type=Path))
HTTP: Final = click.option(
    "--http", "address", metavar="URL", help="Address of the daemon; default: http.host and http.port of FILE."
)
FORM: Final = click.option(
    "--format", "style", type=click.Choice(["text", "json"]), default="text", help="Form of the output."
)
OF: Final = click.option(
    "--of",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="An address is reached as `checkpoints.storage` of this pipeline file says, not as the environment does.",
)
TOKEN: Final = click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the command token; default: http.token_file of FILE, else the one that the daemon keeps here.",
)

Answer = TypeVar("Answer", bound=msgspec.Struct)

ANSWER_S: Final = 30.0
HTTP_PORT: Final = 80
"""Of an address without one."""


class DaemonUnreachable(TidegateError):
    """No daemon answers where this pipeline's should."""

    code = "daemon-unreachable"
    exit_code = 1
    retriable = True


class DaemonGone(DaemonUnreachable):
    """A daemon has taken the order, and hung up without an answer: it has ended, or is about to."""

    code = "daemon-gone"


class AnswerLate(TidegateError):
    """The daemon has the order, and no answer came in time."""

    code = "answer-late"
    exit_code = 1
    retriable = False


class OrderFailed(TidegateError):
    """The daemon has answered, but not done it."""

    code = "order-failed"
    exit_code = 1
    retriable = False


def derive_address(settings: PipelineSettings, given: str | None) -> str:
    """Where the daemon of a pipeline file listens, as seen from its own machine."""
    if given is not None:
        return given.rstrip("/")
    if settings.http.port == 0:
        raise click.UsageError("http.port is 0, so the port is in the daemon's log only: name it with --http URL")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.http.host, settings.http.host)  # noqa: S104 - compared
    return f"http://[{host}]:{settings.http.port}" if ":" in host else f"http://{host}:{settings.http.port}"


def find_order_token(settings: PipelineSettings, base: str, given: Path | None) -> str | None:
    """None when there is none to be found: then the daemon, if there is one, says what is missing."""
    named = given or (Path(settings.http.token_file) if settings.http.token_file is not None else None)
    if named is not None:
        return read_token(named)
    _, port = _host_and_port(base)
    return find_token(temporary_directory(), port or HTTP_PORT)


def ask_daemon(
    base: str, method: str, path: str, order: Order | None, timeout_s: float, token: str | None = None
) -> bytes:
    """Raises OrderFailed with the daemon's own words, DaemonUnreachable, and of orders that may have been taken
    AnswerLate (nothing came in time) and DaemonGone (it hung up).

    No proxy is asked: it is our own machine.
    """
    host, port = _host_and_port(base)
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    body = None if order is None else msgspec.json.encode(order)
    headers = {"Content-Type": JSON} if token is None else {"Content-Type": JSON, "Authorization": SCHEME + token}
    asked = False
    try:
        connection.request(method, path, body, headers)
        asked = True
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        if asked and order is not None and isinstance(error, TimeoutError):
            raise AnswerLate(
                f"the daemon at {base} has the order and has not answered for {timeout_s:,.0f} s; it may still carry "
                "it out: look at its log"
            ) from error
        if asked and order is not None:
            raise DaemonGone(f"the daemon at {base} has ended before it answered ({error}): look at its log") from error
        raise DaemonUnreachable(
            f"no daemon answers at {base} ({error}); is the pipeline running on this machine, and is this its "
            "http.host and http.port?"
        ) from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OrderFailed(_words(text) or f"HTTP status {answer.status}", status=answer.status)
    return text


def ask_status(settings: PipelineSettings, base: str) -> Status:
    """Raises as ask_daemon and decode_answer, and TokenFileRefused."""
    token = find_read_token(settings)
    return decode_answer(ask_daemon(base, "GET", "/status", None, ANSWER_S, token), Status, base)


def find_read_token(settings: PipelineSettings) -> str | None:
    """None where none is needed. Raises TokenFileRefused."""
    named = settings.http.read_token_file
    return None if named is None else read_token(Path(named))


def decode_answer(answer: bytes, kind: type[Answer], base: str) -> Answer:
    """Raises OrderFailed when something else than a daemon of this release answers."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except UNDECODABLE as error:
        raise OrderFailed(f"what answers at {base} is not a Tidegate daemon of this release: {error}") from error


def _host_and_port(base: str) -> tuple[str, int | None]:
    try:
        parts = urlsplit(base)
        if parts.scheme == "http" and parts.hostname is not None and not parts.path:
            return parts.hostname, parts.port
    except ValueError as error:
        raise click.UsageError(f"{base} is not the address of a daemon ({error}): write http://host:port") from error
    raise click.UsageError(f"{base} is not the address of a daemon: write http://host:port")


def _words(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=OrderRefused).message
    except UNDECODABLE:
        return body.decode(errors="replace").strip()[:200]
