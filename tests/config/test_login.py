"""How to log in to a cluster, as the pipeline file says."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from tidegate.config.login import MECHANISMS, decide_login_problems
from tidegate.config.properties import decide_kafka_problems
from tidegate.settings.secrets import Text

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
    ],
)
def test_a_login_without_a_password_is_accepted(given: dict[str, Text]) -> None:
    assert decide_login_problems(given) == []


SASL = {"security.protocol": "sasl_ssl"}
PLAIN = {**SASL, "sasl.mechanism": "PLAIN"}
NO_TLS = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN", **USER}
KEY = {"security.protocol": "ssl", "ssl.key.location": "k"}


@pytest.mark.parametrize(
    ("given", "name", "words"),
    [
        (SASL, "security.protocol", "also needs `sasl.mechanism`"),
        ({**SASL, "sasl.mechanisms": "OAUTHBEARER"}, "sasl.mechanisms", "cannot be used"),
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
