"""librdkafka property names to arguments of kafka-python, so that a pipeline file names its broker once. Pure.

Only what concerns the connection is translated; a property that changes *how safe or to whom* the connection is and
that kafka-python cannot express is refused rather than dropped.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from typing import Final

from tidegate.sinks.errors import SinkRefused

ARGUMENTS: Final[Mapping[str, str]] = {
    "bootstrap.servers": "bootstrap_servers",
    "metadata.broker.list": "bootstrap_servers",
    "client.id": "client_id",
    "security.protocol": "security_protocol",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "ssl.crl.location": "ssl_crlfile",
}

REFUSED: Final[Mapping[str, str]] = {
    "ssl.keystore.location": "use ssl.certificate.location and ssl.key.location (PEM files)",
    "ssl.keystore.password": "use ssl.certificate.location and ssl.key.location (PEM files)",
    "ssl.certificate.pem": "put it into a file and use ssl.certificate.location",
    "ssl.key.pem": "put it into a file and use ssl.key.location",
    "ssl.engine.location": "use ssl.certificate.location and ssl.key.location (PEM files)",
    "ssl.cipher.suites": "set the ciphers at the broker or in OpenSSL's configuration file",
    "sasl.oauthbearer.method": "use SCRAM, PLAIN or TLS client certificates",
    "sasl.oauthbearer.config": "use SCRAM, PLAIN or TLS client certificates",
}


def derive_client_arguments(kafka: Mapping[str, str]) -> dict[str, object]:
    """Arguments for kafka-python's clients. Raises SinkRefused, naming the property and what to use instead."""
    for name, remedy in REFUSED.items():
        if name in kafka:
            raise SinkRefused(f"kafka property {name!r} cannot be used with transactions; {remedy}", property=name)
    arguments: dict[str, object] = {ARGUMENTS[name]: value for name, value in kafka.items() if name in ARGUMENTS}
    if "bootstrap_servers" not in arguments:
        raise SinkRefused("kafka property 'bootstrap.servers' is missing; name at least one broker as host:port")
    servers = [server.strip() for server in str(arguments["bootstrap_servers"]).split(",") if server.strip()]
    arguments["bootstrap_servers"] = [server.split("://", 1)[-1] for server in servers]
    for name in ("security_protocol", "sasl_mechanism"):
        if name in arguments:
            arguments[name] = str(arguments[name]).upper()
    if arguments.get("sasl_mechanism") == "OAUTHBEARER":
        raise SinkRefused(
            f"kafka property 'sasl.mechanism' OAUTHBEARER cannot be used with transactions; "
            f"{REFUSED['sasl.oauthbearer.method']}",
            property="sasl.mechanism",
        )
    if str(arguments.get("security_protocol", "")).endswith("SSL"):
        _apply_verification(kafka, arguments)
    return arguments


def _apply_verification(kafka: Mapping[str, str], arguments: dict[str, object]) -> None:
    """Certificate checks: on with host names by default, as in librdkafka; a context of our own for PEM text."""
    verify_host = kafka.get("ssl.endpoint.identification.algorithm", "https").lower() != "none"
    verify = kafka.get("enable.ssl.certificate.verification", "true").lower() == "true"
    if verify and "ssl.ca.pem" not in kafka:
        arguments["ssl_check_hostname"] = verify_host
        return
    context = ssl.create_default_context(cafile=_taken(arguments, "ssl_cafile"), cadata=kafka.get("ssl.ca.pem"))
    context.check_hostname = verify and verify_host
    if not verify:
        context.verify_mode = ssl.CERT_NONE
    certificate = _taken(arguments, "ssl_certfile")
    key, password = _taken(arguments, "ssl_keyfile"), _taken(arguments, "ssl_password")
    if certificate is not None:
        context.load_cert_chain(certificate, key, _constant(password))
    arguments["ssl_context"] = context


def _taken(arguments: dict[str, object], name: str) -> str | None:
    value = arguments.pop(name, None)
    return None if value is None else str(value)


def _constant(password: str | None) -> Callable[[], str] | None:
    return None if password is None else lambda: password
