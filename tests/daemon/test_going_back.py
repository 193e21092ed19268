"""An upgrade that turns out to be wrong: the old file and the checkpoint before it go on as if nothing had been."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from tests.support.loopback import STEPS, Loopback, plan_of, play
from tests.task.fakes import Row
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.daemon.restore_point import RestoreOption, StartOptions
from tidegate.ids import CheckpointId, OperatorName
from tidegate.journal.savepoint import savepoint_folder, write_savepoint
from tidegate.plan.graph import Plan
from tidegate.storage.local import LocalStorage

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
    ("plan", "command_line"),
    [
        (ADDED, CommandLineDirectives()),
        (MEANT, CommandLineDirectives(keep={TOTALS: ""})),
        (MEANT, CommandLineDirectives(reset={TOTALS: ""})),
    ],
)
def test_after_checkpoints_of_the_new_file_the_old_one_goes_on_from_the_checkpoint_before(
    plan: Plan, command_line: CommandLineDirectives
) -> None:
    old = Old()
    new = Loopback(plan, ROWS, before=old.world, options=StartOptions(command_line=command_line))
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


class Saved(Old):
    """The same with a savepoint of its newest checkpoint, and an option that restores it."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        entry, storage, token = self.world.journal.state.retained[-1], LocalStorage(str(directory)), "0123456789abcdef"
        folder = savepoint_folder("shop", entry.checkpoint.id, token)
        write_savepoint(self.world.storage, storage, folder, entry.checkpoint, entry.identity, token)
        self.path = directory / folder
        self.options = StartOptions(RestoreOption(str(self.path), repeat_output=True))


async def killed(world: Loopback) -> None:
    await world.kill(0)
    await world.checkpoint()


def test_C29_a_savepoint_that_is_restored_may_go_while_the_pipeline_runs(tmp_path: Path) -> None:
    """Days later somebody deletes it, as they may, and then a worker dies."""
    old = Saved(tmp_path)
    world = Loopback(plan_of("totals"), ROWS, before=old.world, options=old.options)

    async def scene(world: Loopback) -> None:
        shutil.rmtree(old.path)
        await killed(world)

    play(world, scene)
    assert world.completed[-1].attempt > 2


def test_C29_a_start_that_repeats_the_option_takes_the_newest_checkpoint_whatever_has_become_of_the_savepoint(
    tmp_path: Path,
) -> None:
    """The file of today need not fit it, nor need its state be whole."""
    old = Saved(tmp_path)
    restored = Loopback(plan_of("totals"), ROWS, before=old.world, options=old.options)
    play(restored, killed)
    command_line = StartOptions(old.options.restore, command_line=CommandLineDirectives(reset={TOTALS: ""}))
    play(Loopback(MEANT, ROWS, before=restored, options=command_line), killed)
    for state in (old.path / "state").iterdir():
        state.write_bytes(b"")
    again = Loopback(MEANT, ROWS, before=restored, options=old.options)
    play(again, killed)
    assert again.completed, "its definition is another one than the savepoint's, and that is damaged"


def test_C29_a_restore_begins_with_what_killed_ones_have_copied_removed(tmp_path: Path) -> None:
    old = Saved(tmp_path)
    before = set(old.world.objects.objects)
    full = Loopback(plan_of("totals"), ROWS, before=old.world, options=old.options)
    put, copied = full.storage.put, list[str]()

    def run_full(name: str, data: bytes) -> None:
        if name.startswith("state/"):
            if copied:
                raise RuntimeError("killed")  # not a failure of the storage, which is cleaned up after
            copied.append(name)
        put(name, data)

    full.storage.put = run_full  # type: ignore[method-assign]  # the disk
    with pytest.raises(AssertionError, match="the daemon has ended"):
        play(full, killed)
    left = {name for name in set(full.objects.objects) - before if name.startswith("state/")}
    assert left, "the planned kill did not happen"

    world = Loopback(plan_of("totals"), ROWS, before=full, options=old.options)
    put_on, seen = world.storage.put, list[set[str]]()

    def look(name: str, data: bytes) -> None:
        seen.append(left & world.objects.objects.keys())
        put_on(name, data)

    world.storage.put = look  # type: ignore[method-assign]  # a spy
    play(world, killed)
    assert seen
    assert not any(seen)
