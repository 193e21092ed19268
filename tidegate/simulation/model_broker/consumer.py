"""The model's stand-in for `confluent_kafka.Consumer`, as far as a salvage uses it: assign, consume, close."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import confluent_kafka as ck

from tidegate.ids import TopicPartition
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.model_broker.codes import RequestRefused
from tidegate.simulation.model_broker.log import Fetched
from tidegate.simulation.model_broker.messages import make_message
from tidegate.simulation.port import BrokerPort, LinkLost

POLL_S: Final = 0.05


class ModelConsumer:
    """Reads partitions by turns; `config` says whether read-committed. Loses nothing, and skips only what is not there.

    As with the real one, a failed request gives no message and is repeated by the next `consume`.
    """

    def __init__(self, broker: ModelBroker, link: BrokerPort, config: Mapping[str, Any]) -> None:
        self._broker = broker
        self._link = link
        self._committed = config.get("isolation.level", "read_committed") == "read_committed"
        self._places: dict[TopicPartition, int] = {}

    def assign(self, places: Sequence[ck.TopicPartition]) -> None:
        """Read from these offsets on."""
        self._places = {TopicPartition(place.topic, place.partition): place.offset for place in places}

    def consume(self, limit: int, timeout_s: float) -> list[ck.Message]:
        """The next messages of the first partition that has any; none when the time is over."""
        deadline_s = self._link.clock.monotonic() + timeout_s
        while True:
            for partition, offset in list(self._places.items()):
                fetched = self._fetch(partition, offset, limit)
                self._places[partition] = fetched.next_offset
                if fetched.records:
                    return [make_message(partition, at, record) for at, record in fetched.records]
            if self._link.clock.monotonic() >= deadline_s:
                return []
            self._link.clock.sleep(POLL_S)

    def close(self) -> None:
        """Nothing is held."""

    def _fetch(self, partition: TopicPartition, offset: int, limit: int) -> Fetched:
        try:
            return self._link.call(
                "consume",
                lambda: self._broker.fetch(
                    self._link.clock.now_ms(), partition, offset, committed=self._committed, limit=limit
                ),
            )
        except (LinkLost, RequestRefused):
            return Fetched([], offset)
