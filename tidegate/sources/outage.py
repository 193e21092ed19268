"""That brokers do not answer, as a source's client says it: reported once, and once when they do again."""

from __future__ import annotations

import logging
from typing import Final

import confluent_kafka as ck

from tidegate.clock import Clock

_LOG = logging.getLogger("tidegate.sources")

LOOK_SECONDS: Final = 1.0
"""Between two looks while nobody answers; no look waits longer."""
_OUTAGE_REPORT_SECONDS: Final = 4.0


class Outage:
    """Of one source. librdkafka keeps trying for ever.

    Its errors say when to begin to look: it repeats them seldom, and an idle topic never says that all is well.
    """

    def __init__(self, source: str, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._since: float | None = None
        self._told = False
        self._looked = 0.0
        self.last = "no error was reported"

    def due(self) -> bool:
        """Whether to look again whether somebody answers."""
        now = self._clock.monotonic()
        if self._since is None or now - self._looked < LOOK_SECONDS:
            return False
        self._looked = now
        return True

    def on_error(self, error: ck.KafkaError) -> None:
        """An error that waiting may cure."""
        now = self._clock.monotonic()
        self.last = error.str()
        if self._since is None:
            self._since = now
        if not self._told and now - self._since >= _OUTAGE_REPORT_SECONDS:
            self._told = True
            seconds = now - self._since
            _LOG.warning("source %s: no answer from its brokers for %.0f s: %s", self._source, seconds, self.last)

    def end(self) -> None:
        """Somebody answers, or a record came."""
        if self._told and self._since is not None:
            away = self._clock.monotonic() - self._since
            _LOG.warning("source %s: its brokers answer again, after %.0f s", self._source, away)
        self._since, self._told = None, False
