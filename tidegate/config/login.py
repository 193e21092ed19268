"""Checks the Kafka properties for TLS and authentication as a whole: what is missing, what has no effect. Pure.

librdkafka only warns of most mistakes, and brokers then close the connection without an explanation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.config.errors import PathProblem
from tidegate.config.fields.secrets import Text
from tidegate.config.properties import PROTOCOLS, property_problem

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
