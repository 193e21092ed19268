"""Secrets: which settings are secret, and the redaction of their values in all output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import SecretStr

REDACTED = "***"
MIN_REDACTED_LENGTH = 4
"""Shorter secrets are not searched for in texts, because that would redact ordinary words."""

_SECRET_KEY = re.compile(
    r"password|passphrase|secret|token(?!\.endpoint|.*\.url)|credential|access[.]?key|sasl\.jaas|sasl\.oauthbearer\.config"
    r"|ssl[._]key[._]?(pem)?$|private\.key|ssl\.keystore\.key",
    re.IGNORECASE,
)

Text = str | SecretStr


def is_secret_key(name: str) -> bool:
    """Tells whether a Kafka or Spark property of this name always holds a secret."""
    return _SECRET_KEY.search(name) is not None and not name.endswith((".file", ".location", ".url", ".ms"))


def reveal(properties: Mapping[str, Text]) -> dict[str, str]:
    """Returns the properties as clients need them. The result must not be shown: see `Redactor`."""
    return {
        name: value.get_secret_value() if isinstance(value, SecretStr) else value for name, value in properties.items()
    }


def render_properties(properties: Mapping[str, Text]) -> dict[str, str]:
    """Returns the properties with secrets redacted."""
    return {name: REDACTED if isinstance(value, SecretStr) else value for name, value in properties.items()}


class Redactor:
    """Replaces every known secret in a text."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self.values = frozenset(secret for secret in secrets if len(secret) >= MIN_REDACTED_LENGTH)
        longest_first = sorted(self.values, key=lambda secret: (-len(secret), secret))
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __call__(self, text: str) -> str:
        """Returns the text without secrets."""
        return self._pattern.sub(REDACTED, text) if self._pattern else text

    def __repr__(self) -> str:
        return f"Redactor({len(self.values)} secrets)"
