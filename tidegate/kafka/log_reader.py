"""Reads the log of a partition by fetch requests, batch by batch, including control batches and aborted ones."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.committable import WrittenRange
from tidegate.ids import TopicPartition
from tidegate.kafka.batches import BatchHeader, derive_headers
from tidegate.kafka.connection import AskAgain, BrokerConnection
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.kafka.requests import fetch_request

T = TypeVar("T")

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 4 << 20
FIRST_BYTES: Final = 256 << 10
"""Bytes per partition where the first batches of many are read: more than a batch usually has."""
SCAN_TIMEOUT_S: Final = 600.0
"""Limit for reading the batch headers of one transaction in one partition, including those of others in between: tens
of GB.
"""
REPORT_S: Final = 10.0
"""Interval at which a longer scan logs its progress."""
_OUT_OF_RANGE: Final = 1

FirstOffsets = Callable[[Iterable[TopicPartition], float], Mapping[TopicPartition, int]]
"""Returns the first offsets of the logs within the given seconds."""
Ends = Callable[[TopicPartition, float], int]
"""Requests the high watermark once. Raises AskAgain while a new leader does not know up to where its log is committed.
"""


class StartGone(Exception):
    """The offset is not in the log, or the topic does not exist."""


class _StartRemoved(StartGone):
    """The offset is below the log's start or past its end."""


class LogReader:
    """Reads batch headers. Every method raises KafkaRefused, and BrokerUnavailable if there is no response in time."""

    def __init__(self, broker: BrokerConnection, clock: Clock, first_offsets: FirstOffsets, ends: Ends) -> None:
        self._broker = broker
        self._clock = clock
        self._first_offsets = first_offsets
        self._ends = ends

    def batches(
        self,
        partition: TopicPartition,
        start: int,
        deadline: float,
        max_bytes: int = FETCH_BYTES,
        silence_s: float = math.inf,
        reach: int = 0,
    ) -> Iterator[BatchHeader]:
        """Yields every batch, including control batches and aborted ones, from `start` to the high watermark. Raises
        StartGone.

        Each fetch waits at most `silence_s`. `reach` is an offset up to which the log is known to have been committed,
        so a lower high watermark is accepted only if the leader confirms it.
        """
        offset, end = start, None
        report_at = self._clock.monotonic() + REPORT_S
        while end is None or offset < end:
            now = self._clock.monotonic()
            left = deadline - now
            if end is not None and now >= report_at:
                report_at = now + REPORT_S
                logger.info("searching %s from offset %d on: %d of %d is reached", partition, start, offset, end)
            if left <= 0 and end is not None:  # brokers respond, but there is too much to read
                raise BrokerUnavailable(
                    f"reading {partition} from offset {start} took too long: offset {offset} of {end} was reached"
                )
            answer = self._broker.until(
                lambda remaining_s, at=offset: self._fetch_to(partition, at, max_bytes, reach, remaining_s),  # type: ignore[misc]  # mypy cannot infer a lambda with a default
                min(left, silence_s),
                f"reading {partition} at offset {offset}",
            )
            end = answer.high_watermark if end is None else end
            before = offset
            for batch in derive_headers(bytes(answer.records or b"")):
                if batch.last_offset >= offset:
                    offset = batch.last_offset + 1
                    yield batch
            if offset == before:
                return

    def first_batches(
        self, offsets: Mapping[TopicPartition, int], timeout_s: float
    ) -> dict[TopicPartition, list[BatchHeader]]:
        """Returns batches at the offsets of many partitions, with one request per leader.

        Partitions are left out whose leader has not answered, or whose first batch is larger than FIRST_BYTES.
        """
        from kafka.errors import KafkaError

        try:
            groups = self._broker.by_leader(offsets, timeout_s)
        except (AskAgain, BrokerUnavailable, KafkaRefused, KafkaError):
            return {}
        requests = [
            (fetch_request({part: offsets[part] for part in group}, FETCH_BYTES, FIRST_BYTES), node)
            for node, group in groups.items()
        ]
        answers = self._broker.send_all(requests, timeout_s)
        return {
            TopicPartition(topic.topic, part.partition_index): list(derive_headers(bytes(part.records or b"")))
            for answer in answers
            if not isinstance(answer, KafkaError)
            for topic in answer.responses
            for part in topic.partitions
            if part.error_code == 0
        }

    def read_left(
        self,
        written: WrittenRange,
        timeout_s: float,
        derive: Callable[[Iterable[BatchHeader], int], T],
        silence_s: float = math.inf,
        reach: int = 0,
    ) -> T | None:
        """Applies `derive` to the batches from the start of a transaction, or of the log if it now begins within the
        transaction.

        Returns None if nothing is left of the transaction. `timeout_s` limits the whole scan, `silence_s` each
        response; `reach` is the same as in `batches`.
        """
        partition, deadline = written.partition, self._clock.monotonic() + timeout_s
        start = written.start_offset
        while True:
            try:
                return derive(self.batches(partition, start, deadline, silence_s=silence_s, reach=reach), start)
            except _StartRemoved:
                left = max(0.0, deadline - self._clock.monotonic())
                first = self._first_offsets([partition], min(left, silence_s))[partition]
                if not start < first < written.end_offset:
                    return None
                start = first
            except StartGone:
                return None

    def _fetch_to(self, partition: TopicPartition, offset: int, max_bytes: int, reach: int, timeout_s: float) -> Any:
        """Returns one fetch response whose high watermark is not below `reach` without reason. Raises StartGone.

        A broker that has just become the leader starts with a high watermark that may be seconds old, and serves
        fetches up to it. When asked for the end offset, it answers that it does not know it yet (KIP-207).
        """
        answer = self._fetch(partition, offset, max_bytes, timeout_s)
        if answer.high_watermark < reach:
            known = min(reach, self._ends(partition, timeout_s))
            if answer.high_watermark < known:
                raise AskAgain(
                    f"{partition} is committed up to {known}, but the leader answered up to "
                    f"{answer.high_watermark} only"
                )
        return answer

    def _fetch(self, partition: TopicPartition, offset: int, max_bytes: int, timeout_s: float) -> Any:
        """Returns one fetch response. Raises StartGone.

        A user that exceeds its quota receives a response without an error and without data (KIP-219).
        """
        try:
            node = next(iter(self._broker.by_leader([partition], timeout_s)))
        except AskAgain as again:
            if not self._broker.metadata([partition.topic], timeout_s).topics[0].partitions:
                raise StartGone(f"{partition} does not exist") from again
            raise
        with self._broker.fresh_leaders([partition]):
            answered = self._broker.send(fetch_request({partition: offset}, max_bytes), node, timeout_s)
        if not answered.responses:
            self._broker.check_leader(answered.error_code, partition, "reading")
            raise AskAgain(f"{partition}: a quota of this user holds it back for {answered.throttle_time_ms} ms")
        answer = answered.responses[0].partitions[0]
        if answer.error_code == _OUT_OF_RANGE:
            raise _StartRemoved(f"{partition}: offset {offset} is not in the log")
        self._broker.check_leader(answer.error_code, partition, "reading")
        return answer
