"""The log of a partition by its batches, control and aborted ones too, as the broker answers a fetch."""

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
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.kafka.requests import fetch_request

T = TypeVar("T")

logger = logging.getLogger(__name__)

FETCH_BYTES: Final = 4 << 20
SCAN_TIMEOUT_S: Final = 600.0
"""For the batch headers of one partition of one transaction, others' between them included: some tens of GB."""
REPORT_S: Final = 10.0
"""A longer look reports how far it is, each time that it has taken so long again."""
_OUT_OF_RANGE: Final = 1

FirstOffsets = Callable[[Iterable[TopicPartition], float], Mapping[TopicPartition, int]]
"""Where logs begin, within so many seconds."""
Ends = Callable[[TopicPartition, float], int]
"""Asked once: the high watermark. Raises AskAgain while a new leader does not know how far its log is committed."""


class StartGone(Exception):
    """The offset is not in the log, or the topic does not exist."""


class _StartRemoved(StartGone):
    """The offset is below the log's start, or past its end."""


class LogReader:
    """Reads batch headers. Every call raises BrokerUnavailable when there is no answer in time, and KafkaRefused."""

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
        """Every batch, control and aborted ones too, from `start` to the high watermark. Raises StartGone.

        Each piece is waited for `silence_s` at most. `reach`: the log was committed as far as this once, so a high
        watermark below it counts only where the leader is sure of it.
        """
        offset, end = start, None
        report_at = self._clock.monotonic() + REPORT_S
        while end is None or offset < end:
            now = self._clock.monotonic()
            left = deadline - now
            if end is not None and now >= report_at:
                report_at = now + REPORT_S
                logger.info("looking through %s from offset %d on: %d of %d is reached", partition, start, offset, end)
            if left <= 0 and end is not None:  # brokers answer, but there is too much
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

    def read_left(
        self,
        written: WrittenRange,
        timeout_s: float,
        derive: Callable[[Iterable[BatchHeader], int], T],
        silence_s: float = math.inf,
        reach: int = 0,
    ) -> T | None:
        """What `derive` finds from where a transaction begins, or from where the log does now if that is within its
        records; None: nothing is left of them. `timeout_s` is for all, `silence_s` for each answer, `reach` as above.
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
        """One answer of a fetch, with a high watermark that is not below `reach` without reason. Raises StartGone.

        A broker that has just become the leader begins with a high watermark that may be seconds old, and answers
        fetches up to there; asked where the log ends it says that it does not know yet (KIP-207).
        """
        answer = self._fetch(partition, offset, max_bytes, timeout_s)
        if answer.high_watermark < reach:
            known = min(reach, self._ends(partition, timeout_s))
            if answer.high_watermark < known:
                raise AskAgain(f"{partition} is committed to {known}, the leader read to {answer.high_watermark} only")
        return answer

    def _fetch(self, partition: TopicPartition, offset: int, max_bytes: int, timeout_s: float) -> Any:
        """One answer of a fetch. Raises StartGone.

        A user beyond its quota is answered without an error and without anything that was asked for (KIP-219).
        """
        try:
            node = next(iter(self._broker.by_leader([partition], timeout_s)))
        except AskAgain as again:
            if not self._broker.metadata([partition.topic], timeout_s).topics[0].partitions:
                raise StartGone(f"{partition} does not exist") from again
            raise
        with self._broker.fresh_leaders([partition]):
            answered = self._broker.send(fetch_request(partition, offset, max_bytes), node, timeout_s)
        if not answered.responses:
            self._broker.check_leader(answered.error_code, partition, "reading")
            raise AskAgain(f"{partition}: a quota of this user holds it back for {answered.throttle_time_ms} ms")
        answer = answered.responses[0].partitions[0]
        if answer.error_code == _OUT_OF_RANGE:
            raise _StartRemoved(f"{partition}: offset {offset} is not in the log")
        self._broker.check_leader(answer.error_code, partition, "reading")
        return answer
