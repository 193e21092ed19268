"""Checkpoints that somebody asks for, from the order to the answer, in a whole attempt (C38)."""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.values import IDENTITY, ME, completed, handle, settings
from tests.support.loopback import NEVER_MS, Loopback, plan_of, play
from tests.waiting import PATIENCE_S
from tidegate.clock import SYSTEM_CLOCK
from tidegate.coordinator.events import Event, SavepointFailed, SavepointWritten, TriggerRefusal, TriggerRequested
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.checkpoint_requests import (
    CheckpointUnavailable,
    DirectoryRefused,
    SavepointDone,
    SavepointNotWritten,
    SavepointService,
    SavepointUnavailable,
    check_directory,
)
from tidegate.daemon.control_server import SlotLost
from tidegate.daemon.service import Daemon
from tidegate.daemon.services import Services
from tidegate.ids import CheckpointId
from tidegate.journal.journal import Journal
from tidegate.journal.savepoint import read_savepoint, write_savepoint
from tidegate.storage.base import StorageError
from tidegate.storage.local import LocalStorage
from tidegate.storage.open import open_storage
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


SEVEN = CheckpointId(7)


class Desk:
    """A desk over a real directory; `answers` reacts to what it feeds."""

    def __init__(self, root: Path) -> None:
        storage = LocalStorage(str(root / "checkpoints"))
        journal = Journal(storage, ME, retained=3, id_reserve=5)
        journal.take_over(IDENTITY, 1)
        storage.put(handle(7).path, b"state")
        self.fed: list[Event] = []
        self.asked = asyncio.Event()
        self.answers: Callable[[Event], None] = lambda event: None
        services = SimpleNamespace(
            storage=storage,
            journal=journal,
            clock=SYSTEM_CLOCK,
            open_storage=open_storage,
            make_token=lambda: "0123456789abcdef",
        )
        self.desk = SavepointService(cast("Services", services), self.feed)

    def feed(self, event: Event) -> None:
        self.fed.append(event)
        self.answers(event)
        self.asked.set()

    def begin(self, event: Event) -> None:
        if isinstance(event, TriggerRequested):
            self.desk.begun(SEVEN)


@pytest.fixture
def made(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def savepoint() -> CompletedCheckpoint:
    state = msgspec.structs.replace(handle(7, size=5), sha256=hashlib.sha256(b"state").hexdigest())
    return completed(7, states=[state])


def run(coroutine: Coroutine[Any, Any, SavepointDone]) -> SavepointDone:
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE_S))


def test_C29_a_request_is_answered_with_the_path_when_the_files_are_written(made: Desk, tmp_path: Path) -> None:
    async def scene() -> SavepointDone:
        made.answers = made.begin
        taken = asyncio.ensure_future(made.desk.take(str(tmp_path / "mine")))
        await made.asked.wait()
        await made.desk.write(savepoint())
        return await taken

    done = run(scene())
    assert (done.checkpoint, done.size_bytes) == (7, 5)
    assert Path(done.path).parent == tmp_path / "mine"
    assert read_savepoint(LocalStorage(done.path, create=False)).identity == IDENTITY
    assert isinstance(made.fed[-1], SavepointWritten)


def test_a_refused_request_says_why(made: Desk, tmp_path: Path) -> None:
    made.answers = lambda event: made.desk.refused(TriggerRefusal.SOURCE_NOT_RUNNING)
    with pytest.raises(SavepointUnavailable, match="a source subtask is not running yet"):
        run(made.desk.take(str(tmp_path / "mine")))


def test_one_request_at_a_time(made: Desk, tmp_path: Path) -> None:
    async def scene() -> SavepointDone:
        made.answers = made.begin
        first = asyncio.ensure_future(made.desk.take(str(tmp_path / "a")))
        await made.asked.wait()
        with pytest.raises(SavepointUnavailable, match="another savepoint is under way"):
            await made.desk.take(str(tmp_path / "b"))
        made.desk.given_up(CheckpointId(6), "another one failed")
        assert not first.done()
        made.desk.given_up(SEVEN, "it expired")
        return await first

    with pytest.raises(SavepointUnavailable, match="savepoint 7 was given up: it expired"):
        run(scene())
    assert len(made.fed) == 1


def test_a_directory_that_cannot_be_used_is_told_before_anything_begins(made: Desk, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="a part of the path is a file"):
        run(made.desk.take(str(tmp_path / "file" / "below")))
    assert made.fed == []


def test_files_that_cannot_be_written_are_told_to_the_coordinator(made: Desk, tmp_path: Path) -> None:
    """Its answer, the abort, ends the request; another try would copy everything again."""

    def answers(event: Event) -> None:
        made.begin(event)
        if isinstance(event, SavepointFailed):
            made.desk.given_up(event.checkpoint, event.detail)

    async def scene() -> SavepointDone:
        made.answers = answers
        taken = asyncio.ensure_future(made.desk.take(str(tmp_path / "mine")))
        await made.asked.wait()
        await made.desk.write(completed(7, states=[handle(7)]))
        return await taken

    with pytest.raises(SavepointNotWritten, match="is not the file that the checkpoint wrote"):
        run(scene())


def test_a_savepoint_that_could_not_be_written_leaves_no_folder(made: Desk, tmp_path: Path) -> None:
    whole = msgspec.structs.replace(handle(7), sha256=hashlib.sha256(b"state").hexdigest())
    made.answers = made.begin

    async def scene() -> SavepointDone:
        taken = asyncio.ensure_future(made.desk.take(str(tmp_path / "mine")))
        await made.asked.wait()
        await made.desk.write(completed(7, states=[whole, handle(8)]))
        return await taken

    with pytest.raises(SavepointNotWritten, match="there is no state"):
        run(scene())
    assert not [one.name for one in (tmp_path / "mine").iterdir() if one.name.startswith("savepoint-")]


class SlowCopy:
    """Holds the copy until it is let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        write = write_savepoint

        def slow(*arguments: Any) -> Any:
            self.begun.set()
            assert self.may_end.wait(PATIENCE_S)
            return write(*arguments)

        monkeypatch.setattr("tidegate.daemon.checkpoint_requests.write_savepoint", slow)


@pytest.mark.parametrize("whole", [True, False])
def test_C29_a_copy_that_outlives_its_attempt_has_the_last_word(
    made: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """All output before it is committed when the copy begins, so it counts whatever becomes of the attempt."""
    copy = SlowCopy(monkeypatch)

    async def scene() -> SavepointDone:
        made.answers = made.begin
        taken = asyncio.ensure_future(made.desk.take(str(tmp_path / "mine")))
        await made.asked.wait()
        writing = asyncio.ensure_future(made.desk.write(savepoint() if whole else completed(7, states=[handle(7)])))
        await asyncio.to_thread(copy.begun.wait, 10)
        made.desk.given_up(SEVEN, "the attempt has ended")
        copy.may_end.set()
        await writing
        return await taken

    if whole:
        assert read_savepoint(LocalStorage(run(scene()).path, create=False)).checkpoint.id == SEVEN
    else:
        with pytest.raises(SavepointUnavailable, match="is not the file that the checkpoint wrote"):
            run(scene())


def test_C29_a_copy_that_is_not_waited_for_any_longer_is_told_with_its_path(
    made: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = SlowCopy(monkeypatch)

    async def scene() -> SavepointDone:
        made.answers = made.begin
        taken = asyncio.ensure_future(made.desk.take(str(tmp_path / "mine")))
        await made.asked.wait()
        writing = asyncio.ensure_future(made.desk.write(savepoint()))
        await asyncio.to_thread(copy.begun.wait, 10)
        made.desk.close("the attempt has ended")
        copy.may_end.set()
        await writing
        return await taken

    with pytest.raises(SavepointUnavailable, match=r"`tidegate savepoint verify \S+-7-01234567` whether"):
        run(scene())


def test_when_the_client_has_gone_nothing_is_copied(made: Desk, tmp_path: Path) -> None:
    async def scene() -> None:
        made.answers = made.begin
        taken = asyncio.ensure_future(made.desk.take(str(tmp_path / "mine")))
        await made.asked.wait()
        taken.cancel()
        await asyncio.wait([taken])
        await made.desk.write(savepoint())

    asyncio.run(scene())
    assert isinstance(made.fed[-1], SavepointFailed)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == [".unfinished"]


def test_the_end_of_the_attempt_answers_the_request(made: Desk, tmp_path: Path) -> None:
    def end(event: Event) -> None:
        made.begin(event)
        made.desk.close("the attempt has ended")

    made.answers = end
    with pytest.raises(SavepointUnavailable, match="the attempt has ended"):
        run(made.desk.take(str(tmp_path / "mine")))


def test_a_request_that_nobody_takes_up_is_not_waited_for(made: Desk, tmp_path: Path) -> None:
    """The attempt ended while the directory was looked at: nothing it is fed has an effect any more."""
    with pytest.raises(SavepointUnavailable, match="the attempt has just ended"):
        run(made.desk.take(str(tmp_path / "mine")))


def test_X33_savepoints_are_written_below_the_roots_only(tmp_path: Path) -> None:
    root, other = tmp_path / "checkpoints", tmp_path / "other"
    (root / "savepoints").mkdir(parents=True)
    other.mkdir()
    (root / "way-out").symlink_to(other)
    for good in (root, root / "savepoints", root / "new" / "one", tmp_path / "." / "checkpoints" / "x"):
        check_directory(str(good), [str(root)])
        check_directory(f"file://{good}", [f"file://{root}"])
    for bad in (other, root / ".." / "other", tmp_path, root / "way-out" / "x", f"{root}-too"):
        with pytest.raises(DirectoryRefused, match=rf"below {root}, or add one to `savepoints.roots`") as refused:
            check_directory(str(bad), [str(root)])
        assert refused.value.exit_code == 2
        check_directory(str(bad), [str(root), str(tmp_path)])


@pytest.mark.parametrize("directory", ["/a\0b", "file:///a%00b", "file://host/a", "/a\udc00b", "mine", ""])
def test_X35_what_is_no_directory_is_refused_in_words(tmp_path: Path, directory: str) -> None:
    with pytest.raises(DirectoryRefused, match=r"cannot be written to|is not an absolute path"):
        check_directory(directory, [str(tmp_path)])


def test_X33_addresses_of_object_stores_are_below_the_roots_too(tmp_path: Path) -> None:
    roots = [str(tmp_path), "s3://bucket/orders", "gs://bucket/all/"]
    for good in ("s3://bucket/orders", "s3://bucket/orders/", "s3://bucket/orders/mine", "gs://bucket/all/mine"):
        check_directory(good, roots)
    for bad in ("s3://bucket", "s3://bucket/orders-too", "s3://other/orders", "gs://bucket/orders", "az://bucket/all"):
        with pytest.raises(DirectoryRefused, match=r"add one to `savepoints.roots`"):
            check_directory(bad, roots)
    check_directory(str(tmp_path / "mine"), roots)


@pytest.mark.parametrize("address", ["s3://KEY:SECRET@bucket/x", "s3://bucket/x?sig=SECRET", "ftp://KEY:SECRET@host"])
def test_an_address_with_a_credential_is_refused_without_it(address: str) -> None:
    with pytest.raises(DirectoryRefused) as refused:
        check_directory(address, ["s3://bucket"])
    assert "SECRET" not in refused.value.message
