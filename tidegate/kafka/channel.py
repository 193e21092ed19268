"""The transport of request objects to a node of the cluster and of the responses back. The simulation replaces it.

Together with `connecting.py`, the only module that uses private names of kafka-python. It needs `_manager` to send a
request to a chosen node, because no public client can end a transaction that another process wrote. Read next:
`connection.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import override

from tidegate.kafka.connecting import close_client, connect

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


class RequestChannel(Protocol):
    """Sends requests and returns responses, both as kafka-python objects. Thread-safe."""

    def send(self, requests: Sequence[tuple[Any, int | None]], timeout_s: float) -> list[Any]:
        """Sends each request to its node (None: any), then waits for all responses, at most `timeout_s` for each.

        A response may be a KafkaError if there was none. Raises RuntimeError when the channel is closed.
        """

    def learn(self, coordinator: Any, kind: Any) -> None:
        """Records the node of a coordinator that was found, unless it is already known."""

    def look_again(self) -> None:
        """Requests a metadata refresh and returns immediately."""

    def close(self) -> None:
        """Closes all connections."""


OpenChannel = Callable[[Mapping[str, str], float], RequestChannel]
"""Opens a channel from librdkafka properties within the given number of seconds."""


class ClientChannel(RequestChannel):
    """A channel over a connected kafka-python client, which it closes."""

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
        close_client(self._client)


def open_client_channel(kafka: Mapping[str, str], timeout_s: float) -> RequestChannel:
    """Opens a channel to real brokers. Raises the same errors as `connect`."""
    return ClientChannel(connect(kafka, timeout_s))
