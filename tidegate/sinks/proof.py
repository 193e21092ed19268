"""Decides whether a flushed transaction is complete, from the broker's answers. Pure.

Each of "flush returned 0", "no delivery error" and "the coordinator reports Ongoing" has been seen with half of the
records missing, so the leaders' own count must equal the number produced. And because a leader without state for a
producer accepts any first sequence, the first batch of a producer new to a partition must begin at sequence 0.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidegate.committable import Committable, WrittenRange
from tidegate.ids import (
    MAIN_CLUSTER,
    Attempt,
    CheckpointId,
    ClusterName,
    OperatorName,
    ProducerId,
    SlotIndex,
    TopicPartition,
    TransactionalId,
)
from tidegate.kafka.errors import SinkFailed, refused_record
from tidegate.kafka.facts import CoordinatorState, PreparedView


class Flushed(msgspec.Struct, frozen=True):
    """The writer's knowledge of its transaction after the flush."""

    sink: OperatorName
    subtask: SlotIndex
    attempt: Attempt
    checkpoint: CheckpointId
    transactional_id: TransactionalId
    producer: ProducerId
    produced: int
    undelivered: int
    """Records not delivered, as returned by flush."""
    delivery_errors: int
    first_error: str
    refused: bool
    """Whether the first error would recur in another attempt (record too large, no permission)."""
    cluster: ClusterName = MAIN_CLUSTER


def decide_flushed(flushed: Flushed) -> None:
    """Raises SinkFailed (or SinkRefused) if the client itself knows that records are missing."""
    if flushed.refused:
        raise refused_record(flushed.sink, flushed.first_error)
    if flushed.delivery_errors:
        raise _failed(
            flushed, f"{flushed.delivery_errors} records were not delivered, the first: {flushed.first_error}"
        )
    if flushed.undelivered:
        raise _failed(flushed, f"{flushed.undelivered} of {flushed.produced} records were not delivered in time")


def decide_committable(flushed: Flushed, view: PreparedView) -> Committable:
    """Returns the committable of a transaction that the broker has completely. Raises SinkFailed with the reason
    otherwise.
    """
    description = view.description
    if description is None:
        raise _failed(flushed, "the coordinator does not know its id")
    if description.producer != flushed.producer:
        raise _failed(
            flushed,
            f"another producer has taken its id: the coordinator has {description.producer}, ours is "
            f"{flushed.producer.id} epoch {flushed.producer.epoch} (does another pipeline of the same name run?)",
        )
    if description.state is not CoordinatorState.ONGOING:
        raise _failed(
            flushed, f"the coordinator says {description.state.value} (timed out after {description.timeout_ms} ms?)"
        )
    counted = sum(progress.records for progress in view.progress.values())
    if counted != flushed.produced:
        raise _failed(flushed, f"the brokers counted {counted} records, {flushed.produced} were produced")
    return Committable(
        sink=flushed.sink,
        subtask=flushed.subtask,
        attempt=flushed.attempt,
        checkpoint=flushed.checkpoint,
        transactional_id=flushed.transactional_id,
        producer_id=flushed.producer.id,
        producer_epoch=flushed.producer.epoch,
        written=tuple(
            WrittenRange(partition, progress.start_offset, view.end_offsets[partition], progress.records)
            for partition, progress in sorted(view.progress.items())
        ),
        opened_at_ms=description.opened_at_ms,
        timeout_ms=description.timeout_ms,
        cluster=flushed.cluster,
    )


def decide_first_sequences(flushed: Flushed, sequences: Mapping[TopicPartition, int | None]) -> None:
    """Raises SinkFailed if the first batch in a partition is not the first one sent."""
    for partition, sequence in sequences.items():
        if sequence != 0:
            found = "no batch of it" if sequence is None else f"sequence {sequence}"
            raise _failed(flushed, f"{partition} begins with {found} instead of sequence 0: its first batch is missing")


def _failed(flushed: Flushed, why: str) -> SinkFailed:
    return SinkFailed(
        f"sink {flushed.sink}, checkpoint {flushed.checkpoint}: transaction {flushed.transactional_id} cannot be "
        f"prepared: {why}; it is dropped and the next attempt writes its records again",
        sink=flushed.sink,
        checkpoint=flushed.checkpoint,
        transactional_id=flushed.transactional_id,
    )
