"""A connection to a cluster for our own requests: retries, deadlines, coordinators and leaders.

`channel.py` sends a request to its node. Read next: `transactions.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tidegate.clock import Clock
from tidegate.ids import TopicPartition
from tidegate.kafka.channel import REQUEST_TIMEOUT_S, OpenChannel
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, describe_error
from tidegate.kafka.facts import TRANSACTION_LOG, Leader
from tidegate.kafka.properties import derive_servers

T = TypeVar("T")

BACKOFF_S: Final = 0.02
BACKOFF_S_MAX: Final = 0.5

CONCURRENT_RETRY: Final = frozenset({7, 13, 14, 15, 16, 51})
"""REQUEST_TIMED_OUT, NETWORK_EXCEPTION, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR,
CONCURRENT_TRANSACTIONS: errors after which a retry at the coordinator can succeed.
"""
_COORDINATOR_MOVED: Final = frozenset({15, 16})
TOPIC_NOT_AUTHORIZED: Final = 29
GROUP_NOT_AUTHORIZED: Final = 30
CLUSTER_NOT_AUTHORIZED: Final = 31
NOT_AUTHORIZED: Final[Mapping[int, str]] = {
    TOPIC_NOT_AUTHORIZED: "grant READ on the topic to this user, and WRITE on a sink's",
    GROUP_NOT_AUTHORIZED: "grant READ on that group to this user: lag tools read it",
    CLUSTER_NOT_AUTHORIZED: "grant it to this user on the cluster",
    53: "grant WRITE to this user on the transactional ids that begin with the pipeline's name and a dot",
}
"""TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED, each with its remedy."""


class AskAgain(Exception):
    """The response was not final; the text describes it."""


class BrokerConnection:
    """Sends requests and retries them until a response is final. Thread-safe. Raises BrokerUnavailable, KafkaRefused.

    `kafka` contains librdkafka properties; only those of the connection are used. The constructor raises the same
    errors as `open_channel`.
    """

    def __init__(
        self, kafka: Mapping[str, str], connect_timeout_s: float, open_channel: OpenChannel, clock: Clock
    ) -> None:
        self._bootstrap = derive_servers(kafka)
        self._clock = clock
        self._channel = open_channel(kafka, connect_timeout_s)
        self._coordinators: dict[tuple[str, bool], int] = {}
        self._leaders: dict[TopicPartition, Leader] = {}
        self._closed = False
        self.interruptions = 0
        """Requests without a final response: connections broke, or brokers or leaders were unavailable."""

    def close(self) -> None:
        """Closes the connections and stops the client's thread."""
        if not self._closed:
            self._closed = True
            self._channel.close()

    def nodes(self, timeout_s: float) -> list[int]:
        """Returns the brokers of the cluster now. The client's own list may be minutes old and lack a broker that has
        returned.
        """
        return [broker.node_id for broker in self.metadata([], timeout_s).brokers]

    def known_coordinator(self, transactional_id: str) -> int | None:
        """Returns the cached coordinator of a transactional id."""
        return self._coordinators.get((transactional_id, False))

    @contextmanager
    def fresh_leaders(self, partitions: Iterable[TopicPartition]) -> Iterator[None]:
        """Makes the next attempt look up the leaders again if anything inside fails."""
        try:
            yield
        except BaseException:
            self.forget_leaders(partitions)
            raise

    def forget_leaders(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes the partitions from the leader cache."""
        for partition in partitions:
            self._leaders.pop(partition, None)

    def until(self, attempt: Callable[[float], T], timeout_s: float, what: str) -> T:
        """Retries until a response is final; `attempt` receives the remaining seconds."""
        from kafka import errors

        deadline, pause, last = self._clock.monotonic() + timeout_s, BACKOFF_S, "no attempt was made"
        while True:
            remaining = deadline - self._clock.monotonic()
            try:
                if remaining > 0:
                    return attempt(min(remaining, REQUEST_TIMEOUT_S))
            except AskAgain as again:
                self.interruptions += 1
                last = str(again)
            except errors.AuthorizationError as error:
                remedy = NOT_AUTHORIZED.get(error.errno, "grant it to this user")
                raise KafkaRefused(f"{what} at {self._bootstrap}: not authorized ({error}); {remedy}") from error
            except errors.UnknownBrokerIdError as error:
                self.interruptions += 1
                last = describe_error(error)
                self._channel.look_again()
            except errors.KafkaError as error:
                self.interruptions += 1
                if not error.retriable:
                    raise BrokerUnavailable(f"{what} at {self._bootstrap}: {describe_error(error)}") from error
                last = describe_error(error)
            except RuntimeError as error:
                if self._closed:
                    raise BrokerUnavailable(f"{what}: the client was closed") from error
                raise
            if self._clock.monotonic() + pause >= deadline:
                raise BrokerUnavailable(
                    f"{what}: no final answer from {self._bootstrap} in {timeout_s:g} s: {last}; is it reachable?"
                )
            self._clock.sleep(pause)
            pause = min(2 * pause, BACKOFF_S_MAX)

    def send_all(self, requests: Sequence[tuple[Any, int | None]], timeout_s: float) -> list[Any]:
        """Sends all requests, then waits for all responses. A response may be a KafkaError."""
        from kafka.errors import KafkaError

        answers = self._channel.send(requests, timeout_s)
        self.interruptions += sum(isinstance(answer, KafkaError) for answer in answers)
        return answers

    def send(self, request: Any, node: int | None, timeout_s: float) -> Any:
        """Sends one request to a node (None: any) and waits for its response. Raises KafkaError."""
        from kafka.errors import KafkaError

        (answer,) = self._channel.send([(request, node)], timeout_s)
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    def ask_coordinator(
        self, key: str, request: Callable[[], Any], code: Callable[[Any], int], timeout_s: float, *, group: bool = False
    ) -> Any:
        """Sends a request to the coordinator of a transactional id or group.

        The coordinator is looked up again whenever it did not respond or reports that it has moved.
        """
        from kafka.errors import KafkaError

        def attempt(remaining_s: float) -> Any:
            try:
                answer = self.send(request(), self._coordinator(key, group, remaining_s), remaining_s)
            except KafkaError:
                self._coordinators.pop((key, group), None)
                raise
            if code(answer) in _COORDINATOR_MOVED:
                self._coordinators.pop((key, group), None)
            if code(answer) in CONCURRENT_RETRY:
                raise AskAgain(error_name(code(answer)))
            return answer

        return self.until(attempt, timeout_s, f"asking the coordinator of {_coordinated(key, group)}")

    def find_coordinators(self, ids: Sequence[str], timeout_s: float) -> None:
        """Looks up the unknown coordinators of several transactional ids with one request.

        Those that it does not find are looked up when they are asked.
        """
        from kafka.errors import KafkaError
        from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

        unknown = [one for one in ids if (one, False) not in self._coordinators]
        if len(unknown) < 2:
            return
        kind = CoordinatorType.TRANSACTION
        request = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=unknown, min_version=4)
        (answer,) = self.send_all([(request, None)], timeout_s)
        if isinstance(answer, KafkaError):
            return
        for found in answer.coordinators:
            if not found.error_code:
                self._channel.learn(found, kind)
                self._coordinators[found.key, False] = found.node_id

    def _coordinator(self, key: str, group: bool, timeout_s: float) -> int:
        """Looks up the coordinator in our own cache: kafka-python never invalidates its cache."""
        from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest

        known = self._coordinators.get((key, group))
        if known is not None:
            return known
        kind = CoordinatorType.GROUP if group else CoordinatorType.TRANSACTION
        request = FindCoordinatorRequest(key_type=kind.value, coordinator_keys=[key], min_version=4)
        found = self.send(request, None, timeout_s).coordinators[0]
        if found.error_code in CONCURRENT_RETRY:
            raise AskAgain(error_name(found.error_code))
        self.refuse(found.error_code, f"finding the coordinator of {_coordinated(key, group)}")
        self._channel.learn(found, kind)
        self._coordinators[key, group] = found.node_id
        return int(found.node_id)

    def refuse(self, code: int, what: str) -> None:
        """Raises KafkaRefused or BrokerUnavailable for a final error code."""
        if code in NOT_AUTHORIZED:
            raise KafkaRefused(
                f"{what} at {self._bootstrap}: not authorized ({error_name(code)}); {NOT_AUTHORIZED[code]}"
            )
        if code:
            raise BrokerUnavailable(f"{what} at {self._bootstrap}: the broker answered {error_name(code)}")

    def metadata(self, names: list[str] | None, timeout_s: float) -> Any:
        """Returns metadata of these topics. An empty list requests the cluster only, None all topics that this user may
        see.

        Raises AskAgain while a newly started broker knows of no brokers; it does not know any topics then either.
        """
        from kafka.protocol.metadata import MetadataRequest

        topics = None if names is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        answer = self.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False), None, timeout_s)
        if not answer.brokers:
            raise AskAgain("a broker that has just started does not know the other brokers yet")
        return answer

    def by_leader(self, partitions: Iterable[TopicPartition], timeout_s: float) -> dict[int, dict[TopicPartition, int]]:
        """Groups partitions by leader, each with the leader's epoch. Leaders come from the cache if possible and may
        have moved.

        Raises AskAgain while a partition has no leader.
        """
        wanted = list(partitions)
        missing = {partition.topic for partition in wanted if partition not in self._leaders}
        if missing:
            self.leaders(missing, timeout_s)
        groups: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
        for partition in wanted:
            leader = self._leaders.get(partition)
            if leader is None:
                raise AskAgain(f"{partition} has no leader or does not exist")
            groups[leader.node][partition] = leader.epoch
        return groups

    def leaders(self, topics: Iterable[str], timeout_s: float) -> dict[TopicPartition, Leader]:
        """Returns the current leaders of the topics' partitions, including partitions without a leader."""
        found: dict[TopicPartition, Leader] = {}
        for topic in self.metadata(sorted(set(topics)), timeout_s).topics:
            if topic.error_code == TOPIC_NOT_AUTHORIZED and topic.name != TRANSACTION_LOG:
                self.refuse(topic.error_code, f"reading the metadata of topic {topic.name}")
            for part in topic.partitions:
                found[TopicPartition(topic.name, part.partition_index)] = Leader(part.leader_id, part.leader_epoch)
        self._leaders.update({part: leader for part, leader in found.items() if leader.node >= 0})
        return found

    def check_leader(self, code: int, partition: TopicPartition, what: str) -> None:
        """Raises for an error of a partition: AskAgain if a retry can succeed."""
        if is_passing(code):
            self._leaders.pop(partition, None)
            raise AskAgain(f"{partition}: {error_name(code)}")
        self.refuse(code, f"{what} of {partition}")


def _coordinated(key: str, group: bool) -> str:
    return f"{'group' if group else 'transaction'} {key}"


def is_passing(code: int) -> bool:
    """Returns whether Kafka classifies the error as retriable, such as a moved leader
    or a replica that is catching up.
    """
    from kafka.errors import for_code

    return code != 0 and bool(for_code(code).retriable)


def error_name(code: int) -> str:
    """Returns the name and number of a Kafka error for messages."""
    from kafka.errors import for_code

    return f"{for_code(code).__name__} ({code})"
