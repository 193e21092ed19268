"""What a list of servers says; the rest of the diagnosis needs somebody to talk to (`test_login.py`)."""

from __future__ import annotations

import contextlib
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.certificates import Authority
from tests.waiting import PATIENCE_S
from tidegate.kafka.diagnosis import _split, _Stopped, _Way


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("kafka-1:9094", ("kafka-1", 9094)),
        ("kafka-1", ("kafka-1", 9092)),
        ("[::1]:9094", ("::1", 9094)),
        ("[::1]", ("::1", 9092)),
        ("kafka:nine", ("kafka:nine", 9092)),
    ],
)
def test_an_address_is_a_host_and_a_port_that_may_be_left_out(server: str, address: tuple[str, int]) -> None:
    assert _split(server) == address


def ssl_error(kind: type[ssl.SSLError], reason: str) -> ssl.SSLError:
    error = kind(1, reason)
    error.reason = reason
    return error


@pytest.mark.parametrize(
    ("error", "final", "text"),
    [
        (ssl_error(ssl.SSLError, "TLSV13_ALERT_CERTIFICATE_REQUIRED"), True, "it asks for a client certificate"),
        (ssl_error(ssl.SSLEOFError, "UNEXPECTED_EOF_WHILE_READING"), False, "it closes the connection"),
        (ssl_error(ssl.SSLZeroReturnError, ""), False, "it closes the connection"),
        (ssl_error(ssl.SSLError, "WRONG_VERSION_NUMBER"), False, "it closes the connection"),
    ],
)
def test_only_an_alert_is_a_word_about_certificates(error: ssl.SSLError, final: bool, text: str) -> None:
    """A broker that is killed, or a proxy without one, was said to ask for a certificate: code 2 at a start."""

    def recv(_: int) -> bytes:
        raise error

    link = SimpleNamespace(sendall=lambda _: None, recv=recv)
    way = _Way("kafka:9093", "ssl", "", cast("Any", link))
    with pytest.raises(_Stopped) as stopped:
        way.greet()
    assert stopped.value.obstacle.final is final
    assert text in stopped.value.obstacle.text


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_is_not_accepted_is_named(tmp_path: Path, version: ssl.TLSVersion) -> None:
    """With TLS 1.2 the verdict comes in the handshake: it was said that the port may be another one's."""
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others", "others")
    broker, stranger = ours.sign("broker"), others.sign("stranger")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.maximum_version = version
    serving.load_cert_chain(broker.certificate, broker.key)
    serving.load_verify_locations(ours.file)
    serving.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(ours.file))
    client.load_cert_chain(stranger.certificate, stranger.key)
    link, accepted = socket.socketpair()
    link.settimeout(PATIENCE_S)

    def serve() -> None:
        with contextlib.suppress(OSError), serving.wrap_socket(accepted, server_side=True):
            pass

    with ThreadPoolExecutor(1) as thread:
        thread.submit(serve)
        way = _Way("kafka:9093", "ssl", "me.pem", link)
        with pytest.raises(_Stopped) as stopped, contextlib.closing(way):
            way.secure(client, "127.0.0.1")
            way.greet()
    obstacle = stopped.value.obstacle
    assert "it does not accept the client certificate me.pem: TLSV1_ALERT_UNKNOWN_CA" in obstacle.text
    assert (obstacle.property, obstacle.final) == ("ssl.certificate.location", True)


@pytest.mark.parametrize("answer", [b"\0\0\0\0", b"\0\0\0\4\0\0\0\1", b"HTTP/1.1 400 Bad Request\r\n\r\n"])
def test_what_is_no_answer_of_kafka_is_called_that(answer: bytes) -> None:
    """Short ones were a traceback."""
    left = bytearray(answer)

    def recv(count: int) -> bytes:
        taken = bytes(left[:count])
        del left[:count]
        return taken

    way = _Way("other:9092", "plaintext", "", cast("Any", SimpleNamespace(sendall=lambda _: None, recv=recv)))
    with pytest.raises(_Stopped) as stopped:
        way.greet()
    assert stopped.value.obstacle.text == "other:9092: it does not speak Kafka's protocol"
    assert not stopped.value.obstacle.final
