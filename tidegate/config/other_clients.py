"""Remedies for properties of other Kafka clients, Java's and Spark's, that users write in a pipeline file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_NO_PASSWORD: Final = "remove it: `ssl.ca.location` is a file in PEM, which has no password"  # noqa: S105 - a remedy
_PEM: Final = "remove it: certificates and keys are files in PEM"
_KEYS: Final = "use `ssl.certificate.location` and `ssl.key.location` (PEM files)"
_FORMAT: Final = "remove it: `format` and `key_format` of the source or sink say how records are read and written"
_REGISTRY: Final = "write it as `registry: {url: ...}` at the top of the file"
_REGISTRY_LOGIN: Final = "write `username` and `password` in `registry:` at the top of the file"
_START: Final = "set `start` of the source instead"

REMEDIES: Final[Mapping[str, str]] = {
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
"""Names -> remedy. librdkafka has none of these names."""
_SPARKS: Final = "kafka."


def find_remedy(name: str, known: Collection[str]) -> str:
    """Returns what to write instead of a property, or nothing if it is unknown; `known` are the names of librdkafka."""
    plain = name.removeprefix(_SPARKS)
    if plain != name and (plain in known or plain in REMEDIES):
        return REMEDIES.get(plain, f"write `{plain}`: the names here have no `{_SPARKS}` in front")
    return REMEDIES.get(name, "")
