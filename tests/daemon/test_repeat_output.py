"""The word that output may be written again is given for one start; a supervisor repeats it at every one."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.support.loopback import Loopback, plan_of, play
from tidegate.coordinator.ownership import Known, OwnerRecord, OwnershipConflict, derive_record
from tidegate.coordinator.restore_target import RestoreTarget, find_retained
from tidegate.daemon.preflight import Preflight, run_preflight
from tidegate.daemon.restore_point import RestoreOption, RestorePointSelector, StartOptions
from tidegate.ids import CheckpointId

ROWS = {partition: [(number % 3, number) for number in range(6)] for partition in range(2)}
PLAN = plan_of("stateless")


class Shop:
    """A pipeline that has gone back to its first checkpoint, and a copy of its directory that was taken then."""

    def __init__(self) -> None:
        first = Loopback(PLAN, ROWS)
        play(first, self._begin)
        self.option = RestoreOption(str(self.oldest), repeat_output=True)
        self.copy = Loopback(PLAN, ROWS)
        self.record: OwnerRecord
        """Of the pipeline, which keeps running after the copy was taken."""
        play(Loopback(PLAN, ROWS, before=first, options=StartOptions(self.option)), self._go_on)

    async def _begin(self, world: Loopback) -> None:
        for _ in range(2):
            world.turn()
            await world.checkpoint()
        self.oldest = world.journal.state.retained[0].checkpoint.id

    async def _go_on(self, world: Loopback) -> None:
        await world.checkpoint()
        self.copy.objects.objects.update(world.objects.objects)
        await world.checkpoint()
        await world.kill(0)
        self.record = derive_record(world.journal.state)

    def start(self, world: Loopback, options: StartOptions, record: OwnerRecord | None = None) -> Preflight:
        """What a daemon finds that is started with a directory; `record` instead of the pipeline's own."""

        async def read_known(_pipeline: str) -> Known:
            return Known(record=record or self.record, mirrored=True)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.kafka, "read_known", read_known)
            return asyncio.run(run_preflight(PLAN, world._services, options, first=True, verify=False))


@pytest.fixture(scope="module")
def shop() -> Shop:
    return Shop()


@pytest.mark.parametrize("begin_anew", [False, True])
def test_X03_a_word_that_was_given_for_a_restore_that_is_done_opens_no_old_copy(shop: Shop, begin_anew: bool) -> None:
    with pytest.raises(OwnershipConflict, match="old copy"):
        shop.start(shop.copy, StartOptions(shop.option, begin_anew=begin_anew))


def test_X03_a_word_to_begin_anew_that_stays_on_the_command_line_is_for_an_empty_directory_only(shop: Shop) -> None:
    """The volume that was away is mounted again, or an old copy is: its checkpoints would be continued from."""
    anew = StartOptions(begin_anew=True)
    with pytest.raises(OwnershipConflict, match="old copy"):
        shop.start(shop.copy, anew)
    elsewhere = msgspec.structs.replace(shop.record, journal="of another directory")
    with pytest.raises(OwnershipConflict, match="continued from another checkpoint directory"):
        shop.start(shop.copy, anew, elsewhere)
    empty = Loopback(PLAN, ROWS)
    look = shop.start(empty, anew)
    assert look.replaced == (shop.record.journal,)
    empty.journal.take_over(look.facts.identity, 0, look.used, look.replaced)  # and dies before it has left its record
    assert shop.start(empty, anew).replaced == ()


def test_only_a_restore_says_that_entries_of_the_journal_may_be_missing() -> None:
    assert not StartOptions(begin_anew=True).repeats_output
    assert not StartOptions(RestoreOption("1"), begin_anew=True).repeats_output
    assert StartOptions(RestoreOption("1", repeat_output=True)).repeats_output


def test_X03_a_word_for_another_restore_does_and_numbers_go_on_above_the_record(shop: Shop) -> None:
    """Else the record of a daemon that is long gone would end the new one as superseded."""
    state = shop.copy.journal.read()
    look = shop.start(shop.copy, StartOptions(RestoreOption(str(state.retained[-1].checkpoint.id), repeat_output=True)))
    assert (look.used.attempt, look.used.checkpoint) == (shop.record.attempt, shop.record.checkpoint)
    assert look.used.attempt > state.attempt


@pytest.mark.parametrize("begin_anew", [False, True])
@pytest.mark.parametrize("old", [False, True])
def test_X03_an_empty_or_old_directory_does_not_take_the_same_savepoint_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, old: bool, begin_anew: bool
) -> None:
    """The volume is not mounted, or was not at the first start and is again, and the supervisor starts the daemon as
    before. Another word takes it all the same.
    """
    retained = find_retained(shop.copy.journal.read(), CheckpointId(shop.record.checkpoint - 1))
    target = RestoreTarget("savepoint /s", shop.record.origin, retained.checkpoint, retained.identity, retained=False)
    options = StartOptions(RestoreOption("/s", repeat_output=True), begin_anew=begin_anew)

    async def look(_choosing: RestorePointSelector, _state: object) -> RestoreTarget:
        return target

    monkeypatch.setattr(RestorePointSelector, "look", look)
    directory, replaced = (shop.copy, ()) if old else (Loopback(PLAN, ROWS), (shop.record.journal,))
    if begin_anew:
        assert shop.start(directory, options).replaced == replaced
        return
    what = "has no record of it" if old else "is empty"
    with pytest.raises(
        OwnershipConflict, match=rf"{what}, but the pipeline has continued from savepoint /s.*mount the volume"
    ):
        shop.start(directory, options)
    target = msgspec.structs.replace(target, origin="savepoint of another moment")
    assert shop.start(directory, options).replaced == replaced
