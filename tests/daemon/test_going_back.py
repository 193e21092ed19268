"""An upgrade that turns out to be wrong: the old file and the checkpoint before it go on as if nothing had been."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.loopback import STEPS, Loopback, plan_of, play
from tests.task.fakes import Row
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.upgrade import Spoken
from tidegate.daemon.choosing import RestoreOption, StartOptions
from tidegate.ids import CheckpointId, OperatorName
from tidegate.plan.graph import Plan

ROWS = {partition: [(number % 3, number) for number in range(120)] for partition in range(2)}
COUNTED = sorted((key, count) for key in range(3) for count in range(1, 81))
"""What comes out in the end: the running count of each key's eighty rows."""
TOTALS = OperatorName("totals")


def upgraded(aggregate: dict[str, str]) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(STEPS, "totals", [{**STEPS["totals"][0], "aggregate": aggregate}])
        return plan_of("totals")


ADDED = upgraded({"n": "count(*)", "most": "max(n)"})
MEANT = upgraded({"n": "count(nullif(n % 2, 0))"})


class Old:
    """A pipeline that has read a part of its input, and its newest checkpoint."""

    def __init__(self) -> None:
        self.world = Loopback(plan_of("totals"), ROWS)
        self.newest: CheckpointId
        self.output: list[Row]
        """Of what was read before it."""
        play(self.world, self._begin)

    async def _begin(self, world: Loopback) -> None:
        await some_more(world)
        self.newest = world.completed[-1].id
        self.output = sorted(world.kafka.output)


async def some_more(world: Loopback) -> None:
    for _ in range(5):
        world.turn()
    await world.checkpoint()


async def to_the_end(world: Loopback) -> None:
    await world.drain()
    await world.stop()


def play_refused(world: Loopback) -> RestoreRefused:
    """What the daemon ends with, before an attempt runs."""

    async def never(_world: Loopback) -> None:
        raise AssertionError("it has started")

    with pytest.raises(AssertionError, match="the daemon has ended"):
        play(world, never)
    assert isinstance(world.error, RestoreRefused)
    return world.error


@pytest.mark.parametrize(
    ("plan", "spoken"), [(ADDED, Spoken()), (MEANT, Spoken(keep={TOTALS: ""})), (MEANT, Spoken(reset={TOTALS: ""}))]
)
def test_after_checkpoints_of_the_new_file_the_old_one_goes_on_from_the_checkpoint_before(
    plan: Plan, spoken: Spoken
) -> None:
    old = Old()
    new = Loopback(plan, ROWS, before=old.world, options=StartOptions(spoken=spoken))
    play(new, some_more)
    assert new.completed[-1].id > old.newest

    back = RestoreOption(str(old.newest))
    refused = play_refused(Loopback(plan_of("totals"), ROWS, before=new, options=StartOptions(back)))
    assert "--repeat-output" in refused.message, "output after it was committed"

    back = msgspec.structs.replace(back, repeat_output=True)
    again = Loopback(plan_of("totals"), ROWS, before=new, options=StartOptions(back))
    again.kafka.output.clear()
    play(again, to_the_end)
    assert sorted([*old.output, *again.kafka.output]) == COUNTED


def test_a_new_file_that_is_refused_leaves_the_old_one_where_it_was() -> None:
    old = Old()
    refused = play_refused(Loopback(MEANT, ROWS, before=old.world))
    assert "--reset totals" in refused.message
    again = Loopback(plan_of("totals"), ROWS, before=old.world)
    play(again, to_the_end)
    assert sorted(again.kafka.output) == COUNTED, "without a word, and nothing twice"
