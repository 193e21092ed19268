"""The tools of sources: a Kafka client with its properties, a thread, the time. The simulation passes in others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import confluent_kafka as ck

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.ids import TopicPartition
from tidegate.kafka.channel import STEP_S, import_client
from tidegate.kafka.diagnosis import Obstacle, find_obstacle
from tidegate.sources.fetching import Fetcher, open_fetcher
from tidegate.threads import Threads

_CLIENT_LOG = logging.getLogger("tidegate.sources.librdkafka")
_CLIENT_LOG.setLevel(logging.CRITICAL)  # librdkafka logs every failed connection; the reader reports once


REQUEST_SECONDS = 3.0
"""Requests are repeated, so this only limits how long a source takes to close."""

LINGER_S: Final = 0.01
"""How long records may wait for others where their results are visible at once, or a read comes to its end."""
LINGER_S_MIN: Final = 0.005
LINGER_S_MAX: Final = 0.05
LINGERS_PER_INTERVAL: Final = 20
"""Results wait for half a checkpoint interval anyway."""
GATHER_S_MAX: Final = 0.2
FIRST_GATHERINGS_PER_INTERVAL: Final = 5


def derive_linger_s(interval_ms: int, *, exactly_once: bool) -> float:
    """Returns how long the records of a source may wait for others at a low rate. Pure."""
    if not exactly_once:
        return LINGER_S
    return min(LINGER_S_MAX, max(LINGER_S_MIN, interval_ms / (1000 * LINGERS_PER_INTERVAL)))


class GatherTimes(NamedTuple):
    """How long records that were read may gather for the loop if no barrier comes, in seconds."""

    first_s: float
    """For the first batch behind a barrier."""
    later_s: float
    """For each batch after it."""


AT_ONCE: Final = GatherTimes(0.0, 0.0)


def derive_gather_times(interval_ms: int, *, exactly_once: bool) -> GatherTimes:
    """Returns how long records gather. Pure.

    A barrier takes what has gathered, so no result becomes visible later. The first batch behind a barrier gathers for
    a shorter time than the others: with it, the sinks add its partitions to their next transactions, which takes a
    round trip, and the next barrier need not wait for that.
    """
    if not exactly_once:
        return AT_ONCE
    interval_s = interval_ms / 1000
    return GatherTimes(min(GATHER_S_MAX, interval_s / FIRST_GATHERINGS_PER_INTERVAL), min(GATHER_S_MAX, interval_s))


class Consumer(Protocol):
    """The part of confluent_kafka.Consumer used here."""

    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Reads only these, from their offsets on."""

    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        """Also reads these."""

    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        """Stops reading these."""

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        """Reads these again."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        """Returns up to `num_messages` messages and events that arrive before the timeout."""

    def get_watermark_offsets(
        self, partition: ck.TopicPartition, timeout: float = -1, cached: bool = False
    ) -> tuple[int, int]:
        """Returns the first and the last stable offset; with `cached`, the high watermark of the last fetch instead of
        the latter.
        """

    def offsets_for_times(self, partitions: list[ck.TopicPartition], timeout: float = -1) -> list[ck.TopicPartition]:
        """Returns the last stable offsets of partitions whose `offset` is OFFSET_END, by one request per broker."""

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Returns the metadata of a topic, or of all."""

    def close(self) -> None:
        """Closes the client."""


def read_bounds(consumer: Consumer, part: TopicPartition) -> tuple[int, int]:
    """Requests the first offset and the last stable offset (exclusive)."""
    wanted = ck.TopicPartition(part.topic, part.partition)
    low, high = consumer.get_watermark_offsets(wanted, timeout=REQUEST_SECONDS)
    return low, high


def read_ends(consumer: Consumer, parts: Iterable[TopicPartition], seconds: float) -> Sequence[ck.TopicPartition]:
    """Requests the last stable offsets, by one request per broker. Each answer has an offset or an error.

    Raises KafkaException.
    """
    wanted = [ck.TopicPartition(part.topic, part.partition, ck.OFFSET_END) for part in parts]
    return consumer.offsets_for_times(wanted, timeout=seconds)


class SourceTools(Threads):
    """The real tools."""

    clock: Clock = SYSTEM_CLOCK
    linger_s: float = LINGER_S
    """How long records may wait for others at a low rate."""
    gather_times: GatherTimes = AT_ONCE
    """How long records that were read may gather at a low rate until a barrier or the loop takes them."""

    def consumer(self, config: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> Consumer:
        """Returns a client that reads. Raises KafkaException, TypeError, ValueError for settings that it does not
        accept.
        """
        return ck.Consumer(dict(config), error_cb=on_error, logger=_CLIENT_LOG)

    def fetcher(self, consumer: Consumer, on_error: Callable[[ck.KafkaError], None]) -> Fetcher:
        """Returns the fetcher of the consumer's records. `on_error` is the client's."""
        return open_fetcher(consumer, on_error)

    def find_obstacle(self, kafka: Mapping[str, str]) -> Obstacle | None:
        """Diagnoses the way to the brokers step by step; waits at most STEP_S for each step."""
        import_client()
        return find_obstacle(kafka, STEP_S)


SOURCE_TOOLS: Final = SourceTools()


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
    """Returns the properties with our defaults, as far as the library accepts them together with the user's. Pure.

    Records may wait for others for `linger_s`. They then wait at the broker, which saves fetches: at 2,000 records a
    second in two slots a tenth of a core here, and as much in the broker.
    """
    longest = max(int(DEFAULTS[_BACKOFF_MAX]), int(user.get(_BACKOFF, "0")))
    properties = {**DEFAULTS, _BACKOFF_MAX: str(longest), **user}
    linger_ms = round(linger_s * 1000)
    if linger_ms > int(DEFAULTS["fetch.wait.max.ms"]) and not any(name.startswith(_OF_FETCHES) for name in user):
        properties |= {"fetch.wait.max.ms": str(linger_ms), "fetch.min.bytes": str(GATHERED_BYTES)}
    return properties
