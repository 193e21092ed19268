"""Makes a connected client of kafka-python from librdkafka's properties, or says why there is none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from socket import socket
from typing import TYPE_CHECKING, Any, Final

from tidegate.kafka.client_properties import derive_client_arguments, derive_servers
from tidegate.kafka.diagnosis import diagnose
from tidegate.kafka.errors import BrokerUnavailable, LoginRefused, describe_error
from tidegate.kafka.oauth import MECHANISM, make_provider
from tidegate.kafka.tls import RenewedContext, uses_tls

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

REQUEST_TIMEOUT_S: Final = 10.0
LOOK_S: Final = 1.0
"""After so long without a connection we look what is in the way, then after twice as long and so on: most obstacles do
not go away by waiting."""
STEP_S: Final = 2.0
PAUSE_S: Final = 0.1
IN_FLIGHT: Final = 1000
"""Of one connection. From kafka-python's 5 on it fails what is sent; the commits of a checkpoint go out all at once,
and brokers answer a connection's requests in their order anyway.
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
    """Import the client as a whole. Before threads ask brokers: its modules import each other in circles, and two
    threads that begin at different ends of one raise a deadlock of imports.
    """
    for name in CLIENT_MODULES:
        import_module(name)


def connect(kafka: Mapping[str, str], timeout_s: float) -> KafkaAdminClient:
    """A connected client; `kafka` are librdkafka properties. The caller closes it.

    Raises LoginRefused as soon as it is seen that waiting does not help, BrokerUnavailable after `timeout_s`, both with
    `text`, `remedy` and `property` among their fields, and PropertyRefused for properties that cannot be used.
    """
    from kafka import errors

    arguments = derive_client_arguments(kafka)
    if uses_tls(kafka):
        arguments["ssl_context"] = RenewedContext(kafka)
    if arguments.get("sasl_mechanism") == MECHANISM:
        arguments["sasl_oauth_token_provider"] = make_provider(kafka)
    bootstrap = derive_servers(kafka)
    deadline, look_s = time.monotonic() + timeout_s, LOOK_S
    while True:
        try:
            return _try(arguments, max(0.1, min(look_s, deadline - time.monotonic())))
        except OSError as error:  # of the client itself: no descriptor is left, for instance, which passes
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
                look_s *= 2
                continue
            text, remedy = (obstacle.text, obstacle.remedy) if obstacle else (describe_error(error), "is it reachable?")
            raise BrokerUnavailable(
                f"no connection to {bootstrap} in {timeout_s:g} s: {text}; {remedy}",
                text=text,
                remedy=remedy,
                property=obstacle.property if obstacle else "bootstrap.servers",
            ) from error


def _try(arguments: Mapping[str, object], timeout_s: float) -> KafkaAdminClient:
    """kafka-python leaves its thread running when the first connection fails, so that is stopped."""
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
    """The scheme of sockets that are closed when they cannot connect, for `proxy_url`.

    kafka-python leaves them open until the garbage collector runs, which is one for each try while a broker is away.
    Its registry of schemes is the way in that it offers.
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
