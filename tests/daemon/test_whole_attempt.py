"""An attempt from the trigger to the last notice, with everything that production runs between (C01, C12, C14, C41)."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.loopback import Loopback, plan_of, play
from tidegate.daemon.ordered import CheckpointUnavailable
from tidegate.task.messages import Abandoned, Trigger

ROWS = {partition: [(number % 3, number) for number in range(6)] for partition in range(2)}


def test_C14_C41_a_trigger_that_cannot_be_sent_gives_its_checkpoint_up_at_once() -> None:
    """One slot has its trigger already: it and all others are told that nothing comes of it."""

    async def scene(world: Loopback) -> None:
        world.seats[1].close()  # nobody has noticed yet
        with pytest.raises(CheckpointUnavailable) as caught:
            await asyncio.wait_for(world.runner.take_checkpoint(), 10)  # no slot has had a turn
        assert "its trigger could not be sent (there is no connection to slot 1" in caught.value.message
        trigger, abandoned = world.seats[0].told[-2:]
        assert isinstance(trigger, Trigger)
        assert isinstance(abandoned, Abandoned)
        assert abandoned.checkpoint == trigger.barrier.checkpoint
        assert world.runner._coordinator.under_way == ()

    play(Loopback(plan_of("totals"), ROWS), scene)
