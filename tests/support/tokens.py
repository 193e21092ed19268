"""An OAuth token authority for tests, and a broker that authenticates clients by its tokens.

The endpoint issues JSON web tokens (RS256) to clients with the correct secret, and publishes its keys (JWKS). The
broker itself verifies signature, issuer, audience and time.
"""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tests.support.loopback_http import LoopbackHandler, LoopbackServer
from tests.support.secured_broker import SecuredBroker
from tidegate.dev.broker.server import reserve_ports

AUDIENCE: Final = "kafka"
KEY_ID: Final = "tests"
BODY_BYTES_MAX: Final = 1 << 16
_HANDLERS: Final = "org.apache.kafka.common.security.oauthbearer"


class TokenServer(LoopbackServer):
    """A token server as described in the module.

    `lifetime_s` may be changed while it runs; `away` makes it answer 503.
    """

    def __init__(self, client: str, secret: str, lifetime_s: float = 300.0) -> None:
        super().__init__(_Handler)
        self.lifetime_s = lifetime_s
        self.audience = AUDIENCE
        self.away = False
        self.given = 0
        """Number of tokens issued so far."""
        self._login = base64.b64encode(f"{client}:{secret}".encode()).decode()
        self._client = client
        self._key = rsa.generate_private_key(65537, 2048)

    @property
    def url(self) -> str:
        """The issuer."""
        return self.endpoint

    def token(self) -> str:
        """Issues a new token."""
        now = time.time()
        claims = {
            "iss": self.url,
            "sub": self._client,
            "aud": self.audience,
            "iat": int(now),
            "exp": int(now + self.lifetime_s),
        }
        signed = f"{_encode({'alg': 'RS256', 'typ': 'JWT', 'kid': KEY_ID})}.{_encode(claims)}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{_base64(signature)}"

    def keys(self) -> dict[str, Any]:
        """Returns the public keys as JWKS."""
        numbers = self._key.public_key().public_numbers()
        n, e = (_base64(number.to_bytes((number.bit_length() + 7) // 8, "big")) for number in (numbers.n, numbers.e))
        return {"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": KEY_ID, "n": n, "e": e}]}

    def answer(self, authorization: str, form: str) -> tuple[int, Any]:
        """Returns status and content of a response."""
        if self.away:
            return 503, {"error": "temporarily_unavailable"}
        if authorization != f"Basic {self._login}":
            return 401, {"error": "invalid_client"}
        if "grant_type=client_credentials" not in form:
            return 400, {"error": "unsupported_grant_type"}
        self.given += 1
        return 200, {"access_token": self.token(), "token_type": "Bearer", "expires_in": int(self.lifetime_s)}


class _Handler(LoopbackHandler):
    owner: TokenServer

    def do_GET(self) -> None:
        self._send(200, self.owner.keys())

    def do_POST(self) -> None:
        size = min(int(self.headers.get("Content-Length", "0")), BODY_BYTES_MAX)
        self._send(*self.owner.answer(self.headers.get("Authorization", ""), self.rfile.read(size).decode()))

    def _send(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class TokenBroker(SecuredBroker):
    """A broker with an additional listener that accepts tokens of a server over TLS. Sessions end with their tokens."""

    def __init__(self, directory: Path, server: TokenServer) -> None:
        (self._tokens,) = reserve_ports(1)
        keys = f"{server.url}/keys"
        prefix = "listener.name.tokens"
        super().__init__(
            directory,
            properties={
                f"{prefix}.sasl.enabled.mechanisms": "OAUTHBEARER",
                f"{prefix}.oauthbearer.sasl.jaas.config": f"{_HANDLERS}.OAuthBearerLoginModule required;",
                f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
                    f"{_HANDLERS}.OAuthBearerValidatorCallbackHandler"
                ),
                f"{prefix}.oauthbearer.connections.max.reauth.ms": "600000",
                f"{prefix}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys,
                f"{prefix}.oauthbearer.sasl.oauthbearer.expected.issuer": server.url,
                f"{prefix}.oauthbearer.sasl.oauthbearer.expected.audience": AUDIENCE,
                f"{prefix}.oauthbearer.sasl.oauthbearer.clock.skew.seconds": "1",
            },
        )
        self._jvm_options = [f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"]

    def _listeners(self) -> dict[str, str]:
        more = {
            "listeners": f"TOKENS://{self.tokens}",
            "advertised.listeners": f"TOKENS://{self.tokens}",
            "listener.security.protocol.map": "TOKENS:SASL_SSL",
        }
        return {name: f"{value},{more[name]}" for name, value in super()._listeners().items()}

    @property
    def tokens(self) -> str:
        """The address of OAUTHBEARER over TLS."""
        return f"127.0.0.1:{self._tokens}"


def _encode(value: Any) -> str:
    return _base64(json.dumps(value).encode())


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
