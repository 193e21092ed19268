"""Properties of the producers, and of kafka-python's connection."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from tests.support import clients
from tidegate.config.properties import RECORD_BYTES, derive_output_properties
from tidegate.ids import TransactionalId
from tidegate.kafka.errors import KafkaRefused
from tidegate.kafka.properties import (
    LARGE_MESSAGE_BYTES,
    TRANSACTION_LINGER_MS,
    UNUSABLE_KAFKA,
    derive_client_arguments,
    derive_producer_properties,
    fit_batches,
    largest_record,
)

SERVERS = {"bootstrap.servers": "a:1, SSL://b:2"}
IDENTITY = TransactionalId("p.s.0.1-j.0")


def test_the_engine_wins_over_the_user() -> None:
    user = {**SERVERS, "acks": "1", "enable.idempotence": "false", "transactional.id": "mine"}
    properties = derive_producer_properties(user, IDENTITY, 60_000)
    assert (properties["acks"], properties["enable.idempotence"]) == ("all", "true")
    assert properties["transactional.id"] == IDENTITY


def test_the_user_wins_over_our_defaults() -> None:
    properties = derive_producer_properties({**SERVERS, "linger.ms": "7", "compression.type": "zstd"}, IDENTITY, 60_000)
    assert (properties["linger.ms"], properties["compression.type"]) == ("7", "zstd")


def test_records_of_a_transaction_are_gathered_longer_for_nobody_sees_them_before_its_end() -> None:
    assert derive_producer_properties(SERVERS, IDENTITY, 60_000)["linger.ms"] == TRANSACTION_LINGER_MS
    assert float(derive_producer_properties(SERVERS, None, 60_000)["linger.ms"]) < float(TRANSACTION_LINGER_MS)


@pytest.mark.parametrize("identity", [IDENTITY, None])
@pytest.mark.parametrize("user", [{}, {"linger.ms": "7", "compression.type": "lz4", "batch.size": "9"}])
def test_the_shape_of_output_is_that_of_the_producer(user: dict[str, str], identity: TransactionalId | None) -> None:
    properties = derive_producer_properties({**SERVERS, **user}, identity, 60_000)
    shape = derive_output_properties({**SERVERS, **user}, transactional=identity is not None)
    assert shape == {
        "compression.type": "none",
        "batch.num.messages": "10000",
        **{name: properties[name] for name in shape if name in properties},
    }


def test_keys_are_partitioned_as_java_clients_do() -> None:
    assert derive_producer_properties(SERVERS, IDENTITY, 60_000)["partitioner"] == "murmur2_random"


@pytest.mark.parametrize("timeout_ms", [1000, 1500, 30_000, 900_000])
def test_nothing_outlives_its_transaction(timeout_ms: int) -> None:
    properties = derive_producer_properties(SERVERS, IDENTITY, timeout_ms)
    assert int(properties["message.timeout.ms"]) == timeout_ms
    assert int(properties["socket.timeout.ms"]) == min(15_000, timeout_ms)
    clients.producer({**properties, "bootstrap.servers": "127.0.0.1:1"})  # librdkafka takes them together


def test_a_record_may_be_as_large_as_a_topic_takes_it_by_default() -> None:
    """Kafka's default; librdkafka's is 1,000,000, and a Java client writes up to 1,048,576."""
    assert largest_record(SERVERS) == largest_record(derive_producer_properties(SERVERS, IDENTITY, 60_000)) == 1_048_588
    assert RECORD_BYTES == 1_048_588


def test_a_queue_holds_several_of_the_largest_messages() -> None:
    large = {**SERVERS, "message.max.bytes": str(10 << 20)}
    assert int(derive_producer_properties(large, IDENTITY, 60_000)["queue.buffering.max.kbytes"]) == 40 << 10
    own = {**large, "queue.buffering.max.kbytes": "77777"}
    assert derive_producer_properties(own, IDENTITY, 60_000)["queue.buffering.max.kbytes"] == "77777"


@pytest.mark.parametrize(("size", "larger"), [(LARGE_MESSAGE_BYTES - 1, False), (2 * LARGE_MESSAGE_BYTES, True)])
def test_the_queue_grows_from_large_messages_on(size: int, larger: bool) -> None:
    properties = derive_producer_properties({**SERVERS, "message.max.bytes": str(size)}, IDENTITY, 60_000)
    usual = derive_producer_properties(SERVERS, IDENTITY, 60_000).get("queue.buffering.max.kbytes")
    assert (properties.get("queue.buffering.max.kbytes") != usual) is larger


def test_a_time_limit_of_the_user_does_not_outlive_the_transaction_either() -> None:
    properties = derive_producer_properties({**SERVERS, "delivery.timeout.ms": "90000"}, IDENTITY, 60_000)
    assert properties["delivery.timeout.ms"] == "60000"


@pytest.mark.parametrize(("limit", "size"), [(None, "5000"), (20_000, "5000"), (1000, "1000"), (0, "1")])
def test_a_batch_is_never_larger_than_the_topic_takes(limit: int | None, size: str) -> None:
    properties = derive_producer_properties({**SERVERS, "batch.size": "5000"}, IDENTITY, 60_000)
    assert fit_batches(properties, [limit])["batch.size"] == size
    assert fit_batches(properties, [30_000, limit, None])["batch.size"] == size


def test_without_transactions_one_request_is_in_flight() -> None:
    properties = derive_producer_properties(SERVERS, None, 60_000)
    assert properties["max.in.flight"] == "1"
    assert "transactional.id" not in properties
    assert "transaction.timeout.ms" not in properties


@pytest.mark.parametrize("identity", [None, IDENTITY])
def test_a_producer_that_asks_for_a_topic_does_not_make_it(identity: TransactionalId | None) -> None:
    """Of librdkafka's producers that is the default, at its own mock cluster as at brokers, where it is theirs, too."""
    properties = derive_producer_properties({"bootstrap.servers": "none"}, identity, 60_000)
    producer = clients.producer({**properties, "test.mock.num.brokers": 1})
    found = producer.list_topics("nowhere", timeout=10).topics["nowhere"]
    assert found.error is not None and found.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert not producer.list_topics(timeout=10).topics


def test_connection_settings_are_translated() -> None:
    arguments = derive_client_arguments(
        {
            **SERVERS,
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "u",
            "sasl.password": "p",
            "ssl.ca.location": "/ca.pem",
            "linger.ms": "5",
        }
    )
    assert arguments == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "u",
        "sasl_plain_password": "p",
    }


@pytest.mark.parametrize(
    ("mechanism", "sent"), [("scram-sha-256", "team=3Da=2Capp=3Db=3D2C"), ("PLAIN", "team=a,app=b=2C")]
)
def test_a_user_is_named_as_its_mechanism_wants_it(mechanism: str, sent: str) -> None:
    """RFC 5802; librdkafka does so itself, and of a user that it logs in we said that the broker refuses it."""
    arguments = derive_client_arguments({**SERVERS, "sasl.mechanism": mechanism, "sasl.username": "team=a,app=b=2C"})
    assert arguments["sasl_plain_username"] == sent


@pytest.mark.parametrize("name", sorted(UNUSABLE_KAFKA))
def test_what_kafka_python_cannot_express_is_refused_by_name(name: str) -> None:
    with pytest.raises(KafkaRefused, match=f"'{name}'"):
        derive_client_arguments({**SERVERS, name: "x"})


@pytest.mark.parametrize("mechanism", ["oauthbearer", "GSSAPI"])
def test_a_mechanism_that_not_both_clients_have_is_refused(mechanism: str) -> None:
    """Of OAUTHBEARER what has no endpoint, or another method than OIDC."""
    with pytest.raises(KafkaRefused, match=mechanism.upper()):
        derive_client_arguments({**SERVERS, "sasl.mechanism": mechanism})


TOKENS = {
    **SERVERS,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "OIDC",
    "sasl.oauthbearer.token.endpoint.url": "https://identity.example/token",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "opensesame",
}


@pytest.mark.parametrize(
    ("without", "wanted"),
    [
        ({"sasl.oauthbearer.method"}, "sasl.oauthbearer.method: oidc"),
        ({"sasl.oauthbearer.client.id"}, "sasl.oauthbearer.client.id"),
        (
            {"sasl.oauthbearer.method", "sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.client.secret"},
            "sasl.oauthbearer.token.endpoint.url, sasl.oauthbearer.client.secret",
        ),
    ],
)
def test_what_a_login_by_tokens_lacks_is_named(without: set[str], wanted: str) -> None:
    derive_client_arguments(TOKENS)
    with pytest.raises(KafkaRefused, match=rf"OAUTHBEARER also needs {wanted}; add it"):
        derive_client_arguments({name: value for name, value in TOKENS.items() if name not in without})


def test_no_broker_is_told() -> None:
    with pytest.raises(KafkaRefused, match=r"bootstrap\.servers"):
        derive_client_arguments({"client.id": "x"})
