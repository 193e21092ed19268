"""Logging in by tokens (OAUTHBEARER with OIDC): both clients, at a real broker that checks the tokens by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka as ck
import pytest
from kafka.errors import KafkaConnectionError

from tests.support.loopback_http import LoopbackHandler, LoopbackServer
from tests.support.secured_broker import Right
from tests.support.tokens import TokenBroker, TokenServer
from tests.waiting import wait_until
from tidegate.kafka.connecting import connect
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import LoginRefused
from tidegate.kafka.oauth import PART, Grant, TokenSource, TokenUnavailable, fetch_token, read_extensions, read_grant

CLIENT, SECRET = "tidegate", "opensesame-oauth"
LIFETIME_S = 12.0
"""Of tokens; the clients are used for several of them."""


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
    assert obstacle.text == f"{url} is no address of HTTP"


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
        _write_and_ask_for(kafka, 3 * LIFETIME_S)
        assert server.given >= 3 * 2, "three clients, and none could live on one token"
        server.audience = "another service"
        with pytest.raises(LoginRefused, match="it refuses the token") as refused:
            connect({**kafka, "sasl.oauthbearer.scope": "another"}, 30.0)
        assert refused.value.fields["property"] == "sasl.mechanism"
        assert SECRET not in refused.value.message
    finally:
        broker.kill()


def _write_and_ask_for(kafka: dict[str, str], seconds: float) -> None:
    """A transaction again and again, and the other client beside it; every transaction has to succeed."""
    producer = ck.Producer({**kafka, "transactional.id": "orders.t", "log_level": 0})
    producer.init_transactions(60)
    client = connect(kafka, 60.0)
    consumer = ck.Consumer({**kafka, "group.id": "orders", "isolation.level": "read_committed", "log_level": 0})
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
            message = consumer.poll(1.0)
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
