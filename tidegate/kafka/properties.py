"""Kafka properties of a pipeline file, which have librdkafka's names: what the clients and the producers get. Pure.

For kafka-python's clients, connection properties are translated to arguments, so that the file configures its brokers
once; `tls.py` handles TLS. A property that determines *how securely or to whom* a client connects, and that
kafka-python cannot express, is rejected rather than dropped. A sink's producers get our defaults, then the user's
values, then those that the engine owns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.ids import TransactionalId
from tidegate.kafka.errors import PropertyRefused

ARGUMENTS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "client.dns.lookup": "client_dns_lookup",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}

OAUTH: Final = "OAUTHBEARER"
_OF_OAUTH: Final = "sasl.oauthbearer."
ENDPOINT: Final = f"{_OF_OAUTH}token.endpoint.url"
CLIENT: Final = f"{_OF_OAUTH}client.id"
SECRET: Final = f"{_OF_OAUTH}client.secret"
SCOPE: Final = f"{_OF_OAUTH}scope"
EXTENSIONS: Final = f"{_OF_OAUTH}extensions"
_OTHERS: Final = "use SCRAM, PLAIN, OAUTHBEARER or TLS client certificates"


_LOGIN: Final = ("bootstrap.servers", "metadata.broker.list", "security.", "sasl.", "ssl.", "enable.ssl.", "https.ca.")


def derive_servers(kafka: Mapping[str, str]) -> str:
    """Returns the cluster's address for messages, or an empty string if none is set."""
    return kafka.get("bootstrap.servers", kafka.get("metadata.broker.list", ""))


def derive_login(kafka: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties that determine the address and the authentication."""
    return {name: value for name, value in kafka.items() if name.startswith(_LOGIN)}


def is_scram(mechanism: object) -> bool:
    """Returns whether the mechanism is a SCRAM mechanism, which escapes user names."""
    return str(mechanism).startswith("SCRAM-")


def derive_client_arguments(kafka: Mapping[str, str]) -> dict[str, object]:
    """Returns the arguments for kafka-python's clients.

    Raises PropertyRefused, which names the property and its replacement.
    """
    for name, remedy in UNUSABLE_KAFKA.items():
        if name in kafka:
            raise PropertyRefused(f"kafka property {name!r} cannot be used with transactions; {remedy}", property=name)
    arguments: dict[str, object] = {ARGUMENTS[name]: value for name, value in kafka.items() if name in ARGUMENTS}
    if "bootstrap_servers" not in arguments:
        raise PropertyRefused("kafka property 'bootstrap.servers' is missing; name at least one broker as host:port")
    servers = [server.strip() for server in str(arguments["bootstrap_servers"]).split(",") if server.strip()]
    arguments["bootstrap_servers"] = [server.split("://", 1)[-1] for server in servers]
    for name in ("security_protocol", "sasl_mechanism"):
        if name in arguments:
            arguments[name] = str(arguments[name]).upper()
    mechanism = arguments.get("sasl_mechanism")
    if is_scram(mechanism) and "sasl_plain_username" in arguments:
        # Required by RFC 5802. librdkafka escapes the name itself; kafka-python does not.
        arguments["sasl_plain_username"] = kafka["sasl.username"].replace("=", "=3D").replace(",", "=2C")
    if mechanism == "GSSAPI":
        raise PropertyRefused(
            f"kafka property 'sasl.mechanism' {mechanism} cannot be used with transactions; {_OTHERS}",
            property="sasl.mechanism",
        )
    if mechanism == OAUTH:
        missing = [name for name in (ENDPOINT, CLIENT, SECRET) if name not in kafka]
        if kafka.get("sasl.oauthbearer.method", "").lower() != "oidc" or missing:
            wanted = ", ".join(missing) or "sasl.oauthbearer.method: oidc"
            raise PropertyRefused(f"kafka property 'sasl.mechanism' {mechanism} also needs {wanted}; add it")
    return arguments


_PEM_FILES = "use ssl.certificate.location and ssl.key.location (PEM files)"
UNUSABLE_KAFKA: Final[Mapping[str, str]] = {
    "ssl.keystore.location": _PEM_FILES,
    "ssl.keystore.password": _PEM_FILES,
    "ssl.certificate.pem": "put it into a file and use ssl.certificate.location",
    "ssl.key.pem": "put it into a file and use ssl.key.location",
    "ssl.cipher.suites": "set the ciphers at the broker or in OpenSSL's configuration file",
    "ssl.ca.certificate.stores": "use ssl.ca.location: there are such stores on Windows only",
    "sasl.oauthbearer.metadata.authentication.type": "use `sasl.oauthbearer.method: oidc` with client credentials",
    "sasl.oauthbearer.config": "use `sasl.oauthbearer.method: oidc`, SCRAM, PLAIN or TLS client certificates",
}
"""Maps the name of a property to what to set instead."""


PRODUCER_DEFAULTS: Final[Mapping[str, str]] = {
    "linger.ms": "5",  # without transactions; with them, TRANSACTION_LINGER_MS
    "batch.size": str(1 << 20),
    "message.max.bytes": "1048588",  # the default of topics, so what Java clients wrote fits; librdkafka's is lower
    "partitioner": "murmur2_random",  # as in the Java clients: every client assigns a key to the same partition
    "queue.buffering.max.messages": "100000",
    "queue.buffering.max.kbytes": "16384",  # per open transaction; at most two are filled at a time
    "socket.timeout.ms": "15000",  # a hanging broker is given up then and its successor asked; the default is 60 s
    "log.connection.close": "false",
    "enable.metrics.push": "false",  # a producer lives for one interval, and would ask each time whether it is wanted
}
"""Defaults that the user may change."""

_BACKOFF: Final = "reconnect.backoff.ms"
_BACKOFF_MAX: Final = "reconnect.backoff.max.ms"
BACKOFF_MS: Final = 20
"""The client's first pause before it connects again; later ones are longer, up to `reconnect.backoff.max.ms`.

For half of it, the client waits between connections to two brokers, and so does every opening: 61 ms with librdkafka's
default of 100, and 18 ms with 20.
"""

TRANSACTION_LINGER_MS: Final = "50"
"""Records of a transaction become visible when it ends, and the flush at the barrier does not wait for linger, so the
client may batch for longer, which saves requests. The delay also lets the first records of a transaction reach a
partition after the other subtasks have flushed theirs of the previous interval. Behind an open transaction, readers
would see them one interval later.
"""

LARGE_MESSAGE_BYTES: Final = 4 << 20
"""From this `message.max.bytes` on, the queue size is derived from it, so that a few large records fit."""

ENGINE_OWNED: Final[Mapping[str, str]] = {
    "enable.idempotence": "true",
    "acks": "all",
    "allow.auto.create.topics": "false",  # producers default to true, which would create topics that were not requested
}
_TIMES: Final = ("message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms")


def largest_record(properties: Mapping[str, str]) -> int:
    """Returns the client's own limit for a record: bytes of key and value before compression."""
    return int(properties.get("message.max.bytes", PRODUCER_DEFAULTS["message.max.bytes"]))


def fit_batches(properties: Mapping[str, str], topics_bytes_max: Iterable[int | None]) -> dict[str, str]:
    """Limits the batch size to what every topic accepts. A broker rejects a larger batch as a whole, however small its
    records are.

    :param topics_bytes_max: `max.message.bytes` of each topic, which limits batches; None: unknown.
    """
    known = [limit for limit in topics_bytes_max if limit is not None]
    return {**properties, "batch.size": str(max(1, min([int(properties["batch.size"]), *known])))}


def derive_producer_properties(
    user: Mapping[str, str], transactional_id: TransactionalId | None, transaction_timeout_ms: int
) -> dict[str, str]:
    """Returns all properties of one producer. Without a transactional id it is a plain idempotent producer
    (at-least-once).
    """
    backoff_ms = min(BACKOFF_MS, int(user.get(_BACKOFF_MAX, BACKOFF_MS)))
    properties = {**PRODUCER_DEFAULTS, _BACKOFF: str(backoff_ms), **user}
    large = largest_record(properties)
    if large >= LARGE_MESSAGE_BYTES and "queue.buffering.max.kbytes" not in user:
        properties["queue.buffering.max.kbytes"] = str(4 * large // 1024)
    # Brokers may be unavailable for as long as the transaction lasts. Records that expired earlier would fail the
    # attempt.
    properties = {"message.timeout.ms": str(transaction_timeout_ms), **properties, **ENGINE_OWNED}
    if transactional_id is None:
        # Nothing proves the first batch of a plain producer (see `proof.py`), so no other batch may overtake it.
        properties["max.in.flight"] = "1"
    else:
        properties["linger.ms"] = user.get("linger.ms", TRANSACTION_LINGER_MS)
        properties["transactional.id"] = transactional_id
        properties["transaction.timeout.ms"] = str(transaction_timeout_ms)
        properties = limit_times(properties, transaction_timeout_ms)
    return properties


def limit_times(properties: Mapping[str, str], transaction_timeout_ms: int) -> dict[str, str]:
    """Caps the times that the client accepts only up to the transaction timeout."""
    given = [name for name in _TIMES if name in properties]
    return {**properties, **{name: str(min(int(properties[name]), transaction_timeout_ms)) for name in given}}
