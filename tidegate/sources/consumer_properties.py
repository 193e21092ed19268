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


def derive_consumer_properties(user: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties with our defaults, as far as the library accepts them together with the user's."""
    longest = max(int(DEFAULTS[_BACKOFF_MAX]), int(user.get(_BACKOFF, "0")))
    return {**DEFAULTS, _BACKOFF_MAX: str(longest), **user}
