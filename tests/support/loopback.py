"""A complete daemon and its slots in one process and one thread, without Spark, Kafka, sockets and waiting.

The production code runs: `Supervisor`, `AttemptRunner`, `recover`, the coordinator, the journal, and in every slot
`SlotProcess`, `Deployment`, the loop, channels, handlers, operators, state and uploads. External systems are replaced
by lists: Spark's job is a list of seats, connections hand over encoded messages, and Kafka is `LoopKafka`.

    async def scene(world: Loopback) -> None:
        await world.checkpoint()
        ...
    play(Loopback(plan_of("totals"), history), scene)
"""

from __future__ import annotations

import asyncio
import queue
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, TypeVar, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage, SharedObjects
from tests.coordinator.values import settings as checkpoint_settings
from tests.support.clusters import alone
from tests.support.loopback_kafka import LoopKafka
from tests.support.loopback_slot import Link, LoopSlot, Wires
from tests.task.fakes import Row
from tests.waiting import PATIENCE_S
from tidegate import __version__
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.restart import RestartStrategy
from tidegate.coordinator.triggers import CheckpointPolicy
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.attempt import AttemptRunner
from tidegate.daemon.checkpoint_requests import CheckpointDone
from tidegate.daemon.control_server import Listener, SlotConnection, SlotLost
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.restore_point import NO_OPTIONS, StartOptions
from tidegate.daemon.services import AttemptSettings, Services, SlotHost
from tidegate.daemon.supervisor import Supervisor
from tidegate.ids import Attempt
from tidegate.journal.journal import Journal
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.slot.control_link import SlotBootstrap
from tidegate.task.messages import (
    LENGTH,
    Deploy,
    DriverMessage,
    Hello,
    SlotMessage,
    SlotSettings,
    decode_driver_message,
    decode_slot_message,
    encode_message,
)
from tidegate.user_code.files import LocalFile

T = TypeVar("T")

TURNS_MAX: Final = 20_000
NEVER_MS: Final = 3_600_000
"""The checkpoint interval, so long that checkpoints are taken only when the test requests them."""
RESTARTS: Final = RestartStrategy(initial_ms=1, max_ms=1, give_up_failures=20, give_up_window_ms=600_000)


class InlineExecutor(ThreadPoolExecutor):
    """Runs calls immediately."""

    def submit(self, call: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(call(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - raised to the waiting caller
            done.set_exception(error)
        return done


class Seat:
    """The place where a slot runs, with both ends of its control connection."""

    def __init__(self, world: Loopback, bootstrap: SlotBootstrap, partition: int) -> None:
        hello = Hello(bootstrap.attempt, bootstrap.token, partition, partition, "here", 0, __version__, "3")
        self.connection = SlotConnection(hello, cast("Any", self))
        self.link = Link(self._say)
        self.told: list[DriverMessage] = []
        """All messages that the daemon has sent."""
        self.slot: LoopSlot | None = None
        self.over = False
        self.frozen = False
        """The slot gets no turns."""
        self._world = world
        self._closing = False

    # -- asyncio.StreamWriter, as far as SlotConnection uses it

    def write(self, data: bytes) -> None:
        message = decode_driver_message(data[LENGTH.size :])
        self.told.append(message)
        self.link.orders.put(message)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        self._closing = True

    # -- the process

    def _say(self, message: SlotMessage) -> None:
        if not self._closing:
            self._world.listener.message(self.connection, decode_slot_message(encode_message(message)[LENGTH.size :]))

    def turn(self) -> None:
        """Does what the process does between two waits."""
        if self.over or self.frozen:
            return
        if self.slot is None:
            self._begin()
            return
        try:
            self.slot.step()
        except Exception as error:  # noqa: BLE001 - as SlotProcess.serve
            self.slot.fail(error)
        if self.slot.stopping:
            self.slot.end()
            self.end()

    def _begin(self) -> None:
        with suppress(queue.Empty):
            order = self.link.orders.get_nowait()
            if isinstance(order, Deploy):
                world = self._world
                self.slot = LoopSlot(order, self.link, world.open_storage, world.kafka, world.wires)
                self.slot.begin()
            else:
                self.end()

    def end(self) -> None:
        """Ends the process, as if it had returned or was killed."""
        self.over = True
        self._closing = True
        self.connection.closed.set()
        if self.slot is not None:
            self.slot.release()
        if all(seat.over for seat in self._world.seats):
            self._world.job_ended(None)


class LoopJob:
    """Replaces Spark's barrier job."""

    def __init__(
        self, world: Loopback, bootstrap: SlotBootstrap, slots: int, ended: Callable[[str | None], None]
    ) -> None:
        world.seats = [Seat(world, bootstrap, partition) for partition in range(slots)]
        world.job_ended = ended
        self._world = world

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for seat in self._world.seats:
            loop.call_soon(self._world.listener.registered, seat.connection)

    def cancel(self) -> None:
        raise AssertionError("slots return when they are asked to")


class LoopServer:
    """A ControlServer without sockets."""

    port = 1

    def __init__(self, world: Loopback) -> None:
        self._world = world

    def admit(self, _attempt: Attempt, _token: str, listener: Listener) -> None:
        self._world.listener = listener

    def dismiss(self) -> None:
        """Does nothing: there are no other connections."""

    async def wait_closed(self, slots: Sequence[SlotConnection]) -> None:
        for slot in slots:
            await slot.closed.wait()


class Loopback:
    """A daemon as described in the module. `history` is the input: rows by partition of the only source."""

    def __init__(
        self,
        plan: Plan,
        history: Mapping[int, Sequence[Row]],
        *,
        unaligned_after_ms: int | None = None,
        checkpoints: CheckpointPolicy | None = None,
        backend: str = "memory",
        before: Loopback | None = None,
        options: StartOptions = NO_OPTIONS,
        copies_max_bytes: int = 0,
        kafka: LoopKafka | None = None,
        files: Sequence[LocalFile] = (),
    ) -> None:
        """Creates a daemon; `before` is an earlier daemon of the same pipeline, whose storage and broker it shares.

        `files` are those of `code`. `kafka` replaces the broker of one topic with `history`.
        """
        self.plan = plan = msgspec.structs.replace(plan, files=tuple(one.file for one in files))
        self.objects: SharedObjects = SharedObjects() if before is None else before.objects
        self.kafka: LoopKafka = before.kafka if before is not None else kafka or LoopKafka(plan, history)
        self.wires = Wires()
        self.seats: list[Seat] = []
        self.listener: Listener
        self.job_ended: Callable[[str | None], None] = lambda _error: None
        self.completed: list[CompletedCheckpoint] = []
        self.error: BaseException | None = None
        self.over = False
        """The daemon has ended, by itself or with `error`."""
        chosen = checkpoints or checkpoint_settings(interval_ms=NEVER_MS, max_concurrent=2, tolerable_failures=20)
        self.storage = self.open_storage()
        self.journal = Journal(
            self.storage,
            Writer(secrets.token_hex(8), "here", 1),
            retained=chosen.retained,
            id_reserve=chosen.id_reserve,
        )
        self._services = Services(
            self.storage,
            self.journal,
            InlineExecutor(1),
            alone(self.kafka),
            metrics=PipelineMetrics(plan.pipeline, "0"),
            files=tuple(files),
        )
        limits = (900_000, NEVER_MS, 1000, 60_000, 100, 2)
        slots = SlotSettings(
            plan.pipeline, "model", *limits, unaligned_after_ms, 3, backend, local_copies_max_bytes=copies_max_bytes
        )
        self.attempts: LoopSupervisor = LoopSupervisor(
            plan,
            self._services,
            SlotHost(cast("Any", self), cast("Any", LoopServer(self)), "here"),
            AttemptSettings(chosen, RESTARTS, slots, 60.0),
            options,
            lambda _attempt: None,
            lambda: 0.0,
        )
        self.attempts.world = self

    def open_storage(self) -> FakeStorage:
        """Opens another client of the checkpoint storage."""
        return FakeStorage(self.objects)

    # -- SparkHost

    jvm_alive = True

    def job(self, bootstrap: SlotBootstrap, slots: int, ended: Callable[[str | None], None]) -> LoopJob:
        return LoopJob(self, bootstrap, slots, ended)

    # -- the life of a daemon

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Loopback]:
        """Runs from the first attempt's deployment until the block ends; then everything is dropped."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("tidegate.daemon.attempt.CAUSE_GRACE_S", 0.0)
            patch.setattr("tidegate.daemon.attempt.LOST_GRACE_S", 0.0)
            patch.setattr("tidegate.daemon.ownership.CLAIM_S", 0.0)
            life = asyncio.create_task(self._live())
            try:
                await self.until(lambda: self.runs(1), "the first attempt runs")
                yield self
            finally:
                life.cancel()
                while not life.done():  # slots return when they are asked to
                    self.turn()
                    await asyncio.sleep(0)

    async def _live(self) -> None:
        try:
            await self.attempts.run()
        except Exception as error:  # noqa: BLE001 - examined by the test
            self.error = error
        self.over = True

    @property
    def runner(self) -> AttemptRunner:
        """The running attempt."""
        assert self.attempts.runner is not None
        return self.attempts.runner

    def runs(self, attempt: int) -> bool:
        """Returns whether this attempt or a later one has all its slots running."""
        runner = self.attempts.runner
        if runner is None or runner.attempt < attempt:
            return False
        return runner.is_running and not runner._outcome.done()

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Gives every slot turns until the condition is true."""
        for _ in range(TURNS_MAX):
            if self.error is not None:
                raise AssertionError(f"the daemon has ended, and not: {what}") from self.error
            if condition():
                return
            self.turn()
            await asyncio.sleep(0)
        raise AssertionError(f"not within {TURNS_MAX} turns: {what}")

    async def until_later(self, condition: Callable[[], bool], what: str) -> None:
        """Waits as `until` does, when another thread or a timer must act first."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.error is None and time.monotonic() < deadline, what
            self.turn()
            await asyncio.sleep(0)

    def slot(self, index: int) -> LoopSlot:
        """Returns a running slot."""
        slot = self.seats[index].slot
        assert slot is not None
        return slot

    def hold_slots(self, *, held: bool = True) -> None:
        """Gives the slots no turns, so that the daemon continues alone."""
        for seat in self.seats:
            seat.frozen = held

    def turn(self) -> None:
        """Runs one step of every slot."""
        for seat in list(self.seats):
            seat.turn()

    async def failure(self) -> BaseException:
        """Returns the error that ends the daemon."""
        for _ in range(TURNS_MAX):
            if self.error is not None:
                return self.error
            self.turn()
            await asyncio.sleep(0)
        raise AssertionError(f"not within {TURNS_MAX} turns: the end of the daemon")

    async def checkpoint(self) -> CheckpointDone:
        """Takes a checkpoint as a user would and waits until it is committed."""
        asked = asyncio.ensure_future(self.runner.take_checkpoint())
        await self.until(asked.done, "the checkpoint")
        return asked.result()

    async def kill(self, slot: int) -> None:
        """Kills a slot's process and waits until everything is deployed again."""
        attempt, seat = self.runner.attempt, self.seats[slot]
        seat.end()
        self.listener.lost(SlotLost(f"{seat.connection} was lost"))
        await self.until(lambda: self.runs(attempt + 1), "another attempt")

    async def drain(self) -> None:
        """Runs until all input was read and nothing moves any more."""
        for _ in range(TURNS_MAX):
            self.turn()
            await asyncio.sleep(0)
            if not any(seat.slot is not None and seat.slot.moved for seat in self.seats):
                return
        raise AssertionError("never settles")

    async def stop(self) -> None:
        """Takes a final checkpoint and ends."""
        self.attempts.stop()
        await self.until(lambda: self.runner.is_finished, "the end")


class LoopSupervisor(Supervisor):
    """Keeps the completed checkpoints."""

    world: Loopback

    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        self.world.completed.append(checkpoint)
        super().on_completed(checkpoint)


def play(world: Loopback, scene: Callable[[Loopback], Awaitable[None]]) -> None:
    """Runs a test scene once the first attempt runs."""

    async def run() -> None:
        async with world.running():
            await scene(world)

    asyncio.run(run())


def plan_of(steps: str, parallelism: int = 2, *, exactly_once: bool = True) -> Plan:
    """Returns the plan of a pipeline file: `totals` counts the rows of each key across an exchange, `stateless` passes
    all on.

    `ending` counts with a ttl, `parted` counts what two filters pass. The output rows have `k` and `n`.
    """
    document = {
        "version": 1,
        "name": "shop",
        "kafka": {"bootstrap.servers": "model:9092"},
        "parallelism": parallelism,
        "checkpoints": {
            "directory": "file:///model",
            "interval": "1s",
            "mode": "exactly-once" if exactly_once else "at-least-once",
        },
        "sources": {
            "orders": {
                "topic": "orders",
                "format": "json",
                "schema": {"k": "bigint", "n": "bigint"},
                "start": "earliest",
            }
        },
        "steps": STEPS[steps],
        "sinks": {"out": {"from": STEPS[steps][-1]["name"], "topic": "out", "format": "json"}},
    }
    return build_plan(parse_pipeline(msgspec.json.encode(document).decode(), "loopback", {}))


STEPS: Final[dict[str, list[dict[str, Any]]]] = {
    "totals": [{"name": "totals", "from": "orders", "key": "k", "aggregate": {"n": "count(*)"}}],
    "ending": [
        {
            "name": "totals",
            "from": "orders",
            "key": "k",
            "aggregate": {"n": "count(*)"},
            "ttl": {"processing_time": "365d"},
        }
    ],
    "parted": [
        {"name": "even", "from": "orders", "where": "n % 2 = 0"},
        {"name": "odd", "from": "orders", "where": "n % 2 = 1"},
        {"name": "totals", "from": ["even", "odd"], "key": "k", "aggregate": {"n": "count(*)"}},
    ],
    "stateless": [{"name": "positive", "from": "orders", "where": "n >= 0"}],
}
