"""What sinks and the daemon work with when they talk to Kafka: clients, producers, threads, the time.

The simulation hands in others. librdkafka is imported when it is first needed, not before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.sinks.channel import Channel, open_client_channel
from tidegate.sinks.connecting import STEP_S
from tidegate.sinks.diagnosis import diagnose
from tidegate.sinks.errors import BrokerUnavailable, LoginRefused
from tidegate.sinks.threads import HelperThread
from tidegate.sinks.transactions import TransactionClient

if TYPE_CHECKING:
    import confluent_kafka as ck

    from tidegate.sinks.facts import TopicLimits
    from tidegate.sinks.writer import Writer

_CLIENT_LOG: Final = logging.getLogger("tidegate.sinks.librdkafka")


class KafkaTools:
    """The real ones."""

    clock: Clock = SYSTEM_CLOCK

    def connect(self, kafka: Mapping[str, str], timeout_s: float) -> TransactionClient:
        """A client for questions about transactions. Raises BrokerUnavailable, LoginRefused, SinkRefused."""
        return TransactionClient(kafka, timeout_s, self.channel, self.clock)

    def channel(self, kafka: Mapping[str, str], timeout_s: float) -> Channel:
        """For request objects of kafka-python. Raises as `connect`."""
        return open_client_channel(kafka, timeout_s)

    def connect_again(self, kafka: Mapping[str, str], timeout_s: float) -> TransactionClient:
        """For slots: the daemon was let in, so a refusal may pass, and another attempt is tried.

        Raises BrokerUnavailable, SinkRefused.
        """
        try:
            return self.connect(kafka, timeout_s)
        except LoginRefused as refused:
            raise BrokerUnavailable(refused.message, **refused.fields) from refused

    def explain(self, kafka: Mapping[str, str], silence: BrokerUnavailable) -> None:
        """Look what is in the way, if anything. Raises BrokerUnavailable, which names it, with `text` as a field."""
        obstacle = diagnose(kafka, STEP_S)
        if obstacle is not None:
            message = f"{obstacle.text}; {obstacle.remedy}"
            raise BrokerUnavailable(message, text=obstacle.text) from silence

    def writer(self, sink: str, topic: str, properties: Mapping[str, str], limits: TopicLimits) -> Writer:
        """A producer of one transaction. Raises SinkRefused."""
        from tidegate.sinks.writer import Writer

        return Writer(sink, topic, properties, limits)

    def helper(self, name: str, on_error: Callable[[BaseException], None]) -> HelperThread:
        """A thread for what blocks."""
        return HelperThread(name, on_error)

    def consumer(self, config: Mapping[str, Any]) -> ck.Consumer:
        """A reader of what was written."""
        import confluent_kafka as ck

        return ck.Consumer(dict(config), logger=_CLIENT_LOG)


KAFKA_TOOLS: Final = KafkaTools()
