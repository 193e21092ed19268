"""Errors between Tidegate and Kafka, of sinks and sources, grouped by whether another attempt can help."""

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
    "UnknownBrokerIdError": "the broker is no longer in the cluster",
}
"""Descriptions of the client's own errors, by class name."""


class SinkFailed(AttemptFailed):
    """A transaction could not be written or prepared completely; nothing of it is committed.

    Another attempt can help.
    """

    code = "sink-failed"


class BrokerUnavailable(AttemptFailed):
    """The broker gave no final response before the deadline."""

    code = "broker-unavailable"


class LoginRefusedLater(BrokerUnavailable):
    """A broker rejects a login that it accepted when the daemon started; another attempt follows."""


class MarkerOvertaken(BrokerUnavailable):
    """A partition rejected a marker because it knows a newer marker, epoch or coordinator of the producer."""

    code = "marker-overtaken"


class KafkaRefused(PipelineStopped):
    """A refusal that a broker would repeat in another attempt, such as a missing permission or a group in use."""

    code = "kafka-refused"


class SinkRefused(KafkaRefused):
    """A sink cannot write: the topic does not exist, the client rejects its settings, or a record is too large."""

    code = "sink-refused"


def describe_error(error: Exception) -> str:
    """Describes an error for users.

    The client's own errors are translated, because their names mean little to others.
    """
    name = type(error).__name__
    if name in _OWN_ERRORS:
        return _OWN_ERRORS[name]
    number = getattr(error, "errno", None)
    return f"the broker answered {name} ({number})" if number else repr(error)


def refused_record(sink: str, reason: str) -> SinkRefused:
    """Returns the same error whether a delivery, a later record or the flush at the barrier detects the refusal."""
    return SinkRefused(
        f"sink {sink}: the broker refuses a record: {reason}; nothing of its checkpoint was committed. Change the "
        "permissions, the topic's or the sink's settings, or the record",
        sink=sink,
    )


class PropertyRefused(KafkaRefused):
    """A Kafka property cannot be used. The fields contain its name."""

    code = "property-refused"
    exit_code = 2


class LoginRefused(KafkaRefused):
    """A broker rejects the login because of the user, password, certificates or security protocol."""

    code = "login-refused"
    exit_code = 2


class TransactionLost(PipelineStopped):
    """The broker aborted a transaction of a completed checkpoint: its records are missing from the output."""

    code = "transaction-lost"


class TransactionToSalvage(AttemptFailed):
    """The broker aborted a transaction of a completed checkpoint; the next attempt writes its records again."""

    code = "transaction-to-salvage"


class TransactionGone(PipelineStopped):
    """Kafka no longer holds any record or marker of a transaction of a completed checkpoint."""

    code = "transaction-gone"


class TransactionUndecidable(PipelineStopped):
    """A transaction of a completed checkpoint was committed in one partition and aborted in another."""

    code = "transaction-undecidable"


class SourceFailed(PipelineStopped):
    """A failure that another attempt would meet again: unknown topic, no permission, input lost to retention."""

    code = "source-failed"


class SourceUnavailable(AttemptFailed):
    """The brokers cannot serve the source now; another attempt may succeed."""

    code = "source-unavailable"
