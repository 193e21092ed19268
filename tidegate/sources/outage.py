"""Brokers that do not answer a source, and certificates that were replaced meanwhile."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import confluent_kafka as ck

from tidegate.clock import Clock
from tidegate.kafka.tls import RENEWAL_S
from tidegate.sources.errors import SourceUnavailable

if TYPE_CHECKING:
    from tidegate.kafka.diagnosis import Obstacle

_LOG = logging.getLogger("tidegate.sources")

CHECK_SECONDS: Final = 1.0
"""Seconds between two checks while no broker answers; no check waits longer."""
_REPORT_SECONDS: Final = 4.0
_HEARD_SECONDS: Final = 60.0
"""An outage begins at the last answer, unless that is older: an idle topic produces no answers that its reader sees."""
_EXPLAIN_SECONDS: Final = 30.0
"""Seconds between two searches for the obstacle: brokers may come back and refuse the login."""
# ruff: noqa: SLF001 - the client names its own error codes with an underscore: they are public
_VAGUE: Final = frozenset({ck.KafkaError._TRANSPORT, ck.KafkaError._TIMED_OUT, ck.KafkaError._ALL_BROKERS_DOWN})
"""Errors that only report missing answers. Another error may have given the reason, and the client rarely
repeats it.
"""


class Outage:
    """The state of an outage: reported once when the brokers stop answering and once when they answer again.

    librdkafka retries forever. Its errors trigger the first check: it repeats them rarely, and an idle topic never
    reports a recovery. `files` returns a stamp of the certificates, which a client reads only when it is created.
    """

    def __init__(self, source: str, clock: Clock, files: Callable[[], object] = lambda: None) -> None:
        self._source = source
        self._clock = clock
        self._files = files
        self._files_before = files()
        self._renewal: tuple[object, float] | None = None
        """The files at an error or a later check, and when; None while they are those of the client."""
        self._since: float | None = None
        """The first error of an outage, which comes late: up to half a minute after the last answer."""
        self._heard = -math.inf
        self._began = 0.0
        self._least = ""
        self._told = False
        self._checked = 0.0
        self._explain_at = math.inf
        self.last = "no error was reported"

    def due(self) -> bool:
        """Returns whether to check again whether a broker answers."""
        now = self._clock.monotonic()
        if self._since is None or now - self._checked < CHECK_SECONDS:
            return False
        self._checked = now
        return True

    def check(self) -> None:
        """Raises SourceUnavailable if there was an error and all certificates have been replaced since the client read
        them.
        """
        if self._renewal is None:
            return
        (files, since), now = self._renewal, self._clock.monotonic()
        if now - since < RENEWAL_S:
            return
        found = self._files()
        if found != files:
            self._renewal = None if found == self._files_before else (found, now)
            return
        raise SourceUnavailable(
            f"source {self._source}: {self.last}; its certificates were replaced after its client had read them: "
            f"the next attempt reads the new ones",
            source=self._source,
        )

    def inspect(self, find_obstacle: Callable[[], Obstacle | None]) -> None:
        """Determines what blocks the connection, when a report is due and periodically after it.

        Raises SourceUnavailable if waiting does not help: the client would repeat the same login forever.
        """
        if self._since is None or self._clock.monotonic() < self._explain_at:
            return
        obstacle = find_obstacle()
        self._explain_at = self._clock.monotonic() + _EXPLAIN_SECONDS
        if obstacle is None:
            return
        self.last = f"{obstacle.text}; {obstacle.remedy}"
        if obstacle.final:
            raise SourceUnavailable(f"source {self._source}: {self.last}", source=self._source)

    def on_error(self, error: ck.KafkaError) -> None:
        """Records an error that waiting may cure."""
        now = self._clock.monotonic()
        if self._since is None or error.code() not in _VAGUE:
            self.last = error.str()
        if self._renewal is None and (files := self._files()) != self._files_before:
            self._renewal = (files, now)
        if self._since is None:
            self._since, self._explain_at = now, now + _REPORT_SECONDS
            known = now - self._heard <= _HEARD_SECONDS
            self._began, self._least = (self._heard, "") if known else (now, "at least ")
        if not self._told and now - self._since >= _REPORT_SECONDS:
            self._told = True
            _LOG.warning(
                "source %s: no answer from its brokers for %s%.0f s: %s",
                self._source,
                self._least,
                now - self._began,
                self.last,
            )

    def heard(self) -> None:
        """Records that a broker has answered a request."""
        self._heard = self._clock.monotonic()

    def end(self) -> None:
        """Ends the outage: a broker has answered, or a record has arrived."""
        self.heard()
        if self._told:
            outage_s = self._heard - self._began
            _LOG.warning("source %s: its brokers answer again, after %s%.0f s", self._source, self._least, outage_s)
        self._since, self._told = None, False
