"""The stages of a recovery, as values: what each has made true, and what the next one needs for it.

Every class is made in one function, which takes the stage before it (a test looks), so `recovery.py` cannot call these
functions in another order:

    Look -> Owned -> Whole -> Ended -> Decided -> Placed -> Recovered

`Look` is in `preflight.py`. What stands in the journal after each stage is what a crash leaves to the next recovery.
"""

from __future__ import annotations

import msgspec

from tidegate.coordinator.job import Job
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan
from tidegate.coordinator.types import CompletedCheckpoint


class TakenOver(msgspec.Struct, frozen=True):
    """The takeover is in the journal and the record in Kafka: nobody older decides anything. Made by `take_over`."""

    restore: RestorePlan
    """Of the newest checkpoint."""
    facts: RestoreFacts


class StateVerified(msgspec.Struct, frozen=True):
    """The state of the newest checkpoint can be read, or the last whole one is the newest now. Made by
    `Choosing.get_round_damage`.
    """

    restore: RestorePlan
    facts: RestoreFacts


class TransactionsResolved(msgspec.Struct, frozen=True):
    """Every transaction that the newest checkpoint lists has a definite end, and the journal says so. Made by
    `commit_listed`.
    """

    restore: RestorePlan
    facts: RestoreFacts


class RestorePointAppended(msgspec.Struct, frozen=True):
    """What is restored is the newest checkpoint: the one that somebody has asked for, if anybody has. Made by
    `Choosing.go_back`.
    """

    restore: RestorePlan
    facts: RestoreFacts


class OffsetsAssigned(msgspec.Struct, frozen=True):
    """Every source has a position for every partition, fixed by a checkpoint. Made by `fix_start_offsets`."""

    restore: RestorePlan
    checkpoint: CompletedCheckpoint
    """What is restored."""


class Recovered(msgspec.Struct, frozen=True):
    """Nothing else is open under the pipeline's name: everything that a new attempt starts from. Made by `clear`."""

    restore: RestorePlan
    job: Job
