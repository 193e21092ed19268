"""The bundled JVM trusts what Python trusts; a system's Java is left alone."""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

import pytest

from tidegate.dev.broker import truststore
from tidegate.dev.broker.truststore import encode_trust_store, trust_options


def decode(store: bytes) -> list[bytes]:
    """The certificates of a JKS file, as the JDK reads it: header, entries, checksum over all of it."""
    magic, version, count = struct.unpack_from(">III", store)
    assert (magic, version) == (0xFEEDFEED, 2)
    offset, certificates = 12, []

    def take(form: str) -> int:
        nonlocal offset
        (value,) = struct.unpack_from(form, store, offset)
        offset += struct.calcsize(form)
        return int(value)

    def take_bytes(size: int) -> bytes:
        nonlocal offset
        offset += size
        return store[offset - size : offset]

    for number in range(count):
        assert take(">I") == 2
        assert take_bytes(take(">H")) == f"ca{number}".encode()
        take(">Q")
        assert take_bytes(take(">H")) == b"X.509"
        certificates.append(take_bytes(take(">I")))
    checked = "changeit".encode("utf-16-be") + b"Mighty Aphrodite" + store[:offset]
    assert store[offset:] == hashlib.sha1(checked).digest()
    return certificates


def test_store_holds_the_certificates_in_order() -> None:
    assert decode(encode_trust_store([b"one", b"", b"three"])) == [b"one", b"", b"three"]


def test_system_java_keeps_its_own_trust(tmp_path: Path) -> None:
    assert trust_options(tmp_path / "bin" / "java", tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_bundled_java_gets_what_python_trusts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(truststore, "is_bundled", lambda _: True)
    options = trust_options(tmp_path / "bin" / "java", tmp_path)
    trusted = ssl.create_default_context().get_ca_certs(binary_form=True)
    if trusted:
        assert options[0] == f"-Djavax.net.ssl.trustStore={tmp_path / 'trust.jks'}"
        assert decode((tmp_path / "trust.jks").read_bytes()) == trusted
    else:
        assert options == []
