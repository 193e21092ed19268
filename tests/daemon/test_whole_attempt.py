"""Attempts from the first deployment to the last notice, with everything that production runs between."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.slot.test_copies import files_of
from tests.support.loopback import Loopback, plan_of, play
from tests.task.fakes import Row
from tests.waiting import PATIENCE_S
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.history import CheckpointKind, CheckpointResult, FollowedBy
from tidegate.daemon.checkpoint_requests import CheckpointUnavailable, SavepointUnavailable
from tidegate.daemon.control_server import SlotLost
from tidegate.daemon.status import PipelineState
from tidegate.errors import AttemptFailed, Superseded
from tidegate.ids import CheckpointId, OperatorName, SlotIndex
from tidegate.journal.journal import Journal
from tidegate.kafka.errors import SourceFailed
from tidegate.storage.base import StorageError
from tidegate.storage.names import STATE_PREFIX, state_name
from tidegate.storage.shared import StorageNotShared
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.messages import Abandoned, Begin, Completed, Deploy, Trigger
from tidegate.task.stop_limits import derive_return_limit_s

ROWS = {partition: [(number % 3, number) for number in range(6)] for partition in range(2)}
COUNTED = sorted((key, count) for key in range(3) for count in range(1, 5))
"""What comes out of `totals`: the running count of each key's four rows."""


async def to_the_end(world: Loopback) -> list[Row]:
    await world.drain()
    await world.stop()
    return sorted(world.kafka.output)


def test_C01_C12_C25_a_checkpoint_goes_from_the_trigger_to_the_notice_of_every_subtask() -> None:
    async def scene(world: Loopback) -> None:
        await world.drain()
        assert world.kafka.output == []
        done = await world.checkpoint()
        assert sorted(world.kafka.output) == COUNTED
        for seat in world.seats:
            deploy, begin, trigger, completed = seat.told
            assert isinstance(deploy, Deploy)
            assert isinstance(begin, Begin)
            assert isinstance(trigger, Trigger)
            assert isinstance(completed, Completed)
            assert trigger.barrier.checkpoint == completed.checkpoint == done.checkpoint
        await world.drain()
        told = [[number for number, _ in sink.completed_with] for sink in world.kafka.sinks]
        assert told == [[done.checkpoint]] * 2

    play(Loopback(plan_of("totals"), ROWS), scene)


@pytest.mark.parametrize("steps", ["totals", "ending"])
def test_F01_F02_F03_after_the_death_of_a_slot_all_go_on_from_the_newest_checkpoint(steps: str) -> None:
    async def scene(world: Loopback) -> None:
        for _ in range(5):
            world.turn()
        await world.checkpoint()
        done = await world.checkpoint()
        assert 0 < len(world.kafka.output) < 240
        await world.drain()  # this much is lost
        dead = list(world.seats)
        await world.kill(0)
        assert all(seat.over for seat in dead)
        orders = [seat.told[0] for seat in world.seats]
        newest = world.completed[-1]
        assert newest.id == done.checkpoint
        for slot, order in enumerate(orders):
            assert isinstance(order, Deploy)
            assert order.states == tuple(state for state in newest.states if state.subtask == slot)
        assert await to_the_end(world) == sorted((key, count) for key in range(3) for count in range(1, 81))

    many = {partition: [(number % 3, number) for number in range(120)] for partition in range(2)}
    play(Loopback(plan_of(steps), many), scene)


def test_the_history_has_the_phases_of_every_subtask_and_the_death_of_a_slot() -> None:
    async def scene(world: Loopback) -> None:
        done = await world.checkpoint()
        attempt = world.runner.attempt
        await world.kill(0)
        metrics = world._services.metrics
        newest = metrics.checkpoints[0]
        assert (newest.id, newest.attempt, newest.result) == (done.checkpoint, attempt, CheckpointResult.COMPLETED)
        assert newest.size_bytes == done.size_bytes
        found = sorted((one.vertex, one.slot) for one in newest.subtasks)
        assert found == sorted((vertex.id, slot) for vertex in plan_of("totals").vertices for slot in range(2))
        assert sum(one.size_bytes for one in newest.subtasks) == sum(one.written_bytes for one in newest.subtasks) > 0
        (failure,) = metrics.failures
        assert (failure.attempt, failure.code, failure.followed_by) == (attempt, SlotLost.code, FollowedBy.RESTART)
        assert "slot 0" in failure.cause
        assert await to_the_end(world) == COUNTED
        assert metrics.checkpoints[0].kind is CheckpointKind.FINAL
        assert metrics.snapshot().history.completed == 2

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_B06_a_subtask_waits_for_the_barriers_of_all_channels_of_all_inputs() -> None:
    async def scene(world: Loopback) -> None:
        tasks = [task for slot in range(2) for task in world.slot(slot).deployment.loop.tasks]
        inputs = [task.inputs for task in tasks if task.inputs is not None]
        aligned = [one.handler.channels for one in inputs if isinstance(one.handler, Aligner)]
        assert aligned == [len(one.channels) for one in inputs] == [2, 2] * 2, "two edges; one edge of two senders"
        assert await to_the_end(world) == COUNTED

    play(Loopback(plan_of("parted"), ROWS), scene)


@pytest.mark.parametrize("damaged", [False, True])
def test_after_a_failure_state_comes_from_the_copies_of_the_machine_where_they_are_whole(
    damaged: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fetched: list[str] = []

    class Counted(FakeStorage):
        def get(self, name: str) -> bytes:
            fetched.append(name)
            return super().get(name)

    async def scene(world: Loopback) -> None:
        for _ in range(3):
            for _ in range(5):
                world.turn()
            await world.checkpoint()
        copies = files_of(tmp_path)
        files = {state.path for state in world.completed[-1].states}
        assert len(files) <= len(copies) <= len(files) + 2, "nothing older than the last two is kept"
        for copy in copies if damaged else ():
            copy.write_bytes(b"damaged")
        monkeypatch.setattr(world, "open_storage", lambda: Counted(world.objects))
        await world.kill(0)
        assert files & set(fetched) == (files if damaged else set())
        assert await to_the_end(world) == sorted((key, count) for key in range(3) for count in range(1, 81))
        assert caplog.text.count("is removed, and memory is read instead") == (len(files) if damaged else 0)
        assert caplog.text.count("bytes from copies on this machine, 0 from memory") == (0 if damaged else 2)

    caplog.set_level("INFO")
    many = {partition: [(number % 3, number) for number in range(120)] for partition in range(2)}
    play(Loopback(plan_of("totals"), many, copies_max_bytes=1 << 30), scene)


def test_F17_state_is_where_the_pipeline_file_says() -> None:
    async def scene(world: Loopback) -> None:
        states = [state for task in world.slot(0).deployment.loop.tasks for state in task.chain.states.values()]
        assert [type(state).__name__ for state in states] == ["RocksState"]

    play(Loopback(plan_of("totals"), ROWS, backend="rocksdb"), scene)


def test_C14_C41_a_trigger_that_cannot_be_sent_gives_its_checkpoint_up_at_once() -> None:
    """One slot has its trigger already: it and all others learn that it was given up."""

    async def scene(world: Loopback) -> None:
        world.seats[1].close()  # nobody has noticed yet
        with pytest.raises(CheckpointUnavailable) as caught:
            await asyncio.wait_for(world.runner.take_checkpoint(), PATIENCE_S)  # no slot has had a turn
        assert "its trigger could not be sent (no connection to slot 1" in caught.value.message
        trigger, abandoned = world.seats[0].told[-2:]
        assert isinstance(trigger, Trigger)
        assert isinstance(abandoned, Abandoned)
        assert abandoned.checkpoint == trigger.barrier.checkpoint
        assert world.runner._coordinator.under_way == ()

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_whatever_stops_a_daemon_for_good_is_its_being_superseded_once_another_one_has_taken_over() -> None:
    """Which removes what the older one still looks at: the proof of a shared directory, files of old checkpoints."""
    trouble = StorageNotShared("the daemon does not see what slot 0 has written")

    async def scene(world: Loopback) -> None:
        newer = Journal(world.open_storage(), Writer("another", "elsewhere", 2), retained=3, id_reserve=10)
        identity = world.journal.identity
        assert identity is not None
        newer.take_over(identity, 0)
        world.runner.fail(trouble)
        error = await world.failure()
        assert isinstance(error, Superseded)
        assert "superseded by process 2 on elsewhere, attempt 2" in error.message
        assert error.__cause__ is trouble

    async def alone(world: Loopback) -> None:
        world.runner.fail(trouble)
        assert await world.failure() is trouble

    play(Loopback(plan_of("stateless"), ROWS), scene)
    play(Loopback(plan_of("stateless"), ROWS), alone)


def test_C30_nothing_of_a_checkpoint_that_the_final_one_has_overtaken_is_left() -> None:
    """Its file is written when its coordinator decides nothing any more. Nobody may start this pipeline again."""
    late = state_name(CheckpointId(1), OperatorName("totals"), SlotIndex(0), "late")

    async def scene(world: Loopback) -> None:
        await world.drain()
        await world.checkpoint()
        world.storage.put(late, b"of an upload that took long")
        await world.stop()
        await world.until(lambda: late not in world.objects.objects, "it is removed")
        listed = {state.path for one in world.journal.state.retained for state in one.checkpoint.states}
        assert {name for name in world.objects.objects if name.startswith(STATE_PREFIX)} == listed

    play(Loopback(plan_of("totals"), ROWS), scene)


@pytest.mark.parametrize("first_by_the_read", [True, False])
def test_a_stop_and_the_end_of_a_bounded_read_share_one_final_checkpoint(first_by_the_read: bool) -> None:
    """Whichever comes second finds the final checkpoint under way, and waits for it as the first one does."""

    async def scene(world: Loopback) -> None:
        await world.drain()
        asking = [world.runner.request_final, world.attempts.stop]
        for ask in asking if first_by_the_read else reversed(asking):
            ask()
        await world.until(lambda: world.runner.is_finished, "the end")
        assert sorted(world.kafka.output) == COUNTED
        (final,) = world.completed
        assert final.final

    play(Loopback(plan_of("totals"), ROWS), scene)


@pytest.mark.parametrize(
    "what",
    ["a savepoint is still being copied after 30 s", "a slot was lost", "interrupted by a second signal"],
)
def test_what_fails_once_the_final_checkpoint_is_committed_only_cuts_off_the_copy_of_a_savepoint(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The end of the grace, for instance: everything is committed, so the daemon ends with code 0, and says so."""
    copies, may_end = threading.Event(), threading.Event()

    def copy(*_arguments: object) -> None:
        copies.set()
        assert may_end.wait(PATIENCE_S)
        raise StorageError("cut off")

    monkeypatch.setattr("tidegate.daemon.checkpoint_requests.write_savepoint", copy)
    monkeypatch.setattr("tidegate.daemon.instructions.CLOSE_TIMEOUT_S", 0.0)

    async def scene(world: Loopback) -> None:
        await world.drain()
        asked = asyncio.ensure_future(world.runner.take_savepoint(str(tmp_path)))
        await world.until_later(copies.is_set, "the copy")
        world.attempts.stop()
        await world.until(lambda: world.completed[-1].final, "the final checkpoint")
        assert not world.runner.is_finished, "the copy is waited for"
        assert world.attempts.copying
        if "signal" in what:
            await world.attempts.hurry()
        elif "after" in what:
            world.attempts.on_grace_over(30.0)
        else:
            world.runner.fail(AttemptFailed(what))
        await world.until_later(asked.done, "the answer")
        may_end.set()
        with pytest.raises(SavepointUnavailable, match="is still being copied"):
            asked.result()
        await world.until_later(lambda: world.over, "the end")
        assert world.error is None
        assert not world.attempts.unsaved
        assert sorted(world.kafka.output) == COUNTED
        assert world._services.metrics.failures == ()
        assert world._services.metrics.current_state[0] is PipelineState.RUNNING, "not as if it came back"
        assert f"the final checkpoint is committed, so the pipeline ends now: {what}" in caplog.text

    try:
        play(Loopback(plan_of("totals"), ROWS), scene)
    finally:
        may_end.set()


@pytest.mark.parametrize("twice", [True, False])
def test_what_is_open_in_kafka_does_not_wait_for_the_copy_of_a_savepoint(
    twice: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of committed records would: for 10 s, and at a second signal until the next start."""
    copies, may_end, fenced = threading.Event(), threading.Event(), threading.Event()

    def copy(*_arguments: object) -> None:
        copies.set()
        assert may_end.wait(PATIENCE_S)
        raise StorageError("cut off")

    async def fence(*_what: object, **_more: object) -> list[str]:
        fenced.set()
        return []

    monkeypatch.setattr("tidegate.daemon.checkpoint_requests.write_savepoint", copy)

    async def scene(world: Loopback) -> None:
        try:
            await look(world)
        finally:
            may_end.set()

    async def look(world: Loopback) -> None:
        asked = asyncio.ensure_future(world.runner.take_savepoint(str(tmp_path)))
        await world.until_later(copies.is_set, "the copy")
        monkeypatch.setattr(world.kafka, "fence_leftovers", fence)
        if twice:
            await world.attempts.hurry()
        else:
            world.runner.fail(AttemptFailed("a slot was lost"))
            await world.until(fenced.is_set, "what is open is aborted")
        assert fenced.is_set()
        assert not asked.done(), "the copy is waited for"
        may_end.set()
        await world.until_later(asked.done, "the answer")
        with pytest.raises(SavepointUnavailable, match="cut off"):
            asked.result()

    play(Loopback(plan_of("totals"), ROWS), scene)


def test_what_a_slot_has_begun_to_write_since_kafka_was_left_clean_is_aborted_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A slot writes until it has heard of the end: after a barrier its first record begins a transaction, which would
    hold readers until the next start, or its time limit.
    """
    slots_at: list[int] = []

    async def scene(world: Loopback) -> None:
        async def fence(*_what: object, **_more: object) -> list[str]:
            slots_at.append(sum(not seat.over for seat in world.seats))
            return []

        monkeypatch.setattr(world.kafka, "fence_leftovers", fence)
        world.hold_slots()
        world.runner.fail(SourceFailed("topic orders does not exist"))
        await world.until(lambda: bool(slots_at), "what is open is aborted at once")
        world.hold_slots(held=False)
        assert isinstance(await world.failure(), SourceFailed)
        assert slots_at == [2, 0], "and once more when no slot writes any more"

    play(Loopback(plan_of("stateless"), ROWS), scene)


def test_after_a_final_checkpoint_no_slot_can_have_written_more(monkeypatch: pytest.MonkeyPatch) -> None:
    fenced: list[bool] = []

    async def scene(world: Loopback) -> None:
        async def fence(*_what: object, **_more: object) -> list[str]:
            fenced.append(True)
            return []

        monkeypatch.setattr(world.kafka, "fence_leftovers", fence)
        await to_the_end(world)
        await world.until(lambda: world.over, "the end")
        assert fenced == [True]

    play(Loopback(plan_of("stateless"), ROWS), scene)


def test_nothing_is_written_before_all_slots_run() -> None:
    """One may restore for minutes. No checkpoint can complete meanwhile, so what others wrote held readers of committed
    records of its partitions, and beyond `checkpoints.transaction_timeout` no attempt ever began.
    """

    async def run() -> None:
        world = Loopback(plan_of("stateless"), ROWS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tidegate.daemon.ownership.CLAIM_S", 0.0)
            life = asyncio.create_task(world._live())
            await world.until(lambda: bool(world.seats and world.seats[0].told), "the slots are deployed")
            world.seats[1].frozen = True
            await world.until(lambda: len(world.runner._slots.running) == 1, "one of them runs")
            for _ in range(50):
                world.turn()
                await asyncio.sleep(0)
            assert [sink.open for sink in world.kafka.sinks] == [[]]
            world.seats[1].frozen = False
            await world.until(lambda: world.runs(1), "all of them run")
            assert len(await to_the_end(world)) == 12
            await world.until(life.done, "the end")

    asyncio.run(run())


def test_slots_may_take_as_long_to_return_as_their_sinks_took_to_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[float] = []

    def derive(measured_s: float) -> float:
        measured.append(measured_s)
        return derive_return_limit_s(measured_s)

    monkeypatch.setattr("tidegate.daemon.attempt.derive_return_limit_s", derive)

    async def scene(world: Loopback) -> None:
        await world.drain()
        world.attempts.stop()
        await world.until(lambda: world.over, "the end")

    play(Loopback(plan_of("totals"), ROWS), scene)
    (measured_s,) = measured
    assert measured_s > 0
