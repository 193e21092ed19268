"""The topics of a test bench: lists of messages by partition, and a client that reads them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

import confluent_kafka as ck
from typing_extensions import override

from tidegate.formats.schemas import SchemaText
from tidegate.ids import MAIN_CLUSTER, ClusterName, TopicPartition
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.calls.caller import Asked, Caller
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.tools import Consumer

_END: Final = ck.KafkaError._PARTITION_EOF  # noqa: SLF001  # the client's own codes begin with an underscore, but are public

NO_OTHERS: Final[Mapping[ClusterName, Mapping[TopicPartition, int]]] = {}


class Log:
    """The records produced so far in a cluster. Sources of the same topic read the same records."""

    def __init__(
        self,
        ends: Mapping[TopicPartition, int],
        copies: Callable[[int | str], SchemaText | None] | None = None,
        others: Mapping[ClusterName, Mapping[TopicPartition, int]] = NO_OTHERS,
    ) -> None:
        """`ends`: the final number of records of each partition in the main cluster; `others`: those in other ones.

        `copies`: copies of a registry's schemas.
        """
        self.ends = ends
        self.copies = copies
        self.partitions: dict[TopicPartition, list[ck.Message]] = {part: [] for part in ends}
        self._others = {cluster: Log(theirs, copies) for cluster, theirs in others.items()}

    def of(self, cluster: ClusterName) -> Log:
        """Returns the log of a cluster."""
        return self if cluster == MAIN_CLUSTER else self._others[cluster]

    def append(
        self,
        part: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: tuple[tuple[str, bytes | None], ...] = (),
    ) -> None:
        """Produces a record."""
        records = self.partitions[part]
        records.append(
            ck.Message(
                topic=part.topic,
                partition=part.partition,
                offset=len(records),
                key=key,
                value=value,
                headers=list(headers),
                error=None,
                timestamp=(ck.TIMESTAMP_CREATE_TIME, timestamp_ms),
            )
        )


class LogRecords(Caller):
    """A caller that reads single records back at once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._asked: list[tuple[PendingCall, object]] = []

    @override
    def submit(self, asked: Asked) -> None:
        self._asked += asked

    @override
    def take(self) -> list[PendingCall]:
        asked, self._asked = self._asked, []
        for call, request in asked:
            cluster, topic, partition, offset = cast("tuple[ClusterName, str, int, int]", request)
            records = self._log.of(cluster).partitions[TopicPartition(topic, partition)]
            call.answer = KafkaMessages([records[offset]]).raw(0)
        return [call for call, _ in asked]

    @override
    def close(self) -> None:
        pass


class LogConsumer(Consumer):
    """The consumer methods that `sources.reader` uses. It never waits."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._next: dict[TopicPartition, int] = {}
        self._ended: dict[TopicPartition, int] = {}
        self._queue: deque[ck.Message] = deque()

    @property
    def waiting(self) -> bool:
        """True if `consume` would return anything."""
        self._fetch()
        return bool(self._queue)

    @override
    def assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._next = {TopicPartition(one.topic, one.partition): one.offset for one in partitions}

    @override
    def incremental_assign(self, partitions: list[ck.TopicPartition]) -> None:
        self._next |= {TopicPartition(one.topic, one.partition): one.offset for one in partitions}

    @override
    def pause(self, partitions: list[ck.TopicPartition]) -> None:
        for one in partitions:
            self._next.pop(TopicPartition(one.topic, one.partition), None)

    def resume(self, partitions: list[ck.TopicPartition]) -> None:
        """Raises NotImplementedError, because nothing is ever paused to wait."""
        raise NotImplementedError

    @override
    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[ck.Message]:
        self._fetch()
        return [self._queue.popleft() for _ in range(min(num_messages, len(self._queue)))]

    @override
    def get_watermark_offsets(
        self,
        partition: ck.TopicPartition,
        timeout: float = -1,
        cached: bool = False,
    ) -> tuple[int, int]:
        return 0, len(self._log.partitions[TopicPartition(partition.topic, partition.partition)])

    @override
    def offsets_for_times(
        self,
        partitions: list[ck.TopicPartition],
        timeout: float = -1,
    ) -> list[ck.TopicPartition]:
        return [ck.TopicPartition(p.topic, p.partition, self.get_watermark_offsets(p)[1]) for p in partitions]

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Raises NotImplementedError: it is only needed when a broker is unavailable."""
        raise NotImplementedError

    @override
    def close(self) -> None:
        pass

    def _fetch(self) -> None:
        """Queues all new records, and each end once."""
        for part, offset in self._next.items():
            records = self._log.partitions[part]
            self._queue.extend(records[offset:])
            self._next[part] = len(records)
            if self._ended.get(part) != len(records):
                self._ended[part] = len(records)
                end = ck.Message(
                    error=ck.KafkaError(_END), topic=part.topic, partition=part.partition, offset=len(records)
                )
                self._queue.append(end)
