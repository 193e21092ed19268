"""Login to a secured broker: both clients take the same properties, and what is in the way is reported."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.sinks.driving import DrivenSink, rows, sink_operator
from tests.support import clients
from tests.support.certificates import Authority
from tests.support.secured_broker import Right, SecuredBroker
from tidegate.cli.doctor import find_problems
from tidegate.config.load import parse_pipeline
from tidegate.ids import TransactionalId
from tidegate.kafka.channel import connect
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, LoginRefused, LoginRefusedLater
from tidegate.kafka.facts import TopicLimits
from tidegate.kafka.properties import derive_producer_properties
from tidegate.kafka.tools import KAFKA_TOOLS
from tidegate.kafka.writer import TransactionWriter
from tidegate.plan.build import build_plan

pytestmark = pytest.mark.slow

Properties = dict[str, str]


@pytest.fixture(autouse=True)
def early_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no broker to wait for: look soon what is in the way, and as long as a busy machine takes to answer."""
    monkeypatch.setattr("tidegate.kafka.channel.CHECK_S", 0.3)
    monkeypatch.setattr("tidegate.kafka.channel.STEP_S", 30.0)


PLAIN_USER, PLAIN_PASSWORD = "alice", "alice-secret"
SCRAM_USER, SCRAM_PASSWORD = "bob", "bob-secret"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    broker = SecuredBroker(tmp_path_factory.mktemp("secured"), {PLAIN_USER: PLAIN_PASSWORD})
    try:
        broker.start()
        broker.add_scram_user(SCRAM_USER, SCRAM_PASSWORD)
        yield broker
    finally:
        broker.kill()


def user() -> Properties:
    return {"sasl.mechanism": "PLAIN", "sasl.username": PLAIN_USER, "sasl.password": PLAIN_PASSWORD}


def plain(broker: SecuredBroker) -> Properties:
    way = {"bootstrap.servers": broker.secured, "security.protocol": "SASL_SSL"}
    return {**way, **user(), "ssl.ca.location": str(broker.authority.file)}


def scram(broker: SecuredBroker) -> Properties:
    user = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": SCRAM_USER, "sasl.password": SCRAM_PASSWORD}
    return {**plain(broker), **user}


def by_text(broker: SecuredBroker) -> Properties:
    given = {**plain(broker), "ssl.ca.pem": broker.authority.file.read_text()}
    del given["ssl.ca.location"]
    return given


def unchecked(broker: SecuredBroker) -> Properties:
    given = {**plain(broker), "enable.ssl.certificate.verification": "false"}
    del given["ssl.ca.location"]
    return given


def tls(broker: SecuredBroker) -> Properties:
    return {
        "bootstrap.servers": broker.mutual,
        "security.protocol": "ssl",
        "ssl.ca.location": str(broker.authority.file),
    }


def mutual(broker: SecuredBroker, authority: Authority | None = None) -> Properties:
    me = (authority or broker.authority).sign("carol", password="carol-secret")
    key = {"ssl.key.location": str(me.key), "ssl.key.password": "carol-secret"}
    return {**tls(broker), "ssl.certificate.location": str(me.certificate), **key}


@pytest.mark.parametrize("login", [plain, scram, by_text, unchecked, mutual])
def test_both_clients_get_in_by_the_same_properties(
    secured: SecuredBroker, login: Callable[[SecuredBroker], Properties]
) -> None:
    given = login(secured)
    client = KAFKA_TOOLS.connect(given, 60)
    try:
        ours = client.cluster_id()
    finally:
        client.close()
    assert clients.producer(given).list_topics(timeout=60).cluster_id == ours
    assert diagnose(given, 60) is None


def test_a_scram_user_whose_name_is_a_list_gets_in_and_is_refused_by_its_own_name(secured: SecuredBroker) -> None:
    user = "team=a,app=b"
    secured.add_scram_user(user, SCRAM_PASSWORD)
    given = {**scram(secured), "sasl.username": user}
    KAFKA_TOOLS.connect(given, 60).close()
    assert clients.producer(given).list_topics(timeout=60).brokers
    obstacle = diagnose({**given, "sasl.password": "wrong-secret"}, 60)
    assert obstacle is not None and f"refuses the user `{user}` (SCRAM-SHA-512)" in obstacle.text


def stranger(broker: SecuredBroker) -> Authority:
    return Authority(broker.directory / "stranger", "a stranger")


OBSTACLES: Mapping[str, tuple[Callable[[SecuredBroker], Properties], str, str]] = {
    "wrong password": (
        lambda broker: {**plain(broker), "sasl.password": "wrong-secret"},
        "refuses the user `alice` .PLAIN.: Authentication failed",
        "sasl.username",
    ),
    "wrong SCRAM password": (
        lambda broker: {**scram(broker), "sasl.password": "wrong-secret"},
        "refuses the user `bob`",
        "sasl.username",
    ),
    "a mechanism that is not offered": (
        lambda broker: {**plain(broker), "sasl.mechanism": "SCRAM-SHA-256"},
        "does not accept `SCRAM-SHA-256`; it accepts (PLAIN, SCRAM-SHA-512|SCRAM-SHA-512, PLAIN)",
        "sasl.mechanism",
    ),
    "an authority that signed something else": (
        lambda broker: {**plain(broker), "ssl.ca.location": str(stranger(broker).file)},
        "certificate is not trusted: .*local issuer.*ssl.ca.location",
        "ssl.ca.location",
    ),
    "another name": (
        lambda broker: {**plain(broker), "bootstrap.servers": broker.secured.replace("127.0.0.1", "localhost")},
        "certificate is for another name: ",
        "bootstrap.servers",
    ),
    "no client certificate": (tls, "asks for a client certificate", "security.protocol"),
    "a client certificate by nobody": (
        lambda broker: mutual(broker, stranger(broker)),
        "does not accept the client certificate",
        "ssl.certificate.location",
    ),
    "passwords where none are taken": (
        lambda broker: {**plain(broker), "bootstrap.servers": broker.bootstrap, "security.protocol": "sasl_plaintext"},
        "does not accept logins",
        "security.protocol",
    ),
}


@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_what_waiting_does_not_cure_is_told_at_once_with_its_property(secured: SecuredBroker, obstacle: str) -> None:
    make, words, name = OBSTACLES[obstacle]
    with pytest.raises(LoginRefused, match=words) as caught:
        KAFKA_TOOLS.connect(make(secured), 60)
    assert caught.value.fields["property"] == name
    assert "secret" not in caught.value.message


PASSING: Mapping[str, tuple[Callable[[SecuredBroker], Properties], str]] = {
    "plain to TLS": (lambda broker: {"bootstrap.servers": broker.secured}, "is this its port for .*plaintext"),
    "TLS to plain": (lambda broker: {**plain(broker), "bootstrap.servers": broker.bootstrap}, "no TLS handshake"),
    "no user": (lambda broker: {**tls(broker), "bootstrap.servers": broker.secured}, "does it require a user"),
    "nobody there": (lambda _: {"bootstrap.servers": "127.0.0.1:1"}, "Connection refused; start the broker"),
    "no such host": (
        lambda _: {"bootstrap.servers": "nohost.invalid:9"},
        "host name `nohost.invalid` cannot be resolved",
    ),
}


@pytest.mark.parametrize("obstacle", PASSING)
def test_what_a_restart_of_the_broker_may_look_like_is_waited_for_and_told(
    secured: SecuredBroker, obstacle: str
) -> None:
    make, words = PASSING[obstacle]
    with pytest.raises(BrokerUnavailable, match=words):
        KAFKA_TOOLS.connect(make(secured), 0.5)


def test_a_sink_with_a_login_of_its_own_is_checked_as_well(
    secured: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def connect_in_time(kafka: Mapping[str, str], _timeout_s: float) -> object:
        """Only the wrong login has to fail soon."""
        return connect(kafka, 0.5 if "security.protocol" in kafka else 60)

    monkeypatch.setattr("tidegate.checks.survey.connect", connect_in_time)
    secured.create_topics({"in": 1, "own": 1})
    document = {
        "version": 1,
        "name": "own-login",
        "kafka": {"bootstrap.servers": secured.bootstrap},
        "checkpoints": {"directory": str(tmp_path)},
        "sources": {"in": {"topic": "in", "schema": {"id": "bigint"}}},
        "sinks": {"out": {"from": "in", "topic": "own", "kafka": {"security.protocol": "sasl_ssl", **user()}}},
    }
    loaded = parse_pipeline(json.dumps(document), "p.yaml", {})
    assert loaded.problems == ()
    problems, code = find_problems(loaded, build_plan(loaded))
    (problem,) = [each for each in problems if each.severity == "error"]
    assert code == 1
    assert problem.path == "sinks.out.kafka.security.protocol"
    assert "no TLS handshake" in problem.message


def test_what_is_in_the_way_to_one_of_two_clusters_is_told_at_its_property_and_hides_nothing_of_the_other(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    """With the right login it turns out to be the first cluster once more."""
    secured.create_topics({"of-us": 1})
    ways = {
        "sasl.username": {**scram(secured), "sasl.password": "wrong-secret"},
        "ssl.ca.location": {**plain(secured), "ssl.ca.location": str(stranger(secured).file)},
        "": plain(secured),
    }
    for named, us in ways.items():
        document = {
            "version": 1,
            "name": "two-clusters",
            "kafka": {"bootstrap.servers": secured.bootstrap},
            "clusters": {"us": us},
            "checkpoints": {"directory": str(tmp_path)},
            "http": {"port": 0},
            "sources": {"in": {"topic": "not-there", "schema": {"id": "bigint"}}},
            "sinks": {"out": {"from": "in", "topic": "of-us", "cluster": "us"}},
        }
        loaded = parse_pipeline(json.dumps(document), "p.yaml", {})
        assert loaded.problems == ()
        problems, code = find_problems(loaded, build_plan(loaded))
        found = {problem.path: problem.message for problem in problems if problem.severity == "error"}
        assert code == 2
        assert found.pop("sources.in.topic") == "the topic `not-there` does not exist on kafka"
        if named:
            assert list(found) == [f"clusters.us.{named}"]
        else:
            assert "this is the same cluster as `kafka`" in found["clusters.us"]
            assert found.keys() == {"clusters.us", "sinks.out.topic", "name"}, "this user has no rights"
        assert "secret" not in str(problems)


def test_a_slot_that_is_refused_leaves_it_to_another_attempt(secured: SecuredBroker) -> None:
    with pytest.raises(BrokerUnavailable, match="refuses the user `alice`"):
        KAFKA_TOOLS.connect_again({**plain(secured), "sasl.password": "wrong-secret"}, 60)


def test_a_transaction_whose_login_is_refused_leaves_it_to_another_attempt(
    secured: SecuredBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password has changed since the sink's first transaction, and the client would try the old one forever."""
    monkeypatch.setattr("tidegate.kafka.writer.CALL_TIMEOUT_S", 3.0)
    monkeypatch.setattr("tidegate.kafka.writer.INSPECT_S", 1.0)
    properties = {**plain(secured), "sasl.password": "old-secret", "transactional.id": "old.out.0"}
    derived = derive_producer_properties(properties, TransactionalId("old.out.0"), 60_000)
    writer = TransactionWriter("out", {"out": TopicLimits()}, derived)
    client = KAFKA_TOOLS.connect(plain(secured), 60)
    try:
        with pytest.raises(LoginRefusedLater, match=r"sink out: .*refuses the user `alice`.*`sasl.password`"):
            writer.open(client, lambda: False)
    finally:
        writer.discard()
        client.close()


RIGHTS: Mapping[str, tuple[list[Right], str]] = {
    "no transactional id": (
        [Right("TOPIC", "out", "WRITE"), Right("TOPIC", "out", "READ")],
        r"TRANSACTIONAL_ID_AUTHORIZATION_FAILED.*grant WRITE on the transactional ids",
    ),
    "no topic": ([Right("TRANSACTIONAL_ID", "p.", "WRITE", prefixed=True)], r"grant the permission"),
    "not to write": (
        [Right("TRANSACTIONAL_ID", "q.", "WRITE", prefixed=True), Right("TOPIC", "out", "READ")],
        r"TOPIC_AUTHORIZATION_FAILED.*grant WRITE and READ on the topic",
    ),
    "not to read": (
        [Right("TRANSACTIONAL_ID", "r.", "WRITE", prefixed=True), Right("TOPIC", "out", "WRITE")],
        r"TopicAuthorizationFailed.*grant READ on the topic",
    ),
}
"""Pipelines and topics that a user may use, and what a sink says that needs more."""


def test_a_sink_that_lacks_a_right_stops_the_pipeline_and_names_it(secured: SecuredBroker) -> None:
    secured.create_topics({"out": 2})
    for pipeline, user in zip("npqr", RIGHTS, strict=True):
        rights, words = RIGHTS[user]
        secured.add_scram_user(user.replace(" ", "-"), SCRAM_PASSWORD)
        if rights:
            secured.grant(user.replace(" ", "-"), rights)
        given = {**scram(secured), "sasl.username": user.replace(" ", "-")}
        driven = DrivenSink(sink_operator(secured.secured, "out", given), pipeline)
        try:
            with pytest.raises(KafkaRefused, match=words):
                driven.write(rows(range(100)))
                driven.prepared(1)
        finally:
            driven.sink.close()


@pytest.mark.parametrize("more", [{}, {"security.protocol": "ssl"}], ids=["plain", "TLS"])
def test_a_broker_that_takes_connections_and_does_not_answer_is_told(more: Properties) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        obstacle = diagnose({"bootstrap.servers": address, **more}, 0.2)
    assert obstacle is not None
    assert obstacle.text == f"{address}: it accepts connections but does not answer"
    assert "it hangs or is overloaded" in obstacle.remedy
    assert not obstacle.final
