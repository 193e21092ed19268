"""Kafka and Spark properties, and secrets among them."""

from __future__ import annotations

import json
from importlib import resources

import pytest
from confluent_kafka import Consumer, Producer
from pydantic import SecretStr

from tests.config.librdkafka_list import derive_list, read_table, render_list
from tidegate.config.properties import (
    OWNED_KAFKA,
    UNUSABLE_KAFKA,
    decide_kafka_problems,
    decide_spark_problems,
    derive_client_properties,
    read_kafka_properties,
)
from tidegate.kafka.client_properties import REFUSED
from tidegate.settings.secrets import REDACTED, Redactor, is_secret_key, render_properties, reveal


def test_the_shipped_list_is_that_of_the_installed_librdkafka() -> None:
    installed = derive_list(read_table())
    shipped = json.loads(resources.files("tidegate.config").joinpath("librdkafka.json").read_text(encoding="utf-8"))
    assert json.loads(render_list(installed)) == shipped


def test_owned_properties_exist() -> None:
    assert OWNED_KAFKA.keys() <= read_kafka_properties().keys() | {"group.protocol.type"}


def test_what_the_client_for_transactions_refuses_is_refused_in_the_file() -> None:
    assert dict(REFUSED) == dict(UNUSABLE_KAFKA)
    for name, remedy in UNUSABLE_KAFKA.items():
        (problem,) = decide_kafka_problems({name: "x"}, "both")
        assert problem.remedy == remedy


@pytest.mark.parametrize("name", ["acks", "transactional.id", "max.in.flight", "retries", "delivery.timeout.ms"])
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
