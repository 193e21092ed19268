"""Warns of certificates that have expired or will soon: the daemon's own, and those that it presents to others."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path as FilePath
from typing import Final

from tidegate.checks.findings import Finding, warn_of_start
from tidegate.clock import render_stamp
from tidegate.config.clusters import derive_clusters, place_of
from tidegate.config.fields.base import Path
from tidegate.config.models import PipelineSettings

SOON_MS: Final = 14 * 24 * 3600 * 1000
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0
"""The tag of the optional first field of a certificate."""
_TWO_DIGITS: Final = 0x17
"""The tag of a time whose year has two digits, from 1950 to 2049 (RFC 5280)."""


def check_certificates(settings: PipelineSettings, now_ms: int) -> Iterator[Finding]:
    """Warns of each certificate that the pipeline file names and that is valid for less than 14 more days.

    A file that cannot be read, or has no certificate, is refused where it is used, and skipped here.
    """
    for place, file in _named(settings):
        end_ms = None
        with suppress(OSError, ValueError):
            end_ms = read_end(FilePath(file).read_text("ascii", errors="replace"))
        if end_ms is not None and end_ms - now_ms < SOON_MS:
            what = "expired" if end_ms < now_ms else "expires"
            remedy = "renew it; a running daemon reads the new file by itself"
            yield warn_of_start(place, f"the certificate {file} {what} at {render_stamp(end_ms)}", remedy)


def _named(settings: PipelineSettings) -> Iterator[tuple[Path, str]]:
    """Yields the file of each certificate with its place."""
    if settings.http.tls is not None:
        yield ("http", "tls", "certificate"), settings.http.tls.certificate
    if settings.registry is not None and settings.registry.certificate is not None:
        yield ("registry", "certificate"), settings.registry.certificate
    for name, properties in derive_clusters(settings).items():
        if (file := properties.get("ssl.certificate.location")) is not None:
            yield (*place_of(name), "ssl.certificate.location"), file


def read_end(pem: str) -> int:
    """Returns the end of the validity of the first certificate in a PEM text, in ms since 1970.

    Python's `ssl` decodes only certificates of peers and of authorities. Raises ValueError if there is no certificate.
    """
    _, begin, rest = pem.partition(_BEGIN)
    der = ssl.PEM_cert_to_DER_cert(f"{begin}{rest.partition(_END)[0]}{_END}")
    try:
        _, at, _ = _element(der, 0)  # the certificate: what is signed, then the signature
        _, at, _ = _element(der, at)
        tag, _, end = _element(der, at)
        at = end if tag == _VERSION else at
        for _ in range(3):  # serial number, algorithm, issuer
            _, _, at = _element(der, at)
        _, at, _ = _element(der, at)  # validity: two times
        _, _, at = _element(der, at)
        tag, start, end = _element(der, at)
    except IndexError as error:
        raise ValueError("the certificate is cut off") from error
    text = der[start:end].decode("ascii")
    if tag == _TWO_DIGITS:
        text = f"{20 if text < '5' else 19}{text}"
    moment = datetime.datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=datetime.UTC)
    return int(moment.timestamp() * 1000)


def _element(der: bytes, at: int) -> tuple[int, int, int]:
    """Returns the tag of the DER element at a place, and where its contents start and end."""
    start, size = at + 2, der[at + 1]
    if size & 0x80:
        start += size & 0x7F
        size = int.from_bytes(der[at + 2 : start], "big")
    return der[at], start, start + size
