"""librdkafka properties that kafka-python, the client for transactions, cannot use, each with a remedy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
