"""Sends orders to a running daemon for the commands: finds its address and token and decodes its response."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path
from typing import Final, TypeVar

import click
import msgspec

from tidegate.cli.daemon_address import DaemonAddress
from tidegate.config.models import PipelineSettings
from tidegate.daemon.control_token import TokenFileRefused, find_token, read_token
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.commands import JSON, ControlRequest, Refusal
from tidegate.daemon.status import Status
from tidegate.errors import UNDECODABLE, TidegateError
from tidegate.spark.work_directory import temporary_directory

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
PROBE: Final = "/livez"
HUNG_UP: Final = (ConnectionResetError, BrokenPipeError)
"""BrokenPipeError occurs if the peer closed the connection before the request was sent."""


class DaemonUnreachable(TidegateError):
    """No daemon answers at this pipeline's address."""

    code = "daemon-unreachable"
    exit_code = 1
    retriable = True


class DaemonGone(DaemonUnreachable):
    """A daemon received the order and closed the connection without a response: it has exited, or is about to."""

    code = "daemon-gone"


class AnswerLate(TidegateError):
    """The daemon received the order, but no response arrived in time."""

    code = "answer-late"
    exit_code = 1
    retriable = False


class OrderFailed(TidegateError):
    """The daemon responded but did not carry out the order."""

    code = "order-failed"
    exit_code = 1
    retriable = False


def find_order_token(settings: PipelineSettings, reach: DaemonAddress, given: Path | None) -> str | None:
    """Returns the token for orders, or None if none is found. The daemon, if there is one, then reports what is
    missing.
    """
    if given is not None:
        return read_token(given)
    if settings.http.token_file is not None:
        return _read_named(settings.http.token_file, reach)
    return find_token(temporary_directory(), reach.port)


def _read_named(file: str, reach: DaemonAddress) -> str | None:
    """Returns the token from a file named in the pipeline file. The file is on the daemon's machine and readable by its
    user.

    Returns None if it cannot be read and a client certificate replaces it. Raises TokenFileRefused.
    """
    try:
        return read_token(Path(file))
    except TokenFileRefused:
        if reach.shows_certificate:
            return None
        raise


def ask_daemon(
    reach: DaemonAddress,
    method: str,
    path: str,
    order: ControlRequest | None,
    timeout_s: float,
    token: str | None = None,
) -> bytes:
    """Sends a request and returns the response body.

    Raises OrderFailed with the daemon's message and DaemonUnreachable. For orders that the daemon may have received, it
    raises AnswerLate (no response in time) and DaemonGone (connection closed).
    """
    connection = reach.connect(timeout_s)
    body = None if order is None else msgspec.json.encode(order)
    headers = {"Content-Type": JSON} if token is None else {"Content-Type": JSON, "Authorization": SCHEME + token}
    encrypted, proven, asked = reach.context is not None, False, False
    try:
        if encrypted and order is not None:
            # With TLS 1.3 a server rejects a certificate after our handshake. All that we may see is a closed
            # connection, which an exiting daemon also causes. Once the daemon has answered a probe, only an exit can be
            # the cause.
            connection.request("GET", PROBE)
            connection.getresponse().read()
            proven = True
        connection.request(method, path, body, headers)
        asked = True
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        if asked and order is not None and isinstance(error, TimeoutError):
            raise AnswerLate(
                f"the daemon at {reach} has the order and has not answered for {timeout_s:,.0f} s; it may still carry "
                "it out: look at its log"
            ) from error
        if encrypted and not proven and isinstance(error, (ssl.SSLError, *HUNG_UP)):
            raise DaemonUnreachable(f"no TLS with what listens at {reach} ({error}); {_tls_remedy(error)}") from error
        if order is not None and (asked or proven):
            raise DaemonGone(
                f"the daemon at {reach} has ended before it answered ({error}): look at its log"
            ) from error
        reason = getattr(error, "strerror", None) or error
        raise DaemonUnreachable(
            f"no daemon answers at {reach} ({reason}); is the pipeline running on this machine, and is this its "
            "http.host and http.port?"
        ) from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OrderFailed(_words(text) or f"HTTP status {answer.status}", status=answer.status)
    return text


def _tls_remedy(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "is its certificate of the authority of --ca, and has it the name that was called?"
    if isinstance(error, HUNG_UP) or "certificate" in str(error).lower():
        return "it may refuse the certificate that was shown: is it of http.tls.client_ca, and still valid?"
    return "does it speak TLS (http.tls of its pipeline file)?"


def ask_status(reach: DaemonAddress, token: str | None) -> Status:
    """Returns the daemon's status; accepts a read token or a token for orders. Raises the same errors as `ask_daemon`
    and `decode_answer`.
    """
    return decode_answer(ask_daemon(reach, "GET", "/status", None, ANSWER_S, token), Status, reach)


def ask_own_status(settings: PipelineSettings, reach: DaemonAddress, token: str | None) -> Status:
    """Like `ask_status`; also raises OrderFailed if the daemon runs another pipeline."""
    found = ask_status(reach, token)
    if found.pipeline != settings.name:
        raise OrderFailed(
            f"the daemon at {reach} runs pipeline {found.pipeline}, not {settings.name}", found=found.pipeline
        )
    return found


def find_read_token(settings: PipelineSettings, reach: DaemonAddress) -> str | None:
    """Returns the read token, or None if none is needed or none is found. Raises TokenFileRefused."""
    named, tls = settings.http.read_token_file, settings.http.tls
    if named is not None:
        return _read_named(named, reach)
    return find_order_token(settings, reach, None) if tls is not None and tls.client_ca is not None else None


def decode_answer(answer: bytes, kind: type[Answer], reach: DaemonAddress) -> Answer:
    """Decodes a response. Raises OrderFailed if it does not come from a daemon of this release."""
    try:
        return msgspec.json.decode(answer, type=kind)
    except UNDECODABLE as error:
        raise OrderFailed(f"what answers at {reach} is not a Tidegate daemon of this release: {error}") from error


def _words(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Refusal).message
    except UNDECODABLE:
        return body.decode(errors="replace").strip()[:200]
