"""The address of a running daemon and how to connect to it: plain HTTP, or TLS with the certificates of both ends."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import click

from tidegate.config.fields.hosts import can_be_host
from tidegate.config.models import PipelineSettings
from tidegate.errors import TidegateError

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
    @click.option("--certificate", type=click.Path(path_type=Path), help="Certificate to show to the daemon (PEM).")
    @click.option("--key", type=click.Path(path_type=Path), help="Its key; default: in the same file.")
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
        raise click.UsageError("http.port is 0, so the port is in the daemon's log only: name it with --http URL")
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
        raise ValueError("it holds no certificate")
    return _BEGIN + text.partition(_BEGIN)[2].partition(_END)[0] + _END + "\n"


def _load(file: Path, what: str, step: Callable[[], object]) -> None:
    try:
        step()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise CertificateUnusable(
            f"{file} ({what}) cannot be used: {reason}; name a PEM file, keys not encrypted", file=str(file)
        ) from error
