"""Sends requests to a running daemon for the commands: finds its address and token, connects, decodes its response.

The connection is plain HTTP, or TLS with the certificates of both ends.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import click
import msgspec

from tidegate.config.fields.types import can_be_host
from tidegate.config.models import PipelineSettings
from tidegate.daemon.control_token import TokenFileRefused, find_token, read_token
from tidegate.daemon.http.admission import SCHEME
from tidegate.daemon.http.commands import JSON, ControlRequest, Refusal
from tidegate.daemon.status import Status
from tidegate.errors import UNDECODABLE, TidegateError, describe_cause
from tidegate.spark.work_directory import temporary_directory

HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
"""Default ports of an address without one."""
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


class CertificateUnusable(TidegateError):
    """A file that the command needs for TLS cannot be used."""

    code = "certificate-unusable"
    exit_code = 2
    retriable = False


class ConnectOptions(NamedTuple):
    """The connection options of a command."""

    address: str | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None


class DaemonAddress(NamedTuple):
    """A daemon's address; `base` is `http://host:port` or `https://host:port`."""

    base: str
    context: ssl.SSLContext | None = None
    shows_certificate: bool = False
    """The client presents a certificate of the user, which may replace a token."""

    def __str__(self) -> str:
        return self.base

    @property
    def port(self) -> int:
        """The daemon's port."""
        return self._parts()[1]

    def connect(self, timeout_s: float) -> http.client.HTTPConnection:
        """Returns a connection that is not open yet. No proxy is used: the daemon is on this machine, or was named
        explicitly.
        """
        host, port = self._parts()
        if self.context is None:
            return http.client.HTTPConnection(host, port, timeout=timeout_s)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=self.context)

    def _parts(self) -> tuple[str, int]:
        wanted = ("http", HTTP_PORT) if self.context is None else ("https", HTTPS_PORT)
        try:
            parts = urlsplit(self.base)
            host = parts.hostname or ""
            if parts.scheme == wanted[0] and host and can_be_host(host) and not parts.path:
                return host, parts.port or wanted[1]
        except ValueError as error:
            raise click.UsageError(
                f"{self} is not the address of a daemon ({error}): write http://host:port"
            ) from error
        raise click.UsageError(f"{self} is not the address of a daemon: write http://host:port or https://host:port")


def http_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for connecting to the daemon, which the command receives as one argument `given`."""

    @click.option(
        "--http", "address", metavar="URL", help="Address of the daemon; default: http.host and http.port of FILE."
    )
    @click.option(
        "--ca",
        type=click.Path(path_type=Path),
        help="Authorities of the daemon's certificate (PEM); default: http.tls.certificate of FILE itself.",
    )
    @click.option("--certificate", type=click.Path(path_type=Path), help="Client certificate (PEM).")
    @click.option(
        "--key", type=click.Path(path_type=Path), help="Key of the client certificate; default: in the same file."
    )
    @wraps(command)
    def wrapped(
        *arguments: Any, address: str | None, ca: Path | None, certificate: Path | None, key: Path | None, **more: Any
    ) -> Any:
        return command(*arguments, given=ConnectOptions(address, ca, certificate, key), **more)

    return wrapped


def derive_reach(settings: PipelineSettings, given: ConnectOptions) -> DaemonAddress:
    """Derives the address of a pipeline's daemon as seen from its own machine, or as the options specify.

    Reads certificates. Raises CertificateUnusable.
    """
    base = _derive_base(settings) if given.address is None else given.address.rstrip("/")
    if base.startswith("https://"):
        return DaemonAddress(base, _make_context(settings, given), given.certificate is not None)
    if given.ca is not None or given.certificate is not None:
        raise click.UsageError(f"--ca and --certificate are for https://: {base} is not encrypted")
    return DaemonAddress(base)


def _derive_base(settings: PipelineSettings) -> str:
    if settings.http.port == 0:
        raise click.UsageError("http.port is 0, so only the daemon's log has the port: pass it with --http URL")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.http.host, settings.http.host)  # noqa: S104 - compared
    scheme = "http" if settings.http.tls is None else "https"
    return f"{scheme}://[{host}]:{settings.http.port}" if ":" in host else f"{scheme}://{host}:{settings.http.port}"


def _make_context(settings: PipelineSettings, given: ConnectOptions) -> ssl.SSLContext:
    """Trusts `--ca` and verifies the host name; without it, trusts the daemon's own certificate under any name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    tls = settings.http.tls
    if given.ca is not None:
        ca = given.ca
        _load(ca, "--ca", lambda: context.load_verify_locations(ca))
    elif tls is not None:
        own = Path(tls.certificate)
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        _load(own, "http.tls.certificate", lambda: context.load_verify_locations(cadata=_first_certificate(own)))
    else:
        context.load_default_certs()
    if given.certificate is not None:
        certificate, key = given.certificate, given.key
        _load(certificate, "--certificate", lambda: context.load_cert_chain(certificate, key, lambda: ""))
    return context


def _first_certificate(file: Path) -> str:
    """Returns the daemon's own certificate. The rest of the chain is skipped, because its authority may also sign for
    others.
    """
    text = file.read_text(encoding="ascii", errors="replace")
    if _BEGIN not in text or _END not in text:
        raise ValueError("it contains no certificate")
    return _BEGIN + text.partition(_BEGIN)[2].partition(_END)[0] + _END + "\n"


def _load(file: Path, what: str, step: Callable[[], object]) -> None:
    try:
        step()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise CertificateUnusable(
            f"{file} ({what}) cannot be used: {describe_cause(error)}; use a PEM file; keys must not be encrypted",
            file=str(file),
        ) from error


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


class DaemonLost(DaemonUnreachable):
    """A daemon received the order and closed the connection without a response: it has exited, or is about to."""

    code = "daemon-lost"


class AnswerTimeout(TidegateError):
    """The daemon received the order, but no response arrived in time."""

    code = "answer-timeout"
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
    raises AnswerTimeout (no response in time) and DaemonLost (connection closed).
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
            raise AnswerTimeout(
                f"the daemon at {reach} received the command but did not respond within {timeout_s:,.0f} s. It may "
                "still carry it out: see its log"
            ) from error
        if encrypted and not proven and isinstance(error, (ssl.SSLError, *HUNG_UP)):
            raise DaemonUnreachable(f"no TLS connection to {reach} ({error}); {_tls_remedy(error)}") from error
        if order is not None and (asked or proven):
            raise DaemonLost(f"the daemon at {reach} ended before it responded ({error}): see its log") from error
        reason = getattr(error, "strerror", None) or error
        raise DaemonUnreachable(
            f"no daemon answers at {reach} ({reason}); check that the pipeline runs on this machine, and `http.host` "
            "and `http.port`"
        ) from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise OrderFailed(_read_message(text) or f"HTTP status {answer.status}", status=answer.status)
    return text


def _tls_remedy(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            "check that --ca has the authority of its certificate, and that the certificate has the name that was "
            "called"
        )
    if isinstance(error, HUNG_UP) or "certificate" in str(error).lower():
        return (
            "it may have rejected the client certificate: check that http.tls.client_ca has its authority, and that "
            "it is still valid"
        )
    return "check that its pipeline file has `http.tls`"


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
            f"the daemon at {reach} runs pipeline {found.pipeline}, not {settings.name}: two files may have the same "
            "`http.port`; name the address of the right daemon with --http",
            found=found.pipeline,
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
        raise OrderFailed(f"the server at {reach} is not a Tidegate daemon of this release: {error}") from error


def _read_message(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=Refusal).message
    except UNDECODABLE:
        return body.decode(errors="replace").strip()[:200]
