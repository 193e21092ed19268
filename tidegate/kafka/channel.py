"""How a request object reaches a node of the cluster, and its answer comes back. The simulation has another way.

With `connecting.py` the one module that uses private names of kafka-python (`_manager`: send a message to a node of our
choice), because no public client of it can end a transaction that another process wrote. Read next: `connection.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from tidegate.kafka.connecting import connect

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


class RequestChannel(Protocol):
    """Requests and answers are objects of kafka-python. Safe to use from several threads."""

    def send(self, requests: Sequence[tuple[Any, int | None]], timeout_s: float) -> list[Any]:
        """Send each to its node (None: any), then wait for all, for each at most so long.

        An answer may be a KafkaError: there was none. Raises RuntimeError when the channel is closed.
        """

    def learn(self, coordinator: Any, kind: Any) -> None:
        """A coordinator was found: remember where its node is, when that is new."""

    def look_again(self) -> None:
        """Ask which nodes there are now; returns at once."""

    def close(self) -> None:
        """Close all connections."""


OpenChannel = Callable[[Mapping[str, str], float], RequestChannel]
"""From librdkafka properties, within this many seconds."""


class ClientChannel(RequestChannel):
    """The channel of a connected client of kafka-python, which it closes."""

    def __init__(self, client: KafkaAdminClient) -> None:
        self._client = client
        self._manager: Any = client._manager

    @override
    def send(self, requests: Sequence[tuple[Any, int | None]], timeout_s: float) -> list[Any]:
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

    @override
    def learn(self, coordinator: Any, kind: Any) -> None:
        cluster = self._manager.cluster
        if cluster.broker_metadata(coordinator.node_id) is None:
            cluster.add_coordinator(coordinator, kind, coordinator.key, synthesize_node_id=False)

    @override
    def look_again(self) -> None:
        self._manager.cluster.request_update()

    @override
    def close(self) -> None:
        self._client.close()


def open_client_channel(kafka: Mapping[str, str], timeout_s: float) -> RequestChannel:
    """The real one. Raises what `connect` does."""
    return ClientChannel(connect(kafka, timeout_s))
