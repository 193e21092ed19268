"""Every phase of an attempt meets every event: what comes out, and which phase follows."""

from __future__ import annotations

import pytest

from tests.coordinator.values import (
    ATTEMPT,
    SOURCE,
    TOTALS,
    ack,
    acknowledge_all,
    committable,
    handle,
    job,
    journaled,
    running,
    settings,
)
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import (
    AckReceived,
    AttemptEnded,
    BrokersSeen,
    DeclineReceived,
    Event,
    JournalFailed,
    OpenTransaction,
    SavepointFailed,
    SavepointWritten,
    SubtaskRunning,
    Tick,
    TransactionsEnded,
    TriggerFailed,
    TriggerRequested,
)
from tidegate.coordinator.story import STORY_MAX, ProtocolBroken, Story
from tidegate.coordinator.triggers import AttemptPhase
from tidegate.coordinator.types import Decline
from tidegate.ids import CheckpointId

ONE = CheckpointId(1)
BROKEN = "ProtocolBroken"

EVENTS: dict[str, Event] = {
    "running": SubtaskRunning(SOURCE, 10),
    "tick": Tick(10),
    "trigger": TriggerRequested(10),
    "final": TriggerRequested(10, final=True),
    "savepoint": TriggerRequested(10, savepoint=True),
    "savepoint written": SavepointWritten(ONE, 10),
    "savepoint failed": SavepointFailed(ONE, "full", 10),
    "trigger failed": TriggerFailed(ONE, "lost", 10),
    "ack": AckReceived(ack(1, TOTALS, states=[handle(1)]), 10),
    "decline": DeclineReceived(Decline(ATTEMPT, ONE, TOTALS, "no"), 10),
    "journaled": journaled(1, 10),
    "journal failed": JournalFailed(ONE, "full", 10),
    "transactions ended": TransactionsEnded(ONE, (committable(1),), 10),
    "open transaction": OpenTransaction(TOTALS, 5, 900_000, 10),
    "brokers away": BrokersSeen(False, 10),
    "brokers back": BrokersSeen(True, 10),
    "old transaction": OpenTransaction(TOTALS, 8_000, 10_000, 10),
    "attempt ended": AttemptEnded(10),
}


def starting() -> Coordinator:
    return Coordinator(settings(), job())


def finishing() -> Coordinator:
    """Checkpoint 1 is the final one and waits for both subtasks."""
    coordinator = running()
    coordinator.handle(TriggerRequested(1, final=True))
    return coordinator


def finished() -> Coordinator:
    coordinator = finishing()
    acknowledge_all(coordinator, 1, 2)
    coordinator.handle(journaled(1, 3))
    return coordinator


def failed() -> Coordinator:
    """Checkpoint 1 was given up."""
    coordinator = running(settings(tolerable_failures=0))
    coordinator.handle(TriggerRequested(1))
    coordinator.handle(TriggerFailed(ONE, "lost", 2))
    return coordinator


def ended() -> Coordinator:
    coordinator = running()
    coordinator.handle(AttemptEnded(1))
    return coordinator


MAKERS = {
    AttemptPhase.STARTING: starting,
    AttemptPhase.RUNNING: running,
    AttemptPhase.FINISHING: finishing,
    AttemptPhase.FINISHED: finished,
    AttemptPhase.FAILED: failed,
    AttemptPhase.ENDED: ended,
}

REFUSED = "TriggerRefused"
GARBAGE = "AckRefused DiscardStates"
EXPECTED: dict[AttemptPhase, dict[str, tuple[str, AttemptPhase]]] = {
    AttemptPhase.STARTING: {
        "running": ("", AttemptPhase.STARTING),
        "tick": ("", AttemptPhase.STARTING),
        "trigger": (REFUSED, AttemptPhase.STARTING),
        "final": (REFUSED, AttemptPhase.STARTING),
        "savepoint": (REFUSED, AttemptPhase.STARTING),
        "savepoint written": (BROKEN, AttemptPhase.STARTING),
        "savepoint failed": (BROKEN, AttemptPhase.STARTING),
        "trigger failed": ("", AttemptPhase.STARTING),
        "ack": (GARBAGE, AttemptPhase.STARTING),
        "decline": ("", AttemptPhase.STARTING),
        "journaled": (BROKEN, AttemptPhase.STARTING),
        "journal failed": (BROKEN, AttemptPhase.STARTING),
        "transactions ended": ("", AttemptPhase.STARTING),
        "open transaction": ("", AttemptPhase.STARTING),
        "brokers away": ("", AttemptPhase.STARTING),
        "brokers back": ("", AttemptPhase.STARTING),
        "old transaction": ("FailAttempt", AttemptPhase.FAILED),
        "attempt ended": ("", AttemptPhase.ENDED),
    },
    AttemptPhase.RUNNING: {
        "running": ("", AttemptPhase.RUNNING),
        "tick": ("", AttemptPhase.RUNNING),
        "trigger": ("SendTrigger", AttemptPhase.RUNNING),
        "final": ("SendTrigger", AttemptPhase.FINISHING),
        "savepoint": ("SendTrigger", AttemptPhase.RUNNING),
        "savepoint written": (BROKEN, AttemptPhase.RUNNING),
        "savepoint failed": (BROKEN, AttemptPhase.RUNNING),
        "trigger failed": ("", AttemptPhase.RUNNING),
        "ack": (GARBAGE, AttemptPhase.RUNNING),
        "decline": ("", AttemptPhase.RUNNING),
        "journaled": (BROKEN, AttemptPhase.RUNNING),
        "journal failed": (BROKEN, AttemptPhase.RUNNING),
        "transactions ended": ("", AttemptPhase.RUNNING),
        "open transaction": ("", AttemptPhase.RUNNING),
        "brokers away": ("", AttemptPhase.RUNNING),
        "brokers back": ("", AttemptPhase.RUNNING),
        "old transaction": ("FailAttempt", AttemptPhase.FAILED),
        "attempt ended": ("", AttemptPhase.ENDED),
    },
    AttemptPhase.FINISHING: {
        "running": ("", AttemptPhase.FINISHING),
        "tick": ("", AttemptPhase.FINISHING),
        "trigger": (REFUSED, AttemptPhase.FINISHING),
        "final": (REFUSED, AttemptPhase.FINISHING),
        "savepoint": (REFUSED, AttemptPhase.FINISHING),
        "savepoint written": (BROKEN, AttemptPhase.FINISHING),
        "savepoint failed": (BROKEN, AttemptPhase.FINISHING),
        "trigger failed": ("NotifyAborted FailAttempt", AttemptPhase.FAILED),
        "ack": ("", AttemptPhase.FINISHING),
        "decline": ("NotifyAborted FailAttempt", AttemptPhase.FAILED),
        "journaled": (BROKEN, AttemptPhase.FINISHING),
        "journal failed": (BROKEN, AttemptPhase.FINISHING),
        "transactions ended": ("", AttemptPhase.FINISHING),
        "open transaction": ("", AttemptPhase.FINISHING),
        "brokers away": ("", AttemptPhase.FINISHING),
        "brokers back": ("", AttemptPhase.FINISHING),
        "old transaction": ("FailAttempt", AttemptPhase.FAILED),
        "attempt ended": ("", AttemptPhase.ENDED),
    },
    AttemptPhase.FINISHED: {
        "running": ("", AttemptPhase.FINISHED),
        "tick": ("", AttemptPhase.FINISHED),
        "trigger": (REFUSED, AttemptPhase.FINISHED),
        "final": (REFUSED, AttemptPhase.FINISHED),
        "savepoint": (REFUSED, AttemptPhase.FINISHED),
        "savepoint written": (BROKEN, AttemptPhase.FINISHED),
        "savepoint failed": (BROKEN, AttemptPhase.FINISHED),
        "trigger failed": ("", AttemptPhase.FINISHED),
        "ack": ("AckRefused", AttemptPhase.FINISHED),
        "decline": ("", AttemptPhase.FINISHED),
        "journaled": (BROKEN, AttemptPhase.FINISHED),
        "journal failed": (BROKEN, AttemptPhase.FINISHED),
        "transactions ended": ("", AttemptPhase.FINISHED),
        "open transaction": ("", AttemptPhase.FINISHED),
        "brokers away": ("", AttemptPhase.FINISHED),
        "brokers back": ("", AttemptPhase.FINISHED),
        "old transaction": ("", AttemptPhase.FINISHED),
        "attempt ended": ("", AttemptPhase.ENDED),
    },
    AttemptPhase.FAILED: {
        "running": ("", AttemptPhase.FAILED),
        "tick": ("", AttemptPhase.FAILED),
        "trigger": (REFUSED, AttemptPhase.FAILED),
        "final": (REFUSED, AttemptPhase.FAILED),
        "savepoint": (REFUSED, AttemptPhase.FAILED),
        "savepoint written": (BROKEN, AttemptPhase.FAILED),
        "savepoint failed": (BROKEN, AttemptPhase.FAILED),
        "trigger failed": ("", AttemptPhase.FAILED),
        "ack": (GARBAGE, AttemptPhase.FAILED),
        "decline": ("", AttemptPhase.FAILED),
        "journaled": (BROKEN, AttemptPhase.FAILED),
        "journal failed": (BROKEN, AttemptPhase.FAILED),
        "transactions ended": ("", AttemptPhase.FAILED),
        "open transaction": ("", AttemptPhase.FAILED),
        "brokers away": ("", AttemptPhase.FAILED),
        "brokers back": ("", AttemptPhase.FAILED),
        "old transaction": ("", AttemptPhase.FAILED),
        "attempt ended": ("", AttemptPhase.ENDED),
    },
    AttemptPhase.ENDED: {
        "running": ("", AttemptPhase.ENDED),
        "tick": ("", AttemptPhase.ENDED),
        "trigger": (REFUSED, AttemptPhase.ENDED),
        "final": (REFUSED, AttemptPhase.ENDED),
        "savepoint": (REFUSED, AttemptPhase.ENDED),
        "savepoint written": ("", AttemptPhase.ENDED),
        "savepoint failed": ("", AttemptPhase.ENDED),
        "trigger failed": ("", AttemptPhase.ENDED),
        "ack": (GARBAGE, AttemptPhase.ENDED),
        "decline": ("", AttemptPhase.ENDED),
        "journaled": ("", AttemptPhase.ENDED),
        "journal failed": ("", AttemptPhase.ENDED),
        "transactions ended": ("", AttemptPhase.ENDED),
        "open transaction": ("", AttemptPhase.ENDED),
        "brokers away": ("", AttemptPhase.ENDED),
        "brokers back": ("", AttemptPhase.ENDED),
        "old transaction": ("", AttemptPhase.ENDED),
        "attempt ended": (BROKEN, AttemptPhase.ENDED),
    },
}

PAIRS = [(phase, name) for phase in AttemptPhase for name in EVENTS]


@pytest.mark.parametrize(("phase", "name"), PAIRS, ids=[f"{phase.name}-{name}" for phase, name in PAIRS])
def test_every_phase_meets_every_event(phase: AttemptPhase, name: str) -> None:
    coordinator = MAKERS[phase]()
    assert coordinator.phase is phase
    try:
        out = " ".join(type(instruction).__name__ for instruction in coordinator.handle(EVENTS[name]))
    except ProtocolBroken as error:
        assert error.fields["story"] or phase is AttemptPhase.STARTING
        out = BROKEN
    assert (out, coordinator.phase) == EXPECTED[phase][name]


def test_a_subtask_that_is_not_of_the_job_cannot_run() -> None:
    with pytest.raises(ProtocolBroken, match="is not a subtask of this attempt"):
        starting().handle(SubtaskRunning(type(SOURCE)(SOURCE.vertex, type(SOURCE.index)(9)), 1))


def test_the_story_of_an_attempt_is_bounded() -> None:
    story = Story()
    for number in range(STORY_MAX + 1):
        story.tell(str(number))
    told = story.broken("broken").fields["story"]
    assert told == tuple(map(str, range(1, STORY_MAX + 1)))
