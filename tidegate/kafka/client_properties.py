"""Translates librdkafka property names to kafka-python arguments, so that a pipeline file configures its brokers once.
Pure.

Only connection properties are translated; `tls.py` handles TLS. A property that determines *how securely or to whom*
the client connects, and that kafka-python cannot express, is rejected rather than dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.kafka.errors import PropertyRefused
from tidegate.kafka.oauth import CLIENT, ENDPOINT, MECHANISM, SECRET
from tidegate.kafka.unusable_properties import UNUSABLE_KAFKA

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
    if mechanism == MECHANISM:
        missing = [name for name in (ENDPOINT, CLIENT, SECRET) if name not in kafka]
        if kafka.get("sasl.oauthbearer.method", "").lower() != "oidc" or missing:
            wanted = ", ".join(missing) or "sasl.oauthbearer.method: oidc"
            raise PropertyRefused(f"kafka property 'sasl.mechanism' {mechanism} also needs {wanted}; add it")
    return arguments
