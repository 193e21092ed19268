"""One attempt: from the Spark job that brings up the slots to the last slot's return.

The event loop is the edge of the pure coordinator: what happens (a slot's message, a journal append that ended, a
clock that reached a deadline) becomes an event, what the coordinator answers is carried out by `instructions.py`. Any
failure ends the attempt; the daemon decides about another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol

from tidegate.clock import monotonic_ms, wall_offset_ms
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import (
    AckReceived,
    AttemptEnded,
    BrokersSeen,
    DeclineReceived,
    Event,
    OpenTransaction,
    SubtaskRunning,
    Tick,
    TriggerRequested,
)
from tidegate.coordinator.triggers import Phase
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.attempt_cause import derive_cause, derive_slot_error
from tidegate.daemon.attempt_settings import AttemptSettings
from tidegate.daemon.control_server import Listener, SlotConnection
from tidegate.daemon.discovery import Discovery
from tidegate.daemon.instructions import InstructionExecutor
from tidegate.daemon.leaving import leave
from tidegate.daemon.ordered import CheckpointDone
from tidegate.daemon.savepoints import SavepointDone
from tidegate.daemon.services import Services, SlotHost
from tidegate.daemon.stages import Recovered
from tidegate.daemon.status import PipelineState
from tidegate.errors import AttemptFailed, TidegateError
from tidegate.ids import Attempt, OperatorName, SlotIndex, SubtaskId, VertexId
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.process.logs import emit_slot_record
from tidegate.slot.bootstrap import SlotBootstrap
from tidegate.spark.job_errors import derive_job_error
from tidegate.storage.base import StorageError
from tidegate.storage.shared import Proof, StorageNotShared
from tidegate.task.letters import LetterWatch, TooManyDeadLetters
from tidegate.task.messages import (
    Acknowledged,
    AddPartitions,
    Begin,
    Declined,
    Deploy,
    DriverMessage,
    Heartbeat,
    LogRecord,
    PeerAddress,
    Running,
    SchemasWanted,
    SchemaUnfit,
    SlotFailed,
    SlotMessage,
    SourceFinished,
    Stop,
    Stopped,
)
from tidegate.task.stop_limits import derive_return_limit_s

logger = logging.getLogger(__name__)

CAUSE_GRACE_S: Final = 0.3
"""After a first failure: time for the real cause to arrive, since a lost slot makes its peers complain too."""
CANCEL_TIMEOUT_S: Final = 20.0


class DeploymentTimeout(AttemptFailed):
    """Not all slots came up in time."""

    code = "deployment-timeout"


class AttemptListener(Protocol):
    """Who is notified how an attempt does, on the event loop."""

    def on_running(self, attempt: Attempt) -> None:
        """All slots of the attempt run."""

    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """A checkpoint is complete and committed."""


class AttemptRunner:
    """See the module. `run` returns when the final checkpoint is complete and committed."""

    def __init__(
        self,
        plan: Plan,
        recovered: Recovered,
        coordinator: Coordinator,
        services: Services,
        host: SlotHost,
        settings: AttemptSettings,
        listener: AttemptListener,
    ) -> None:
        restore = recovered.restore
        self.attempt = restore.attempt
        self.running_since: float | None = None
        self.wrote_on = False  # slots were still there when it had left Kafka clean: what they have begun since is open
        self._plan = plan
        self._restore = restore
        self._coordinator = coordinator
        self._services = services
        self._host = host
        self._server = host.server
        self._listener = listener
        self._settings = settings.slots
        self._start_timeout_s = settings.start_timeout_s
        self._loop = asyncio.get_running_loop()
        self._token = services.make_token()
        self._slots: list[SlotConnection] = []
        self._running: set[SlotIndex] = set()
        self._unfinished = _bounded_sources(plan)
        self._bounded = bool(self._unfinished)
        self._failures: list[TidegateError] = []
        self._outcome: asyncio.Future[None] = self._loop.create_future()
        self._job_ended: asyncio.Future[str | None] = self._loop.create_future()
        self._all_running = asyncio.Event()
        self._settled = asyncio.Event()
        self._starting: set[asyncio.Task[None]] = set()
        self._proof = Proof(services.storage, self.attempt, services.make_token(), services.clock)
        self._open_since_ms: dict[tuple[VertexId, SlotIndex], int | None] = {}
        self._prepare_s = 0.0
        """The longest time that a sink took to prepare a checkpoint."""
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self._ending = False
        self._answering = True
        """As the coordinator knows it: whether brokers answer."""
        self._letters = LetterWatch(next((one.per_minute_max for one in plan.operators(DeadLetterOperator)), None))
        self._discovery = Discovery(
            plan, restore, services, self._add_partitions, self.fail, settings.look_s, settings.new_topics_s
        )
        self._executor = InstructionExecutor(
            plan.pipeline,
            services,
            self._send_all,
            self.feed,
            self.fail,
            self._finish,
            listener.on_completed,
            settings.slots.unaligned_after_ms,
        )

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Raises the error that ended the attempt."""
        listener = Listener(self._on_registered, self._on_message, self.fail)
        self._server.admit(self.attempt, self._token, listener)
        bootstrap = SlotBootstrap(self._host.address, self._server.port, self.attempt, self._token)
        job = self._host.spark.job(bootstrap, self._plan.parallelism, self._on_job_ended_in_thread)
        job.start()
        self._begun = True
        try:
            starting = self._loop.call_later(self._start_timeout_s, self._on_start_timeout)
            await self._outcome
        finally:
            starting.cancel()
            self._ending = True
            self._discovery.close()
            if self._timer is not None:
                self._timer.cancel()
            await asyncio.gather(self._end_job(job.cancel), self._settle(), self._executor.close())
            self._server.dismiss()
            ended = AttemptEnded(monotonic_ms(self._services.clock))
            self._services.metrics.coordinator_answered(ended, self._coordinator.handle(ended))

    def request_final(self) -> None:
        """Ask for the final checkpoint; the attempt ends when it is committed."""
        self.feed(TriggerRequested(monotonic_ms(self._services.clock), final=True))

    async def take_savepoint(self, directory: str) -> SavepointDone:
        """See SavepointDesk.take."""
        return await self._executor.savepoints.take(directory)

    async def take_checkpoint(self) -> CheckpointDone:
        """See CheckpointDesk.take."""
        return await self._executor.ordered.take()

    async def find_cause(self, unseen: StorageNotShared) -> TidegateError:
        """See Proof.derive_cause."""
        return await self._services.in_journal_thread(lambda: self._proof.derive_cause(unseen))

    async def cut(self) -> None:
        """End the attempt without a final checkpoint; returns when nothing of it decides, and Kafka is clean."""
        if not self._outcome.done():
            self._end_with(AttemptFailed("cut off by a second signal"))
        await self._settled.wait()

    def cancel(self) -> None:
        """End the attempt at once, before it runs: there is nothing to save yet."""
        self._finish()

    @property
    def is_begun(self) -> bool:
        """Its job was started."""
        return self._begun

    @property
    def is_finished(self) -> bool:
        """It has ended without an error; when it ran, its final checkpoint is committed."""
        return self._outcome.done() and self._outcome.exception() is None

    @property
    def is_committed(self) -> bool:
        """Its final checkpoint is committed; a savepoint may still be copied."""
        return self._coordinator.phase is Phase.FINISHED

    @property
    def is_running(self) -> bool:
        """All slots are deployed."""
        return self._all_running.is_set()

    def on_brokers(self, *, answering: bool) -> None:
        """Whether brokers answer now."""
        if answering != self._answering:
            self._answering = answering
            self.feed(BrokersSeen(answering, monotonic_ms(self._services.clock)))

    def fail(self, error: TidegateError) -> None:
        """End the attempt; the most informative of the errors that arrive within the grace is its cause.

        Once the final checkpoint is committed nothing can fail any more: only the copy of a savepoint is cut off.
        """
        if self._ending or self._outcome.done():
            return
        self._failures.append(error)
        if len(self._failures) == 1:
            self._loop.call_later(CAUSE_GRACE_S, self._conclude)

    def feed(self, event: Event) -> None:
        """Give the coordinator an event and carry its instructions out."""
        if self._ending or self._outcome.done():
            return
        try:
            instructions = self._coordinator.handle(event, wall_offset_ms(self._services.clock))
            self._services.metrics.coordinator_answered(event, instructions)
            self._executor.execute(instructions)
            self._schedule()
        except TidegateError as error:  # ProtocolBroken: carries its story and ends the attempt
            self.fail(error)

    def _conclude(self) -> None:
        if self._outcome.done():
            return
        cause = derive_cause(self._failures)
        self._end_with(cause)
        if self.is_finished:
            return
        # Slots that hang are waited for before the attempt is over: nobody may learn meanwhile that it runs.
        metrics = self._services.metrics
        if cause.retriable and metrics.current_state[0] is not PipelineState.STOPPING:
            metrics.state(PipelineState.RESTARTING, cause.message)

    def _end_with(self, cause: TidegateError) -> None:
        if cause.retriable and self.is_committed:
            logger.warning("the final checkpoint is committed, so the pipeline ends now: %s", cause.message)
            self._outcome.set_result(None)
        else:
            self._outcome.set_exception(cause)

    def _finish(self) -> None:
        if not self._outcome.done():
            self._outcome.set_result(None)

    def _schedule(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        deadline_ms = self._coordinator.next_deadline_ms()
        if deadline_ms is None:
            return
        delay_s = max(0.0, (deadline_ms - monotonic_ms(self._services.clock)) / 1000)
        self._timer = self._loop.call_later(delay_s, lambda: self.feed(Tick(monotonic_ms(self._services.clock))))

    async def _settle(self) -> None:
        """Beside the end of the job, and the copy of a savepoint: what hangs must not keep transactions open."""
        await self._executor.settle()
        writing = any(not slot.closed.is_set() for slot in self._slots)
        left = await leave(self._plan, self._services, self._outcome.exception())
        if left:
            logger.warning("%s", left)
        self.wrote_on = writing and not left
        self._settled.set()

    async def _end_job(self, cancel: Callable[[], None]) -> None:
        """Ask the slots to return (a few hundred ms); only what does not is left to Spark's slower kill."""
        for slot in self._slots:
            slot.send(Stop())
        limit_s = derive_return_limit_s(self._prepare_s)
        done, _ = await asyncio.wait([self._job_ended], timeout=limit_s)
        if not done:
            logger.warning("attempt %d: not all slots returned within %.0f s, cancelling", self.attempt, limit_s)
            await asyncio.to_thread(cancel)
            done, _ = await asyncio.wait([self._job_ended], timeout=CANCEL_TIMEOUT_S)
            if not done:
                logger.error("attempt %d: Spark has not ended the job; its slots are fenced off", self.attempt)
        # A failed barrier job ends at once in Spark's eyes, while slots that were asked to stop are still closing.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._server.wait_closed(self._slots), limit_s / 2)

    # -- slots -----------------------------------------------------------------------------------------------------

    def _on_registered(self, slot: SlotConnection) -> None:
        if self._ending:
            slot.send(Stop())
            return
        slot.index = SlotIndex(len(self._slots))
        self._slots.append(slot)
        if len(self._slots) == self._plan.parallelism:
            self._begin(self._deploy())

    async def _deploy(self) -> None:
        await self._services.in_journal_thread(self._proof.write_daemons)
        peers = tuple(PeerAddress(slot.hello.host, slot.hello.data_port) for slot in self._slots)
        for slot, restore in zip(self._slots, self._restore.slots, strict=True):
            logger.info("%s is deployed", slot)
            slot.begin_watch(self._loop.time())
            slot.send(
                Deploy(
                    attempt=self.attempt,
                    slot=restore.slot,
                    token=self._token,
                    plan=self._services.schemas.complete(self._plan),
                    peers=peers,
                    settings=self._settings,
                    partitions=restore.partitions,
                    positions=restore.positions,
                    states=restore.states,
                    journal=self._restore.journal,
                    proof=self._proof.secret,
                    renamed=self._restore.upgrade.renamed,
                    former_edges=self._restore.upgrade.edges,
                )
            )

    def _on_message(self, slot: SlotConnection, message: SlotMessage) -> None:
        assert slot.index is not None
        now_ms = monotonic_ms(self._services.clock)
        match message:
            case Heartbeat():
                self._on_heartbeat(slot.index, message, now_ms)
            case Acknowledged(ack=ack):
                self._prepare_s = max(self._prepare_s, ack.prepare_ms / 1000)
                self.feed(AckReceived(ack, now_ms))
            case Declined(decline=decline):
                self.feed(DeclineReceived(decline, now_ms))
            case LogRecord():
                emit_slot_record(message, self.attempt, slot.index)
            case Running():
                self._begin(self._check_running(slot, slot.index))
            case SourceFinished(source=source):
                self._on_source_finished(slot.index, source)
            case SchemasWanted(ids=ids):
                self._services.schemas.ask(ids, slot.send)
            case SchemaUnfit(id=schema_id, why=why):
                self._services.schemas.refuse(schema_id, why)
            case SlotFailed():
                if message.traceback:
                    logger.error("%s failed:\n%s", slot, message.traceback)
                self.fail(derive_slot_error(slot, message))
            case Stopped():
                slot.stopped = True
            case _:
                raise AttemptFailed(f"{slot} sent {type(message).__name__} out of turn")

    def _on_heartbeat(self, index: SlotIndex, beat: Heartbeat, now_ms: int) -> None:
        self._services.metrics.slot_report(self.attempt, index, beat.report)
        try:
            self._letters.on_report(index, beat.report.dead_letters, now_ms)
        except TooManyDeadLetters as stop:
            self.fail(stop)
        timeout_ms = self._settings.transaction_timeout_ms
        for vertex, age_ms in beat.open_transactions.items():
            self._open_since_ms[vertex, index] = None if age_ms is None else now_ms - age_ms
            if self._plan.exactly_once:
                self.feed(OpenTransaction(SubtaskId(vertex, index), age_ms, timeout_ms, now_ms))
        oldest = min((since for since in self._open_since_ms.values() if since is not None), default=None)
        self._services.metrics.oldest_transaction(None if oldest is None else (now_ms - oldest) / 1000)

    async def _check_running(self, slot: SlotConnection, index: SlotIndex) -> None:
        """It counts when it is proven that what it stores can be read by others."""
        await self._services.in_journal_thread(lambda: self._proof.check(index, slot.hello.host))
        if not (self._ending or self._outcome.done()):
            self._on_running(index)
        if self.is_running:
            with contextlib.suppress(StorageError):  # the next attempt removes them
                await self._services.in_journal_thread(self._proof.remove)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start-up work that fails the attempt when it fails."""

        def on_done(task: asyncio.Task[None]) -> None:
            self._starting.discard(task)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, TidegateError):
                self.fail(error)
            elif error is not None:
                logger.error("internal error", exc_info=error)
                self.fail(AttemptFailed(f"internal error: {type(error).__name__}: {error}"))

        task = self._loop.create_task(work)
        self._starting.add(task)
        task.add_done_callback(on_done)

    def _on_running(self, index: SlotIndex) -> None:
        self._running.add(index)
        for vertex in self._plan.vertices:
            self.feed(SubtaskRunning(SubtaskId(vertex.id, index), monotonic_ms(self._services.clock)))
        if len(self._running) == self._plan.parallelism:
            self.running_since = self._loop.time()
            self._all_running.set()
            self._send_all(Begin())
            self._listener.on_running(self.attempt)
            self._discovery.start()
            self._end_if_finished()

    def _on_source_finished(self, index: SlotIndex, source: OperatorName) -> None:
        self._unfinished.discard((source, index))
        self._end_if_finished()

    def _end_if_finished(self) -> None:
        """When every subtask of every source has reached its end, the final checkpoint ends the pipeline.

        A source may be there before it is proven that its slot runs.
        """
        if self._bounded and not self._unfinished and self.is_running:
            self._bounded = False
            logger.info("all sources have reached their ends: final checkpoint")
            self.request_final()

    def _on_start_timeout(self) -> None:
        if not self.is_running:
            self.fail(
                DeploymentTimeout(
                    f"{len(self._running)} of {self._plan.parallelism} slots run after {self._start_timeout_s:.0f} s "
                    f"({len(self._slots)} have registered): does the master offer enough free cores, or does state "
                    f"take longer to be restored? runtime.start_timeout sets the limit"
                )
            )

    def _on_job_ended_in_thread(self, error: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: the daemon has ended without its slots
            self._loop.call_soon_threadsafe(self._on_job_ended, error)

    def _on_job_ended(self, error: str | None) -> None:
        self._job_ended.set_result(error)
        if not self._ending:
            self.fail(derive_job_error(error))

    def _add_partitions(self, index: SlotIndex, order: AddPartitions) -> None:
        self._slots[index].send(order)

    def _send_all(self, message: DriverMessage) -> list[str]:
        """To every slot; returns those that cannot have it any more."""
        return [str(slot) for slot in self._slots if not slot.send(message)]


def _bounded_sources(plan: Plan) -> set[tuple[OperatorName, SlotIndex]]:
    """All source subtasks when every source is bounded, else none: an unbounded pipeline never ends by itself."""
    sources = plan.operators(SourceOperator)
    if any(source.until == "never" for source in sources):
        return set()
    return {(source.name, SlotIndex(slot)) for source in sources for slot in range(plan.parallelism)}
