"""TLS of the HTTP port: the daemon's certificate, the handshake, and the identity of a client. Reads files.

A connection counts before its handshake, not after it, so those that never complete one are closed like others.
`admission.py` decides what a client may do.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from aiohttp import web

from tidegate.config.deployment import HttpTlsSettings
from tidegate.daemon.http.admission import HttpClientIdentity, is_own_machine
from tidegate.daemon.http.connection_limiter import ConnectionLease, Places
from tidegate.errors import TidegateError, describe_cause
from tidegate.process.repeated_messages import Complaints
from tidegate.storage.stamps import Renewed

LOOK_S: Final = 10.0
"""Interval between checks of the files: certificates are replaced while a daemon runs for years."""
_SUBJECT_NAMES: Final = frozenset({"DNS", "URI"})


class TlsRefused(TidegateError):
    """Certificate, key or authorities of `http.tls` cannot be used; `option` is the option at fault."""

    code = "http-tls-refused"
    exit_code = 2
    retriable = False


class ServerTls:
    """The context of new connections, created again when a file has changed. The constructor raises TlsRefused."""

    def __init__(
        self, settings: HttpTlsSettings, complaints: Complaints, elapsed: Callable[[], float] = time.monotonic
    ) -> None:
        self._settings = settings
        self._elapsed = elapsed
        self._checked_at = elapsed()
        files = (settings.certificate, settings.key, settings.client_ca)
        self._renewed = Renewed(files, lambda: make_context(settings), complaints.report)
        self._context = self._renewed.get()

    @property
    def asks_clients(self) -> bool:
        """True if clients may have certificates, so that everything except probes requires one, or a token."""
        return self._settings.client_ca is not None

    def context(self) -> ssl.SSLContext:
        """Returns the context for the files as of at most LOOK_S ago.

        If new files cannot be used, the old ones stay in use.
        """
        if self._elapsed() - self._checked_at >= LOOK_S:
            self._checked_at = self._elapsed()
            self._context = self._renewed.get()
        return self._context

    def roles(self, certificate: Mapping[str, Any] | None) -> Roles:
        """Returns what the holder of a certificate may do. The handshake has verified the certificate."""
        if not certificate:
            return Roles()
        names = names_of(certificate)
        operates = bool(names & set(self._settings.operate or ()))
        reads = self._settings.read is None or bool(names & set(self._settings.read))
        return Roles(reads or operates, operates, min(names, default="a certificate without a name"))


class Roles(msgspec.Struct, frozen=True):
    """The permissions that a client's certificate grants; none by default."""

    reads: bool = False
    operates: bool = False
    name: str = ""
    """The name for the log."""


def make_context(settings: HttpTlsSettings) -> ssl.SSLContext:
    """Creates a context. Raises TlsRefused with the option and the file.

    Client certificates are requested but not required, because probes have none.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for option in ("certificate", "key", "client_ca"):
        file = getattr(settings, option)
        if file is not None:
            _try(option, file, Path(file).stat, "name a file that the daemon's user can read")
    scratch = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _try(
        "certificate",
        settings.certificate,
        lambda: scratch.load_verify_locations(settings.certificate),
        "it must be the daemon's certificate in PEM, with the chain to its authority",
    )
    _try(
        "key",
        settings.key,
        lambda: context.load_cert_chain(settings.certificate, settings.key, lambda: ""),
        f"it must be the key of {settings.certificate} in PEM, not encrypted",
    )
    if settings.client_ca is not None:
        authorities = settings.client_ca
        _try("client_ca", authorities, lambda: context.load_verify_locations(authorities), "use PEM certificates")
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def names_of(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Returns the common names, DNS names and URIs of a certificate, as decoded by Python's ssl."""
    common = {value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"}
    return frozenset(
        common | {value for name, value in certificate.get("subjectAltName", ()) if name in _SUBJECT_NAMES}
    )


def _try(option: str, file: str, step: Callable[[], object], remedy: str) -> None:
    try:
        step()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        message = f"{file} (http.tls.{option}) cannot be used: {describe_cause(error)}; {remedy}"
        raise TlsRefused(message, option=option) from error


def find_caller(request: web.Request, tls: ServerTls | None) -> tuple[HttpClientIdentity, str]:
    """Returns the client, and the name of its certificate for the log, if it has one."""
    transport = request.transport
    if transport is None:
        return HttpClientIdentity(own_machine=False), ""
    own_machine = is_own_machine(transport.get_extra_info("peername"), transport.get_extra_info("sockname"))
    if tls is None:
        return HttpClientIdentity(own_machine), ""
    roles: Roles = tls.roles(transport.get_extra_info("peercert"))
    return HttpClientIdentity(own_machine, True, roles.reads, roles.operates), roles.name


SHUTDOWN_S: Final = 1.0
"""How long to wait for the peer's close notification."""


class TlsHandshake(asyncio.Protocol):
    """One connection until its handshake is done; then its lease takes over.

    Data that arrives together with the end of the handshake is kept for the lease, because it may be a whole request.
    """

    def __init__(
        self, place: ConnectionLease, places: Places, context: ssl.SSLContext, shaking: set[asyncio.Task[None]]
    ) -> None:
        self._place = place
        self._places = places
        self._context = context
        self._shaking = shaking
        self._early: list[bytes] = []
        self._ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Registers the connection and starts the handshake (asyncio callback)."""
        raw = cast("asyncio.Transport", transport)
        raw.pause_reading()
        if self._place.enter(raw):
            task = asyncio.get_running_loop().create_task(self._shake(raw))
            self._shaking.add(task)
            task.add_done_callback(self._shaken)

    def data_received(self, data: bytes) -> None:
        """Keeps data that arrives early (asyncio callback)."""
        self._early.append(data)

    def eof_received(self) -> bool | None:
        """Notes that the client has closed its side, so it gets no response (asyncio callback)."""
        self._ended = True
        return None

    def connection_lost(self, _exc: Exception | None) -> None:
        """Notes that the connection has ended (asyncio callback)."""
        self._ended = True

    def _shaken(self, task: asyncio.Task[None]) -> None:
        """Frees the connection of a handshake that was cancelled, possibly before its first step."""
        self._shaking.discard(task)
        if task.cancelled():
            self._place.close()

    async def _shake(self, raw: asyncio.Transport) -> None:
        try:
            encrypted = await asyncio.get_running_loop().start_tls(
                raw,
                self,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._places.head_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:  # from TLS, the connection, or a timeout
            reason = getattr(error, "reason", None) or type(error).__name__
            self._places.complaints.report(f"a TLS handshake of HTTP failed: {reason}")
            self._place.close()
            return
        if encrypted is None or self._ended:
            self._place.close()
            return
        encrypted.set_protocol(self._place)
        self._place.connection_made(encrypted)
        for data in self._early:
            self._place.data_received(data)
