"""TLS properties of librdkafka as a context of Python's."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tidegate.kafka.errors import SinkRefused
from tidegate.kafka.tls import read_tls_context, uses_tls


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def names(context: ssl.SSLContext) -> list[str]:
    """Common names of the trusted authorities."""
    return [str(part[0][1]) for found in context.get_ca_certs() for part in found["subject"]]


@pytest.mark.parametrize(("protocol", "tls"), [("SSL", True), ("sasl_ssl", True), ("sasl_plaintext", False)])
def test_the_protocol_says_whether_there_is_tls(protocol: str, tls: bool) -> None:
    assert uses_tls({"security.protocol": protocol}) is tls
    assert not uses_tls({})


def test_certificates_and_host_names_are_checked_by_default(authority: Authority) -> None:
    context = read_tls_context({"ssl.ca.location": str(authority.file)})
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert names(context) == ["test authority"]


def test_host_names_are_checked_unless_switched_off(authority: Authority) -> None:
    given = {"ssl.ca.location": str(authority.file), "ssl.endpoint.identification.algorithm": "none"}
    context = read_tls_context(given)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_certificate_checks_can_be_switched_off() -> None:
    context = read_tls_context({"enable.ssl.certificate.verification": "false"})
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)


def test_an_authority_may_be_given_as_text(authority: Authority) -> None:
    assert names(read_tls_context({"ssl.ca.pem": authority.file.read_text()})) == ["test authority"]


def test_a_folder_of_authorities_is_taken(authority: Authority) -> None:
    read_tls_context({"ssl.ca.location": str(authority.file.parent)})


def test_a_client_certificate_is_taken_with_a_locked_key(authority: Authority) -> None:
    me = authority.sign("me", password="opensesame")
    given = {
        "ssl.ca.location": str(authority.file),
        "ssl.certificate.location": str(me.certificate),
        "ssl.key.location": str(me.key),
    }
    read_tls_context({**given, "ssl.key.password": "opensesame"})
    for wrong in ({}, {"ssl.key.password": "wrong"}):  # without a password nobody is asked for it
        with pytest.raises(SinkRefused, match=r"'ssl\.certificate\.location'.*is ssl\.key\.password right"):
            read_tls_context({**given, **wrong})


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_that_cannot_be_used_is_told_with_its_property(tmp_path: Path, text: str | None) -> None:
    place = tmp_path / "ca.pem"
    if text is not None:
        place.write_text(text)
    with pytest.raises(SinkRefused, match=r"'ssl\.ca\.location': .*ca\.pem cannot be used") as caught:
        read_tls_context({"ssl.ca.location": str(place)})
    assert caught.value.fields["property"] == "ssl.ca.location"
