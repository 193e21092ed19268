"""Translates librdkafka's TLS properties to a Python SSL context for the client that ends transactions. Reads the
files.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import socket
from typing import Any, Final

from tidegate.errors import describe_cause
from tidegate.kafka.errors import PropertyRefused
from tidegate.storage.stamps import Renewed, stamp_files

logger = logging.getLogger(__name__)

RENEWAL_S: Final = 10.0
"""Grace period while files are replaced one after the other. Until then a certificate may not match its key."""
_FILES: Final = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location")


def uses_tls(kafka: Mapping[str, str]) -> bool:
    """Returns whether `security.protocol` enables TLS."""
    return kafka.get("security.protocol", "").lower().endswith("ssl")


def read_tls_context(kafka: Mapping[str, str]) -> ssl.SSLContext:
    """Creates an SSL context. Certificates and host names are verified by default, as in librdkafka. Raises
    PropertyRefused.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _ClosingSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verify = kafka.get("enable.ssl.certificate.verification", "true").lower() == "true"
    context.check_hostname = verify and kafka.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    _trust(context, kafka)
    certificate, key = kafka.get("ssl.certificate.location"), kafka.get("ssl.key.location")
    if certificate is not None:
        password = kafka.get("ssl.key.password", "")  # never None: OpenSSL would prompt on the terminal
        load: Callable[[], None] = lambda: context.load_cert_chain(certificate, key, lambda: password)  # noqa: E731  # one of several steps
        _load(load, "ssl.certificate.location", f"{certificate} with the key {key}")
    return context


def names_tls_files(kafka: Mapping[str, str]) -> bool:
    """Returns whether the properties name TLS files, which a new client reads."""
    return not kafka.keys().isdisjoint(_FILES)


def stamp_tls_files(kafka: Mapping[str, str]) -> object:
    """Returns a stamp that changes when a file that the properties name has changed."""
    return stamp_files(kafka[name] for name in _FILES if name in kafka)


class RenewedContext:
    """A context for kafka-python that reads the current TLS files for every new connection.

    If they cannot be used, for instance because they are half written, the previous ones remain in use. Raises
    PropertyRefused.
    """

    def __init__(self, kafka: Mapping[str, str]) -> None:
        files = map(kafka.get, _FILES)
        self._context = Renewed(files, lambda: read_tls_context(kafka), lambda text: logger.warning("%s", text))

    def wrap_socket(self, sock: socket, **how: Any) -> ssl.SSLSocket:
        """Wraps a socket with the current context, as `ssl.SSLContext.wrap_socket` does."""
        return self._context.get().wrap_socket(sock, **how)


class _ClosingSocket(ssl.SSLSocket):
    """A socket that is closed when its handshake fails; kafka-python leaves that to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except BaseException:
            self.close()
            raise


def _trust(context: ssl.SSLContext, kafka: Mapping[str, str]) -> None:
    """Loads the configured certificate authorities, or those of this machine."""
    place, text, revoked = (kafka.get(f"ssl.{name}") for name in ("ca.location", "ca.pem", "crl.location"))
    if place is not None and place != "probe":
        folder = Path(place).is_dir()
        _load(
            lambda: context.load_verify_locations(None if folder else place, place if folder else None),
            "ssl.ca.location",
            place,
        )
    if text is not None:
        _load(lambda: context.load_verify_locations(cadata=text), "ssl.ca.pem", "its text")
    if text is None and place in (None, "probe"):
        context.load_default_certs()
    if revoked is not None:
        _load(lambda: context.load_verify_locations(revoked), "ssl.crl.location", revoked)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load(step: Callable[[], None], name: str, what: str) -> None:
    try:
        step()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        text = f"{what} cannot be used: {describe_cause(error)}"
        hint = "is ssl.key.password right? " if name == "ssl.certificate.location" else ""
        remedy = f"{hint}it must be PEM, and readable on every machine that the pipeline runs on"
        message = f"kafka property {name!r}: {text}; {remedy}"
        raise PropertyRefused(message, text=text, remedy=remedy, property=name) from error
