"""What the edge does with single instructions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.coordinator.values import ATTEMPT
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.events import (
    FINAL,
    ORDERED,
    PERIODIC,
    SAVEPOINT,
    CheckpointProperties,
    Event,
    SendTrigger,
    TriggerFailed,
    TriggerRefusal,
    TriggerRefused,
)
from tidegate.coordinator.journal import JournalVanished
from tidegate.daemon.instructions import InstructionExecutor
from tidegate.errors import TidegateError
from tidegate.ids import CheckpointId
from tidegate.task.elements import Barrier
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
        executor = InstructionExecutor("shop", services, send_all, fed.append, *[cast("Any", None)] * 3)
        executor.execute([SendTrigger(ATTEMPT, SEVEN, 5, PERIODIC)])
        assert fed == []
        await asyncio.sleep(0)

    asyncio.run(scene())
    (trigger,) = sent
    assert isinstance(trigger, Trigger)
    assert (trigger.pipeline, trigger.attempt, trigger.barrier.checkpoint) == ("shop", ATTEMPT, SEVEN)
    (failed,) = fed
    assert isinstance(failed, TriggerFailed)
    assert (failed.checkpoint, failed.detail) == (7, "there is no connection to slot 1 (process 4711 on here) any more")


def barrier_of(order: SendTrigger, unaligned_after_ms: int | None) -> Barrier:
    """The barrier that slots are sent for it."""
    sent: list[DriverMessage] = []

    def send_all(message: DriverMessage) -> list[str]:
        sent.append(message)
        return []

    nothing = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK))
    executor = InstructionExecutor("shop", nothing, send_all, nothing, nothing, nothing, nothing, unaligned_after_ms)
    executor.execute([order])
    (trigger,) = sent
    assert isinstance(trigger, Trigger)
    return trigger.barrier


@pytest.mark.parametrize(
    ("kind", "after_ms", "final", "savepoint"),
    [
        (PERIODIC, 5, False, False),
        (ORDERED, 5, False, False),
        (FINAL, None, True, False),
        (SAVEPOINT, None, False, True),
    ],
)
def test_B48_C34_the_barrier_has_id_time_and_options_and_is_aligned_where_it_must_be(
    kind: CheckpointProperties, after_ms: int | None, final: bool, savepoint: bool
) -> None:
    order = SendTrigger(ATTEMPT, SEVEN, 1234, kind)
    assert barrier_of(order, 5) == Barrier(SEVEN, 1234, final, after_ms, savepoint)
    assert barrier_of(order, None).unaligned_after_ms is None


def test_X03_a_directory_that_is_gone_while_it_is_cleaned_up_ends_the_attempt_by_that_error() -> None:
    """Not as an error of the program."""
    failed: list[TidegateError] = []

    async def vanished(_call: object) -> None:
        raise JournalVanished("the journal is not where it was")

    async def scene() -> None:
        services = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK, journal=None, in_journal_thread=vanished))
        executor = InstructionExecutor(
            "shop", services, cast("Any", None), cast("Any", None), failed.append, *[cast("Any", None)] * 2
        )
        executor._spawn(executor._clean_up(frozenset()))
        await asyncio.sleep(0.01)

    asyncio.run(scene())
    (error,) = failed
    assert isinstance(error, JournalVanished)


@pytest.mark.parametrize("why", TriggerRefusal)
def test_a_final_checkpoint_that_cannot_begin_fails_the_attempt_unless_it_ends_already(why: TriggerRefusal) -> None:
    failed: list[TidegateError] = []
    services = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK))
    executor = InstructionExecutor(
        "shop", services, cast("Any", None), cast("Any", None), failed.append, *[cast("Any", None)] * 2
    )
    executor.execute([TriggerRefused(why, FINAL)])
    told = [] if why is TriggerRefusal.SHUT_DOWN else [f"no final checkpoint: {why.value}"]
    assert [error.message for error in failed] == told
