"""What a list of servers says, and what brokers answer that are played; real ones: `tests/sinks/test_login.py`."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from tests.support.certificates import Authority
from tests.waiting import PATIENCE_S
from tidegate.kafka.diagnosis import Obstacle, _split, _Stopped, _Way
from tidegate.kafka.properties import derive_client_arguments


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
        (ssl_error(ssl.SSLError, "WRONG_VERSION_NUMBER"), False, "it closes the connection: WRONG_VERSION_NUMBER"),
        (ConnectionResetError(104, "reset by peer"), False, "it closes the connection: reset by peer"),
        (ConnectionResetError("it was closed"), False, "it closes the connection: it was closed"),
    ],
)
def test_only_an_alert_is_a_word_about_certificates(error: OSError, final: bool, text: str) -> None:
    """A broker that is killed, or a proxy without one, was said to ask for a certificate: code 2 at a start."""

    def recv(_: int) -> bytes:
        raise error

    link = SimpleNamespace(sendall=lambda _: None, recv=recv)
    way = _Way("kafka:9093", "ssl", "", cast("Any", link))
    with pytest.raises(_Stopped) as stopped:
        way.greet()
    assert (stopped.value.obstacle.property, stopped.value.obstacle.final) == ("security.protocol", final)
    assert text in stopped.value.obstacle.text


@contextlib.contextmanager
def served(serving: ssl.SSLContext, certificate: str) -> Iterator[_Way]:
    """To a server that shakes hands once, and hangs up."""
    link, accepted = socket.socketpair()
    link.settimeout(PATIENCE_S)

    def serve() -> None:
        with contextlib.suppress(OSError), serving.wrap_socket(accepted, server_side=True):
            pass

    with ThreadPoolExecutor(1) as thread:
        thread.submit(serve)
        with contextlib.closing(_Way("kafka:9093", "ssl", certificate, link)) as way:
            yield way


@pytest.mark.parametrize(
    ("trusted", "host", "named", "text"),
    [
        ("ours", "kafka.example", "bootstrap.servers", "its certificate is for another name: Hostname mismatch"),
        ("ours", "127.0.0.2", "bootstrap.servers", "its certificate is for another name: IP address mismatch"),
        ("others", "127.0.0.1", "ssl.ca.location", "its certificate is not trusted: unable to get local issuer"),
    ],
)
def test_a_certificate_of_the_broker_that_does_not_pass_is_told_with_its_property(
    tmp_path: Path, trusted: str, host: str, named: str, text: str
) -> None:
    authorities = {name: Authority(tmp_path / name, name) for name in ("ours", "others")}
    broker = authorities["ours"].sign("broker")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(broker.certificate, broker.key)
    client = ssl.create_default_context(cafile=str(authorities[trusted].file))
    with served(serving, "") as way, pytest.raises(_Stopped) as stopped:
        way.secure(client, host)
    obstacle = stopped.value.obstacle
    assert obstacle.text.startswith(f"kafka:9093: {text}")
    assert (obstacle.property, obstacle.final) == (named, True)


def test_a_certificate_that_has_expired_is_to_be_renewed() -> None:
    """It was said to be of an authority that is not named."""

    def wrap_socket(*_: object, **__: object) -> None:
        error = ssl.SSLCertVerificationError()
        error.verify_code, error.verify_message = 10, "certificate has expired"
        raise error

    way = _Way("kafka:9093", "ssl", "", cast("Any", SimpleNamespace()))
    with pytest.raises(_Stopped) as stopped:
        way.secure(cast("Any", SimpleNamespace(wrap_socket=wrap_socket)), "kafka")
    obstacle = stopped.value.obstacle
    assert obstacle.text.endswith("is no longer valid: certificate has expired")
    assert (obstacle.remedy.split(";")[0], obstacle.property, obstacle.final) == ("renew it", "ssl.ca.location", True)


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
    with served(serving, "me.pem") as way, pytest.raises(_Stopped) as stopped:
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


class Playing:
    """The link to a broker that gives these answers in turn, in small pieces; keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []
        self._said = b""

    def sendall(self, data: bytes) -> None:
        size, frame = int.from_bytes(data[:4], "big"), data[4:]
        assert len(frame) == size
        (kind,) = [one for one in KINDS if int.from_bytes(frame[:2], "big") == one.API_KEY]
        version = int.from_bytes(frame[2:4], "big")
        self.asked.append(kind.decode(frame, version=version, header=True))
        correlation = self.asked[-1].header.correlation_id.to_bytes(4, "big")
        said = correlation + bytes(self.answers.pop(0).encode(version=version))
        self._said += len(said).to_bytes(4, "big") + said

    def recv(self, count: int) -> bytes:
        taken = self._said[: min(count, 3)]
        self._said = self._said[len(taken) :]
        return taken


KINDS: list[Any] = [ApiVersionsRequest, SaslHandshakeRequest, SaslAuthenticateRequest, MetadataRequest]
PLAIN = {"sasl_mechanism": "PLAIN", "sasl_plain_username": "me", "sasl_plain_password": "opensesame"}
GREETED = ApiVersionsResponse(error_code=0, api_keys=[])
OFFERED = SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"])


def test_a_broker_that_lets_us_in_is_no_obstacle() -> None:
    """Asked in versions that every broker has, also one that is too old for everything else."""
    let_in = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"", session_lifetime_ms=0)
    known = MetadataResponse(throttle_time_ms=0, brokers=[], cluster_id="c", controller_id=1, topics=[])
    link = Playing(GREETED, OFFERED, let_in, known)
    way = _Way("kafka:9092", "sasl_plaintext", "", cast("Any", link))
    way.greet()
    way.log_in("kafka", PLAIN)
    way.ask()
    asked = [(type(one).__name__, one.header.request_api_version, one.header.client_id) for one in link.asked]
    assert asked == [
        ("ApiVersionsRequest", 0, "tidegate"),
        ("SaslHandshakeRequest", 1, "tidegate"),
        ("SaslAuthenticateRequest", 1, "tidegate"),
        ("MetadataRequest", 7, "tidegate"),
    ]
    assert link.asked[1].mechanism == "PLAIN"
    assert link.asked[2].auth_bytes.endswith(b"\0me\0opensesame")
    assert (link.asked[3].topics, link.asked[3].allow_auto_topic_creation) == ([], False)


@pytest.mark.parametrize(
    ("answers", "named", "words"),
    [
        (
            [SaslHandshakeResponse(error_code=33, mechanisms=["GSSAPI", "SCRAM-SHA-256"])],
            "sasl.mechanism",
            ("it does not accept `PLAIN`", "it accepts GSSAPI, SCRAM-SHA-256"),
        ),
        (
            [SaslHandshakeResponse(error_code=34, mechanisms=[])],
            "security.protocol",
            ("this port does not accept logins (SASL)", "is this its port for `security.protocol: sasl_plaintext`?"),
        ),
        (
            [OFFERED, SaslAuthenticateResponse(error_code=58, error_message="wrong", auth_bytes=b"")],
            "sasl.username",
            ("it refuses the user `me` (PLAIN): wrong", "correct `sasl.username`, `sasl.password` or `sasl.mechanism`"),
        ),
        (
            [OFFERED, SaslAuthenticateResponse(error_code=58, error_message=None, auth_bytes=b"")],
            "sasl.username",
            ("it refuses the user `me` (PLAIN): 58", "correct `sasl.username`, `sasl.password` or `sasl.mechanism`"),
        ),
    ],
)
def test_a_login_that_is_refused_is_told_with_its_property(
    answers: list[Any], named: str, words: tuple[str, str]
) -> None:
    way = _Way("kafka:9092", "sasl_plaintext", "", cast("Any", Playing(*answers)))
    with pytest.raises(_Stopped) as stopped:
        way.log_in("kafka", PLAIN)
    text, remedy = words
    assert stopped.value.obstacle == Obstacle(f"kafka:9092: {text}", remedy, named, final=True)


def test_a_scram_user_is_told_as_the_file_names_it() -> None:
    wrong = SaslAuthenticateResponse(error_code=58, error_message="wrong", auth_bytes=b"")
    link = Playing(OFFERED, wrong)
    way = _Way("kafka:9092", "sasl_plaintext", "", cast("Any", link))
    user = {"sasl.username": "a=b,c", "sasl.password": "opensesame"}
    given = {"bootstrap.servers": "kafka", "sasl.mechanism": "SCRAM-SHA-512", **user}
    with pytest.raises(_Stopped) as stopped:
        way.log_in("kafka", derive_client_arguments(given))
    assert link.asked[1].auth_bytes.startswith(b"n,,n=a=3Db=2Cc,r=")
    assert stopped.value.obstacle.text == "kafka:9092: it refuses the user `a=b,c` (SCRAM-SHA-512): wrong"


class Provider(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    def token(self) -> str:
        return "e30.e30.c2ln"


def test_a_token_that_is_refused_is_told_without_a_user() -> None:
    """There is nothing to correct in the file: the broker and the authority of the tokens do not agree."""
    wrong = SaslAuthenticateResponse(error_code=58, error_message="wrong", auth_bytes=b"")
    way = _Way("kafka:9092", "sasl_ssl", "", cast("Any", Playing(OFFERED, wrong)))
    with pytest.raises(_Stopped) as stopped:
        way.log_in("kafka", {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": Provider()})
    obstacle = stopped.value.obstacle
    assert obstacle.text == "kafka:9092: it refuses the token (OAUTHBEARER): wrong"
    assert (obstacle.property, obstacle.final) == ("sasl.mechanism", True)
    assert obstacle.remedy.startswith("its issuer, audience, scope and key")
