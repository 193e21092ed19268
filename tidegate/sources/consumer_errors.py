"""Errors that a source's consumer reports: which ones end the source, and which ones are waited out.

Brokers that do not answer, and certificates that were replaced meanwhile, are an outage.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import confluent_kafka as ck
import msgspec

from tidegate.clock import Clock
from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceFailed, SourceUnavailable
from tidegate.kafka.tls import RENEWAL_S
from tidegate.operators.builtin.kafka_source import ON_LOST_CONTINUE, SourceOperator
from tidegate.sources.fetching import FetchEvent
from tidegate.sources.positions import describe_cut_off, describe_out_of_range
from tidegate.sources.tools import Consumer, read_bounds

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


LASTING_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 600.0
"""Seconds after which a lasting error is logged again."""
APART_SECONDS: Final = 60.0
"""An error this long after the client's next retry is a different one, since an idle partition stays at its position.

Errors are queued behind records, so it cannot be shorter.
"""
_BACKOFF: Final = "fetch.error.backoff.ms"
_BACKOFF_DEFAULT: Final = "500"

# The client's own codes begin with an underscore; they are public all the same.
_UNKNOWN_FORMAT: Final = ck.KafkaError._NOT_IMPLEMENTED  # see above
"""Unknown format or codec of a batch. The client skips some of them."""
_CHECKSUM: Final = ck.KafkaError._BAD_MSG  # see above
"""Only with `check.crcs`. The client skips the batch, or moves elsewhere."""
_DAMAGED: Final = {
    ck.KafkaError._BAD_COMPRESSION,  # see above
    ck.KafkaError.INVALID_MSG,  # a broker's report about its own log: CORRUPT_MESSAGE
}
"""The client reads the same batch again: this cures damage in transit, but not damage in the log."""
_REMEDY: Final = (
    "make an intact replica the leader. Or take a checkpoint that reaches the batch (`tidegate checkpoint`), "
    "delete the records of this partition up to the batch's end (kafka-delete-records.sh), and accept the loss by "
    "`on_lost_input: continue`; without that checkpoint, records before the batch would be lost as well"
)
_UNKNOWN_REMEDY: Final = (
    f"the client library (librdkafka {ck.libversion()[0]}) does not know its format or codec; it knows the formats "
    f"0 to 2 and the codecs gzip, snappy, lz4 and zstd. Update it, or have the records written again with one of "
    f"these codecs. Do not delete the records: they may be intact"
)


def derive_apart_seconds(kafka: Mapping[str, str]) -> float:
    """Returns the gap in seconds beyond which errors at one offset count as separate. From librdkafka's properties.
    Pure.
    """
    return int(kafka.get(_BACKOFF, _BACKOFF_DEFAULT)) / 1000 + APART_SECONDS


class _Place(msgspec.Struct):
    offset: int
    since: float
    last: float
    logged_at: float | None = None


class RepeatedErrors:
    """The errors of one source that stop one partition at an offset, while librdkafka retries forever.

    Most of them can be repaired: an unreadable disk, a leader that moves. A batch damaged in the log stays damaged, but
    blocks only its partition: the records before it are committed, and the other partitions continue. So a lasting
    error is logged and stops nothing. The source stops only if the client would skip a batch.
    """

    def __init__(self, source: str, kafka: Mapping[str, str], clock: Clock) -> None:
        self._source = source
        self._apart_seconds = derive_apart_seconds(kafka)
        self._clock = clock
        self._places: dict[TopicPartition, _Place] = {}

    def on_error(self, part: TopicPartition, offset: int, error: ck.KafkaError) -> None:
        """Records that a partition cannot be read at this offset; a negative one is unknown. Logs lasting errors
        periodically.

        Raises SourceFailed for a batch that the client does not support, and SourceUnavailable for one that must be
        read again but would be skipped.
        """
        where = f"source {self._source}: {part}: the batch at offset {offset}"
        if error.code() == _CHECKSUM:
            raise SourceUnavailable(f"{where} is damaged: {error.str()}; {_REMEDY}", partition=str(part), offset=offset)
        if error.code() == _UNKNOWN_FORMAT:
            text = f"{where} cannot be read: {error.str()}; {_UNKNOWN_REMEDY}"
            raise SourceFailed(text, partition=str(part), offset=offset)
        place, now = self._place(part, offset), self._clock.monotonic()
        seconds = now - place.since
        if seconds >= LASTING_SECONDS and (place.logged_at is None or now - place.logged_at >= AGAIN_SECONDS):
            place.logged_at = now
            self._tell(part, offset, seconds, error)

    def _tell(self, part: TopicPartition, offset: int, seconds: float, error: ck.KafkaError) -> None:
        at = f"at offset {offset}" if offset >= 0 else "at its position"
        if error.code() in _DAMAGED:
            text = (
                "source %s: %s: the batch %s could not be read for %.0f s: %s; this partition is blocked, all "
                "others continue; %s"
            )
            _LOG.error(text, self._source, part, at, seconds, error.str(), _REMEDY)
        else:
            text = "source %s: nothing was read from %s for %.0f s, %s: %s; reading is retried until it succeeds"
            _LOG.warning(text, self._source, part, seconds, at, error.str())

    def _place(self, part: TopicPartition, offset: int) -> _Place:
        """Returns the place of failure, whatever the errors are: brokers may answer in turn."""
        now = self._clock.monotonic()
        place = self._places.get(part)
        if place is None or place.offset != offset or now - place.last > self._apart_seconds:
            place = self._places[part] = _Place(offset, now, now)
        place.last = now
        return place


_NEW_TOPIC_SECONDS = 5.0

# The client's own codes begin with an underscore; they are public all the same.
_END_OF_PARTITION = ck.KafkaError._PARTITION_EOF  # see above
_MISSING = {
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    ck.KafkaError._UNKNOWN_TOPIC,  # see above
    ck.KafkaError._UNKNOWN_PARTITION,  # see above
}
_FORBIDDEN = {ck.KafkaError.TOPIC_AUTHORIZATION_FAILED, ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_OUT_OF_RANGE = {ck.KafkaError.OFFSET_OUT_OF_RANGE, ck.KafkaError._AUTO_OFFSET_RESET}  # see above
_CUT_OFF = ck.KafkaError(ck.KafkaError._LOG_TRUNCATION).str()  # see above
"""Appears in the error text for an offset out of range: no code gives the reason."""


class ConsumerErrors:
    """The errors of one source's consumer. The thread that owns the consumer calls it."""

    def __init__(self, operator: SourceOperator, outage: Outage, clock: Clock) -> None:
        self._operator = operator
        self._outage = outage
        self._repeated = RepeatedErrors(operator.name, operator.kafka, clock)

    def check_request(self, error: ck.KafkaError, waited_seconds: float, topic: str = "") -> None:
        """Raises SourceFailed for errors that waiting does not cure."""
        name = self._operator.name
        where = f"source {name}: topic {topic or self._operator.topics_text}"
        if error.code() in _FORBIDDEN:
            raise SourceFailed(f"{where}: {error.str()}; grant READ and DESCRIBE to the principal", source=name)
        if error.code() in _MISSING and waited_seconds > _NEW_TOPIC_SECONDS:
            raise SourceFailed(f"{where} does not exist at the brokers; create it or correct its name", source=name)
        self._outage.on_error(error)

    def take_events(self, consumer: Consumer, events: Sequence[FetchEvent]) -> dict[TopicPartition, int]:
        """Returns the ends of partitions. Raises SourceFailed and SourceUnavailable for errors."""
        ends: dict[TopicPartition, int] = {}
        for part, offset, error in events:
            if error.code() == _END_OF_PARTITION:
                ends[part] = offset
            elif error.code() in _OUT_OF_RANGE:
                self._refuse_out_of_range(consumer, part, offset, error)
            else:
                # A topic unknown to one broker may be known to others: the daemon checks which is right.
                self.check_request(error, 0.0, part.topic)
                if error.fatal():
                    raise SourceUnavailable(f"source {self._operator.name}: {error}", source=self._operator.name)
                if part.topic:
                    self._repeated.on_error(part, offset, error)
        return ends

    def _refuse_out_of_range(self, consumer: Consumer, part: TopicPartition, offset: int, error: ck.KafkaError) -> None:
        """Raises SourceFailed, or SourceUnavailable if the next attempt can continue after the loss or must ask again.

        The client reports an offset that is gone only once. By the leaders' epochs, it detects a leader whose log ends
        before the records already read. It then usually gives no offset, and the log's bounds show nothing, since it
        may have grown again.
        """
        if offset < 0 or _CUT_OFF in error.str():
            text = f"source {self._operator.name}: {describe_cut_off(part, error.str())}"
            raise SourceFailed(text, partition=str(part))
        try:
            low, high = read_bounds(consumer, part)
        except ck.KafkaException as refused:
            text = f"{part}: offset {offset} is not in the log, and the start of the log is not known"
            raise SourceUnavailable(f"source {self._operator.name}: {text}: {refused.args[0].str()}") from refused
        text = f"source {self._operator.name}: {describe_out_of_range(part, offset, low, high)}"
        if offset < low and self._operator.on_lost_input == ON_LOST_CONTINUE:
            text = f"{text.partition('; ')[0]}; on_lost_input is continue: the next attempt continues there"
            raise SourceUnavailable(text, partition=str(part), offset=offset, log_start=low, log_end=high)
        raise SourceFailed(text, partition=str(part), offset=offset, log_start=low, log_end=high)
