"""Errors that a source's consumer reports: which ones end the source, and which ones are waited out."""

from __future__ import annotations

from collections.abc import Sequence

import confluent_kafka as ck

from tidegate.clock import Clock
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import ON_LOST_CONTINUE, SourceOperator
from tidegate.sources.errors import SourceFailed, SourceUnavailable
from tidegate.sources.fetching import FetchEvent
from tidegate.sources.outage import Outage
from tidegate.sources.partition_errors import RepeatedErrors
from tidegate.sources.positions import describe_cut_off, describe_out_of_range
from tidegate.sources.tools import Consumer, read_bounds

_NEW_TOPIC_SECONDS = 5.0

# The client's own codes begin with an underscore; they are public all the same.
_END_OF_PARTITION = ck.KafkaError._PARTITION_EOF  # noqa: SLF001  # see above
_MISSING = {
    ck.KafkaError.UNKNOWN_TOPIC_OR_PART,
    ck.KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  # see above
    ck.KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001  # see above
}
_FORBIDDEN = {ck.KafkaError.TOPIC_AUTHORIZATION_FAILED, ck.KafkaError.CLUSTER_AUTHORIZATION_FAILED}
_OUT_OF_RANGE = {ck.KafkaError.OFFSET_OUT_OF_RANGE, ck.KafkaError._AUTO_OFFSET_RESET}  # noqa: SLF001  # see above
_CUT_OFF = ck.KafkaError(ck.KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001  # see above
"""Appears in the error text for an offset out of range: no code gives the reason."""


class ConsumerErrors:
    """The errors of one source's consumer. The thread that owns the consumer calls it."""

    def __init__(self, operator: SourceOperator, outage: Outage, clock: Clock) -> None:
        self._operator = operator
        self._outage = outage
        self._repeated = RepeatedErrors(operator.name, operator.kafka, clock)

    def check_request(self, error: ck.KafkaError, waited_seconds: float, topic: str = "") -> None:
        """Raises SourceFailed for errors that waiting does not cure."""
        name = self._operator.name
        where = f"source {name}: topic {topic or self._operator.topics_text}"
        if error.code() in _FORBIDDEN:
            raise SourceFailed(f"{where}: {error.str()}; grant READ and DESCRIBE to the principal", source=name)
        if error.code() in _MISSING and waited_seconds > _NEW_TOPIC_SECONDS:
            raise SourceFailed(f"{where} does not exist at the brokers; create it or correct its name", source=name)
        self._outage.on_error(error)

    def take_events(self, consumer: Consumer, events: Sequence[FetchEvent]) -> dict[TopicPartition, int]:
        """Returns the ends of partitions. Raises SourceFailed and SourceUnavailable for errors."""
        ends: dict[TopicPartition, int] = {}
        for part, offset, error in events:
            if error.code() == _END_OF_PARTITION:
                ends[part] = offset
            elif error.code() in _OUT_OF_RANGE:
                self._refuse_out_of_range(consumer, part, offset, error)
            else:
                # A topic unknown to one broker may be known to others: the daemon checks which is right.
                self.check_request(error, 0.0, part.topic)
                if error.fatal():
                    raise SourceUnavailable(f"source {self._operator.name}: {error}", source=self._operator.name)
                if part.topic:
                    self._repeated.on_error(part, offset, error)
        return ends

    def _refuse_out_of_range(self, consumer: Consumer, part: TopicPartition, offset: int, error: ck.KafkaError) -> None:
        """Raises SourceFailed, or SourceUnavailable if the next attempt can continue after the loss or must ask again.

        The client reports an offset that is gone only once. By the leaders' epochs, it detects a leader whose log ends
        before the records already read. It then usually gives no offset, and the log's bounds show nothing, since it
        may have grown again.
        """
        if offset < 0 or _CUT_OFF in error.str():
            text = f"source {self._operator.name}: {describe_cut_off(part, error.str())}"
            raise SourceFailed(text, partition=str(part))
        try:
            low, high = read_bounds(consumer, part)
        except ck.KafkaException as refused:
            text = f"{part}: offset {offset} is not in the log, and the start of the log is not known"
            raise SourceUnavailable(f"source {self._operator.name}: {text}: {refused.args[0].str()}") from refused
        text = f"source {self._operator.name}: {describe_out_of_range(part, offset, low, high)}"
        if offset < low and self._operator.on_lost_input == ON_LOST_CONTINUE:
            text = f"{text.partition('; ')[0]}; on_lost_input is continue: the next attempt continues there"
            raise SourceUnavailable(text, partition=str(part), offset=offset, log_start=low, log_end=high)
        raise SourceFailed(text, partition=str(part), offset=offset, log_start=low, log_end=high)
