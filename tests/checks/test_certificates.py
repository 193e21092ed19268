"""Certificates that expire soon: of the daemon, for brokers and for the registry."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from tests.daemon.small_pipeline import pipeline
from tests.support.certificates import DAYS, Authority, Identity
from tidegate.checks.findings import Finding, Severity
from tidegate.checks.machine import SOON_MS, check_certificates, read_end
from tidegate.config.load import parse_pipeline

pytestmark = pytest.mark.slow
DAY_MS = 24 * 3600 * 1000


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> Identity:
    return Authority(tmp_path_factory.mktemp("authority")).sign("ours")


def warnings_at(certificate: Path, now_ms: int) -> list[Finding]:
    """Returns the findings about a pipeline that uses the certificate everywhere."""
    pair = f"certificate: {certificate}, key: {certificate}"
    more = f"http: {{tls: {{{pair}}}}}\nregistry: {{url: 'https://r:8081', {pair}}}\n"
    kafka = f"kafka:\n  ssl.certificate.location: {certificate}\n  ssl.key.location: {certificate}\n"
    loaded = parse_pipeline(pipeline().source.replace("kafka:\n", kafka) + more, "p.yaml", {})
    assert loaded.settings.registry is not None
    return list(check_certificates(loaded.settings, now_ms))


def test_the_end_is_that_of_the_first_certificate(identity: Identity) -> None:
    text = identity.text()  # its key comes first
    end_ms = read_end(text)
    assert end_ms - time.time() * 1000 == pytest.approx(DAYS * DAY_MS, abs=DAY_MS / 24)
    assert read_end(f"{text}another one\n") == end_ms


def test_a_certificate_is_warned_of_from_14_days_before_its_end(identity: Identity) -> None:
    end_ms = read_end(identity.text())
    assert warnings_at(identity.certificate, end_ms - SOON_MS) == []
    soon = warnings_at(identity.certificate, end_ms - SOON_MS + 1)
    assert [one.place for one in soon] == [
        ("http", "tls", "certificate"),
        ("registry", "certificate"),
        ("kafka", "ssl.certificate.location"),
    ]
    assert {one.severity for one in soon} == {Severity.WARNING}
    assert f"{identity.certificate} expires at 2" in soon[0].value
    assert f"{identity.certificate} expired at 2" in warnings_at(identity.certificate, end_ms + 1)[0].value


@pytest.mark.parametrize("text", ["", "no certificate", "cut off"])
def test_a_file_without_a_certificate_is_left_to_whoever_uses_it(text: str, identity: Identity, tmp_path: Path) -> None:
    if text == "cut off":
        der = ssl.PEM_cert_to_DER_cert(identity.certificate.read_text("ascii"))
        text = ssl.DER_cert_to_PEM_cert(der[:60])
    file = tmp_path / "file.pem"
    assert warnings_at(file, 1 << 62) == []
    file.write_text(text)
    assert warnings_at(file, 1 << 62) == []
