"""What the edge does with single instructions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tests.coordinator.values import ATTEMPT, SOURCE
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.events import PERIODIC, Event, SendTrigger, TriggerFailed
from tidegate.daemon.decisions import Decisions
from tidegate.ids import CheckpointId
from tidegate.task.messages import DriverMessage, Trigger

SEVEN = CheckpointId(7)


def test_C40_C41_a_trigger_names_pipeline_attempt_and_checkpoint_and_its_failure_is_fed_from_the_loop() -> None:
    """Not while instructions are carried out: the coordinator's next answer would overtake the rest of them."""
    sent: list[DriverMessage] = []
    fed: list[Event] = []

    def send_all(message: DriverMessage) -> list[str]:
        sent.append(message)
        return ["slot 1 (process 4711 on here)"]

    async def scene() -> None:
        services = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK))
        decisions = Decisions("shop", services, send_all, fed.append, cast("Any", None), cast("Any", None))
        decisions.execute([SendTrigger(ATTEMPT, SEVEN, 5, (SOURCE,), PERIODIC)])
        assert fed == []
        await asyncio.sleep(0)

    asyncio.run(scene())
    (trigger,) = sent
    assert isinstance(trigger, Trigger)
    assert (trigger.pipeline, trigger.attempt, trigger.barrier.checkpoint) == ("shop", ATTEMPT, SEVEN)
    (failed,) = fed
    assert isinstance(failed, TriggerFailed)
    assert (failed.checkpoint, failed.detail) == (7, "there is no connection to slot 1 (process 4711 on here) any more")
