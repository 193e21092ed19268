"""Connects kafka-python clients, and sends request objects to a node of the cluster.

The simulation replaces the transport. This is the only module that uses private names of kafka-python. It needs
`_manager` to send a request to a chosen node, because no public client can end a transaction that another process
wrote. Read next: `connection.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from socket import socket
from typing import TYPE_CHECKING, Any, Final, Protocol

from typing_extensions import override

from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, LoginRefused, describe_error
from tidegate.kafka.oauth import make_provider
from tidegate.kafka.properties import OAUTH, derive_client_arguments, derive_servers
from tidegate.kafka.tls import RenewedContext, uses_tls

if TYPE_CHECKING:
    from kafka import KafkaAdminClient


REQUEST_TIMEOUT_S: Final = 10.0
CHECK_S: Final = 1.0
"""The first connection timeout. It is doubled after each failure; each failure is diagnosed, because most obstacles do
not disappear by waiting.
"""
STEP_S: Final = 2.0
PAUSE_S: Final = 0.1
IN_FLIGHT: Final = 1000
"""Requests in flight on one connection. kafka-python allows 5 by default and fails requests beyond the limit. The
commits of a checkpoint are sent all at once, and brokers answer the requests of a connection in order anyway.
"""

CLIENT_MODULES: Final = (
    "kafka",
    "kafka.admin",
    "kafka.errors",
    "kafka.protocol.admin.configs",
    "kafka.protocol.admin.transactions",
    "kafka.protocol.consumer",
    "kafka.protocol.producer.produce",
    "kafka.protocol.producer.transaction",
)


def import_client() -> None:
    """Imports the whole client before threads query brokers.

    Its modules import each other in cycles. Two threads that enter a cycle at different modules cause an import
    deadlock.
    """
    for name in CLIENT_MODULES:
        import_module(name)


def connect(kafka: Mapping[str, str], timeout_s: float) -> KafkaAdminClient:
    """Returns a connected client. `kafka` contains librdkafka properties. The caller closes the client.

    Raises LoginRefused as soon as it is clear that waiting does not help, BrokerUnavailable after `timeout_s`, both
    with `text`, `remedy` and `property` among their fields, and PropertyRefused for properties that cannot be used.
    """
    from kafka import errors

    arguments = derive_client_arguments(kafka)
    if uses_tls(kafka):
        arguments["ssl_context"] = RenewedContext(kafka)
    if arguments.get("sasl_mechanism") == OAUTH:
        arguments["sasl_oauth_token_provider"] = make_provider(kafka)
    bootstrap = derive_servers(kafka)
    deadline, check_s = time.monotonic() + timeout_s, CHECK_S
    while True:
        try:
            return _try(arguments, max(0.1, min(check_s, deadline - time.monotonic())))
        except OSError as error:  # raised by the client itself, for instance without a free descriptor; may pass
            if time.monotonic() < deadline:
                time.sleep(PAUSE_S)
                continue
            text, remedy = f"no client for {bootstrap}: {error.strerror or error}", "raise the limit of open files"
            raise BrokerUnavailable(f"{text}; {remedy} (ulimit -n)", text=text, remedy=remedy) from error
        except errors.KafkaError as error:
            obstacle = diagnose(kafka, STEP_S)
            if obstacle is not None and obstacle.final:
                raise LoginRefused(
                    f"cannot connect to {obstacle.text}; {obstacle.remedy}",
                    text=obstacle.text,
                    remedy=obstacle.remedy,
                    property=obstacle.property,
                ) from error
            if time.monotonic() < deadline:
                check_s *= 2
                continue
            text, remedy = (obstacle.text, obstacle.remedy) if obstacle else (describe_error(error), "is it reachable?")
            raise BrokerUnavailable(
                f"no connection to {bootstrap} in {timeout_s:g} s: {text}; {remedy}",
                text=text,
                remedy=remedy,
                property=obstacle.property if obstacle else "bootstrap.servers",
            ) from error


def close_client(client: KafkaAdminClient) -> None:
    """Closes all connections and stops the client's thread.

    The connections are closed on that thread. kafka-python closes them on the caller's, and a connection that the
    other thread is making at this moment stays open until the garbage collector runs.
    """
    from kafka.errors import KafkaError

    manager = client._manager
    with suppress(KafkaError, RuntimeError):  # its thread has ended
        manager.run(manager.close)
    client.close()


def _try(arguments: Mapping[str, object], timeout_s: float) -> KafkaAdminClient:
    """Tries to connect once. kafka-python leaves its thread running when the first connection fails, so it is stopped
    here.
    """
    from kafka import KafkaAdminClient, errors
    from kafka.net.compat import KafkaNetClient

    made: list[Any] = []

    def make_client(**configs: object) -> Any:
        made.append(KafkaNetClient(**configs))
        return made[0]

    try:
        return KafkaAdminClient(
            **{"client_id": "tidegate", **arguments},
            proxy_url=_closing_sockets(),
            bootstrap_timeout_ms=int(timeout_s * 1000),
            request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000),
            max_in_flight_requests_per_connection=IN_FLIGHT,
            reconnect_backoff_max_ms=1000,
            kafka_client=make_client,
        )
    except (errors.KafkaError, OSError):
        for client in made:
            net = client._manager._net
            client.close()
            net.stop()
        raise


@cache
def _closing_sockets() -> str:
    """Returns the `proxy_url` scheme of sockets that are closed when they fail to connect.

    kafka-python leaves them open until the garbage collector runs, which leaks one socket per try while a broker is
    unavailable. Its registry of schemes is the extension point that it offers.
    """
    from kafka.net.inet import KafkaNetSocket

    class ClosingSocket(KafkaNetSocket):  # type: ignore[misc]  # the library has no types
        SCHEMES = ("tidegate",)

        async def sock_connect(self, net: Any, sock: socket, address: Any, timeout_at: float | None = None) -> Any:
            try:
                return await super().sock_connect(net, sock, address, timeout_at=timeout_at)
            except BaseException:
                sock.close()
                raise

    return f"{ClosingSocket.SCHEMES[0]}://"


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
