"""The channel to the model broker: the product's own requests reach its nodes through the process's port."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from kafka import errors
from typing_extensions import override

from tidegate.kafka.channel import RequestChannel
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.simulation.kernel import Signal
from tidegate.simulation.model_broker.answers import answer, name_of
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.placement import NODES
from tidegate.simulation.port import BrokerPort, Connection, LinkLost, LinkSilent

CONNECT_PAUSE_S: Final = 0.1


class ModelChannel(RequestChannel):
    """A request channel whose requests are answered by the model."""

    def __init__(
        self, broker: ModelBroker, port: BrokerPort, answering: Callable[[ModelBroker, int, int, Any], Any] = answer
    ) -> None:
        self._broker = broker
        self._port = port
        self._answering = answering
        self._connections: dict[int | None, Connection] = {}
        self._closed = False

    @override
    def send(self, requests: Sequence[tuple[Any, int | None]], timeout_s: float) -> list[Any]:
        if self._closed:
            raise RuntimeError("the channel is closed")
        if len(requests) == 1:
            return [self._send_one(*requests[0], timeout_s)]
        answers: list[Any] = [errors.KafkaTimeoutError(f"no answer in {timeout_s:g} s")] * len(requests)
        waiting = set(range(len(requests)))
        all_there = Signal(self._port.kernel)

        def take(index: int, given: Any) -> None:
            waiting.discard(index)
            answers[index] = given
            if not waiting:
                all_there.set()

        for index, (request, node) in enumerate(requests):
            lost = errors.KafkaConnectionError("the connection broke")
            self._connections.setdefault(node, self._port.connect()).post(
                name_of(request),
                partial(self._answer, request, node),
                partial(take, index),
                partial(take, index, lost),
            )
        if waiting:
            self._port.kernel.wait(all_there, timeout_s)
        return list(answers)

    def learn(self, coordinator: Any, kind: Any) -> None:
        """Does nothing, because all nodes are known."""

    def look_again(self) -> None:
        """Does nothing, because all nodes are known."""

    @override
    def close(self) -> None:
        self._closed = True

    def _send_one(self, request: Any, node: int | None, timeout_s: float) -> Any:
        try:
            return self._port.call(name_of(request), partial(self._answer, request, node), timeout_s)
        except LinkSilent:
            return errors.KafkaTimeoutError(f"no answer in {timeout_s:g} s")
        except LinkLost:
            return errors.KafkaConnectionError("the connection broke")

    def _answer(self, request: Any, node: int | None) -> Any:
        """Answers a request at the broker."""
        return self._answering(self._broker, self._port.clock.now_ms(), NODES[0] if node is None else node, request)


def open_model_channel(broker: ModelBroker, port: BrokerPort, timeout_s: float) -> ModelChannel:
    """Opens a channel once a node has answered. Raises BrokerUnavailable."""
    deadline_s = port.clock.monotonic() + timeout_s
    while True:
        try:
            port.call("connect", lambda: None, timeout_s)
        except LinkLost:
            if port.clock.monotonic() + CONNECT_PAUSE_S >= deadline_s:
                raise BrokerUnavailable(f"no connection to the model broker in {timeout_s:g} s") from None
            port.clock.sleep(CONNECT_PAUSE_S)
        else:
            return ModelChannel(broker, port)
