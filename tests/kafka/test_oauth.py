"""Logging in by tokens (OAUTHBEARER with OIDC): both clients, at a real broker that checks the tokens by itself."""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import confluent_kafka as ck
import pytest
from kafka.errors import KafkaConnectionError

from tests.support import clients
from tests.support.certificates import Authority
from tests.support.loopback_http import LoopbackHandler, LoopbackServer
from tests.support.secured_broker import Right
from tests.support.tokens import TokenBroker, TokenServer
from tests.waiting import wait_until
from tidegate.kafka import channel, diagnosis, oauth
from tidegate.kafka.channel import connect
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import LoginRefused
from tidegate.kafka.oauth import (
    PART,
    Grant,
    TokenSource,
    TokenUnavailable,
    fetch_token,
    find_tokens,
    make_provider,
    read_extensions,
    read_grant,
)
from tidegate.kafka.properties import ENDPOINT

CLIENT, SECRET = "tidegate", "opensesame-oauth"
LIFETIME_S = 12.0
"""Of tokens."""
USED_S = LIFETIME_S * 1.3
"""How long the clients are used: until the first tokens have expired, and then some."""
PAUSE_S = 0.25
"""Between two transactions: as many as possible would keep both cores busy for as long as the tokens live."""


class Endpoint:
    """Gives numbered tokens, or none."""

    def __init__(self) -> None:
        self.now = 0.0
        self.given = 0
        self.away = False

    def fetch(self) -> Grant:
        if self.away:
            raise TokenUnavailable("away")
        self.given += 1
        return Grant(f"token {self.given}", 100.0)


def test_a_token_is_kept_for_four_fifths_of_its_time_and_used_to_its_end_while_there_is_no_other() -> None:
    endpoint = Endpoint()
    source = TokenSource(endpoint.fetch, lambda: endpoint.now)
    assert source.token() == source.token() == "token 1"
    endpoint.now = 100 * PART - 0.1
    assert source.token() == "token 1"
    endpoint.now = 100 * PART
    assert source.token() == "token 2"
    endpoint.away, endpoint.now = True, endpoint.now + 99.9
    assert source.token() == "token 2"
    endpoint.now += 0.1
    with pytest.raises(TokenUnavailable):
        source.token()
    endpoint.away = False
    assert source.token() == "token 3"


def test_extensions_are_written_as_librdkafka_has_them() -> None:
    assert read_extensions("") == {}
    assert read_extensions("logicalCluster=lkc-1, identityPoolId=pool=2") == {
        "logicalCluster": "lkc-1",
        "identityPoolId": "pool=2",
    }


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>", b'{"token": "a.b.c"}', b'{"access_token": "opaque"}', b'{"access_token": "a.!.c"}', b"[" * 5000],
)
def test_what_is_no_token_is_refused_without_showing_it(body: bytes) -> None:
    with pytest.raises(TokenUnavailable, match=r"exp.*is it the token endpoint") as refused:
        read_grant(body, "http://identity.example/token")
    assert "opaque" not in refused.value.message


def jwt(**claims: float) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{payload}.c2ln"


@pytest.mark.parametrize("extra", [1, 10, 100, 1000], ids=lambda extra: f"{len(str(extra))} more characters")
def test_a_token_is_good_for_as_long_as_the_endpoint_says_or_its_own_claims(
    monkeypatch: pytest.MonkeyPatch, extra: int
) -> None:
    """Claims of any length: what is encoded ends at any character."""
    monkeypatch.setattr(time, "time", lambda: 950.0)

    def read(token: str, **more: float | str) -> Grant:
        return read_grant(json.dumps({"access_token": token, **more}).encode(), "http://identity.example/token")

    token = jwt(exp=1000, iat=700, extra=extra)
    assert read(token, expires_in=60) == Grant(token, 60.0)
    assert read(token, expires_in="3599") == Grant(token, 3599.0), "as Azure's first version and some gateways write it"
    assert read(token) == read(token, expires_in="soon") == read(token, expires_in="nan") == Grant(token, 300.0)
    assert read(jwt(exp=1000, extra=extra)).lifetime_s == 50.0


@pytest.mark.parametrize("claims", [b'{"exp": "soon"}', b"[1]", b"{}"])
def test_claims_without_a_time_are_no_token(claims: bytes) -> None:
    token = f"e30.{base64.urlsafe_b64encode(claims).decode()}.c2ln"
    with pytest.raises(TokenUnavailable, match="exp"):
        read_grant(json.dumps({"access_token": token, "expires_in": 60}).encode(), "http://identity.example/token")


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with TokenServer(CLIENT, SECRET) as server:
        yield server


def login(server: TokenServer, bootstrap: str = "127.0.0.1:1", **more: str) -> dict[str, str]:
    """Properties as a pipeline file has them."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": f"{server.url}/token",
        "sasl.oauthbearer.client.id": CLIENT,
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.scope": "kafka",
        **more,
    }


@pytest.mark.parametrize("url", ["https://[::1/token", "ftp://identity.example/token", "identity.example/token"])
def test_an_endpoint_that_is_no_address_is_the_property_to_correct(server: TokenServer, url: str) -> None:
    obstacle = diagnose(login(server, **{"sasl.oauthbearer.token.endpoint.url": url}), 1.0)
    assert obstacle is not None
    assert (obstacle.property, obstacle.final) == ("sasl.oauthbearer.token.endpoint.url", True)
    assert obstacle.text == f"{url} is not an HTTP URL"


class _BreaksOff(LoopbackHandler):
    def do_POST(self) -> None:
        self.send_response(503)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"40\r\nupstr")
        self.close_connection = True


def test_a_refusal_that_breaks_off_is_an_endpoint_that_is_away() -> None:
    """Of a proxy in front of it, say: the last token is good for as long as it was, and a start has no traceback."""
    with LoopbackServer(_BreaksOff) as server:
        named = {f"sasl.oauthbearer.{word}": "x" for word in ("client.id", "client.secret")}
        with pytest.raises(TokenUnavailable, match=r"/token answers 503: .*is it the token endpoint") as told:
            fetch_token({**named, "sasl.oauthbearer.token.endpoint.url": f"{server.endpoint}/token"})
    assert told.value.fields["final"] is False


class _Plays(LoopbackHandler):
    """Answers as its server says, and keeps what it was asked."""

    owner: Playing

    def do_GET(self) -> None:
        self.do_POST()

    def do_POST(self) -> None:
        size = int(self.headers.get("Content-Length", "0"))
        self.owner.asked.append((self.path, dict(self.headers), self.rfile.read(size).decode()))
        status, headers, body = self.owner.plays
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


class Playing(LoopbackServer):
    def __init__(self, status: int, body: bytes, **headers: str) -> None:
        super().__init__(_Plays)
        self.plays = status, headers, body
        self.asked: list[tuple[str, dict[str, str], str]] = []
        """Path, headers, form."""


def played(server: Playing, **more: str) -> dict[str, str]:
    named = {"client.id": CLIENT, "client.secret": SECRET, "token.endpoint.url": f"{server.endpoint}/token", **more}
    return {f"sasl.oauthbearer.{name}": value for name, value in named.items()}


@pytest.mark.parametrize("scope", [None, "kafka read"])
def test_a_token_is_asked_for_with_the_clients_own_name_and_secret(scope: str | None) -> None:
    token = jwt(exp=1000, iat=700)
    with Playing(200, json.dumps({"access_token": token}).encode()) as server:
        kafka = played(server, **({} if scope is None else {"scope": scope}))
        assert fetch_token(kafka) == Grant(token, 300.0)
        assert find_tokens(kafka).token() == token
    path, headers, form = server.asked[0]
    assert path == "/token"
    assert headers["Authorization"] == f"Basic {base64.b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}"
    assert (headers["Content-Type"], headers["Accept"]) == ("application/x-www-form-urlencoded", "application/json")
    assert dict(parse_qsl(form)) == {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})


@pytest.mark.parametrize(
    ("status", "named", "final"),
    [
        (400, "client.id", True),
        (401, "client.id", True),
        (403, "client.id", True),
        (402, "token.endpoint.url", False),
        (404, "token.endpoint.url", False),
        (500, "token.endpoint.url", False),
    ],
)
def test_what_the_endpoint_answers_says_what_to_correct(status: int, named: str, final: bool) -> None:
    with (
        Playing(status, b'{"error": "its \xff words"}' + b"." * 1000) as server,
        pytest.raises(TokenUnavailable) as told,
    ):
        fetch_token(played(server))
    fields = told.value.fields
    assert (fields["property"], fields["final"]) == (f"sasl.oauthbearer.{named}", final)
    remedy = "correct `sasl.oauthbearer.client.id`" if final else "is it the token endpoint"
    assert str(fields["remedy"]).startswith(remedy)
    assert str(fields["text"]).startswith(f'{server.endpoint}/token answers {status}: {{"error": "its \ufffd words"}}.')
    assert len(str(fields["text"])) < 400


def test_a_secret_is_not_taken_to_where_the_endpoint_points() -> None:
    with Playing(200, b"") as elsewhere, Playing(302, b"", Location=f"{elsewhere.endpoint}/token") as server:
        with pytest.raises(TokenUnavailable, match="answers 302"):
            fetch_token(played(server))
    assert elsewhere.asked == []


def test_an_endpoint_that_is_not_there_is_told_with_the_reason() -> None:
    with Playing(200, b"") as server:
        kafka = played(server)
    with pytest.raises(TokenUnavailable, match=r"no token from .*/token: .*refused; is it reachable") as told:
        fetch_token(kafka)
    assert (told.value.fields["property"], told.value.fields["final"]) == (ENDPOINT, False)


def test_both_ways_in_are_given_tokens_where_the_login_is_by_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    token, given = jwt(exp=1000, iat=700), []
    monkeypatch.setattr(channel, "_try", lambda arguments, _: given.append(arguments))
    monkeypatch.setattr(diagnosis, "_enter", lambda _server, arguments, *_: given.append(arguments))
    with Playing(200, json.dumps({"access_token": token}).encode()) as server:
        by_token = {"bootstrap.servers": "a:1", "sasl.mechanism": "oauthbearer", **played(server, method="oidc")}
        for kafka in (by_token, {"bootstrap.servers": "a:1"}):
            connect(kafka, 1.0)
            assert diagnose(kafka, 1.0) is None
        assert [arguments["sasl_oauth_token_provider"].token() for arguments in given[:2]] == [token, token]
    assert given[2:] == [{"bootstrap_servers": ["a:1"]}] * 2


class _HangsUp(LoopbackHandler):
    def do_POST(self) -> None:
        self.close_connection = True


def test_an_endpoint_that_hangs_up_is_away() -> None:
    with LoopbackServer(_HangsUp) as server:
        named = {f"sasl.oauthbearer.{word}": "x" for word in ("client.id", "client.secret")}
        with pytest.raises(
            TokenUnavailable, match=r"no token from .*/token: .*closed connection without response; is it reach"
        ):
            fetch_token({**named, ENDPOINT: f"{server.endpoint}/token"})


def test_no_more_is_read_of_an_answer_than_a_token_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "ANSWER_BYTES_MAX", 20)
    with Playing(200, json.dumps({"access_token": jwt(exp=1000)}).encode()) as server:
        with pytest.raises(TokenUnavailable, match="returned no JSON web token"):
            fetch_token(played(server))


@pytest.mark.parametrize("by_text", [False, True])
def test_an_endpoint_is_trusted_by_the_authority_that_is_named(tmp_path: Path, by_text: bool) -> None:
    authority = Authority(tmp_path)
    own = authority.sign("identity")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    token = jwt(exp=1000, iat=700)
    server = Playing(200, json.dumps({"access_token": token}).encode())
    server._http.socket = context.wrap_socket(server._http.socket, server_side=True)
    given = {"https.ca.pem": authority.file.read_text()} if by_text else {"https.ca.location": str(authority.file)}
    with server:
        kafka = played(server, **{"token.endpoint.url": f"https://127.0.0.1:{server.port}/token"})
        with pytest.raises(TokenUnavailable, match=r"CERTIFICATE_VERIFY_FAILED.*of `https\.ca\.location`"):
            fetch_token(kafka)
        assert find_tokens({**kafka, **given}).token() == token


def test_the_client_is_given_tokens_and_extensions() -> None:
    """It knows of errors of Kafka only: with another one its loop ends."""
    token = jwt(exp=1000, iat=700)
    with Playing(200, json.dumps({"access_token": token}).encode()) as server:
        kafka = played(server, extensions="logicalCluster=lkc-1")
        provider = make_provider(kafka)
        assert (provider.token(), provider.extensions()) == (token, {"logicalCluster": "lkc-1"})
    assert make_provider(played(server)).extensions() == {}
    with pytest.raises(KafkaConnectionError, match="no token from"):
        make_provider(played(server, scope="other")).token()


@pytest.mark.slow  # an RSA key
def test_an_endpoint_that_gives_no_token_is_named_with_the_property_to_correct(server: TokenServer) -> None:
    assert fetch_token(login(server)).lifetime_s == 300.0
    wrong = login(server, **{"sasl.oauthbearer.client.secret": "guessed-wrong"})
    obstacle = diagnose(wrong, 1.0)
    assert obstacle is not None
    assert (obstacle.property, obstacle.final) == ("sasl.oauthbearer.client.id", True)
    assert "invalid_client" in obstacle.text
    assert "guessed" not in str(obstacle)
    server.away = True
    obstacle = diagnose(login(server, **{"sasl.oauthbearer.scope": "other"}), 1.0)
    assert obstacle is not None
    assert (obstacle.property, obstacle.final) == ("sasl.oauthbearer.token.endpoint.url", False)


@pytest.mark.slow
def test_both_clients_log_in_by_tokens_and_stay_in_when_the_first_ones_have_expired(
    server: TokenServer, tmp_path: Path
) -> None:
    broker = TokenBroker(tmp_path / "broker", server)
    try:
        broker.start()
        broker.create_topics({"paid": 1})
        broker.grant(
            CLIENT,
            [
                Right("TOPIC", "paid", "WRITE"),
                Right("TOPIC", "paid", "READ"),
                Right("TRANSACTIONAL_ID", "orders.", "WRITE", prefixed=True),
                Right("GROUP", "orders", "READ"),
            ],
        )
        server.lifetime_s = LIFETIME_S
        kafka = login(server, broker.tokens, **{"ssl.ca.location": str(broker.authority.file)})
        _write_and_ask_for(kafka, USED_S)
        assert server.given >= 3 * 2, "three clients, and none could live on one token"
        server.audience = "another service"
        with pytest.raises(LoginRefused, match="it refuses the token") as refused:
            connect({**kafka, "sasl.oauthbearer.scope": "another"}, 30.0)
        assert refused.value.fields["property"] == "sasl.mechanism"
        assert SECRET not in refused.value.message
    finally:
        broker.kill()


def _write_and_ask_for(kafka: dict[str, str], seconds: float) -> None:
    """A transaction again and again, and the other client next to it; every transaction has to succeed."""
    producer = clients.producer({**kafka, "transactional.id": "orders.t"})
    producer.init_transactions(60)
    client = connect(kafka, 60.0)
    consumer = clients.consumer({**kafka, "group.id": "orders", "isolation.level": "read_committed"})
    consumer.assign([ck.TopicPartition("paid", 0, 0)])

    def is_answered() -> bool:
        try:
            return bool(client.describe_topics(["paid"])[0]["partitions"])
        except KafkaConnectionError:
            return False  # the broker ends what did not log in again in time; the program asks again, too

    try:
        until, written, read = time.monotonic() + seconds, 0, 0
        while time.monotonic() < until:
            producer.begin_transaction()
            producer.produce("paid", b"x")
            producer.commit_transaction(60)
            written += 1
            wait_until(is_answered, "the other client is answered", 30.0)
            for patience_s in (1.0, PAUSE_S):
                message = consumer.poll(patience_s)
                read += message is not None and message.error() is None

        def all_read() -> bool:
            nonlocal read
            message = consumer.poll(1.0)
            read += message is not None and message.error() is None
            return read == written

        wait_until(all_read, f"{written} records", 60.0)
    finally:
        consumer.close()
        client.close()
