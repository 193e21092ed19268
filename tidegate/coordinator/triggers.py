"""Conditions for a checkpoint to begin: the policy, the phases of an attempt, and the refusals C04-C10. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from tidegate.coordinator.events import CheckpointProperties, TriggerRefusal
from tidegate.ids import CheckpointId

UNENDED_MAX: Final = 16
"""Decided checkpoints whose transactions have not ended; at this number no further checkpoint begins."""


FIRST_TRIGGER_MS: Final = 200
"""When the first checkpoint of an attempt begins if the interval is longer: readers have waited since the last one."""

SAVEPOINT_IDS: Final = 8
"""Additional ids reserved for savepoints and the checkpoints that follow them."""


class CheckpointPolicy(msgspec.Struct, frozen=True):
    """The part of `checkpoints:` that the coordinator needs. Raises ValueError for values out of range."""

    interval_ms: int
    timeout_ms: int
    min_pause_ms: int = 0
    max_concurrent: int = 1
    tolerable_failures: int = 3
    """This many failed checkpoints in a row are tolerated; one more ends the attempt."""
    retained: int = 3
    transaction_margin_ms: int = 10_000
    """Time before the broker's timeout by which a transaction must be decided, to leave time for journal and commit.

    At most a quarter of the transaction's own timeout is used.
    """
    first_ms: int | None = None
    """When the first checkpoint begins after all subtasks run; None: after an interval."""

    def __post_init__(self) -> None:
        if min(self.interval_ms, self.timeout_ms, self.max_concurrent, self.retained) < 1:
            raise ValueError(f"interval, timeout, max_concurrent and retained must be at least 1: {self}")
        if min(self.min_pause_ms, self.tolerable_failures, self.transaction_margin_ms) < 0:
            raise ValueError(f"min_pause, tolerable_failures and transaction_margin must not be negative: {self}")

    @property
    def id_reserve(self) -> int:
        """Checkpoint ids that may be used between two journal entries, for `Journal` (C10).

        More failures in a row end the attempt before the ids are used up, and savepoints never take ids that these
        need.
        """
        return self.checkpoint_ids + SAVEPOINT_IDS

    @property
    def checkpoint_ids(self) -> int:
        """The part of the reserve that is kept for checkpoints."""
        return self.tolerable_failures + self.max_concurrent + 2


class AttemptPhase(StrEnum):
    """Phases of an attempt from the coordinator's point of view."""

    STARTING = "not all subtasks are running"
    RUNNING = "periodic checkpoints"
    FINISHING = "the final checkpoint is under way"
    FINISHED = "the final checkpoint is complete and committed"
    FAILED = "the attempt has to end"
    ENDED = "all slots are gone"


class Cause(StrEnum):
    """Events that move an attempt to another phase."""

    ALL_RUNNING = "all subtasks are running"
    FINAL_TRIGGERED = "the final checkpoint was triggered"
    FINAL_COMPLETED = "the final checkpoint was committed"
    GAVE_UP = "the coordinator gave the attempt up"
    ATTEMPT_ENDED = "the slots have ended"


PHASES: Final[dict[tuple[AttemptPhase, Cause], AttemptPhase]] = {
    (AttemptPhase.STARTING, Cause.ALL_RUNNING): AttemptPhase.RUNNING,
    (AttemptPhase.RUNNING, Cause.FINAL_TRIGGERED): AttemptPhase.FINISHING,
    (AttemptPhase.FINISHING, Cause.FINAL_COMPLETED): AttemptPhase.FINISHED,
    (AttemptPhase.STARTING, Cause.GAVE_UP): AttemptPhase.FAILED,
    (AttemptPhase.RUNNING, Cause.GAVE_UP): AttemptPhase.FAILED,
    (AttemptPhase.FINISHING, Cause.GAVE_UP): AttemptPhase.FAILED,
    (AttemptPhase.STARTING, Cause.ATTEMPT_ENDED): AttemptPhase.ENDED,
    (AttemptPhase.RUNNING, Cause.ATTEMPT_ENDED): AttemptPhase.ENDED,
    (AttemptPhase.FINISHING, Cause.ATTEMPT_ENDED): AttemptPhase.ENDED,
    (AttemptPhase.FINISHED, Cause.ATTEMPT_ENDED): AttemptPhase.ENDED,
    (AttemptPhase.FAILED, Cause.ATTEMPT_ENDED): AttemptPhase.ENDED,
}
"""Every pair that is missing is impossible and raises ProtocolBroken."""

ACTIVE: Final = frozenset({AttemptPhase.STARTING, AttemptPhase.RUNNING, AttemptPhase.FINISHING})


class CheckpointIds:
    """The ids that are left for checkpoints before the next journal entry reserves more (C10)."""

    def __init__(self, first: CheckpointId, reserved_to: CheckpointId) -> None:
        self.next = first
        self.reserved_to = reserved_to

    def take(self) -> CheckpointId:
        """Returns the next id, which is used up by that."""
        taken, self.next = self.next, CheckpointId(self.next + 1)
        return taken


class TriggerTimer:
    """When the next periodic checkpoint is due: an interval after the last one, and after the minimum pause (C07)."""

    def __init__(self, settings: CheckpointPolicy) -> None:
        self._settings = settings
        self._next_ms: int | None = None
        self.last_completed_ms: int | None = None
        """When the newest completed checkpoint was in the journal."""

    @property
    def due_ms(self) -> int | None:
        """The time from which a periodic checkpoint may begin; None before `start`."""
        if self._next_ms is None:
            return None
        return max(self._next_ms, earliest_trigger_ms(self._settings, self.last_completed_ms))

    def start(self, now_ms: int) -> None:
        """Schedules the first checkpoint. Called when all subtasks run."""
        first_ms = self._settings.first_ms
        self._next_ms = now_ms + (self._settings.interval_ms if first_ms is None else first_ms)

    def advance(self, now_ms: int) -> None:
        """Schedules the next checkpoint an interval later.

        Intervals missed while others are in progress yield one trigger (C25).
        """
        next_ms = (self._next_ms or 0) + self._settings.interval_ms
        self._next_ms = next_ms if next_ms > now_ms else now_ms + self._settings.interval_ms


class TriggerFacts(msgspec.Struct, frozen=True):
    """The facts on which the decision about a trigger depends."""

    phase: AttemptPhase
    under_way: int
    """Triggered and not decided."""
    unended: int
    """Decided, transactions not ended."""
    last_completed_ms: int | None
    sources_running: bool
    all_running: bool
    next_id: CheckpointId
    reserved_to: CheckpointId
    savepoint_under_way: bool = False


def decide_refusal(
    settings: CheckpointPolicy, facts: TriggerFacts, properties: CheckpointProperties, now_ms: int
) -> TriggerRefusal | None:
    """Returns the first reason that applies, in the order of the contract; None when the checkpoint may begin."""
    earliest_ms = earliest_trigger_ms(settings, facts.last_completed_ms)
    kept_back = settings.checkpoint_ids if properties.savepoint else 0
    checks = (
        (facts.phase not in ACTIVE, TriggerRefusal.SHUT_DOWN),
        (facts.phase is AttemptPhase.FINISHING and not properties.periodic, TriggerRefusal.SHUT_DOWN),
        (facts.phase is AttemptPhase.FINISHING, TriggerRefusal.PERIODIC_OFF),
        (not properties.forced and is_crowded(settings, facts.under_way, facts.unended), TriggerRefusal.TOO_MANY),
        (properties.periodic and now_ms < earliest_ms, TriggerRefusal.TOO_SOON),
        (properties.savepoint and facts.savepoint_under_way, TriggerRefusal.SAVEPOINT_UNDER_WAY),
        (not facts.sources_running, TriggerRefusal.SOURCE_NOT_RUNNING),
        (not facts.all_running, TriggerRefusal.SUBTASK_NOT_RUNNING),
        (facts.next_id + kept_back > facts.reserved_to, TriggerRefusal.NO_ID),
    )
    return next((refusal for applies, refusal in checks if applies), None)


def is_crowded(settings: CheckpointPolicy, under_way: int, unended: int) -> bool:
    """Tells whether a checkpoint that is not forced has to wait for others (C06)."""
    return under_way >= settings.max_concurrent or unended >= UNENDED_MAX


def earliest_trigger_ms(settings: CheckpointPolicy, last_completed_ms: int | None) -> int:
    """Returns the end of the minimum pause (C07)."""
    return 0 if last_completed_ms is None else last_completed_ms + settings.min_pause_ms
