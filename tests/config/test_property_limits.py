"""Kafka properties that do not go together are refused in the file, and not by the slots."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import KafkaException

from tests.depth import DEPTH
from tests.support import clients
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import parse_pipeline
from tidegate.config.properties import (
    KafkaProperty,
    decide_kafka_problems,
    decide_limit_problems,
    decide_login_problems,
    derive_client_properties,
    read_kafka_properties,
)
from tidegate.ids import TransactionalId
from tidegate.kafka.properties import derive_producer_properties
from tidegate.sources.tools import derive_consumer_properties

BOOTSTRAP = {"bootstrap.servers": "127.0.0.1:1"}
TRANSACTION_MS = 60_000
FILES = re.compile(r"\.location|\.pem|^ssl\.(curves|sigalgs)")
"""Properties that depend on the files and the OpenSSL of a machine."""


def refusals(properties: Mapping[str, str]) -> list[str]:
    """What librdkafka says where it makes no consumer, or no producer."""
    found = []
    mine = derive_consumer_properties(reveal(derive_client_properties(properties, "consumer")))
    own = reveal(derive_client_properties(properties, "producer"))
    theirs = derive_producer_properties(own, TransactionalId("t"), TRANSACTION_MS)
    try:
        clients.consumer({**mine, "group.id": "g"}).close()
    except (KafkaException, ValueError) as error:
        found.append(str(error))
    try:
        clients.producer(theirs)
    except (KafkaException, ValueError) as error:
        found.append(str(error))
    return found


@pytest.mark.parametrize(
    ("properties", "name"),
    [
        ({"fetch.max.bytes": "1000"}, "fetch.max.bytes"),
        ({"fetch.max.bytes": "2000000", "message.max.bytes": "2000001"}, "fetch.max.bytes"),
        ({"receive.message.max.bytes": "1000000"}, "receive.message.max.bytes"),
        (
            {"receive.message.max.bytes": "20000511", "fetch.max.bytes": "20000000"},
            "receive.message.max.bytes",
        ),
        ({"fetch.min.bytes": "0"}, "fetch.min.bytes"),
        ({"fetch.min.bytes": "100000001"}, "fetch.min.bytes"),
        ({"reconnect.backoff.ms": "10001"}, "reconnect.backoff.ms"),
        ({"reconnect.backoff.max.ms": "99"}, "reconnect.backoff.max.ms"),
        ({"linger.ms": "60000"}, "linger.ms"),
        ({"queue.buffering.max.ms": "60000"}, "queue.buffering.max.ms"),
        ({"https.ca.location": "/", "https.ca.pem": "x"}, "https.ca.location"),
        ({"broker.version.fallback": ""}, "broker.version.fallback"),
    ],
)
def test_what_the_library_refuses_is_refused_at_its_property(properties: dict[str, str], name: str) -> None:
    given = {**BOOTSTRAP, **properties}
    assert refusals(given)
    (problem,) = decide_limit_problems(given, "both", TRANSACTION_MS)
    assert problem.path == (name,)
    assert problem.remedy


@pytest.mark.parametrize(
    "properties",
    [
        {"reconnect.backoff.ms": "2000"},
        {"message.max.bytes": "60000000"},
        {"receive.message.max.bytes": "20000512", "fetch.max.bytes": "20000000"},
        {"fetch.max.bytes": "1000000"},
        {"linger.ms": "59999"},
    ],
)
def test_what_goes_together_is_taken(properties: dict[str, str]) -> None:
    given = {**BOOTSTRAP, **properties}
    assert decide_limit_problems(given, "both", TRANSACTION_MS) == []
    assert refusals(given) == []


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"queue.buffering.max.kbytes": "1024"}, ["queue.buffering.max.kbytes"]),
        ({"queue.buffering.max.kbytes": "1025"}, []),
        ({"queue.buffering.max.kbytes": "10000", "message.max.bytes": "10240001"}, ["queue.buffering.max.kbytes"]),
        ({"queue.buffering.max.kbytes": "10000", "message.max.bytes": "10240000"}, []),
        ({"message.max.bytes": "900000000"}, []),
        ({"queue.buffering.max.messages": "0"}, ["queue.buffering.max.messages"]),  # "no limit": no room was seen
        ({"queue.buffering.max.messages": "1"}, []),
    ],
)
def test_a_queue_that_the_largest_record_has_no_room_in_is_refused(
    properties: dict[str, str], names: list[str]
) -> None:
    """Such a record waited for room in an empty queue, and everything after it, for ever."""
    given = {**BOOTSTRAP, **properties}
    assert [one.path for one in decide_limit_problems(given, "producer", TRANSACTION_MS)] == [(name,) for name in names]
    assert decide_limit_problems(given, "consumer", TRANSACTION_MS) == []


def values_of(known: KafkaProperty) -> Iterator[str]:
    """The ends of what a property takes, and something between."""
    if limits := re.fullmatch(r"(-?\d+) \.\. (-?\d+)", known.range):
        low, high = map(int, limits.groups())
        yield from (str(one) for one in (low, low + 1, 1000, (low + high) // 2, high - 1, high) if low <= one <= high)
        return
    words = [word.strip() for word in known.range.split(",") if word.strip()]
    yield from words or ("", "x", "a b", "é")


def test_of_all_other_properties_the_library_makes_a_client() -> None:
    chance = random.Random(1)
    known = {name: one for name, one in read_kafka_properties().items() if not FILES.search(name)}
    taken = 0
    for _ in range(400 * DEPTH):
        names = chance.sample(sorted(known), chance.choice((1, 2, 3, 4)))
        drawn = {name: chance.choice(list(values_of(known[name]))) for name in names}
        given = {**BOOTSTRAP, **drawn}
        if any(decide_kafka_problems({name: value}, "both") for name, value in given.items()):
            continue
        if decide_login_problems(given) or decide_limit_problems(given, "both", TRANSACTION_MS):
            continue
        taken += 1
        assert refusals(given) == [], f"{drawn}"
    assert taken > 50


FILE = """\
version: 1
name: shop
kafka: {bootstrap.servers: "127.0.0.1:1", message.max.bytes: 2000000}
checkpoints: {directory: file:///nowhere}
sources:
  small: {topic: small, format: raw, kafka: {fetch.max.bytes: 1500000}}
  large: {topic: large, format: raw, kafka: {message.max.bytes: 1000000, fetch.max.bytes: 1500000}}
sinks:
  out: {from: [small, large], topic: out, format: raw, kafka: {linger.ms: 120000}}
"""


def test_the_properties_of_one_client_are_looked_at_together_each_where_it_is_written() -> None:
    found = [(one.line, one.path) for one in parse_pipeline(FILE, "shop.yaml", {}).problems]
    assert found == [(6, "sources.small.kafka.fetch.max.bytes"), (9, "sinks.out.kafka.linger.ms")]
    top = FILE.replace("message.max.bytes: 2000000}", "message.max.bytes: 2000000, fetch.max.bytes: 1000000}")
    found = [(one.line, one.path) for one in parse_pipeline(top, "shop.yaml", {}).problems]
    assert (3, "kafka.fetch.max.bytes") in found
    assert len(found) == len(set(found)), "once, although each sink is looked at"
