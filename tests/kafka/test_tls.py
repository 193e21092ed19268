"""TLS properties of librdkafka as a context of Python's."""

from __future__ import annotations

import shutil
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.certificates import Authority, Identity
from tests.waiting import PATIENCE_S
from tidegate.daemon.http.tls import names_of
from tidegate.kafka.errors import KafkaRefused
from tidegate.kafka.tls import RenewedContext, read_tls_context, uses_tls


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
        with pytest.raises(KafkaRefused, match=r"'ssl\.certificate\.location'.*is ssl\.key\.password right"):
            read_tls_context({**given, **wrong})


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_that_cannot_be_used_is_told_with_its_property(tmp_path: Path, text: str | None) -> None:
    place = tmp_path / "ca.pem"
    if text is not None:
        place.write_text(text)
    with pytest.raises(KafkaRefused, match=r"'ssl\.ca\.location': .*ca\.pem cannot be used") as caught:
        read_tls_context({"ssl.ca.location": str(place)})
    assert caught.value.fields["property"] == "ssl.ca.location"


def shake_hands(client: RenewedContext, server: ssl.SSLContext) -> str:
    """The common name that the server sees; a connection of its own."""
    ours, theirs = socket.socketpair()

    def accept() -> str:
        with server.wrap_socket(theirs, server_side=True) as accepted:
            accepted.settimeout(PATIENCE_S)
            (name,) = names_of(accepted.getpeercert() or {}) - {"127.0.0.1"}
            return name

    with ThreadPoolExecutor(1) as thread:
        accepting = thread.submit(accept)
        with client.wrap_socket(ours, server_hostname="127.0.0.1"):
            return accepting.result(PATIENCE_S)


def serve(authority: Authority) -> ssl.SSLContext:
    """A broker that asks for a certificate of its authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = authority.sign("broker")
    context.load_cert_chain(own.certificate, own.key)
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_a_connection_has_the_files_as_they_are_now(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A daemon runs for longer than its certificate, and maybe than the brokers' authority."""
    former, later = (Authority(tmp_path / name, name) for name in ("former", "later"))
    given = {
        "ssl.ca.location": str(tmp_path / "ca.pem"),
        "ssl.certificate.location": str(tmp_path / "me.pem"),
        "ssl.key.location": str(tmp_path / "me-key.pem"),
    }

    def write(authority: Authority, me: Identity) -> None:
        for source, name in ((authority.file, "ca.pem"), (me.certificate, "me.pem"), (me.key, "me-key.pem")):
            shutil.copy(source, tmp_path / name)

    write(former, former.sign("me"))
    client, servers = RenewedContext(given), (serve(former), serve(later))
    assert shake_hands(client, servers[0]) == "me"

    write(later, Identity(later.sign("me too").certificate, former.sign("me").key))  # half of it is written
    assert shake_hands(client, servers[0]) == "me"
    assert "the former ones stay in use" in caplog.text

    write(later, later.sign("me too"))
    assert shake_hands(client, servers[1]) == "me too"


def test_a_handshake_holds_up_no_other_connection() -> None:
    """The client has one thread for all of them, and this broker does not answer."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    context = read_tls_context({"enable.ssl.certificate.verification": "false"})
    with theirs, context.wrap_socket(ours, do_handshake_on_connect=False) as link:
        with pytest.raises(ssl.SSLWantReadError):
            link.do_handshake()
