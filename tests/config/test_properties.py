"""Kafka and Spark properties, and secrets among them."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from confluent_kafka import Consumer, Producer
from pydantic import SecretStr

from tests.config.librdkafka_list import derive_list, read_table, render_list
from tidegate.config.fields.secrets import REDACTED, Redactor, Text, is_secret_key, render_properties, reveal
from tidegate.config.properties import (
    FOREIGN_PROPERTIES,
    OWNED_KAFKA,
    decide_kafka_problems,
    decide_spark_problems,
    derive_client_properties,
    read_kafka_properties,
)
from tidegate.kafka.properties import UNUSABLE_KAFKA


def test_the_shipped_list_is_that_of_the_installed_librdkafka() -> None:
    installed = derive_list(read_table())
    shipped = json.loads(resources.files("tidegate.config").joinpath("librdkafka.json").read_text(encoding="utf-8"))
    assert json.loads(render_list(installed)) == shipped


def test_owned_properties_exist() -> None:
    assert OWNED_KAFKA.keys() <= read_kafka_properties().keys() | {"group.protocol.type"}


def test_what_the_client_for_transactions_refuses_is_refused_in_the_file() -> None:
    for name, remedy in UNUSABLE_KAFKA.items():
        (problem,) = decide_kafka_problems({name: "x"}, "both")
        assert problem.remedy == remedy


@pytest.mark.parametrize(
    "name",
    ["acks", "transactional.id", "max.in.flight", "retries", "delivery.timeout.ms", "allow.auto.create.topics"],
)
def test_an_owned_property_is_refused_under_every_alias(name: str) -> None:
    (problem,) = decide_kafka_problems({name: "1"}, "both")
    assert "belongs to Tidegate" in problem.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fetch.min.bytes", "1"),
        ("linger.ms", "0.5"),
        ("compression.type", "zstd"),
        ("socket.keepalive.enable", "true"),
        ("client.id", "anything"),
    ],
)
def test_good_values_pass_here_and_in_librdkafka(name: str, value: str) -> None:
    assert decide_kafka_problems({name: value}, "both") == []
    client = Producer if read_kafka_properties()[name].side == "producer" else Consumer
    client({"bootstrap.servers": "127.0.0.1:1", "log_level": "0", "group.id": "g", name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fetch.min.bytes", "x"),
        ("fetch.min.bytes", "-1"),
        ("linger.ms", "5ms"),
        ("compression.type", "zst"),
        ("debug", "x"),
    ],
)
def test_bad_values_are_refused_at_the_value(name: str, value: str) -> None:
    (problem,) = decide_kafka_problems({name: value}, "both")
    assert not problem.at_key


@pytest.mark.parametrize(
    ("servers", "protocol", "said"),
    [
        ("http://b:9092", None, "`http://b:9092` is not a Kafka address"),
        ("a:1, kafka+ssl://b:9092", "SSL", "`kafka+ssl://b:9092` is not a Kafka address"),
        ("ssl://b:9092", None, "`ssl://b:9092` is left out: `security.protocol` is `plaintext`"),
        ("PLAINTEXT://b:9092", "sasl_ssl", "`PLAINTEXT://b:9092` is left out: `security.protocol` is `sasl_ssl`"),
        ("PLAINTEXT://b:9092", None, ""),
        ("https://b/path", None, "`https://b/path` is not a broker address"),
        ("SASL_SSL://a:1,b:2", "sasl_ssl", ""),
    ],
)
def test_an_address_with_another_protocol_would_be_left_out(servers: str, protocol: str | None, said: str) -> None:
    given: dict[str, Text] = {"bootstrap.servers": servers}
    if protocol is not None:
        given["security.protocol"] = protocol
    found = decide_kafka_problems(given, "both")
    assert [(one.path, one.message) for one in found] == ([(("bootstrap.servers",), said)] if said else [])


def test_a_property_has_one_of_its_names() -> None:
    given: dict[str, Text] = {"sasl.mechanisms": "PLAIN", "sasl.mechanism": "SCRAM-SHA-256", "client.id": "x"}
    (problem,) = decide_kafka_problems(given, "both")
    assert (problem.path, problem.message) == (
        ("sasl.mechanism",),
        "is another name of `sasl.mechanisms`, which is also set",
    )


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("ssl.truststore.location", "use `ssl.ca.location`: a file in PEM with the certificates to trust"),
        ("schema.registry.url", "write it as `registry: {url: ...}` at the top of the file"),
        ("kafka.client.id", "write `client.id`: the names here have no `kafka.` in front"),
        ("kafka.sasl.jaas.config", "use `sasl.username` and `sasl.password`"),
        ("clientid", "did you mean `client.id`?"),
    ],
)
def test_names_of_other_clients_are_told_what_to_write_here(name: str, remedy: str) -> None:
    (problem,) = decide_kafka_problems({name: "x"}, "both")
    assert problem.remedy == remedy


def test_librdkafka_has_no_property_that_is_of_other_clients_here() -> None:
    assert not read_kafka_properties().keys() & FOREIGN_PROPERTIES.keys()


def test_properties_of_the_other_side_are_told_and_left_out() -> None:
    (problem,) = decide_kafka_problems({"linger.ms": "5"}, "consumer")
    assert "producer" in problem.message
    both = {"linger.ms": "5", "fetch.min.bytes": "1", "client.id": "x"}
    assert derive_client_properties(both, "consumer") == {"fetch.min.bytes": "1", "client.id": "x"}
    assert derive_client_properties(both, "producer") == {"linger.ms": "5", "client.id": "x"}


@pytest.mark.parametrize(
    ("name", "refused"),
    [
        ("master", False),
        ("spark.executor.memory", False),
        ("spark.speculation", True),
        ("executor.memory", True),
        ("spark.master", True),
    ],
)
def test_spark_names(name: str, refused: bool) -> None:
    assert bool(decide_spark_problems({name: "x"})) is refused


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("sasl.password", True),
        ("ssl.key.password", True),
        ("ssl.key.pem", True),
        ("ssl.keystore.password", True),
        ("sasl.oauthbearer.client.secret", True),
        ("spark.hadoop.fs.s3a.secret.key", True),
        ("spark.ssl.keyPassword", True),
        ("sasl.username", False),
        ("ssl.key.location", False),
        ("sasl.oauthbearer.token.endpoint.url", False),
        ("bootstrap.servers", False),
    ],
)
def test_secret_keys(name: str, secret: bool) -> None:
    assert is_secret_key(name) is secret


def test_secrets_are_revealed_for_clients_only() -> None:
    properties: dict[str, str | SecretStr] = {"sasl.password": SecretStr("hunter2"), "client.id": "x"}
    assert reveal(properties) == {"sasl.password": "hunter2", "client.id": "x"}
    assert render_properties(properties) == {"sasl.password": REDACTED, "client.id": "x"}


def test_the_redactor_replaces_longer_secrets_first_and_leaves_words_alone() -> None:
    redact = Redactor({"tide", "tidegate-secret", "a", ""})
    assert redact("a tidegate-secret in the tide") == f"a {REDACTED} in the {REDACTED}"
    assert "tide" not in repr(redact)
