"""Reads single records by partition and offset, on a thread with its own consumer: for dead letters of failed records.

Requests come in order with mostly ascending offsets, so the consumer reads on while the next record is near.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, cast

import confluent_kafka as ck
import msgspec
from typing_extensions import override

from tidegate.config.fields.records import matches_pattern
from tidegate.formats.dead_letters import GONE, UNREAD
from tidegate.formats.dead_letters.frames import RawRecord
from tidegate.ids import ClusterName, SourceTopic, TopicPartition, with_cluster
from tidegate.kafka.tls import RENEWAL_S, names_tls_files, stamp_tls_files
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.builtin.dead_letters import WAIT_MS, Origin
from tidegate.operators.calls.caller import Asked, Caller, CallsFailed
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.tools import DEFAULTS, SOURCE_TOOLS, Consumer, SourceTools, derive_consumer_properties

_LOG = logging.getLogger("tidegate.sources")

NEAR_RECORDS: Final = 500
"""Records by which the consumer reads on; starting at another position takes longer."""
SLICE_S: Final = 0.2
RETRY_S: Final = 0.1
FIRST_S: Final = 1.0
CLOSE_S: Final = 5.0
TELL_S: Final = 60.0
"""Seconds between two warnings that a record could not be read."""

_OWNED: Final = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "isolation.level": "read_uncommitted",  # a committed record need not wait for other transactions
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "queued.min.messages": "1",
    "queued.max.messages.kbytes": "1024",
    "fetch.message.max.bytes": "65536",  # one record is wanted; larger ones are fetched all the same
    "fetch.min.bytes": "1",
    # A source's settings for many records would delay each single one.
    **{name: DEFAULTS[name] for name in ("fetch.wait.max.ms", "fetch.queue.backoff.ms")},
}
_END: Final = ck.KafkaError._PARTITION_EOF  # noqa: SLF001  # the client's own codes begin so, and are public
_NOT_THERE: Final = frozenset(
    {ck.KafkaError.OFFSET_OUT_OF_RANGE, ck.KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001  # see above
)
_UNKNOWN: Final = frozenset(
    {
        ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
        ck.KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # see above
        ck.KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # see above
    }
)
"""A broker that has just started returns this for every topic: it proves nothing about a record."""


class _Request(msgspec.Struct, eq=False):
    call: PendingCall
    cluster: ClusterName
    partition: TopicPartition
    offset: int
    deadline: float
    """Monotonic seconds."""


class _Place(msgspec.Struct):
    """The position of a consumer."""

    consumer: Consumer
    files: object
    """Stamp of the certificates, which a consumer reads only once."""
    partition: TopicPartition | None = None
    offset: int = 0
    """Offset of the next record, or a lower one."""
    ahead: ck.Message | None = None
    """A record that was read and comes after the requested one."""


class RecordReader(Caller):
    """A Caller that reads records back. Answers are a RawRecord, `GONE` or `UNREAD`; there are no failures."""

    def __init__(
        self, origins: Sequence[Origin], name: str, wake: Callable[[], None], tools: SourceTools = SOURCE_TOOLS
    ) -> None:
        self._origins = {SourceTopic(origin.cluster, topic): origin for origin in origins for topic in origin.topics}
        self._patterns = [origin for origin in origins if origin.pattern]
        self._name = name
        self._wake = wake
        self._tools = tools
        self._clock = tools.clock
        self._places: dict[int, _Place] = {}
        self._firsts: dict[tuple[ClusterName, TopicPartition], int] = {}
        """First offsets of partitions that have lost records: finding each lost record missing takes far longer."""
        self._requests: deque[_Request] = deque()
        self._done: deque[PendingCall] = deque()
        self._stopping = False
        self._serving = False
        self._broken: BaseException | None = None
        self._last_error = "no error was reported"
        self._told: float | None = None
        self._thread = tools.helper(f"read-back-{name}", self._on_error)

    @override
    def submit(self, asked: Asked) -> None:
        deadline = self._clock.monotonic() + WAIT_MS / 1000
        for call, request in asked:
            cluster, topic, partition, offset = cast("tuple[ClusterName, str, int, int]", request)
            self._requests.append(_Request(call, cluster, TopicPartition(topic, partition), offset, deadline))
        if not self._serving:
            self._serving = True
            self._thread.submit(self._serve)

    @override
    def take(self) -> list[PendingCall]:
        if self._broken is not None:
            raise CallsFailed(f"records cannot be read back for {self._name}: {self._broken}") from self._broken
        taken: list[PendingCall] = []
        while self._done:
            taken.append(self._done.popleft())
        if self._requests and not self._serving:  # they came while the thread was ending
            self._serving = True
            self._thread.submit(self._serve)
        return taken

    @override
    def close(self) -> None:
        self._stopping = True
        self._thread.submit(self._end)
        self._thread.stop()
        if not self._thread.join(CLOSE_S):
            _LOG.warning("%s: its reader did not end within %g s, and is abandoned", self._name, CLOSE_S)

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _on_error(self, error: BaseException) -> None:
        self._broken = error
        self._wake()

    def _serve(self) -> None:
        while self._requests and not self._stopping:
            request = self._requests.popleft()
            request.call.answer = self._answer(request)
            self._done.append(request.call)
            self._wake()
        self._serving = False
        self._wake()  # `take` starts the requests that arrived meanwhile

    def _end(self) -> None:
        for place in self._places.values():
            place.consumer.close()

    def _origin(self, wanted: SourceTopic) -> Origin | None:
        if wanted in self._origins:
            return self._origins[wanted]
        patterns = (one for one in self._patterns if one.cluster == wanted.cluster)
        return next((one for one in patterns if matches_pattern(one.pattern, wanted.topic)), None)

    def _place(self, origin: Origin) -> _Place:
        """Returns the origin's consumer, with the current certificates.

        Between two bad records a broker closes the connection, and it rejects a certificate that has expired. If the
        new files cannot be used, the old ones stay in use.
        """
        place, files = self._places.get(id(origin)), stamp_tls_files(origin.kafka)
        if place is not None and place.files == files:
            return place
        patient_until = self._clock.monotonic() + (RENEWAL_S if names_tls_files(origin.kafka) else 0.0)
        config = {**derive_consumer_properties(origin.kafka), **_OWNED, "group.id": f"read-back-{self._name}"}
        while True:
            try:
                consumer = self._tools.consumer(config, self._note)
            except (ck.KafkaException, TypeError, ValueError) as error:
                if place is not None:
                    self._note(error)
                    return place
                if self._stopping or self._clock.monotonic() >= patient_until:
                    raise
                self._clock.sleep(RETRY_S)
                files = stamp_tls_files(origin.kafka)
                continue
            if place is not None:
                place.consumer.close()
            self._places[id(origin)] = _Place(consumer, files)
            return self._places[id(origin)]

    def _note(self, error: object) -> None:
        """Notes an error. Sources report brokers that do not answer."""
        self._last_error = str(error)
        _LOG.debug("%s: %s", self._name, error)

    def _tell_unread(self, request: _Request) -> None:
        now = self._clock.monotonic()
        if self._told is None or now - self._told >= TELL_S:
            self._told = now
            _LOG.warning(
                "%s: offset %d of %s was not read again within %g s, so its letter has no bytes (%s)",
                self._name,
                request.offset,
                with_cluster(str(request.partition), request.cluster),
                WAIT_MS / 1000,
                self._last_error,
            )

    def _answer(self, request: _Request) -> RawRecord | str:
        origin = self._origin(SourceTopic(request.cluster, request.partition.topic))
        if origin is None:
            return UNREAD
        if request.offset < self._firsts.get((request.cluster, request.partition), 0):
            return GONE
        place = self._place(origin)
        near = place.partition == request.partition and 0 <= request.offset - place.offset <= NEAR_RECORDS
        if not near:
            self._go(place, request)
        while not self._stopping and self._clock.monotonic() < request.deadline:
            try:
                found = self._look(place, request)
            except ck.KafkaException as error:
                self._note(error.args[0])
                self._clock.sleep(RETRY_S)
                self._go(place, request)
                continue
            if found is not None:
                return found
        place.partition = None
        if not self._stopping:
            self._tell_unread(request)
        return UNREAD

    def _go(self, place: _Place, request: _Request) -> None:
        place.partition, place.offset, place.ahead = request.partition, request.offset, None
        place.consumer.assign([ck.TopicPartition(request.partition.topic, request.partition.partition, request.offset)])

    def _note_first(self, place: _Place, request: _Request) -> None:
        """Notes the first offset, which never goes back. Without an answer, the next request finds out by itself."""
        part = ck.TopicPartition(request.partition.topic, request.partition.partition)
        try:
            first, _ = place.consumer.get_watermark_offsets(part, timeout=FIRST_S)
        except ck.KafkaException as error:
            self._note(error.args[0])
            return
        self._firsts[request.cluster, request.partition] = first

    def _look(self, place: _Place, request: _Request) -> RawRecord | str | None:
        """Returns the answer, if the next message gives one. Raises KafkaException for errors that may pass."""
        message, place.ahead = place.ahead, None
        if message is None:
            messages = place.consumer.consume(1, SLICE_S)
            if not messages:
                return None
            message = messages[0]
        error = message.error()
        if error is not None:
            if error.code() in _UNKNOWN:
                raise ck.KafkaException(error)
            if error.code() in _NOT_THERE or (error.code() == _END and (message.offset() or 0) > request.offset):
                place.partition = None
                if error.code() in _NOT_THERE:
                    self._note_first(place, request)
                return GONE
            return None
        if (message.topic(), message.partition()) != (request.partition.topic, request.partition.partition):
            return None
        offset = cast("int", message.offset())
        if offset > request.offset:
            place.ahead, place.offset = message, request.offset + 1
            return GONE
        place.offset = offset + 1
        if offset < request.offset:
            return None
        return KafkaMessages([message]).raw(0)
