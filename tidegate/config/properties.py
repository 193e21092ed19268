"""Kafka and Spark properties: which names exist, which values they take, which ones only Tidegate may set, and whether
those of a login fit together.

`librdkafka.json` is librdkafka's own list; the daemon checks against it without loading the library.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from importlib import resources
from typing import Final, Literal

import msgspec

from tidegate.config.errors import PathProblem
from tidegate.config.fields.secrets import REDACTED, Text, is_secret_key
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.fields.types import HOST_REMEDY, can_be_host
from tidegate.config.fields.units import render_duration
from tidegate.kafka.properties import PRODUCER_DEFAULTS, TRANSACTION_LINGER_MS, UNUSABLE_KAFKA

Side = Literal["both", "consumer", "producer"]
_NO_PASSWORD: Final = "remove it: `ssl.ca.location` is a file in PEM, which has no password"  # noqa: S105 - a remedy
_PEM: Final = "remove it: certificates and keys are files in PEM"
_KEYS: Final = "use `ssl.certificate.location` and `ssl.key.location` (PEM files)"
_FORMAT: Final = "remove it: `format` and `key_format` of the source or sink determine how records are read and written"
_REGISTRY: Final = "write it as `registry: {url: ...}` at the top of the file"
_REGISTRY_LOGIN: Final = "write `username` and `password` in `registry:` at the top of the file"
_START: Final = "set `start` of the source instead"
FOREIGN_PROPERTIES: Final[Mapping[str, str]] = {
    "ssl.truststore.location": "use `ssl.ca.location`: a file in PEM with the certificates to trust",
    "ssl.truststore.certificates": "use `ssl.ca.pem`, or a file and `ssl.ca.location`",
    "ssl.truststore.password": _NO_PASSWORD,
    "ssl.truststore.type": _PEM,
    "ssl.keystore.type": _PEM,
    "ssl.keystore.key": _KEYS,
    "ssl.keystore.certificate.chain": _KEYS,
    "sasl.jaas.config": "use `sasl.username` and `sasl.password`",
    "key.serializer": _FORMAT,
    "value.serializer": _FORMAT,
    "key.deserializer": _FORMAT,
    "value.deserializer": _FORMAT,
    "schema.registry.url": _REGISTRY,
    "schema.registry.basic.auth.user.info": _REGISTRY_LOGIN,
    "basic.auth.user.info": _REGISTRY_LOGIN,
    "basic.auth.credentials.source": _REGISTRY_LOGIN,
    "max.request.size": "use `message.max.bytes`",
    "buffer.memory": "use `queue.buffering.max.kbytes`",
    "default.api.timeout.ms": "use `socket.timeout.ms`",
    "subscribe": "write `topics` of the source",
    "subscribePattern": "write `pattern` of the source",
    "startingOffsets": _START,
    "startingTimestamp": _START,
    "startingOffsetsByTimestamp": _START,
    "endingOffsets": "set `until` of the source instead",
    "failOnDataLoss": "set `on_lost_input` of the source instead",
}
"""Properties of other Kafka clients, Java's and Spark's, that users write in a pipeline file -> remedy.

librdkafka has none of these names.
"""
_SPARKS: Final = "kafka."


class KafkaProperty(msgspec.Struct, frozen=True):
    """A property of librdkafka; `range` is `low .. high`, or the allowed values, or empty."""

    side: Side
    type: str
    range: str = ""
    alias_of: str = ""


_POSITIONS = "Tidegate keeps the positions of a source in its checkpoints"
_GROUP = "sources are assigned by Tidegate, not by a consumer group"
_ORDER = "exactly once and order per key need Tidegate's value"
_CALLBACK = "it can be set by program code only"
OWNED_KAFKA: Mapping[str, tuple[str, str]] = {
    "transactional.id": ("Tidegate names its transactions after pipeline, sink and subtask", "remove it"),
    "transaction.timeout.ms": (
        "the timeout belongs to the checkpoints",
        "set `checkpoints.transaction_timeout` instead",
    ),
    "allow.auto.create.topics": ("the pipeline never creates topics", "remove it"),
    "enable.idempotence": (_ORDER, "remove it"),
    "request.required.acks": (_ORDER, "remove it"),
    "max.in.flight.requests.per.connection": (_ORDER, "remove it"),
    "message.send.max.retries": (_ORDER, "remove it"),
    "message.timeout.ms": (_ORDER, "remove it"),
    "enable.gapless.guarantee": (_ORDER, "remove it"),
    "queuing.strategy": (_ORDER, "remove it"),
    "queue.buffering.backpressure.threshold": (_ORDER, "remove it"),
    "partitioner": ("a key must reach the same partition whoever writes it (murmur2, as in Java)", "remove it"),
    "delivery.report.only.error": ("Tidegate counts failed deliveries itself", "remove it"),
    "enable.auto.commit": (_POSITIONS, "remove it"),
    "auto.commit.enable": (_POSITIONS, "remove it"),
    "auto.commit.interval.ms": (_POSITIONS, "remove it"),
    "enable.auto.offset.store": (_POSITIONS, "remove it"),
    "offset.store.method": (_POSITIONS, "remove it"),
    "offset.store.path": (_POSITIONS, "remove it"),
    "offset.store.sync.interval.ms": (_POSITIONS, "remove it"),
    "auto.offset.reset": (_POSITIONS, "set `start` of the source instead"),
    "enable.partition.eof": ("Tidegate needs it to know when a source has caught up", "remove it"),
    "isolation.level": ("an aborted record must never be read", "remove it: it is always read_committed"),
    "group.id": ("the group is named after the pipeline", "set `name` instead"),
    "group.instance.id": (_GROUP, "remove it"),
    "group.protocol": (_GROUP, "remove it"),
    "group.remote.assignor": (_GROUP, "remove it"),
    "group.protocol.type": (_GROUP, "remove it"),
    "partition.assignment.strategy": (_GROUP, "remove it"),
    "session.timeout.ms": (_GROUP, "set `runtime.heartbeat_timeout` for slots instead"),
    "heartbeat.interval.ms": (_GROUP, "set `runtime.heartbeat_interval` for slots instead"),
    "max.poll.interval.ms": (_GROUP, "remove it"),
    "coordinator.query.interval.ms": (_GROUP, "remove it"),
    "internal.termination.signal": ("signals belong to the daemon", "remove it"),
    "builtin.features": ("it describes how the library was built", "remove it"),
    "enabled_events": (_CALLBACK, "remove it"),
}
"""Names -> (reason, remedy). Aliases of these names are also reserved."""

_LOADS_CODE = "it loads code into the daemon's slots, which have its passwords and its files"
_OTHER_LOGIN = "use SCRAM, PLAIN or TLS client certificates"
_OPENSSL = "remove it; what every program of a machine needs belongs in OpenSSL's configuration file there"
REFUSED_KAFKA: Mapping[str, tuple[str, str]] = {
    "plugin.library.paths": (_LOADS_CODE, "remove it"),
    "ssl.engine.location": (_LOADS_CODE, _OPENSSL),
    "ssl.engine.id": (_LOADS_CODE, _OPENSSL),
    "ssl.providers": (_LOADS_CODE, _OPENSSL),
    "sasl.kerberos.kinit.cmd": ("it is a command, which the slots would run", _OTHER_LOGIN),
}
"""Names -> (reason, remedy). librdkafka accepts these, but a pipeline file is data.

It is often written by others than those who run it.
"""

CONNECT: Final = "the daemon is a Spark driver itself, because Spark Connect has no barrier jobs"
OWNED_SPARK: Mapping[str, tuple[str, str]] = {
    "spark.master": ("it has its own setting here", "set `spark.master` as `master` inside `spark:`"),
    "spark.app.name": ("the application is named after the pipeline", "set `name` instead"),
    "spark.dynamicAllocation.enabled": (
        "slots are a barrier job, which needs a fixed number of executors",
        "remove it and set `spark.executor.instances`",
    ),
    "spark.speculation": ("a slot must not run twice", "remove it"),
    "spark.task.maxFailures": ("Tidegate restarts attempts itself", "see `restart`"),
    "spark.python.worker.reuse": ("every attempt needs fresh Python workers", "remove it"),
    "spark.remote": (CONNECT, "remove it, and set `master`"),
    "spark.api.mode": (CONNECT, "remove it"),
}

_SERVER = re.compile(r"([A-Za-z0-9+_]+://)?(\[[0-9a-fA-F:.%]+\]|[^\s,:/]+)(:[0-9]{1,5})?", re.ASCII)
PROTOCOLS: Final = frozenset({"plaintext", "ssl", "sasl_plaintext", "sasl_ssl"})
"""Values of `security.protocol`, in lower case."""
_KEEP_ONE: Final = "keep one of them"
SERVERS: Final = frozenset({"bootstrap.servers", "metadata.broker.list"})
_SPARK_NAME = re.compile(r"spark\.[A-Za-z0-9_.\-]{1,200}", re.ASCII)
_RANGE = re.compile(r"(-?[0-9]+) \.\. (-?[0-9]+)", re.ASCII)
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})", re.ASCII)
_DECIMAL = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?", re.ASCII)


def property_problem(name: str, message: str, remedy: str) -> PathProblem:
    """Returns a problem of a property itself, not of its value; its path is the name alone."""
    return PathProblem((name,), message, remedy, at_key=True)


@functools.cache
def read_kafka_properties() -> Mapping[str, KafkaProperty]:
    """Reads the list of librdkafka, from the file next to this module."""
    text = resources.files("tidegate.config").joinpath("librdkafka.json").read_text(encoding="utf-8")
    return msgspec.convert(json.loads(text), dict[str, KafkaProperty])


def decide_kafka_problems(properties: Mapping[str, Text], side: Side) -> list[PathProblem]:
    """Returns all problems of a map of Kafka properties; `side` is the kind of client that uses it."""
    known = read_kafka_properties()
    problems: list[PathProblem] = []
    for name, value in properties.items():
        entry = known.get(name)
        if entry is None:
            remedy = _find_remedy(name, known) or derive_suggestion(name, known, "")
            problems.append(property_problem(name, "librdkafka has no such property", remedy))
            continue
        owned = OWNED_KAFKA.get(entry.alias_of or name) or OWNED_KAFKA.get(name)
        if owned is not None:
            problems.append(property_problem(name, f"belongs to Tidegate: {owned[0]}", owned[1]))
        elif name in REFUSED_KAFKA:
            reason, remedy = REFUSED_KAFKA[name]
            problems.append(property_problem(name, f"is refused: {reason}", remedy))
        elif name in UNUSABLE_KAFKA:
            message = "cannot be used: the client that ends transactions does not know it"
            problems.append(property_problem(name, message, UNUSABLE_KAFKA[name]))
        elif entry.type == "see dedicated API":
            problems.append(property_problem(name, _CALLBACK, "remove it"))
        elif side != "both" and entry.side not in ("both", side):
            other = "sinks" if entry.side == "producer" else "sources"
            problems.append(
                property_problem(name, f"is a property of the {entry.side}", f"move it to {other} or to `kafka:`")
            )
        elif isinstance(value, str):
            problems += _value_problems(name, value, entry)
    return [*problems, *_twice(properties), *_protocol_problems(properties)]


def find_other_name(name: str, properties: Iterable[str]) -> str:
    """Returns another given name of the same property, or nothing. librdkafka uses whichever comes last."""
    wanted = _true_name(name)
    return next((one for one in properties if one != name and _true_name(one) == wanted), "")


def _true_name(name: str) -> str:
    entry = read_kafka_properties().get(name)
    return name if entry is None else entry.alias_of or name


def _twice(properties: Mapping[str, Text]) -> list[PathProblem]:
    problems, seen = [], list[str]()
    for name in properties:
        other = find_other_name(name, seen)
        if other and not name.startswith("sasl.oauthbearer."):  # one of their names is accepted, the other refused
            problems.append(property_problem(name, f"is another name of `{other}`, which is also set", _KEEP_ONE))
        seen.append(name)
    return problems


def derive_client_properties(properties: Mapping[str, Text], side: Side) -> dict[str, Text]:
    """Returns the properties for a consumer or a producer; librdkafka warns about others and refuses unknown ones."""
    known = read_kafka_properties()
    return {name: value for name, value in properties.items() if name in known and known[name].side in ("both", side)}


_OUTPUT: Final[Mapping[str, tuple[str, str]]] = {
    "compression.type": ("compression.codec", "none"),
    "linger.ms": ("queue.buffering.max.ms", PRODUCER_DEFAULTS["linger.ms"]),
    "batch.size": ("", PRODUCER_DEFAULTS["batch.size"]),
    "batch.num.messages": ("", "10000"),
    "message.max.bytes": ("", PRODUCER_DEFAULTS["message.max.bytes"]),
}
"""Properties that decide how large output is and in how many requests it is sent: another name, and the default."""


def derive_output_properties(user: Mapping[str, str], *, transactional: bool) -> dict[str, str]:
    """Returns the properties that decide the size of output, with their defaults.

    A topic whose `max.message.bytes` is below `batch.size` gets smaller batches (`fit_batches`).
    """
    known = {**({"linger.ms": TRANSACTION_LINGER_MS} if transactional else {}), **user}
    return {name: user.get(alias, known.get(name, default)) for name, (alias, default) in _OUTPUT.items()}


def _value_problems(name: str, value: str, entry: KafkaProperty) -> list[PathProblem]:
    shown = REDACTED if is_secret_key(name) else value[:60]
    choices = [choice.strip() for choice in entry.range.split(",") if choice.strip()]
    found: list[tuple[str, str]] = []
    if name in SERVERS:
        found += _server_problems(value)
    if entry.type == "boolean" and value not in ("true", "false"):
        found.append((f"expected true or false, got `{shown}`", "write true or false"))
    elif entry.type == "enum value" and choices and value.lower() not in map(str.lower, choices):
        found.append((f"`{shown}` is not a value of this property", derive_suggestion(value, choices)))
    elif entry.type == "CSV flags" and choices:
        flags = [flag.strip() for flag in value.split(",")]
        found += [
            (f"`{flag[:60]}` is not a flag of it", derive_suggestion(flag, choices))
            for flag in flags
            if flag not in choices
        ]
    elif entry.type in ("integer", "float"):
        found += _number_problems(value, shown, entry)
    return [PathProblem((name,), message, remedy) for message, remedy in found]


def _protocol_problems(properties: Mapping[str, Text]) -> list[PathProblem]:
    """Checks the protocol of addresses: librdkafka ignores a broker whose protocol is not `security.protocol`."""
    protocol = properties.get("security.protocol", "plaintext")
    if not isinstance(protocol, str):
        return []  # a secret must not be shown
    problems = []
    for name in sorted(SERVERS & properties.keys()):
        value = properties[name]
        for server in map(str.strip, value.split(",") if isinstance(value, str) else []):
            scheme, separator, address = server.partition("://")
            if not separator or scheme.lower() == protocol.lower() or not _SERVER.fullmatch(server):
                continue
            if scheme.lower() in PROTOCOLS and protocol.lower() in PROTOCOLS:
                message = f"`{server[:60]}` is left out: `security.protocol` is `{protocol[:30]}`"
                problems.append(PathProblem((name,), message, f"write {address[:60]}, and the protocol there"))
            elif scheme.lower() not in PROTOCOLS:
                message = f"`{server[:60]}` is not a Kafka address"
                problems.append(PathProblem((name,), message, f"write {address[:60]}"))
    return problems


def _server_problems(value: str) -> list[tuple[str, str]]:
    found = []
    for server in map(str.strip, value.split(",")):
        match = _SERVER.fullmatch(server)
        if match is None or (match[3] is not None and not 0 < int(match[3][1:]) < 65536):
            found.append((f"`{server[:60]}` is not a broker address", "write host:port, host:port"))
        elif not can_be_host(match[2]):
            found.append((f"`{match[2][:60]}` is not a host", HOST_REMEDY))
    return found


def _number_problems(value: str, shown: str, entry: KafkaProperty) -> list[tuple[str, str]]:
    pattern = _NUMBER if entry.type == "integer" else _DECIMAL
    if not pattern.fullmatch(value):
        return [(f"expected a number, got `{shown}`", "librdkafka takes plain numbers: no unit, no leading zero")]
    limits = _RANGE.fullmatch(entry.range)
    if limits and not int(limits[1]) <= float(value) <= int(limits[2]):
        return [(f"{value} is out of range", f"use {limits[1]} to {limits[2]}")]
    return []


def decide_spark_problems(properties: Mapping[str, Text]) -> list[PathProblem]:
    """Returns all problems of the names in `spark:`; Spark checks the values."""
    problems: list[PathProblem] = []
    for name in properties:
        if name == "master":
            continue
        if name in OWNED_SPARK:
            reason, remedy = OWNED_SPARK[name]
            problems.append(property_problem(name, f"belongs to Tidegate: {reason}", remedy))
        elif not _SPARK_NAME.fullmatch(name):
            hint = "did you mean `master`?" if name in ("mster", "Master", "spark_master") else ""
            problems.append(
                property_problem(name, "is not a Spark property", hint or "use `master` or a name with `spark.`")
            )
    return problems


def _find_remedy(name: str, known: Collection[str]) -> str:
    """Returns what to write instead of a property, or nothing if it is unknown; `known` are the names of librdkafka."""
    plain = name.removeprefix(_SPARKS)
    if plain != name and (plain in known or plain in FOREIGN_PROPERTIES):
        return FOREIGN_PROPERTIES.get(plain, f"write `{plain}`: the names here have no `{_SPARKS}` in front")
    return FOREIGN_PROPERTIES.get(name, "")


# -- properties that are valid alone, but together make librdkafka refuse to create a client ---------------------------
# The numbers are librdkafka's defaults, overridden by those of `sources/tools.py` and
# `kafka/properties.py`. A test compares them with the library.

RECONNECT_MAX_MS: Final = 10_000
RECONNECT_MS: Final = 100
MESSAGE_BYTES: Final = 1_000_000
RECORD_BYTES: Final = 1_048_588
"""Tidegate's default for a sink's producer."""
FETCH_BYTES: Final = 52_428_800
PREFETCH_KB: Final = 16_384
RECEIVE_MORE_BYTES: Final = 512
FETCH_MIN_BYTES: Final = (1, 100_000_000)
"""librdkafka's list has other limits."""
DELIVERY_MS: Final = 120_000
LINGER_MAX_MS: Final = 900_000
"""A higher value is refused on its own."""
_LINGER: Final = ("linger.ms", "queue.buffering.max.ms")


def decide_limit_problems(properties: Mapping[str, Text], side: Side, transaction_ms: int) -> list[PathProblem]:
    """Returns why a client could not be created; `properties` are all that it receives.

    :param transaction_ms: the timeout of a producer's transactions.
    """
    found = [*_reconnecting(properties), *_fetching(properties)]
    if side != "consumer":
        found += [*_producing(properties, transaction_ms), *_queueing(properties)]
    return found


def _reconnecting(properties: Mapping[str, Text]) -> Iterator[PathProblem]:
    name, limit = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
    least = _number(properties, name, RECONNECT_MS)
    most = _number(properties, limit, RECONNECT_MAX_MS)
    if least > most:
        message = f"{least:g} is more than `{limit}`, {most:g}"
        yield PathProblem((name if name in properties else limit,), message, f"make `{limit}` at least as long")
    name, limit = "https.ca.location", "https.ca.pem"
    if name in properties and limit in properties:
        yield property_problem(name, f"`{limit}` is also set", "keep one of them")
    if properties.get("broker.version.fallback") == "":
        yield PathProblem(("broker.version.fallback",), "is empty", "remove it: brokers report their features")


def _fetching(properties: Mapping[str, Text]) -> Iterator[PathProblem]:
    """Checks limits of fetching; also for sinks, whose properties are used to read lost transactions again."""
    name, (least, most) = "fetch.min.bytes", FETCH_MIN_BYTES
    wanted = _number(properties, name, least)
    if not least <= wanted <= most:
        yield PathProblem((name,), f"{wanted:.0f} is out of range", f"use {least} to {most}")
    name = "fetch.max.bytes"
    record = _number(properties, "message.max.bytes", MESSAGE_BYTES)
    prefetch = 1024 * _number(properties, "queued.max.messages.kbytes", PREFETCH_KB)
    fetch = _number(properties, name, max(min(FETCH_BYTES, prefetch), record))
    if fetch < record:
        message = f"{fetch:.0f} is less than `message.max.bytes`, {record:.0f}"
        yield PathProblem((name,), message, "make it at least as much, or remove it")
    name = "receive.message.max.bytes"
    needed = fetch + RECEIVE_MORE_BYTES
    if (receive := _number(properties, name, needed)) < needed:
        message = f"{receive:.0f} is less than `fetch.max.bytes` and {RECEIVE_MORE_BYTES}, {needed:.0f}"
        yield PathProblem((name,), message, f"make it at least {needed:.0f}, or remove it")


def _producing(properties: Mapping[str, Text], transaction_ms: int) -> Iterator[PathProblem]:
    limit_ms = min(DELIVERY_MS, transaction_ms)
    for name in _LINGER:
        linger_ms = _number(properties, name, 0)
        if limit_ms <= linger_ms <= LINGER_MAX_MS:
            message = f"{linger_ms:g} ms is not less than the delivery timeout of a record, "
            yield PathProblem(
                (name,), message + render_duration(limit_ms), "records would wait that long: make it shorter"
            )


def _queueing(properties: Mapping[str, Text]) -> Iterator[PathProblem]:
    """Checks the queue limits: with these the client starts, but records never fit and the sink would wait forever."""
    name, record = "queue.buffering.max.kbytes", _number(properties, "message.max.bytes", RECORD_BYTES)
    queue_kb = _number(properties, name, record)
    if 1024 * queue_kb < record:
        message = f"{queue_kb:.0f} kB are less than `message.max.bytes`, {record:.0f} bytes: no such record has room"
        yield PathProblem((name,), message, f"make it at least {-(-record // 1024):.0f}, or lower `message.max.bytes`")
    name = "queue.buffering.max.messages"
    if _number(properties, name, 1) < 1:
        yield PathProblem(
            (name,), "0 means unlimited, and the queue of a sink must be limited", "use 1 or more, or remove it"
        )


def _number(properties: Mapping[str, Text], name: str, default: float) -> float:
    """Returns the given value if it is a number; others are reported elsewhere."""
    value = properties.get(name)
    try:
        return float(value) if isinstance(value, str) else default
    except ValueError:
        return default


# -- TLS and authentication as a whole: what is missing, what has no effect --------------------------------------------
# librdkafka only warns of most mistakes, and brokers then close the connection without an explanation.

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""Mechanisms with a password. Kerberos is missing because the client from PyPI is built without it."""
TOKENS: Final = "OAUTHBEARER"

_MECHANISM: Final = ("sasl.mechanism", "sasl.mechanisms")
_CREDENTIALS: Final = ("sasl.username", "sasl.password")
_METHOD: Final = "sasl.oauthbearer.method"
_GRANT: Final = "sasl.oauthbearer.grant.type"
_TOKEN_CREDENTIALS: Final = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
)
_OTHER_WORDS: Final = ("scope", "extensions", "config", "metadata.authentication.type")
_TOKEN_WORDS: Final = frozenset(
    {_METHOD, _GRANT, *_TOKEN_CREDENTIALS, *(f"sasl.oauthbearer.{word}" for word in _OTHER_WORDS)}
)
"""The last two are refused elsewhere."""
_UNSIGNED: Final = "enable.sasl.oauthbearer.unsecure.jwt"
_SASL_ONLY: Final = (*_CREDENTIALS, *_MECHANISM)
_TLS_ONLY: Final = ("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location")


def decide_login_problems(properties: Mapping[str, Text]) -> list[PathProblem]:
    """Returns all problems of TLS and authentication; `properties` are all that a client receives."""
    given = properties.get("security.protocol", "plaintext")
    if not isinstance(given, str):
        return []  # a secret must not be shown
    protocol = given.lower()
    if protocol not in PROTOCOLS:
        return []  # reported elsewhere; its requirements are unknown
    problems = _sasl(protocol, properties) if protocol.startswith("sasl_") else _idle(protocol, "sasl", properties)
    if not protocol.endswith("ssl"):
        problems += _idle(protocol, "ssl", properties)
    elif ("ssl.certificate.location" in properties) != ("ssl.key.location" in properties):
        missing, there = sorted(["ssl.certificate.location", "ssl.key.location"], key=lambda name: name in properties)
        problems.append(
            property_problem(there, f"`{missing}` is missing", "a client certificate needs both, as PEM files")
        )
    return problems


def _sasl(protocol: str, properties: Mapping[str, Text]) -> list[PathProblem]:
    named = [name for name in _MECHANISM if name in properties]
    offered = " or ".join((*MECHANISMS, TOKENS))
    if not named:
        text = f"`{protocol}` also needs `sasl.mechanism`"
        return [PathProblem(("security.protocol",), text, f"add it: {offered}")]
    given = properties[named[0]]
    if not isinstance(given, str):
        return []  # a secret or an unreadable value cannot be checked
    mechanism = given.upper()
    if mechanism == TOKENS:
        return _tokens(named[0], properties)
    if mechanism not in MECHANISMS:
        text = f"`{mechanism[:30]}` cannot be used"
        return [PathProblem((named[0],), text, f"use {offered}, or TLS client certificates")]
    return [
        PathProblem((named[0],), f"`{mechanism}` also needs `{name}`", f"add `{name}`")
        for name in _CREDENTIALS
        if name not in properties
    ]


def _tokens(mechanism: str, properties: Mapping[str, Text]) -> list[PathProblem]:
    """Checks OAUTHBEARER: both clients support only OIDC with client credentials."""
    problems = [
        PathProblem((mechanism,), f"`{TOKENS}` also needs `{name}`", f"add `{name}`")
        for name in (_METHOD, *_TOKEN_CREDENTIALS)
        if name not in properties
    ]
    for name, only in ((_METHOD, "oidc"), (_GRANT, "client_credentials")):
        given = properties.get(name, only)
        if isinstance(given, str) and given.lower() != only:
            text = f"`{given[:60]}` cannot be used: the client that ends transactions has `{only}` only"
            problems.append(PathProblem((name,), text, f"write `{only}`"))
    problems += [
        property_problem(name, "cannot be used: the client that ends transactions does not know it", "remove it")
        for name in properties
        if (name.startswith("sasl.oauthbearer.") and name not in _TOKEN_WORDS) or name == _UNSIGNED
    ]
    problems += [
        property_problem(name, f"has no effect with `{TOKENS}`", "remove it")
        for name in _CREDENTIALS
        if name in properties
    ]
    return problems


def _idle(protocol: str, kind: str, properties: Mapping[str, Text]) -> list[PathProblem]:
    """Reports properties without effect under `security.protocol`, which users may believe to be in force."""
    names = [name for name in (_TLS_ONLY if kind == "ssl" else _SASL_ONLY) if name in properties]
    wanted = "`ssl` or `sasl_ssl`" if kind == "ssl" else "`sasl_ssl`"
    text = f"has no effect: `security.protocol` is `{protocol[:30]}`"
    return [property_problem(name, text, f"set that to {wanted}, or remove this") for name in names[:1]]
