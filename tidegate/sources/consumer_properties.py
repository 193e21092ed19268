"""librdkafka properties of a source's consumers: our defaults, overridden by the user's. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_BACKOFF: Final = "reconnect.backoff.ms"
_BACKOFF_MAX: Final = "reconnect.backoff.max.ms"

DEFAULTS: Final[Mapping[str, str]] = {
    "fetch.wait.max.ms": "20",
    "fetch.queue.backoff.ms": "5",  # librdkafka's 1000 stalls a partition for a second when the prefetch queue is full
    "fetch.message.max.bytes": str(2**20),
    "queued.max.messages.kbytes": "16384",
    "queued.min.messages": "20000",
    "socket.timeout.ms": "15000",  # a hanging broker is dropped then, and its successor asked; the default is 60 s
    _BACKOFF_MAX: "1000",  # the default of 10 s would add as much to every recovery
}
"""Defaults where the pipeline file sets nothing."""

GATHERED_BYTES: Final = 64 << 10
"""Brokers answer at once where this much is waiting: a backlog is not slowed down."""
_OF_FETCHES: Final = ("fetch.", "max.partition.fetch.bytes", "socket.timeout.ms")
"""Properties of the user that together with ours could make a fetch wait although there is plenty, or be refused."""


def derive_consumer_properties(user: Mapping[str, str], linger_s: float = 0.0) -> dict[str, str]:
    """Returns the properties with our defaults, as far as the library accepts them together with the user's.

    Records may wait for others for `linger_s`. They then wait at the broker, which saves fetches: at 2,000 records a
    second in two slots a tenth of a core here, and as much in the broker.
    """
    longest = max(int(DEFAULTS[_BACKOFF_MAX]), int(user.get(_BACKOFF, "0")))
    properties = {**DEFAULTS, _BACKOFF_MAX: str(longest), **user}
    linger_ms = round(linger_s * 1000)
    if linger_ms > int(DEFAULTS["fetch.wait.max.ms"]) and not any(name.startswith(_OF_FETCHES) for name in user):
        properties |= {"fetch.wait.max.ms": str(linger_ms), "fetch.min.bytes": str(GATHERED_BYTES)}
    return properties
