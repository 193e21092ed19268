"""Decides what may be done about transactions that the broker aborted after a checkpoint had decided to commit them.
Pure.

Their records are still in the log. They may be produced again if every one of them is found, and if this does not put
them after newer records of their keys. `salvager.py` carries it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tidegate.clock import describe_stamp
from tidegate.committable import Committable
from tidegate.config.fields.units import render_duration
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition
from tidegate.kafka.errors import SinkFailed, TransactionLost
from tidegate.kafka.facts import LoggedRange
from tidegate.kafka.topic_settings import BEFORE, DIFFERENCE, UNLIMITED_MS
from tidegate.sinks.naming import TransactionalName
from tidegate.sinks.outcome import CommitOutcome

SALVAGE_SLOT: Final = 900
"""First pool slot of salvage transactions; sinks stay below POOL_SIZE_MAX (pool.py)."""


class LostTransaction(msgspec.Struct, frozen=True):
    """A transaction decided as committed that has an abort marker and no commit marker."""

    committable: Committable
    explanation: str
    """Place, size and reason, for error texts."""

    def refused(self, why: str) -> TransactionLost:
        """Returns the error for records that cannot be produced again."""
        one = self.committable
        return TransactionLost(
            f"{self.explanation} Its records cannot be written again automatically: {why}.",
            sink=one.sink,
            checkpoint=one.checkpoint,
            subtask=one.subtask,
            transactional_id=one.transactional_id,
            records=one.records,
        )


class Settlement(msgspec.Struct, frozen=True):
    """The outcomes of a permit's transactions, in its order; none is undecidable."""

    outcomes: tuple[CommitOutcome, ...]
    committed: tuple[Committable, ...]
    lost: tuple[LostTransaction, ...]
    held: tuple[Committable, ...] = ()
    """Not asked, because an older transaction of the same sink is lost or not final: STILL_OPEN in `outcomes`."""

    @property
    def definite(self) -> bool:
        """Whether every transaction that was asked about has a final outcome."""
        return self.outcomes.count(CommitOutcome.STILL_OPEN) == len(self.held)

    @property
    def losing(self) -> tuple[LostTransaction, ...]:
        """The lost transactions, and the newer ones that must follow them."""
        why = "held back after a lost transaction of an older checkpoint of the same sink."
        return (*self.lost, *(LostTransaction(one, f"{one.transactional_id} was {why}") for one in self.held))


class SalvageOrder(msgspec.Struct, frozen=True):
    """What to produce again, and under which identity."""

    pipeline: str
    journal: str
    attempt: Attempt
    checkpoint: CheckpointId
    """The checkpoint of the journal entry that will list the new transactions."""
    listed_by: CheckpointId
    """The restored checkpoint, which lists the lost transactions: `--accept-gone` names it."""
    timeout_ms: int
    """Timeout of the new transactions."""
    lost: tuple[LostTransaction, ...]


class Group(msgspec.Struct, frozen=True):
    """Lost transactions of one sink in one topic, which a single new transaction replaces.

    Because there is only one, a second loss affects all of them and cannot reorder them.
    """

    name: TransactionalName
    topic: str
    lost: tuple[LostTransaction, ...]


def derive_groups(order: SalvageOrder) -> tuple[Group, ...]:
    """Returns one group per sink and topic. A sink has several if it chooses topics or if its topic was changed."""
    found: dict[tuple[OperatorName, str], list[LostTransaction]] = defaultdict(list)
    for one in order.lost:
        for topic in sorted({part.partition.topic for part in one.committable.written}):
            found[one.committable.sink, topic].append(one)
    return tuple(
        Group(
            TransactionalName(order.pipeline, sink, SlotIndex(0), order.attempt, order.journal, SALVAGE_SLOT + index),
            topic,
            tuple(found[sink, topic]),
        )
        for index, (sink, topic) in enumerate(sorted(found))
    )


def decide_order(lost: Sequence[LostTransaction], committed: Sequence[Committable]) -> None:
    """Raises TransactionLost if records of a later checkpoint are already committed in a partition of a lost one.

    The list of the restored checkpoint suffices: a permit is completed as a whole, so while a transaction is not known
    to have ended, all that were decided with it or after it stay listed next to it.
    """
    for one in lost:
        partitions = {part.partition for part in one.committable.written}
        for later in committed:
            if later.sink != one.committable.sink or later.cluster != one.committable.cluster:
                continue
            if later.checkpoint <= one.committable.checkpoint:
                continue
            shared = sorted(partitions & {part.partition for part in later.written})
            if shared:
                raise one.refused(
                    f"checkpoint {later.checkpoint} of the same sink is already committed in "
                    f"{', '.join(map(str, shared))}, so records of checkpoint {one.committable.checkpoint} would "
                    f"follow newer ones of their keys; nothing was written. If readers can accept that order, "
                    f"write them by other means, and continue from a new checkpoint directory"
                )


def decide_found(
    one: LostTransaction,
    partition: TopicPartition,
    records: int,
    found: Sequence[LoggedRange],
    listed_by: CheckpointId,
    *,
    accept_gone: CheckpointId | None = None,
) -> int:
    """Returns how many prepared records are gone: 0, unless the user accepts the loss for the checkpoint that lists
    them.

    Raises TransactionLost if the log holds other records than were prepared.
    """
    counted = sum(part.records for part in found)
    if counted > records:
        raise one.refused(
            f"{partition} has {counted} records of its producer where it wrote {records}; nothing was written: "
            f"keep the topic as it is, and report this"
        )
    if counted == records or accept_gone == listed_by:
        return records - counted
    raise one.refused(
        f"{partition} has {counted} of its {records} records; retention, compaction, a deletion of records, or a "
        f"leader whose log was truncated has removed the rest; nothing was written. The choices: if readers can do "
        f"without the rest, or it was written by other means, start with --accept-gone {listed_by}, which writes "
        f"what is left again and counts the rest of what checkpoint {listed_by} lists as committed, and nothing "
        f"later; add --restore N --repeat-output of an older checkpoint to write all output after that one again; "
        f"or restore a savepoint into a new `checkpoints.directory` (--restore PATH --repeat-output)"
    )


def refuse_old(group: Group, oldest_ms: int, before_ms: int | None) -> TransactionLost:
    """Returns the error for a topic that no longer accepts records of this age.

    The records were younger when first written, and keep their timestamps. `oldest_ms` is that of the oldest, since
    1970.
    """
    limit = "it allows" if before_ms is None else render_duration(before_ms)
    former = "its former value" if before_ms is None else str(before_ms)
    return group.lost[0].refused(
        f"topic {group.topic} accepts no record older than {limit} ({BEFORE}, before Kafka 4.0 {DIFFERENCE}), and "
        f"the oldest of these is of {describe_stamp(oldest_ms)}; nothing was committed. Set that limit of the "
        f"topic to {UNLIMITED_MS}, start again, and set it back to {former} once this start has succeeded"
    )


def decide_whole(salvaged: Committable, wanted: Mapping[TopicPartition, int]) -> None:
    """Raises SinkFailed if the new transaction does not have as many records in each partition as were read."""
    written = {part.partition: part.records for part in salvaged.written}
    if written != dict(wanted):
        raise SinkFailed(
            f"sink {salvaged.sink}: salvage transaction {salvaged.transactional_id} has {written} records, "
            f"{dict(wanted)} were read; it is dropped and the next attempt writes them again",
            sink=salvaged.sink,
            transactional_id=salvaged.transactional_id,
        )


def merge_ranges(found: Sequence[Sequence[LoggedRange]]) -> list[LoggedRange]:
    """Returns the ranges of several transactions of one partition in offset order, which is the order of
    their records.
    """
    return sorted((part for ranges in found for part in ranges), key=lambda part: part.first_offset)
