"""How to log in to a cluster, as the pipeline file says."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from tidegate.config.fields.secrets import Text
from tidegate.config.properties import MECHANISMS, decide_kafka_problems, decide_login_problems

USER: dict[str, Text] = {"sasl.username": "me", "sasl.password": SecretStr("secret")}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["sasl_ssl", "SASL_SSL", "sasl_plaintext"])
def test_a_whole_login_is_accepted_in_any_case(protocol: str, mechanism: str) -> None:
    given: dict[str, Text] = {"security.protocol": protocol, "sasl.mechanism": mechanism, **USER}
    assert decide_login_problems(given) + decide_kafka_problems(given, "both") == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"security.protocol": "ssl", "ssl.ca.location": "ca.pem"},
        {"security.protocol": "ssl", "ssl.certificate.location": "me.pem", "ssl.key.location": "me-key.pem"},
        {"security.protocol": SecretStr("ssl"), "ssl.ca.location": "ca.pem"},
        {"security.protocol": "sasl_plain", "ssl.ca.location": "reported for the protocol alone"},
    ],
)
def test_a_login_without_a_password_is_accepted(given: dict[str, Text]) -> None:
    assert decide_login_problems(given) == []


SASL = {"security.protocol": "sasl_ssl"}
PLAIN = {**SASL, "sasl.mechanism": "PLAIN"}
NO_TLS = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", **USER}
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKENS: dict[str, Text] = {
    **SASL,
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.method": "oidc",
    ENDPOINT: "https://identity.example/token",
    "sasl.oauthbearer.client.id": "tidegate",
    "sasl.oauthbearer.client.secret": SecretStr("secret"),
}


def without(name: str) -> dict[str, Text]:
    """Of the properties for tokens."""
    return {one: value for one, value in TOKENS.items() if one != name}


KEY = {"security.protocol": "ssl", "ssl.key.location": "k"}


def test_a_login_by_tokens_is_accepted() -> None:
    scoped = {**TOKENS, "sasl.oauthbearer.scope": "kafka", "https.ca.location": "ca.pem"}
    for given in (TOKENS, scoped):
        assert decide_login_problems(given) + decide_kafka_problems(given, "both") == []


def test_other_ways_to_a_token_are_refused() -> None:
    for name in ("assertion.file", "metadata.authentication.type", "client.credentials.client.id", "config"):
        given: dict[str, Text] = {**TOKENS, f"sasl.oauthbearer.{name}": "azure_imds"}
        found = decide_login_problems(given) + decide_kafka_problems(given, "both")
        assert [one.path for one in found] == [(f"sasl.oauthbearer.{name}",)], name


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [
        (SASL, "security.protocol", "also needs `sasl.mechanism`"),
        ({**SASL, "sasl.mechanisms": "GSSAPI"}, "sasl.mechanisms", "cannot be used"),
        (without(ENDPOINT), "sasl.mechanism", f"also needs `{ENDPOINT}`"),
        (without("sasl.oauthbearer.method"), "sasl.mechanism", "also needs `sasl.oauthbearer.method`"),
        ({**TOKENS, "sasl.oauthbearer.method": "default"}, "sasl.oauthbearer.method", "has `oidc` only"),
        ({**TOKENS, "sasl.oauthbearer.grant.type": BEARER}, "sasl.oauthbearer.grant.type", "has `client_credentials`"),
        ({**TOKENS, "sasl.username": "me"}, "sasl.username", "no effect with `OAUTHBEARER`"),
        ({**PLAIN, "sasl.username": "me"}, "sasl.mechanism", "password"),
        (USER, "sasl.username", "has no effect"),
        ({**NO_TLS, "ssl.ca.pem": "x"}, "ssl.ca.pem", "has no effect"),
        (KEY, "ssl.key.location", "`ssl.certificate.location` is missing"),
    ],
)
def test_what_is_missing_or_idle_is_told_at_its_property(given: dict[str, Text], name: str, words: str) -> None:
    (problem,) = decide_login_problems(given)
    assert problem.path == (name,)
    assert words in problem.message
    assert "secret" not in str(problem)
