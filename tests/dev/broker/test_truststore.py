"""The bundled JVM trusts what Python trusts; a system's Java is left alone."""

from __future__ import annotations

import hashlib
import ssl
import struct
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tidegate.dev.broker import artifacts
from tidegate.dev.broker.artifacts import encode_trust_store, trust_options


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def trusted(authority: Authority) -> bytes:
    return ssl.PEM_cert_to_DER_cert(authority.file.read_text(encoding="ascii"))


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


def test_bundled_java_gets_what_python_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    monkeypatch.setattr(artifacts, "is_bundled", lambda _: True)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    options = trust_options(tmp_path / "bin" / "java", tmp_path)
    assert options[0] == f"-Djavax.net.ssl.trustStore={tmp_path / 'trust.jks'}"
    assert decode((tmp_path / "trust.jks").read_bytes()) == [trusted(authority)]


def test_bundled_java_gets_what_lies_in_a_directory_of_certificates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: Authority
) -> None:
    """Some builds of Python have nothing else: OpenSSL looks a certificate up there when it needs it."""
    places = tmp_path / "certs"
    places.mkdir()
    for name in ("0a1b2c3d.0", "0a1b2c3d.1", "company.pem"):
        (places / name).write_bytes(authority.file.read_bytes())
    (places / "ffffffff.0").write_text("nothing that anybody could trust")
    (places / "README").write_text("as it is")
    monkeypatch.setattr(artifacts, "is_bundled", lambda _: True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(places))
    assert trust_options(tmp_path / "bin" / "java", tmp_path)
    assert decode((tmp_path / "trust.jks").read_bytes()) == [trusted(authority)]


def test_where_python_trusts_nobody_the_bundled_java_keeps_its_own_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "is_bundled", lambda _: True)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    for place in (tmp_path / "none", tmp_path):
        monkeypatch.setenv("SSL_CERT_DIR", str(place))
        assert trust_options(tmp_path / "bin" / "java", tmp_path) == []
