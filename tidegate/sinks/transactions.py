"""Transactions of other producers, from outside: describe, end, fence, list, and read how they ended.

The one module that uses kafka-python, and the one that uses private names of it (`_manager`: send a message of our own
to a node of our choice), because no public client can end a transaction that another process wrote. Requests that end
transactions are version 4 at most: a version 5 on a transaction written by librdkafka breaks idempotent retry.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tidegate.coordinator.types import Committable, WrittenRange
from tidegate.ids import TopicPartition, TransactionalId
from tidegate.sinks.batches import BatchHeader, derive_headers
from tidegate.sinks.client_properties import derive_client_arguments
from tidegate.sinks.errors import BrokerUnavailable, SinkRefused
from tidegate.sinks.facts import (
    CoordinatorState,
    EndAnswer,
    Marker,
    PreparedView,
    ProducerProgress,
    TopicFacts,
    TransactionDescription,
    TransactionListing,
)
from tidegate.sinks.requests import end_request, fetch_request, offsets_request, producers_request

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

T = TypeVar("T")

REQUEST_TIMEOUT_S: Final = 10.0
CONNECT_TIMEOUT_S: Final = 30.0
ANSWER_TIMEOUT_S: Final = 30.0
BACKOFF_S: Final = 0.02
BACKOFF_S_MAX: Final = 0.5
FETCH_BYTES: Final = 4 << 20
FENCE_TIMEOUT_MS: Final = 60_000
"""Only for a transaction begun by the fencing client itself, which begins none."""

_OUT_OF_RANGE: Final = 1
_UNKNOWN_TOPIC: Final = 3
_TXN_COORDINATOR_MOVED: Final = frozenset({15, 16})
_TXN_RETRY: Final = frozenset({7, 13, 14, 15, 16, 51})
"""REQUEST_TIMED_OUT, NETWORK_EXCEPTION, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CONCURRENT_TRANSACTIONS."""
_LEADER_MOVED: Final = frozenset({3, 5, 6, 7, 9, 13, 56, 74, 75, 100})
_NOT_AUTHORIZED: Final = frozenset({29, 31, 53})
_ID_NOT_FOUND: Final = 105
_END_ANSWERS: Final[Mapping[int, EndAnswer]] = {
    0: EndAnswer.ENDED,
    47: EndAnswer.FENCED,
    48: EndAnswer.INVALID_STATE,
    49: EndAnswer.UNKNOWN_PRODUCER,
    53: EndAnswer.NOT_AUTHORIZED,
    90: EndAnswer.FENCED,
}


class _AskAgain(Exception):
    """The answer was not final; the text says what it was."""


class TransactionClient:
    """Asks brokers about transactions and ends them. Thread-safe; every call waits at most `timeout_s`.

    `kafka` are librdkafka properties (only those of the connection are used). Every method raises BrokerUnavailable
    when there is no final answer in time, and SinkRefused when permission is missing.
    """

    def __init__(self, kafka: Mapping[str, str], connect_timeout_s: float = CONNECT_TIMEOUT_S) -> None:
        self._bootstrap = kafka.get("bootstrap.servers", "")
        self._admin = _connect(derive_client_arguments(kafka), self._bootstrap, connect_timeout_s)
        self._manager: Any = self._admin._manager
        self._coordinators: dict[str, int] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._closed = False

    def close(self) -> None:
        """Close the connections and end the client's thread."""
        if not self._closed:
            self._closed = True
            self._admin.close()

    # -- the coordinator of an id ------------------------------------------------------------------------------------

    def describe(
        self, transactional_id: TransactionalId, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> TransactionDescription | None:
        """What the coordinator knows; None when it does not know the id (never used, or expired)."""
        from kafka.protocol.admin.transactions import DescribeTransactionsRequest

        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        answer = self._ask_coordinator(
            transactional_id, lambda: request, lambda a: a.transaction_states[0].error_code, timeout_s
        ).transaction_states[0]
        if answer.error_code == _ID_NOT_FOUND:
            return None
        self._refuse(answer.error_code, f"describing transaction {transactional_id}")
        return TransactionDescription(
            state=CoordinatorState(answer.transaction_state),
            producer_id=answer.producer_id,
            producer_epoch=answer.producer_epoch,
            timeout_ms=answer.transaction_timeout_ms,
            opened_at_ms=answer.transaction_start_time_ms,
            partitions=frozenset(TopicPartition(t.topic, p) for t in answer.topics for p in t.partitions),
        )

    def end_transaction(
        self, committable: Committable, commit: bool = True, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> EndAnswer:
        """Commit or abort a prepared transaction. Idempotent; NO_ANSWER at the deadline."""
        try:
            answer = self._ask_coordinator(
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
        """Commit several transactions at once, answers in their order; what is not final is asked again one by one."""
        from kafka.errors import KafkaError

        deadline = time.monotonic() + timeout_s
        known = all(committable.transactional_id in self._coordinators for committable in committables)
        answers: list[EndAnswer | None] = [None] * len(committables)
        if known and len(committables) > 1:
            pairs = [(end_request(c, commit=True), self._coordinators[c.transactional_id]) for c in committables]
            for index, answer in enumerate(self._send_all(pairs, timeout_s)):
                if not isinstance(answer, KafkaError) and answer.error_code not in _TXN_RETRY:
                    answers[index] = _END_ANSWERS.get(answer.error_code, EndAnswer.REJECTED)
        return [
            self.end_transaction(committable, timeout_s=max(0.0, deadline - time.monotonic()))
            if answer is None
            else answer
            for committable, answer in zip(committables, answers, strict=True)
        ]

    def fence(self, transactional_id: TransactionalId, timeout_s: float = ANSWER_TIMEOUT_S) -> tuple[int, int]:
        """Raise the epoch of an id, which aborts what is open and shuts its producers out; (producer id, epoch) now."""
        from kafka.protocol.producer.transaction import InitProducerIdRequest

        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=FENCE_TIMEOUT_MS,
            producer_id=-1,
            producer_epoch=-1,
            max_version=4,
        )
        answer = self._ask_coordinator(transactional_id, lambda: request, lambda a: a.error_code, timeout_s)
        self._refuse(answer.error_code, f"fencing transaction {transactional_id}")
        return answer.producer_id, answer.producer_epoch

    def list_transactions(self, prefix: str, timeout_s: float = ANSWER_TIMEOUT_S) -> list[TransactionListing]:
        """All transactional ids that begin with `prefix`, of every coordinator."""
        from kafka.errors import KafkaError
        from kafka.protocol.admin.transactions import ListTransactionsRequest

        def attempt(remaining_s: float) -> list[TransactionListing]:
            nodes = [broker.node_id for broker in self._manager.cluster.brokers()]
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], min_version=0, max_version=0)
            found = []
            for answer in self._send_all([(request, node) for node in nodes], remaining_s):
                if isinstance(answer, KafkaError):
                    raise answer
                if answer.error_code in _TXN_RETRY:
                    raise _AskAgain(_name(answer.error_code))
                self._refuse(answer.error_code, "listing transactions")
                found += answer.transaction_states
            return [
                TransactionListing(TransactionalId(t.transactional_id), CoordinatorState(t.transaction_state))
                for t in found
                if t.transactional_id.startswith(prefix)
            ]

        return self._until(attempt, timeout_s, "listing transactions")

    # -- the leaders of partitions -----------------------------------------------------------------------------------

    def producer_state(
        self, partitions: Iterable[TopicPartition], producer_id: int, epoch: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, ProducerProgress]:
        """What the leaders counted for one (producer id, epoch); partitions that do not know it are left out."""
        wanted = list(partitions)
        return self._until(
            lambda remaining_s: self._progress_and_ends(wanted, producer_id, epoch, remaining_s)[0],
            timeout_s,
            "reading producer states",
        )

    def prepared_view(
        self, transactional_id: TransactionalId, producer_id: int, epoch: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> PreparedView:
        """Everything a prepare asks, in two round trips: the coordinator, then all leaders at once."""
        deadline = time.monotonic() + timeout_s
        description = self.describe(transactional_id, timeout_s)
        if description is None or not description.partitions:
            return PreparedView(description, {}, {})
        wanted = sorted(description.partitions)
        progress, ends = self._until(
            lambda remaining_s: self._progress_and_ends(wanted, producer_id, epoch, remaining_s),
            deadline - time.monotonic(),
            f"reading the partitions of transaction {transactional_id}",
        )
        return PreparedView(description, progress, ends)

    def first_sequence(
        self,
        partition: TopicPartition,
        start_offset: int,
        producer_id: int,
        epoch: int,
        timeout_s: float = ANSWER_TIMEOUT_S,
    ) -> int | None:
        """Sequence of the first record at or behind `start_offset` of (producer id, epoch); None: nothing there."""
        for batch in self._batches(partition, start_offset, time.monotonic() + timeout_s, max_bytes=1):
            if batch.commits is None and (batch.producer_id, batch.producer_epoch) == (producer_id, epoch):
                return batch.base_sequence
        return None

    def outcome(
        self, written: WrittenRange, producer_id: int, epoch: int, timeout_s: float = ANSWER_TIMEOUT_S
    ) -> Marker:
        """How a transaction ended in one partition, by the control record in the log.

        A marker carries the epoch of the transaction (EndTxn) or a newer one (time-out, fence): the first marker of
        the producer id at or behind the start offset with that epoch or a newer one ends it.
        """
        try:
            for batch in self._batches(written.partition, written.start_offset, time.monotonic() + timeout_s):
                if batch.commits is not None and batch.producer_id == producer_id and batch.producer_epoch >= epoch:
                    return Marker.COMMIT if batch.commits else Marker.ABORT
        except _StartGone:
            return Marker.GONE
        return Marker.OPEN

    def stable_offsets(
        self, partitions: Iterable[TopicPartition], timeout_s: float = ANSWER_TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """Last stable offsets: where read-committed readers end."""
        wanted = list(partitions)

        def attempt(remaining_s: float) -> dict[TopicPartition, int]:
            requests = [
                (offsets_request(group, committed=True), node)
                for node, group in self._by_leader(wanted, remaining_s).items()
            ]
            return self._offsets(self._send_all(requests, remaining_s))

        return self._until(attempt, timeout_s, "reading last stable offsets")

    # -- the cluster -------------------------------------------------------------------------------------------------

    def cluster_id(self, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Identity of the cluster."""
        return str(self._until(lambda left: self._metadata([], left), timeout_s, "reading the cluster id").cluster_id)

    def topics(self, names: Iterable[str], timeout_s: float = ANSWER_TIMEOUT_S) -> dict[str, TopicFacts]:
        """Id and partition count of the topics that exist; others are left out."""
        answer = self._until(
            lambda left: self._metadata(sorted(set(names)), left), timeout_s, "reading the topics' metadata"
        )
        return {t.name: TopicFacts(str(t.topic_id), len(t.partitions)) for t in answer.topics if not t.error_code}

    # -- inside ------------------------------------------------------------------------------------------------------

    def _until(self, attempt: Callable[[float], T], timeout_s: float, what: str) -> T:
        """Repeat until there is a final answer; `attempt` gets the seconds that are left."""
        from kafka import errors

        deadline, pause, last = time.monotonic() + timeout_s, BACKOFF_S, "no try was made"
        while True:
            remaining = deadline - time.monotonic()
            try:
                if remaining > 0:
                    return attempt(min(remaining, REQUEST_TIMEOUT_S))
            except _AskAgain as again:
                last = str(again)
            except errors.AuthorizationError as error:
                raise SinkRefused(
                    f"{what} at {self._bootstrap}: not authorized ({error}); grant it to this user"
                ) from error
            except errors.UnknownBrokerIdError as error:
                last = repr(error)
                self._manager.cluster.request_update()
            except errors.KafkaError as error:
                if not error.retriable:
                    raise BrokerUnavailable(f"{what} at {self._bootstrap}: {error!r}") from error
                last = repr(error)
            except RuntimeError as error:
                if self._closed:
                    raise BrokerUnavailable(f"{what}: the client was closed") from error
                raise
            if time.monotonic() + pause >= deadline:
                raise BrokerUnavailable(
                    f"{what}: no final answer from {self._bootstrap} in {timeout_s:g} s, last: {last}; is it reachable?"
                )
            time.sleep(pause)
            pause = min(2 * pause, BACKOFF_S_MAX)

    def _send_all(self, requests: Sequence[tuple[Any, int]], timeout_s: float) -> list[Any]:
        """Send all, then wait for all; an answer may be a KafkaError."""
        from kafka.errors import KafkaError

        async def call() -> list[Any]:
            sent: list[Any] = []
            for request, node in requests:
                try:
                    sent.append(self._manager.send(request, node_id=node))
                except KafkaError as error:
                    sent.append(error)
            answers: list[Any] = []
            for future in sent:
                if isinstance(future, KafkaError):
                    answers.append(future)
                    continue
                try:
                    answers.append(await self._manager.wait_for(future, timeout_s * 1000))
                except KafkaError as error:
                    answers.append(error)
            return answers

        answers: list[Any] = self._manager.run(call)
        return answers

    def _send(self, request: Any, node: int | None, timeout_s: float) -> Any:
        async def call() -> Any:
            return await self._manager.wait_for(self._manager.send(request, node_id=node), timeout_s * 1000)

        return self._manager.run(call)

    def _ask_coordinator(
        self, transactional_id: str, request: Callable[[], Any], code: Callable[[Any], int], timeout_s: float
    ) -> Any:
        """Send to the coordinator of an id; it is looked up again whenever it did not answer or says it moved."""
        from kafka.errors import KafkaError

        def attempt(remaining_s: float) -> Any:
            try:
                answer = self._send(request(), self._coordinator(transactional_id, remaining_s), remaining_s)
            except KafkaError:
                self._coordinators.pop(transactional_id, None)
                raise
            if code(answer) in _TXN_COORDINATOR_MOVED:
                self._coordinators.pop(transactional_id, None)
            if code(answer) in _TXN_RETRY:
                raise _AskAgain(_name(code(answer)))
            return answer

        return self._until(attempt, timeout_s, f"asking the coordinator of transaction {transactional_id}")

    def _coordinator(self, transactional_id: str, timeout_s: float) -> int:
        """Own cache: kafka-python's own one is never invalidated."""
        from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

        known = self._coordinators.get(transactional_id)
        if known is not None:
            return known
        kind = CoordinatorType.TRANSACTION
        request = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=[transactional_id], min_version=4)
        found = self._send(request, None, timeout_s).coordinators[0]
        if found.error_code in _TXN_RETRY:
            raise _AskAgain(_name(found.error_code))
        self._refuse(found.error_code, f"finding the coordinator of transaction {transactional_id}")
        if self._manager.cluster.broker_metadata(found.node_id) is None:
            self._manager.cluster.add_coordinator(found, kind, found.key, synthesize_node_id=False)
        self._coordinators[transactional_id] = found.node_id
        return int(found.node_id)

    def _refuse(self, code: int, what: str) -> None:
        """Raise for a final error."""
        if code in _NOT_AUTHORIZED:
            raise SinkRefused(f"{what} at {self._bootstrap}: not authorized ({_name(code)}); grant it to this user")
        if code:
            raise BrokerUnavailable(f"{what} at {self._bootstrap}: the broker answered {_name(code)}")

    def _metadata(self, names: list[str], timeout_s: float) -> Any:
        from kafka.protocol.metadata import MetadataRequest

        topic = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(topics=[topic(name=name) for name in names], allow_auto_topic_creation=False)
        return self._send(request, None, timeout_s)

    def _by_leader(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[int, list[TopicPartition]]:
        """Partitions by leader, from the cache where possible. Raises _AskAgain while one has no leader."""
        wanted = list(partitions)
        missing = {partition.topic for partition in wanted if partition not in self._leaders}
        if missing:
            for topic in self._metadata(sorted(missing), timeout_s).topics:
                for found in topic.partitions:
                    if found.leader_id >= 0:
                        self._leaders[TopicPartition(topic.name, found.partition_index)] = found.leader_id
        groups: dict[int, list[TopicPartition]] = defaultdict(list)
        for partition in wanted:
            if partition not in self._leaders:
                raise _AskAgain(f"{partition} has no leader or does not exist")
            groups[self._leaders[partition]].append(partition)
        return groups

    def _check_leader(self, code: int, partition: TopicPartition, what: str) -> None:
        if code in _LEADER_MOVED:
            self._leaders.pop(partition, None)
            raise _AskAgain(f"{partition}: {_name(code)}")
        self._refuse(code, f"{what} of {partition}")

    def _progress_and_ends(
        self, partitions: Sequence[TopicPartition], producer_id: int, epoch: int, timeout_s: float
    ) -> tuple[dict[TopicPartition, ProducerProgress], dict[TopicPartition, int]]:
        groups = self._by_leader(partitions, timeout_s)
        requests = [(producers_request(group), node) for node, group in groups.items()]
        requests += [(offsets_request(group, committed=False), node) for node, group in groups.items()]
        try:
            answers = self._send_all(requests, timeout_s)
            return self._progress(answers[: len(groups)], producer_id, epoch), self._offsets(answers[len(groups) :])
        except Exception:
            for partition in partitions:
                self._leaders.pop(partition, None)
            raise

    def _progress(self, answers: list[Any], producer_id: int, epoch: int) -> dict[TopicPartition, ProducerProgress]:
        found = {}
        for topic, entry in self._entries(answers):
            partition = TopicPartition(topic, entry.partition_index)
            self._check_leader(entry.error_code, partition, "reading the producers")
            for producer in entry.active_producers:
                if (producer.producer_id, producer.producer_epoch) == (producer_id, epoch):
                    found[partition] = ProducerProgress(producer.current_txn_start_offset, producer.last_sequence + 1)
        return found

    def _offsets(self, answers: list[Any]) -> dict[TopicPartition, int]:
        found = {}
        for topic, entry in self._entries(answers):
            partition = TopicPartition(topic, entry.partition_index)
            self._check_leader(entry.error_code, partition, "reading the end")
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

    def _batches(
        self, partition: TopicPartition, start: int, deadline: float, max_bytes: int = FETCH_BYTES
    ) -> Iterator[BatchHeader]:
        """Every batch, control and aborted ones too, from `start` to the high watermark. Raises _StartGone."""
        offset, end = start, None
        while end is None or offset < end:
            left = deadline - time.monotonic()
            answer = self._until(
                lambda remaining_s, at=offset: self._fetch(partition, at, max_bytes, remaining_s),  # type: ignore[misc]  # mypy cannot infer a lambda with a default
                left,
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

    def _fetch(self, partition: TopicPartition, offset: int, max_bytes: int, timeout_s: float) -> Any:
        """One answer of a fetch. Raises _StartGone."""
        try:
            node = next(iter(self._by_leader([partition], timeout_s)))
        except _AskAgain as again:
            if not self._metadata([partition.topic], timeout_s).topics[0].partitions:
                raise _StartGone(f"{partition} does not exist") from again
            raise
        answer = self._send(fetch_request(partition, offset, max_bytes), node, timeout_s).responses[0].partitions[0]
        if answer.error_code == _OUT_OF_RANGE:
            raise _StartGone(f"{partition}: offset {offset} is not in the log")
        self._check_leader(answer.error_code, partition, "reading")
        return answer


class _StartGone(Exception):
    """The offset is below the log's start or behind its end, or the topic does not exist."""


def _connect(arguments: Mapping[str, object], bootstrap: str, timeout_s: float) -> KafkaAdminClient:
    """A connected client. kafka-python leaves its thread behind when the first connection fails, so that is stopped."""
    from kafka import KafkaAdminClient, errors
    from kafka.net.compat import KafkaNetClient

    made: list[Any] = []

    def make_client(**configs: object) -> Any:
        made.append(KafkaNetClient(**configs))
        return made[0]

    try:
        return KafkaAdminClient(
            **{"client_id": "tidegate", **arguments},
            bootstrap_timeout_ms=int(timeout_s * 1000),
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            reconnect_backoff_max_ms=1000,
            kafka_client=make_client,
        )
    except errors.KafkaError as error:
        for client in made:
            net = client._manager._net
            client.close()
            net.stop()
        if isinstance(error, (errors.AuthorizationError, errors.SaslAuthenticationFailedError)):
            raise SinkRefused(f"{bootstrap} refuses the connection: {error}; check the kafka settings") from error
        raise BrokerUnavailable(
            f"no connection to {bootstrap} in {timeout_s:g} s: {error!r}; is it reachable?"
        ) from error


def _name(code: int) -> str:
    from kafka.errors import for_code

    return f"{for_code(code).__name__} ({code})"
