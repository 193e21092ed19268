"""Inspects and ends the transactions of other producers: describes, ends, fences and lists them, and reads their
outcome.

Requests that end transactions use version 4 at most: version 5 on a transaction written by librdkafka breaks idempotent
retries. `connection.py` sends and retries requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.committable import Committable, WrittenRange
from tidegate.ids import ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.batches import derive_first_sequence, derive_marker, derive_ranges
from tidegate.kafka.channel import REQUEST_TIMEOUT_S, OpenChannel, open_client_channel
from tidegate.kafka.connection import CONCURRENT_RETRY, TOPIC_NOT_AUTHORIZED, AskAgain, BrokerConnection, error_name
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, MarkerOvertaken
from tidegate.kafka.facts import (
    TRANSACTION_LOG,
    CoordinatorState,
    EndAnswer,
    Leader,
    LoggedRange,
    Marker,
    OpenBrokerTransaction,
    PreparedView,
    ProducerProgress,
    TopicFacts,
    TopicLimits,
    TransactionDescription,
    TransactionListing,
)
from tidegate.kafka.log_reader import SCAN_TIMEOUT_S, LogReader, StartGone
from tidegate.kafka.requests import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_PARTITION,
    describe_request,
    end_request,
    fence_request,
    fetch_request,
    group_fetch_request,
    group_offsets_request,
    marker_request,
    offsets_request,
    producers_request,
)
from tidegate.kafka.topic_settings import read_id_lifetime_ms, read_topic_limits

WRITTEN_AT_ONCE: Final = 500
"""Partitions per request. A coordinator writes each request as one batch, and its topic accepts 1 MiB by default."""
_HAS_MEMBERS: Final = 25
"""UNKNOWN_MEMBER_ID: only members of the group may write its offsets."""
CONNECT_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 30.0
MIRROR_TIMEOUT_S: Final = 10.0
FENCE_TIMEOUT_MS: Final = 60_000
"""Applies only to a transaction that the fencing client itself begins, which it never does."""
SHORT_FENCE_TIMEOUT_MS: Final = 1000
"""Used if the brokers' `transaction.max.timeout.ms` is lower. No pipeline's transaction timeout is shorter."""

_OVERTAKEN: Final = frozenset({47, 52})
"""INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED: another marker or a newer producer arrived first."""
_INVALID_TIMEOUT: Final = 50
_ID_NOT_FOUND: Final = 105
_END_ANSWERS: Final[Mapping[int, EndAnswer]] = {
    0: EndAnswer.ENDED,
    47: EndAnswer.FENCED,
    48: EndAnswer.INVALID_STATE,
    49: EndAnswer.UNKNOWN_PRODUCER,
    53: EndAnswer.NOT_AUTHORIZED,
    90: EndAnswer.FENCED,
}


class TransactionClient:
    """Queries brokers about transactions and ends them. Thread-safe. Every call waits at most `timeout_s` unless
    documented otherwise.

    `kafka` contains librdkafka properties; only those of the connection are used. Every method raises BrokerUnavailable
    when there is no final response in time, and KafkaRefused when a permission is missing.
    """

    def __init__(
        self,
        kafka: Mapping[str, str],
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        open_channel: OpenChannel = open_client_channel,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._broker = BrokerConnection(kafka, connect_timeout_s, open_channel, clock)
        self._clock = clock
        self._log = LogReader(self._broker, clock, self.first_offsets, self._end)
        self._topic_limits: dict[str, TopicLimits] = {}
        self._markers: dict[tuple[WrittenRange, ProducerId], Marker] = {}
        """Cache of outcomes. They never change, and scanning a long log is expensive."""

    def close(self) -> None:
        """Closes the connections and stops the client's thread."""
        self._broker.close()

    @property
    def interruptions(self) -> int:
        """Number of requests without a final response; it grows with every outage and reconnection."""
        return self._broker.interruptions

    # -- the coordinator of an id ------------------------------------------------------------------------------------

    def describe(
        self, transactional_id: TransactionalId, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> TransactionDescription | None:
        """Returns the coordinator's description, or None if it does not know the id (never used, or expired)."""
        answer = self._broker.ask_coordinator(
            transactional_id,
            lambda: describe_request(transactional_id),
            lambda a: a.transaction_states[0].error_code,
            timeout_s,
        ).transaction_states[0]
        if answer.error_code == _ID_NOT_FOUND:
            return None
        self._broker.refuse(answer.error_code, f"describing transaction {transactional_id}")
        return _description(answer)

    def end_transaction(
        self, committable: Committable, commit: bool = True, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> EndAnswer:
        """Commits or aborts a prepared transaction. Idempotent. Returns NO_ANSWER at the deadline."""
        try:
            answer = self._broker.ask_coordinator(
                committable.transactional_id,
                lambda: end_request(committable, commit),
                lambda a: a.error_code,
                timeout_s,
            )
        except BrokerUnavailable:
            return EndAnswer.NO_ANSWER
        return _END_ANSWERS.get(answer.error_code, EndAnswer.REJECTED)

    def end_transactions(
        self, committables: Sequence[Committable], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[EndAnswer]:
        """Commits several transactions at once and returns the responses in order. Those without a final response are
        retried one by one.
        """
        from kafka.errors import KafkaError

        deadline = self._clock.monotonic() + timeout_s
        answers: list[EndAnswer | None] = [None] * len(committables)
        ids = [committable.transactional_id for committable in committables]
        self._broker.find_coordinators(ids, min(timeout_s, REQUEST_TIMEOUT_S))
        nodes = [self._broker.known_coordinator(transactional_id) for transactional_id in ids]
        pairs = [
            (end_request(c, commit=True), node) for c, node in zip(committables, nodes, strict=True) if node is not None
        ]
        if len(pairs) == len(committables) > 1:
            for index, answer in enumerate(self._broker.send_all(pairs, timeout_s)):
                if not isinstance(answer, KafkaError) and answer.error_code not in CONCURRENT_RETRY:
                    answers[index] = _END_ANSWERS.get(answer.error_code, EndAnswer.REJECTED)
        return [
            self.end_transaction(committable, timeout_s=max(0.0, deadline - self._clock.monotonic()))
            if answer is None
            else answer
            for committable, answer in zip(committables, answers, strict=True)
        ]

    def fence(self, transactional_id: TransactionalId, timeout_s: float = ANSWER_TIMEOUT_S) -> ProducerId:
        """Raises the epoch of an id and returns the newest producer. This aborts an open transaction and fences older
        producers.
        """
        deadline = self._clock.monotonic() + timeout_s

        def ask(timeout_ms: int) -> Any:
            return self._broker.ask_coordinator(
                transactional_id,
                lambda: fence_request(transactional_id, timeout_ms),
                lambda a: a.error_code,
                deadline - self._clock.monotonic(),
            )

        answer = ask(FENCE_TIMEOUT_MS)
        if answer.error_code == _INVALID_TIMEOUT:
            answer = ask(SHORT_FENCE_TIMEOUT_MS)
        self._broker.refuse(answer.error_code, f"fencing transaction {transactional_id}")
        return ProducerId(answer.producer_id, answer.producer_epoch)

    def list_transactions(self, prefix: str, timeout_s: float = ANSWER_TIMEOUT_S) -> list[TransactionListing]:
        """Lists all transactional ids that begin with `prefix`, from every coordinator."""
        from kafka.errors import KafkaError
        from kafka.protocol.admin.transactions import ListTransactionsRequest

        def attempt(remaining_s: float) -> list[TransactionListing]:
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], min_version=0, max_version=0)
            found = []
            nodes = self._broker.nodes(remaining_s)
            for answer in self._broker.send_all([(request, node) for node in nodes], remaining_s):
                if isinstance(answer, KafkaError):
                    raise answer
                if answer.error_code in CONCURRENT_RETRY:
                    raise AskAgain(error_name(answer.error_code))
                self._broker.refuse(answer.error_code, "listing transactions")
                found += answer.transaction_states
            return [
                TransactionListing(
                    TransactionalId(t.transactional_id), t.producer_id, CoordinatorState(t.transaction_state)
                )
                for t in found
                if t.transactional_id.startswith(prefix)
            ]

        return self._broker.until(attempt, timeout_s, "listing transactions")

    # -- the leaders of partitions -----------------------------------------------------------------------------------

    def producer_state(
        self, partitions: Iterable[TopicPartition], producer: ProducerId, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, ProducerProgress]:
        """Returns what the leaders have counted for a producer. Partitions that do not know it are left out."""
        wanted = list(partitions)
        return self._broker.until(
            lambda remaining_s: self._progress_and_ends(wanted, producer, remaining_s)[0],
            timeout_s,
            "reading producer states",
        )

    def open_transactions(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[OpenBrokerTransaction]:
        """Returns every transaction of any owner with records and no marker in one of the partitions, in log order."""
        wanted = list(partitions)

        def attempt(remaining_s: float) -> list[OpenBrokerTransaction]:
            found = [
                OpenBrokerTransaction(
                    partition,
                    ProducerId(one.producer_id, one.producer_epoch),
                    one.current_txn_start_offset,
                    one.coordinator_epoch,
                )
                for partition, one in self._producers_and_ends(wanted, remaining_s)[0]
                if one.current_txn_start_offset >= 0
            ]
            return sorted(found, key=lambda one: (one.partition, one.start_offset))

        return self._broker.until(attempt, timeout_s, "reading open transactions")

    def write_marker(
        self, opened: OpenBrokerTransaction, epoch: int, commit: bool, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        """Ends a transaction in one partition without its coordinator, and only as the coordinator has decided.

        `epoch` is the coordinator's. Idempotent. Raises MarkerOvertaken when the partition knows something newer.
        """
        partition = opened.partition

        def attempt(remaining_s: float) -> None:
            node = next(iter(self._broker.by_leader([partition], remaining_s)))
            with self._broker.fresh_leaders([partition]):
                answer = self._broker.send(marker_request(opened, epoch, commit), node, remaining_s)
            code = answer.markers[0].topics[0].partitions[0].error_code
            if code in _OVERTAKEN:
                raise MarkerOvertaken(f"{partition} has refused the marker: {error_name(code)}")
            self._broker.check_leader(code, partition, "writing the missing marker of a transaction")

        self._broker.until(attempt, timeout_s, f"writing the missing marker of a transaction to {partition}")

    def prepared_view(
        self,
        transactional_id: TransactionalId,
        producer: ProducerId,
        expected: Collection[TopicPartition] = (),
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> PreparedView:
        """Reads everything that a prepare needs, from the coordinator and from the leaders of the partitions.

        One round trip suffices if the transaction has written to no other than the `expected` partitions. Otherwise the
        leaders of the others are asked once the coordinator has named them.
        """
        deadline = self._clock.monotonic() + timeout_s
        view = self._view_at_once(transactional_id, producer, expected, min(timeout_s, REQUEST_TIMEOUT_S))
        if view is None:
            view = PreparedView(self.describe(transactional_id, deadline - self._clock.monotonic()), {}, {})
        partitions = frozenset[TopicPartition]() if view.description is None else view.description.partitions
        missing = sorted(partitions - view.end_offsets.keys())
        if missing:
            progress, ends = self._broker.until(
                lambda remaining_s: self._progress_and_ends(missing, producer, remaining_s),
                deadline - self._clock.monotonic(),
                f"reading the partitions of transaction {transactional_id}",
            )
            view.progress.update(progress)
            view.end_offsets.update(ends)
        return PreparedView(
            view.description,
            {part: one for part, one in view.progress.items() if part in partitions},
            {part: one for part, one in view.end_offsets.items() if part in partitions},
        )

    def _view_at_once(
        self,
        transactional_id: TransactionalId,
        producer: ProducerId,
        partitions: Collection[TopicPartition],
        timeout_s: float,
    ) -> PreparedView | None:
        """Asks the coordinator and the leaders of these partitions at the same time.

        Returns None without a final answer of all of them, because asking one after the other finds out why.
        """
        from kafka.errors import KafkaError

        coordinator = self._broker.known_coordinator(transactional_id)
        if coordinator is None or not partitions:
            return None
        try:
            groups = self._broker.by_leader(sorted(partitions), timeout_s)
            requests = [(describe_request(transactional_id), coordinator), *_state_requests(groups)]
            with self._broker.fresh_leaders(partitions):
                described, *states = self._broker.send_all(requests, timeout_s)
                progress, ends = self._read_progress(states, len(groups), producer)
        except (AskAgain, BrokerUnavailable, KafkaRefused, KafkaError):
            return None
        if isinstance(described, KafkaError) or described.transaction_states[0].error_code:
            return None
        return PreparedView(_description(described.transaction_states[0]), progress, ends)

    def first_sequences(
        self, offsets: Mapping[TopicPartition, int], producer: ProducerId, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, int | None]:
        """Returns for each partition what `first_sequence` returns, with one request per leader where that suffices."""
        deadline = self._clock.monotonic() + timeout_s
        found = self._log.first_batches(offsets, min(timeout_s, REQUEST_TIMEOUT_S))
        firsts = {part: derive_first_sequence(batches, producer) for part, batches in found.items()}
        for part, offset in offsets.items():
            if firsts.get(part) is None:
                left_s = deadline - self._clock.monotonic()
                firsts[part] = self.first_sequence(part, offset, producer, left_s)
        return firsts

    def first_sequence(
        self,
        partition: TopicPartition,
        start_offset: int,
        producer: ProducerId,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> int | None:
        """Returns the sequence of the producer's first record at or after `start_offset`, or None if there is none or
        it was removed.
        """
        batches = self._log.batches(partition, start_offset, self._clock.monotonic() + timeout_s, max_bytes=1)
        try:
            return derive_first_sequence(batches, producer)
        except StartGone:
            return None

    def outcome(self, written: WrittenRange, producer: ProducerId, timeout_s: float = ANSWER_TIMEOUT_S) -> Marker:
        """Returns how a transaction ended in one partition, according to the control record in the log.

        `timeout_s` applies to each fetch, SCAN_TIMEOUT_S to the whole scan: between the records and the marker are all
        records that others wrote until a broker aborted the transaction. COMMIT and ABORT are cached; OPEN and GONE are
        read again.
        """
        if (known := self._markers.get((written, producer))) is not None:
            return known
        found = self._log.read_left(
            written,
            max(timeout_s, SCAN_TIMEOUT_S),
            lambda batches, _: derive_marker(batches, producer),
            silence_s=timeout_s,
        )
        if found in (Marker.COMMIT, Marker.ABORT):
            self._markers[written, producer] = found
        return Marker.GONE if found is None else found

    def data_ranges(
        self, written: WrittenRange, producer: ProducerId, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> list[LoggedRange]:
        """Returns the offset ranges of a transaction's records in one partition, whatever its outcome; empty if they
        were removed.

        Waits up to ANSWER_TIMEOUT_S for a leader that does not know yet that the records are committed.
        """
        found = self._log.read_left(
            written,
            timeout_s,
            lambda batches, start: list(derive_ranges(batches, start, written.end_offset, producer)),
            silence_s=ANSWER_TIMEOUT_S,
            reach=written.end_offset,
        )
        return found or []

    def stable_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Returns the last stable offsets, which bound read-committed readers."""
        return self._list_offsets(partitions, LATEST_TIMESTAMP, timeout_s, "reading last stable offsets")

    def first_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Returns the first offsets of the logs."""
        return self._list_offsets(partitions, EARLIEST_TIMESTAMP, timeout_s, "reading first offsets")

    def offsets_at(
        self, partitions: Iterable[TopicPartition], at_ms: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Returns the offsets of the first records that are not older than `at_ms`
        (since 1970); -1 if there is none.
        """
        return self._list_offsets(partitions, at_ms, timeout_s, "reading the offsets at a time")

    def mirrored_texts(self, group: str, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[TopicPartition, str]:
        """Returns the metadata texts of a consumer group's offsets; empty for a group without offsets.

        librdkafka's admin client is not used: abandoning it while a broker hangs aborts the process (2.16.0, assertion
        in `rd_kafka_enq_once_del_source_return`).
        """
        answer = self._broker.ask_coordinator(
            group, lambda: group_fetch_request(group), lambda a: a.error_code, timeout_s, group=True
        )
        self._broker.refuse(answer.error_code, f"reading the consumer group {group}")
        return {
            TopicPartition(topic.name, part.partition_index): part.metadata or ""
            for topic in answer.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

    def mirror_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int], text: str = "", timeout_s: float = MIRROR_TIMEOUT_S
    ) -> None:
        """Writes offsets to a consumer group without members, each with `text` as its metadata.

        After an error some may be written.
        """
        deadline = self._clock.monotonic() + timeout_s
        wanted = sorted(offsets.items())
        for start in range(0, len(wanted), WRITTEN_AT_ONCE):
            request = partial(group_offsets_request, group, dict(wanted[start : start + WRITTEN_AT_ONCE]), text)
            left_s = deadline - self._clock.monotonic()
            code = _first_error(self._broker.ask_coordinator(group, request, _first_error, left_s, group=True))
            if code == _HAS_MEMBERS:
                raise KafkaRefused(
                    f"no positions can be mirrored, because the consumer group {group} has members: another consumer "
                    f"uses the pipeline's name as its `group.id`; give it another name"
                )
            self._broker.refuse(code, f"mirroring positions to the consumer group {group}")

    # -- the cluster -------------------------------------------------------------------------------------------------

    def cluster_id(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Returns the id of the cluster."""
        answer = self._broker.until(lambda left: self._broker.metadata([], left), timeout_s, "reading the cluster id")
        return str(answer.cluster_id)

    def leaders(self, topics: Iterable[str], timeout_s: float = ANSWER_TIMEOUT_S) -> dict[TopicPartition, Leader]:
        """Returns the leaders of the topics' partitions, and those of the transaction log if this user may see them."""
        wanted = [*topics, TRANSACTION_LOG]
        return self._broker.until(lambda left: self._broker.leaders(wanted, left), timeout_s, "reading the leaders")

    def known_coordinator(self, transactional_id: TransactionalId) -> int | None:
        """Returns the broker that last answered for an id."""
        return self._broker.known_coordinator(transactional_id)

    def topics(self, names: Iterable[str] | None, timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, TopicFacts]:
        """Returns id and partition count of the topics that exist (None: all visible ones); others are left out."""
        wanted = None if names is None else sorted(set(names))
        answer = self._broker.until(
            lambda left: self._broker.metadata(wanted, left), timeout_s, "reading the topics' metadata"
        )
        for topic in answer.topics:
            if topic.error_code == TOPIC_NOT_AUTHORIZED:
                self._broker.refuse(topic.error_code, f"reading the metadata of topic {topic.name}")
        return {t.name: TopicFacts(str(t.topic_id), len(t.partitions)) for t in answer.topics if not t.error_code}

    def may_read(self, topic: str, timeout_s: float = ANSWER_TIMEOUT_S) -> bool:
        """Tests READ on a topic by fetching; `topics` needs only DESCRIBE."""

        def attempt(remaining_s: float) -> bool:
            answer = self._broker.send(fetch_request({TopicPartition(topic, NO_PARTITION): 0}, 1), None, remaining_s)
            if not answer.responses:
                raise AskAgain(f"a quota of this user holds it back for {answer.throttle_time_ms} ms")
            return bool(answer.responses[0].partitions[0].error_code != TOPIC_NOT_AUTHORIZED)

        return self._broker.until(attempt, timeout_s, f"trying to read topic {topic}")

    def topic_limits(self, topic: str, timeout_s: float = ANSWER_TIMEOUT_S) -> TopicLimits:
        """Returns the topic's limits on records, cached."""
        if topic not in self._topic_limits:
            self._topic_limits[topic] = read_topic_limits(self._broker, topic, timeout_s)
        return self._topic_limits[topic]

    def id_lifetime_ms(self, timeout_s: float = ANSWER_TIMEOUT_S) -> int | None:
        """Returns how long a coordinator remembers an unused transactional id (`transactional.id.expiration.ms`).

        Returns None if this user may not see the setting.
        """
        return read_id_lifetime_ms(self._broker, timeout_s)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], moment: int, timeout_s: float, what: str
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)

        def attempt(remaining_s: float) -> dict[TopicPartition, int]:
            groups = self._broker.by_leader(wanted, remaining_s)
            requests = [(offsets_request(group, committed=True, moment=moment), node) for node, group in groups.items()]
            with self._broker.fresh_leaders(wanted):
                return self._offsets(self._broker.send_all(requests, remaining_s))

        return self._broker.until(attempt, timeout_s, what)

    def _end(self, partition: TopicPartition, timeout_s: float) -> int:
        """Requests the high watermark once. Raises AskAgain, also while a new leader does not know it yet."""
        ((node, group),) = self._broker.by_leader([partition], timeout_s).items()
        with self._broker.fresh_leaders([partition]):
            answer = self._broker.send(offsets_request(group, committed=False), node, timeout_s)
            return self._offsets([answer])[partition]

    def _progress_and_ends(
        self, partitions: Sequence[TopicPartition], producer: ProducerId, timeout_s: float
    ) -> tuple[dict[TopicPartition, ProducerProgress], dict[TopicPartition, int]]:
        groups = self._broker.by_leader(partitions, timeout_s)
        with self._broker.fresh_leaders(partitions):
            answers = self._broker.send_all(_state_requests(groups), timeout_s)
            return self._read_progress(answers, len(groups), producer)

    def _read_progress(
        self, answers: list[Any], leaders: int, producer: ProducerId
    ) -> tuple[dict[TopicPartition, ProducerProgress], dict[TopicPartition, int]]:
        producers, ends = self._read_states(answers, leaders)
        progress = {
            partition: ProducerProgress(known.current_txn_start_offset, known.last_sequence + 1)
            for partition, known in producers
            if ProducerId(known.producer_id, known.producer_epoch) == producer
        }
        return progress, ends

    def _producers_and_ends(
        self, partitions: Sequence[TopicPartition], timeout_s: float
    ) -> tuple[list[tuple[TopicPartition, Any]], dict[TopicPartition, int]]:
        """Reads the leaders' producer states and high watermarks in one round trip."""
        groups = self._broker.by_leader(partitions, timeout_s)
        with self._broker.fresh_leaders(partitions):
            return self._read_states(self._broker.send_all(_state_requests(groups), timeout_s), len(groups))

    def _read_states(
        self, answers: list[Any], leaders: int
    ) -> tuple[list[tuple[TopicPartition, Any]], dict[TopicPartition, int]]:
        """Reads the answers to `_state_requests` of these leaders. Raises what a wrong leader answers."""
        ends = self._offsets(answers[leaders:])
        return list(self._producers(answers[:leaders])), ends

    def _producers(self, answers: list[Any]) -> Iterator[tuple[TopicPartition, Any]]:
        for topic, entry in self._entries(answers):
            partition = TopicPartition(topic, entry.partition_index)
            self._broker.check_leader(entry.error_code, partition, "reading the producers")
            for producer in entry.active_producers:
                yield partition, producer

    def _offsets(self, answers: list[Any]) -> dict[TopicPartition, int]:
        found = {}
        for topic, entry in self._entries(answers):
            partition = TopicPartition(topic, entry.partition_index)
            self._broker.check_leader(entry.error_code, partition, "reading the end")
            found[partition] = int(entry.offset)
        return found

    def _entries(self, answers: list[Any]) -> Iterator[tuple[str, Any]]:
        from kafka.errors import KafkaError

        for answer in answers:
            if isinstance(answer, KafkaError):
                raise answer
            for topic in answer.topics:
                for entry in topic.partitions:
                    yield topic.name, entry


def _description(answer: Any) -> TransactionDescription:
    return TransactionDescription(
        state=CoordinatorState(answer.transaction_state),
        producer=ProducerId(answer.producer_id, answer.producer_epoch),
        timeout_ms=answer.transaction_timeout_ms,
        opened_at_ms=answer.transaction_start_time_ms,
        partitions=frozenset(TopicPartition(t.topic, p) for t in answer.topics for p in t.partitions),
    )


def _state_requests(groups: Mapping[int, Mapping[TopicPartition, int]]) -> list[tuple[Any, int]]:
    """Builds the requests for the producers and the high watermarks of partitions, grouped by leader.

    A follower also reports its producers, but without the newest batches and markers (seen with 4.3.1 in a rolling
    restart). Only the leader reports end offsets, so a broker's second response shows that the first one is valid.
    """
    requests = [(producers_request(group), node) for node, group in groups.items()]
    return [
        *requests,
        *((offsets_request(group, committed=False, epochs=group), node) for node, group in groups.items()),
    ]


def _first_error(answer: Any) -> int:
    return next((part.error_code for topic in answer.topics for part in topic.partitions if part.error_code), 0)
