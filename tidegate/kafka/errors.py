"""What can go wrong between Tidegate and Kafka, sorted by what another attempt can cure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegate.errors import AttemptFailed, PipelineStopped

_OWN_ERRORS: Final[Mapping[str, str]] = {
    "Cancelled": "the connection was closed",
    "KafkaConnectionError": "no connection, or it was lost",
    "KafkaTimeoutError": "the broker did not answer in time",
    "MetadataEmptyBrokerList": "no broker is known yet",
    "NodeNotReadyError": "there is no connection to the broker yet",
    "UnknownBrokerIdError": "the broker is not in the cluster any more",
}
"""What the client's own errors mean, by their names."""


class SinkFailed(AttemptFailed):
    """A transaction could not be written or prepared whole; nothing of it is committed. Another attempt can help."""

    code = "sink-failed"


class BrokerUnavailable(AttemptFailed):
    """The broker gave no final answer before the deadline."""

    code = "broker-unavailable"


class MarkerOvertaken(BrokerUnavailable):
    """A partition has refused a marker, because it knows a newer end, or a newer coordinator, of that producer."""

    code = "marker-overtaken"


class KafkaRefused(PipelineStopped):
    """What a broker refuses, and would refuse another attempt too: a permission is missing, a group is in use."""

    code = "kafka-refused"


class SinkRefused(KafkaRefused):
    """What a sink cannot write: no such topic, settings that its client does not take, a record that is too large."""

    code = "sink-refused"


def describe_error(error: Exception) -> str:
    """What has happened, for people: the client names errors of its own, which mean nothing to others."""
    name = type(error).__name__
    if name in _OWN_ERRORS:
        return _OWN_ERRORS[name]
    number = getattr(error, "errno", None)
    return f"the broker answered {name} ({number})" if number else repr(error)


def refused_record(sink: str, reason: str) -> SinkRefused:
    """The same words whenever it is noticed: by a delivery, a later record, or the flush at the barrier."""
    return SinkRefused(
        f"sink {sink}: the broker refuses a record: {reason}; nothing of its checkpoint was committed. Change the "
        "topic's or the sink's settings, or the record",
        sink=sink,
    )


class PropertyRefused(KafkaRefused):
    """A Kafka property cannot be used: its name is among the fields."""

    code = "property-refused"
    exit_code = 2


class LoginRefused(KafkaRefused):
    """A broker does not let us in: user, password, certificates, the kind of connection."""

    code = "login-refused"
    exit_code = 2


class TransactionLost(PipelineStopped):
    """The broker aborted a transaction of a completed checkpoint: its records are missing from the output."""

    code = "transaction-lost"


class TransactionToSalvage(AttemptFailed):
    """The broker aborted a transaction of a completed checkpoint; the next attempt writes its records again."""

    code = "transaction-to-salvage"


class TransactionGone(PipelineStopped):
    """Nothing is left in Kafka of a transaction of a completed checkpoint: no record, no marker."""

    code = "transaction-gone"


class TransactionUndecidable(PipelineStopped):
    """A transaction of a completed checkpoint was committed in one partition and aborted in another."""

    code = "transaction-undecidable"
