"""The stages of a recovery as values: each one proves a fact that the next stage requires.

Every class is created in one function, which takes the stage before it (a test checks this), so `recovery.py` cannot
call these functions in another order:

  Preflight -> TakenOver -> StateVerified -> TransactionsResolved -> RestorePointAppended -> OffsetsAssigned
  -> Recovered

`Preflight` is in `preflight.py`. After a crash the next recovery continues from what each stage has left in the
journal.
"""

from __future__ import annotations

import msgspec

from tidegate.coordinator.recovery import RestoreFacts, RestorePlan
from tidegate.coordinator.types import CompletedCheckpoint, Job


class TakenOver(msgspec.Struct, frozen=True):
    """Takeover in the journal, record in Kafka: no older daemon can decide anything. Made by `take_over`."""

    restore: RestorePlan
    """Restores the newest checkpoint."""
    facts: RestoreFacts


class StateVerified(msgspec.Struct, frozen=True):
    """The state of the newest checkpoint can be read, or the last intact one has become the newest.

    Made by `RestorePointSelector.get_round_damage`.
    """

    restore: RestorePlan
    facts: RestoreFacts


class TransactionsResolved(msgspec.Struct, frozen=True):
    """Every transaction that the newest checkpoint lists has a definite end, which is recorded in the journal.

    Made by `commit_listed`.
    """

    restore: RestorePlan
    facts: RestoreFacts


class RestorePointAppended(msgspec.Struct, frozen=True):
    """The restore point is the newest checkpoint in the journal; if a restore target was given, it has been appended.

    Made by `RestorePointSelector.go_back`.
    """

    restore: RestorePlan
    facts: RestoreFacts


class OffsetsAssigned(msgspec.Struct, frozen=True):
    """Every source has a position for every partition, recorded in a checkpoint. Made by `fix_start_offsets`."""

    restore: RestorePlan
    checkpoint: CompletedCheckpoint
    """The checkpoint that is restored."""


class Recovered(msgspec.Struct, frozen=True):
    """All that a new attempt starts from; no other transaction is open under the pipeline's name. Made by `clear`."""

    restore: RestorePlan
    job: Job
