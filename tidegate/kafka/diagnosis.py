"""Diagnoses why a connection fails: connects step by step, as a client does, and reports the step that fails.

Kafka clients report only that the broker closed the connection, because a broker gives an unauthenticated client no
reason. Blocking; used after a connection has failed.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

import msgspec

from tidegate.errors import describe_cause
from tidegate.kafka.errors import PropertyRefused
from tidegate.kafka.oauth import TokenUnavailable, find_tokens, make_provider
from tidegate.kafka.properties import OAUTH, derive_client_arguments, is_scram
from tidegate.kafka.tls import read_tls_context, uses_tls

SERVERS_MAX: Final = 5
FRAME_BYTES_MAX: Final = 16 << 20
_SASL_UNSUPPORTED: Final = 33
_SASL_UNEXPECTED: Final = 34
_OTHER_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate that is for another host name or another address."""
_EXPIRED: Final = 10
"""OpenSSL's code for a certificate, of the host or of an authority above it, that is not valid any more."""
_ALERT: Final = "ALERT"
"""Part of the reason of a TLS error that the peer has sent. Other errors come from a broken connection."""
_VERDICT: Final = re.compile("ALERT_.*(CERTIFICATE|UNKNOWN_CA)")
"""An alert in the handshake may also concern versions and ciphers."""


class Obstacle(msgspec.Struct, frozen=True):
    """What prevents a connection. `property` is the Kafka property to correct; `final` means that waiting does not
    help.
    """

    text: str
    remedy: str
    property: str
    final: bool


class _Stopped(Exception):
    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle.text)
        self.obstacle = obstacle


def find_obstacle(kafka: Mapping[str, str], timeout_s: float) -> Obstacle | None:
    """Diagnoses as `diagnose` does, while files that properties name may be replaced: nothing is refused."""
    try:
        return diagnose(kafka, timeout_s)
    except PropertyRefused as refused:
        return Obstacle(refused.message, "put it right", str(refused.fields.get("property", "")), final=False)


def diagnose(kafka: Mapping[str, str], timeout_s: float) -> Obstacle | None:
    """Returns the worst obstacle to the first servers of `bootstrap.servers`, or None if one of them accepts the login.

    Waits at most `timeout_s` for each step. Raises PropertyRefused for properties that cannot be used.
    """
    arguments = derive_client_arguments(kafka)
    context = read_tls_context(kafka) if uses_tls(kafka) else None
    if arguments.get("sasl_mechanism") == OAUTH:
        try:
            find_tokens(kafka).token()
        except TokenUnavailable as error:
            text, remedy, named = (str(error.fields[name]) for name in ("text", "remedy", "property"))
            return Obstacle(text, remedy, named, final=bool(error.fields["final"]))
        arguments["sasl_oauth_token_provider"] = make_provider(kafka)
    servers = arguments["bootstrap_servers"]
    assert isinstance(servers, list)
    found: list[Obstacle] = []
    for server in servers[:SERVERS_MAX]:
        try:
            _enter(server, arguments, context, kafka.get("ssl.certificate.location", ""), timeout_s)
        except _Stopped as stopped:
            found.append(stopped.obstacle)
        else:
            return None
    return max(found, key=lambda obstacle: obstacle.final, default=None)


def _enter(
    server: str, arguments: Mapping[str, Any], context: ssl.SSLContext | None, certificate: str, timeout_s: float
) -> None:
    host, port = _split(server)
    protocol = str(arguments.get("security_protocol", "PLAINTEXT")).lower()
    with closing(_Way(server, protocol, certificate, _reach(server, host, port, timeout_s))) as way:
        if context is not None:
            way.secure(context, host)
        way.greet()
        if protocol.startswith("sasl"):
            way.log_in(host, arguments)
        way.ask()


def _split(server: str) -> tuple[str, int]:
    host, _, port = server.rpartition(":")
    return (host.strip("[]"), int(port)) if host and port.isdigit() else (server.strip("[]"), 9092)


def _reach(server: str, host: str, port: int, timeout_s: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout_s)
    except socket.gaierror as error:
        text, remedy = f"the host name `{host}` cannot be resolved here", "correct it, or the name service"
        raise _Stopped(Obstacle(text, remedy, "bootstrap.servers", final=False)) from error
    except OSError as error:
        text, remedy = f"{server}: {error.strerror or error}", "start the broker, or correct address and port"
        raise _Stopped(Obstacle(text, remedy, "bootstrap.servers", final=False)) from error


class _Way:
    """One connection attempt. Every step raises _Stopped."""

    def __init__(self, server: str, protocol: str, certificate: str, link: socket.socket) -> None:
        self._server = server
        self._protocol = protocol
        self._link = link
        self._certificate = certificate

    def close(self) -> None:
        """Closes the connection."""
        self._link.close()

    def secure(self, context: ssl.SSLContext, host: str) -> None:
        """Performs the TLS handshake."""
        try:
            self._link = context.wrap_socket(self._link, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message
            if error.verify_code in _OTHER_NAME:
                text, remedy = f"its certificate is for another name: {why}", "use a name that the certificate has"
                raise self._stop(text, remedy, "bootstrap.servers", final=True) from error
            if error.verify_code == _EXPIRED:
                text = f"its certificate, or that of its authority, is no longer valid: {why}"
                remedy = "renew it; if it is the authority's, name the new one with `ssl.ca.location` or `ssl.ca.pem`"
                raise self._stop(text, remedy, "ssl.ca.location", final=True) from error
            remedy = "name the certificate of its authority with `ssl.ca.location` (on every machine) or `ssl.ca.pem`"
            raise self._stop(f"its certificate is not trusted: {why}", remedy, "ssl.ca.location", final=True) from error
        except TimeoutError as error:
            raise self._silent() from error
        except OSError as error:
            if isinstance(error, ssl.SSLError) and _VERDICT.search(str(error.reason)):
                raise self._refused_certificate(error) from error
            text = f"no TLS handshake: {describe_cause(error)}"
            remedy = f"is this its port for TLS? `security.protocol` is `{self._protocol}`"
            raise self._stop(text, remedy, "security.protocol", final=False) from error

    def greet(self) -> None:
        """Sends ApiVersions, which a broker answers without authentication. After TLS this shows whether it accepts our
        certificate.
        """
        from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

        remedy = f"is this its port for `security.protocol: {self._protocol}`?"
        self._exchange(ApiVersionsRequest(), ApiVersionsResponse, 0, remedy)

    def log_in(self, host: str, arguments: Mapping[str, Any]) -> None:
        """Authenticates with SASL: agrees on the mechanism, then performs its exchange."""
        from kafka.net.sasl import get_sasl_mechanism
        from kafka.protocol.sasl import (
            SaslAuthenticateRequest,
            SaslAuthenticateResponse,
            SaslHandshakeRequest,
            SaslHandshakeResponse,
        )

        name, user = str(arguments.get("sasl_mechanism")), str(arguments.get("sasl_plain_username"))
        if is_scram(name):
            user = user.replace("=2C", ",").replace("=3D", "=")  # as it is written in the file
        remedy = f"is this its port for `security.protocol: {self._protocol}`?"
        answer = self._exchange(SaslHandshakeRequest(mechanism=name), SaslHandshakeResponse, 1, remedy)
        if answer.error_code == _SASL_UNSUPPORTED:
            offered = ", ".join(answer.mechanisms)
            raise self._stop(f"it does not accept `{name}`", f"it accepts {offered}", "sasl.mechanism", final=True)
        if answer.error_code == _SASL_UNEXPECTED:
            raise self._stop("this port does not accept logins (SASL)", remedy, "security.protocol", final=True)
        mechanism = get_sasl_mechanism(name)(host=host, **arguments)
        by_token = name == OAUTH
        refusal = f"it refuses the {'token' if by_token else f'user `{user}`'} ({name})"
        while not mechanism.is_done():
            request = SaslAuthenticateRequest(mechanism.auth_bytes())
            answer = self._exchange(request, SaslAuthenticateResponse, 1, "see the broker's log")
            if answer.error_code:
                text = f"{refusal}: {answer.error_message or answer.error_code}"
                if by_token:
                    remedy = "its issuer, audience, scope and key must be those that the broker expects"
                    raise self._stop(text, remedy, "sasl.mechanism", final=True)
                remedy = "correct `sasl.username`, `sasl.password` or `sasl.mechanism`"
                raise self._stop(text, remedy, "sasl.username", final=True)
            mechanism.receive(answer.auth_bytes)

    def ask(self) -> None:
        """Sends a request that needs a completed login."""
        from kafka.protocol.metadata import MetadataRequest, MetadataResponse

        remedy = f"does it require a user (SASL)? `security.protocol` is `{self._protocol}`"
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        self._exchange(request, MetadataResponse, 7, remedy)

    def _exchange(self, request: Any, answer: Any, version: int, remedy: str) -> Any:
        request.API_VERSION = version
        request.with_header(correlation_id=1, client_id="tidegate")
        frame = bytes(request.encode(header=True))
        try:
            self._send(len(frame).to_bytes(4, "big") + frame)
            size = int.from_bytes(self._read(4), "big")
            if size <= FRAME_BYTES_MAX:
                return answer.decode(self._read(size), version=version, header=True)
        except (struct.error, ValueError, LookupError):
            pass  # a response, but not to this request
        except TimeoutError as error:
            raise self._silent() from error
        except OSError as error:
            if isinstance(error, ssl.SSLError) and _ALERT in str(error.reason):
                raise self._refused_certificate(error) from error
            raise self._stop(
                f"it closes the connection: {describe_cause(error)}", remedy, "security.protocol", final=False
            ) from error
        raise self._stop("it does not speak Kafka's protocol", remedy, "security.protocol", final=False)

    def _send(self, data: bytes) -> None:
        try:
            self._link.sendall(data)
        except OSError:
            self._read(1)  # reads an alert that the broker sent before it closed the connection
            raise

    def _refused_certificate(self, error: ssl.SSLError) -> _Stopped:
        """Returns the obstacle for an alert about our certificate.

        With TLS 1.3 the alert arrives after the handshake.
        """
        if self._certificate:
            text = f"it does not accept the client certificate {self._certificate}: {describe_cause(error)}"
            remedy = "give one that its authority has signed and that is still valid"
            return self._stop(text, remedy, "ssl.certificate.location", final=True)
        text = f"it asks for a client certificate: {describe_cause(error)}"
        remedy = "set `ssl.certificate.location` and `ssl.key.location`"
        return self._stop(text, remedy, "security.protocol", final=True)

    def _silent(self) -> _Stopped:
        text = "it accepts connections but does not answer"
        remedy = f"it hangs or is overloaded, or its port is not for `security.protocol: {self._protocol}`"
        return self._stop(text, remedy, "security.protocol", final=False)

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._link.recv(count - len(data))
            if not more:
                raise ConnectionResetError("the connection was closed")
            data += more
        return data

    def _stop(self, text: str, remedy: str, name: str, *, final: bool) -> _Stopped:
        return _Stopped(Obstacle(f"{self._server}: {text}", remedy, name, final))
