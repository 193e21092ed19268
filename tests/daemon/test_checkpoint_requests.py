"""Checkpoints that somebody asks for, from the order to the answer, in a whole attempt (C38)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.coordinator.values import settings
from tests.support.loopback import NEVER_MS, Loopback, plan_of, play
from tidegate.daemon.checkpoint_requests import CheckpointUnavailable
from tidegate.daemon.control_server import SlotLost
from tidegate.daemon.service import Daemon
from tidegate.ids import CheckpointId
from tidegate.task.messages import Completed

ROWS = {partition: [(number % 3, number) for number in range(6)] for partition in range(2)}


def test_C38_an_order_is_answered_with_id_duration_and_bytes_when_its_output_is_committed() -> None:
    async def scene(world: Loopback) -> None:
        await world.drain()
        done = await world.checkpoint()
        (completed,) = world.completed
        assert (done.checkpoint, done.size_bytes) == (completed.id, completed.size_bytes)
        assert done.size_bytes > 0
        assert 0 <= done.duration_ms < 60_000
        assert len(world.kafka.output) == 12

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_C38_a_refused_order_reports_why_and_begins_nothing() -> None:
    async def scene(world: Loopback) -> None:
        world.hold_slots()
        first = asyncio.ensure_future(world.runner.take_checkpoint())
        await asyncio.sleep(0)
        second = asyncio.ensure_future(world.runner.take_checkpoint())
        await asyncio.sleep(0)
        assert second.done()
        with pytest.raises(
            CheckpointUnavailable, match=r"no checkpoint was taken: as many .* as allowed .*; try again"
        ):
            second.result()
        world.hold_slots(held=False)
        await world.until(first.done, "the first one")
        assert first.result().checkpoint == world.completed[0].id

    one_at_a_time = settings(interval_ms=NEVER_MS, max_concurrent=1)
    play(Loopback(plan_of("totals"), ROWS, checkpoints=one_at_a_time), scene)


def test_C38_of_two_orders_at_a_time_each_has_its_own_answer() -> None:
    async def scene(world: Loopback) -> None:
        world.hold_slots()
        orders = [asyncio.ensure_future(world.runner.take_checkpoint()) for _ in range(2)]
        await asyncio.sleep(0)
        world.hold_slots(held=False)
        await world.until(lambda: all(order.done() for order in orders), "both")
        assert [order.result().checkpoint for order in orders] == [one.id for one in world.completed]

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_C38_an_order_whose_checkpoint_is_given_up_reports_why() -> None:
    async def scene(world: Loopback) -> None:
        world.slot(1).uploads.error = "disk full"
        with pytest.raises(CheckpointUnavailable, match=r"was given up: a subtask declined it \(.*: disk full\)"):
            await world.checkpoint()
        world.slot(1).uploads.error = ""
        assert (await world.checkpoint()).checkpoint == world.completed[-1].id

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_C38_the_end_of_the_attempt_answers_who_waits() -> None:
    async def scene(world: Loopback) -> None:
        world.hold_slots()
        runner = world.runner
        waiting = asyncio.ensure_future(runner.take_checkpoint())
        await asyncio.sleep(0)
        world.hold_slots(held=False)
        runner.fail(SlotLost("by the test"))
        await world.until(waiting.done, "an answer")
        with pytest.raises(CheckpointUnavailable, match="the attempt has ended"):
            waiting.result()
        with pytest.raises(CheckpointUnavailable, match="the attempt has just ended; try again"):
            await runner.take_checkpoint()

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_C38_the_checkpoint_goes_on_when_nobody_waits_for_it_any_more() -> None:
    async def scene(world: Loopback) -> None:
        world.hold_slots()
        waiting = asyncio.ensure_future(world.runner.take_checkpoint())
        await asyncio.sleep(0)
        waiting.cancel()
        world.hold_slots(held=False)
        await world.until(lambda: bool(world.completed), "the checkpoint")
        assert any(isinstance(message, Completed) for message in world.seats[0].told)
        assert (await world.checkpoint()).checkpoint == CheckpointId(world.completed[0].id + 1)

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_C38_orders_go_to_the_attempt_that_runs_and_to_nobody_once_the_end_was_asked_for() -> None:
    async def scene(world: Loopback) -> None:
        state = "stopping"
        daemon = cast("Any", SimpleNamespace(_supervisor=world.attempts, _state=lambda: state))
        asked = asyncio.ensure_future(Daemon.take_checkpoint(daemon))
        await world.until(asked.done, "the checkpoint")
        assert asked.result().checkpoint == world.completed[0].id
        world.attempts.stop()
        with pytest.raises(CheckpointUnavailable, match="no checkpoint was taken: the pipeline is stopping"):
            await Daemon.take_checkpoint(daemon)

    play(Loopback(plan_of("totals"), ROWS), scene)
