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
from tidegate.coordinator.triggers import Phase
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
    Phase.STARTING: starting,
    Phase.RUNNING: running,
    Phase.FINISHING: finishing,
    Phase.FINISHED: finished,
    Phase.FAILED: failed,
    Phase.ENDED: ended,
}

REFUSED = "TriggerRefused"
GARBAGE = "AckRefused DiscardStates"
EXPECTED: dict[Phase, dict[str, tuple[str, Phase]]] = {
    Phase.STARTING: {
        "running": ("", Phase.STARTING),
        "tick": ("", Phase.STARTING),
        "trigger": (REFUSED, Phase.STARTING),
        "final": (REFUSED, Phase.STARTING),
        "savepoint": (REFUSED, Phase.STARTING),
        "savepoint written": (BROKEN, Phase.STARTING),
        "savepoint failed": (BROKEN, Phase.STARTING),
        "trigger failed": ("", Phase.STARTING),
        "ack": (GARBAGE, Phase.STARTING),
        "decline": ("", Phase.STARTING),
        "journaled": (BROKEN, Phase.STARTING),
        "journal failed": (BROKEN, Phase.STARTING),
        "transactions ended": ("", Phase.STARTING),
        "open transaction": ("", Phase.STARTING),
        "brokers away": ("", Phase.STARTING),
        "brokers back": ("", Phase.STARTING),
        "old transaction": ("FailAttempt", Phase.FAILED),
        "attempt ended": ("", Phase.ENDED),
    },
    Phase.RUNNING: {
        "running": ("", Phase.RUNNING),
        "tick": ("", Phase.RUNNING),
        "trigger": ("SendTrigger", Phase.RUNNING),
        "final": ("SendTrigger", Phase.FINISHING),
        "savepoint": ("SendTrigger", Phase.RUNNING),
        "savepoint written": (BROKEN, Phase.RUNNING),
        "savepoint failed": (BROKEN, Phase.RUNNING),
        "trigger failed": ("", Phase.RUNNING),
        "ack": (GARBAGE, Phase.RUNNING),
        "decline": ("", Phase.RUNNING),
        "journaled": (BROKEN, Phase.RUNNING),
        "journal failed": (BROKEN, Phase.RUNNING),
        "transactions ended": ("", Phase.RUNNING),
        "open transaction": ("", Phase.RUNNING),
        "brokers away": ("", Phase.RUNNING),
        "brokers back": ("", Phase.RUNNING),
        "old transaction": ("FailAttempt", Phase.FAILED),
        "attempt ended": ("", Phase.ENDED),
    },
    Phase.FINISHING: {
        "running": ("", Phase.FINISHING),
        "tick": ("", Phase.FINISHING),
        "trigger": (REFUSED, Phase.FINISHING),
        "final": (REFUSED, Phase.FINISHING),
        "savepoint": (REFUSED, Phase.FINISHING),
        "savepoint written": (BROKEN, Phase.FINISHING),
        "savepoint failed": (BROKEN, Phase.FINISHING),
        "trigger failed": ("NotifyAborted FailAttempt", Phase.FAILED),
        "ack": ("", Phase.FINISHING),
        "decline": ("NotifyAborted FailAttempt", Phase.FAILED),
        "journaled": (BROKEN, Phase.FINISHING),
        "journal failed": (BROKEN, Phase.FINISHING),
        "transactions ended": ("", Phase.FINISHING),
        "open transaction": ("", Phase.FINISHING),
        "brokers away": ("", Phase.FINISHING),
        "brokers back": ("", Phase.FINISHING),
        "old transaction": ("FailAttempt", Phase.FAILED),
        "attempt ended": ("", Phase.ENDED),
    },
    Phase.FINISHED: {
        "running": ("", Phase.FINISHED),
        "tick": ("", Phase.FINISHED),
        "trigger": (REFUSED, Phase.FINISHED),
        "final": (REFUSED, Phase.FINISHED),
        "savepoint": (REFUSED, Phase.FINISHED),
        "savepoint written": (BROKEN, Phase.FINISHED),
        "savepoint failed": (BROKEN, Phase.FINISHED),
        "trigger failed": ("", Phase.FINISHED),
        "ack": ("AckRefused", Phase.FINISHED),
        "decline": ("", Phase.FINISHED),
        "journaled": (BROKEN, Phase.FINISHED),
        "journal failed": (BROKEN, Phase.FINISHED),
        "transactions ended": ("", Phase.FINISHED),
        "open transaction": ("", Phase.FINISHED),
        "brokers away": ("", Phase.FINISHED),
        "brokers back": ("", Phase.FINISHED),
        "old transaction": ("", Phase.FINISHED),
        "attempt ended": ("", Phase.ENDED),
    },
    Phase.FAILED: {
        "running": ("", Phase.FAILED),
        "tick": ("", Phase.FAILED),
        "trigger": (REFUSED, Phase.FAILED),
        "final": (REFUSED, Phase.FAILED),
        "savepoint": (REFUSED, Phase.FAILED),
        "savepoint written": (BROKEN, Phase.FAILED),
        "savepoint failed": (BROKEN, Phase.FAILED),
        "trigger failed": ("", Phase.FAILED),
        "ack": (GARBAGE, Phase.FAILED),
        "decline": ("", Phase.FAILED),
        "journaled": (BROKEN, Phase.FAILED),
        "journal failed": (BROKEN, Phase.FAILED),
        "transactions ended": ("", Phase.FAILED),
        "open transaction": ("", Phase.FAILED),
        "brokers away": ("", Phase.FAILED),
        "brokers back": ("", Phase.FAILED),
        "old transaction": ("", Phase.FAILED),
        "attempt ended": ("", Phase.ENDED),
    },
    Phase.ENDED: {
        "running": ("", Phase.ENDED),
        "tick": ("", Phase.ENDED),
        "trigger": (REFUSED, Phase.ENDED),
        "final": (REFUSED, Phase.ENDED),
        "savepoint": (REFUSED, Phase.ENDED),
        "savepoint written": ("", Phase.ENDED),
        "savepoint failed": ("", Phase.ENDED),
        "trigger failed": ("", Phase.ENDED),
        "ack": (GARBAGE, Phase.ENDED),
        "decline": ("", Phase.ENDED),
        "journaled": ("", Phase.ENDED),
        "journal failed": ("", Phase.ENDED),
        "transactions ended": ("", Phase.ENDED),
        "open transaction": ("", Phase.ENDED),
        "brokers away": ("", Phase.ENDED),
        "brokers back": ("", Phase.ENDED),
        "old transaction": ("", Phase.ENDED),
        "attempt ended": (BROKEN, Phase.ENDED),
    },
}

PAIRS = [(phase, name) for phase in Phase for name in EVENTS]


@pytest.mark.parametrize(("phase", "name"), PAIRS, ids=[f"{phase.name}-{name}" for phase, name in PAIRS])
def test_every_phase_meets_every_event(phase: Phase, name: str) -> None:
    coordinator = MAKERS[phase]()
    assert coordinator.phase is phase
    try:
        out = " ".join(type(instruction).__name__ for instruction in coordinator.handle(EVENTS[name]))
    except ProtocolBroken as error:
        assert error.fields["story"] or phase is Phase.STARTING
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
