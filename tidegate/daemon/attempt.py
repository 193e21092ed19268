"""One attempt: from the Spark job that starts the slots to the return of the last slot.

This module connects the pure coordinator to the event loop. A slot's message, a finished journal append or an expired
deadline becomes an event; `instructions.py` carries out the coordinator's answers. Any failure ends the attempt, and
the supervisor decides whether another one follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from tidegate.clock import monotonic_ms, wall_offset_ms
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.events import (
    AttemptEnded,
    BrokersSeen,
    Event,
    Tick,
    TriggerRequested,
)
from tidegate.coordinator.triggers import AttemptPhase
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.attempt_slots import AttemptSlots, derive_cause
from tidegate.daemon.checkpoint_requests import CheckpointDone, SavepointDone
from tidegate.daemon.control_server import Listener, SlotLost
from tidegate.daemon.discovery import Discovery
from tidegate.daemon.instructions import CoordinatorFailed, InstructionExecutor
from tidegate.daemon.recovery_stages import Recovered
from tidegate.daemon.release_transactions import release_transactions
from tidegate.daemon.services import AttemptSettings, Services, SlotHost
from tidegate.daemon.status import PipelineState
from tidegate.daemon.taps import TappedRows
from tidegate.errors import AttemptFailed, TidegateError
from tidegate.ids import Attempt
from tidegate.plan.graph import Plan
from tidegate.plan.taps import TapPoint
from tidegate.slot.control_link import SlotBootstrap
from tidegate.spark.job_errors import derive_job_error
from tidegate.storage.shared import StorageNotShared
from tidegate.task.messages import Stop
from tidegate.task.stop_limits import derive_return_limit_s

logger = logging.getLogger(__name__)

CAUSE_GRACE_S: Final = 0.3
"""How long to wait after a failure for its cause: a lost slot makes its peers fail as well."""
LOST_GRACE_S: Final = 0.02
"""The same after a slot was lost: only an error that needs a person is more informative."""
CANCEL_TIMEOUT_S: Final = 20.0


class DeploymentTimeout(AttemptFailed):
    """Not all slots were running within the start timeout."""

    code = "deployment-timeout"


class AttemptListener(Protocol):
    """Receives notifications about the progress of an attempt, on the event loop."""

    def on_running(self, attempt: Attempt) -> None:
        """Called when all slots of the attempt run."""

    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        """Called when a checkpoint is complete and its transactions are committed."""


class AttemptRunner:
    """Runs one attempt. `run` returns when the final checkpoint is complete and committed."""

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
        self.may_have_left_transactions = False
        """True if slots were still connected at the release, and may have opened transactions since."""
        self._plan = plan
        self._coordinator = coordinator
        self._services = services
        self._host = host
        self._listener = listener
        self._start_timeout_s = settings.start_timeout_s
        self._loop = asyncio.get_running_loop()
        self._slots = AttemptSlots(plan, restore, services, settings.slots, self, self._now_ms)
        self._failures: list[TidegateError] = []
        self._outcome: asyncio.Future[None] = self._loop.create_future()
        self._job_ended: asyncio.Future[str | None] = self._loop.create_future()
        self._released = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._begun = False
        self._ending = False
        self._answering = True
        """True if brokers respond, as last reported to the coordinator."""
        send = self._slots.send_one
        self._discovery = Discovery(plan, restore, services, send, self.fail, settings.look_s, settings.new_topics_s)
        self._executor = InstructionExecutor(
            plan.pipeline,
            services,
            self._slots.send_all,
            self.feed,
            self._fail_checkpoints,
            self._finish,
            listener.on_completed,
            settings.slots.unaligned_after_ms,
        )

    def _now_ms(self) -> int:
        return monotonic_ms(self._services.clock)

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Runs the attempt to its end. Raises the error that ended it."""
        listener = Listener(self._slots.on_registered, self._slots.on_message, self.fail)
        self._host.server.admit(self.attempt, self._slots.token, listener)
        bootstrap = SlotBootstrap(self._host.address, self._host.server.port, self.attempt, self._slots.token)
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
            self._slots.taps.close()
            if self._timer is not None:
                self._timer.cancel()
            await asyncio.gather(self._end_job(job.cancel), self._release(), self._executor.close())
            self._host.server.dismiss()
            ended = AttemptEnded(self._now_ms())
            self._services.metrics.coordinator_answered(ended, self._coordinator.handle(ended))

    def request_final(self) -> None:
        """Requests the final checkpoint; the attempt ends when it is committed."""
        self.feed(TriggerRequested(self._now_ms(), final=True))

    async def take_savepoint(self, directory: str) -> SavepointDone:
        """Takes a savepoint of the running attempt and waits for its copy."""
        return await self._executor.savepoints.take(directory)

    async def take_checkpoint(self) -> CheckpointDone:
        """Takes a checkpoint of the running attempt and waits until it is complete."""
        return await self._executor.ordered.take()

    async def copy_rows(self, points: Sequence[TapPoint], rows_max: int) -> TappedRows:
        """Copies the next rows of these outputs of the running attempt."""
        return await self._slots.taps.copy(points, rows_max)

    async def find_cause(self, unseen: StorageNotShared) -> TidegateError:
        """Returns the likely cause of a checkpoint directory that a slot does not share."""
        return await self._slots.find_cause(unseen)

    async def end_at_once(self) -> None:
        """Ends the attempt without a final checkpoint. Returns when it decides nothing more and no transaction is left
        open in Kafka.
        """
        if not self._outcome.done():
            self._end_with(AttemptFailed("interrupted by a second signal"))
        await self._released.wait()

    def cancel(self) -> None:
        """Ends the attempt at once, before it runs: there is nothing to save yet."""
        self._finish()

    @property
    def is_begun(self) -> bool:
        """True once its job was started."""
        return self._begun

    @property
    def is_finished(self) -> bool:
        """True if it has ended without an error; if it was running, its final checkpoint is committed."""
        return self._outcome.done() and self._outcome.exception() is None

    @property
    def is_committed(self) -> bool:
        """True once its final checkpoint is committed; a savepoint may still be in progress."""
        return self._coordinator.phase is AttemptPhase.FINISHED

    @property
    def is_running(self) -> bool:
        """True once all slots are running."""
        return self._slots.all_running.is_set()

    @property
    def running_since(self) -> float | None:
        """When all slots were running, by the loop's clock; None before that."""
        return self._slots.running_since

    @property
    def is_ending(self) -> bool:
        """True once its slots have been asked to return."""
        return self._ending

    @property
    def is_over(self) -> bool:
        """True once its outcome is decided."""
        return self._ending or self._outcome.done()

    def on_all_running(self) -> None:
        """Notifies the listener and starts the topic checks: every slot runs and has received `Begin`."""
        self._listener.on_running(self.attempt)
        self._discovery.start()

    def on_brokers(self, *, answering: bool) -> None:
        """Records whether brokers respond."""
        if answering != self._answering:
            self._answering = answering
            self.feed(BrokersSeen(answering, self._now_ms()))

    def fail(self, error: TidegateError) -> None:
        """Ends the attempt; the most informative of the errors that arrive within the grace is its cause.

        Once the final checkpoint is committed the attempt can no longer fail: an error only interrupts the copy of a
        savepoint.
        """
        if self.is_over:
            return
        self._failures.append(error)
        grace_s = LOST_GRACE_S if isinstance(error, SlotLost) else CAUSE_GRACE_S
        self._loop.call_later(grace_s, self._conclude)

    def _fail_checkpoints(self, error: TidegateError) -> None:
        """Ends the attempt. If checkpoints fail, the message names user code that blocks a slot."""
        if isinstance(error, CoordinatorFailed):
            blocked = "".join(slot.describe_block() for slot in self._slots.connections)
            error = CoordinatorFailed(f"{error.message}{blocked}", **error.fields)
        self.fail(error)

    def feed(self, event: Event) -> None:
        """Passes an event to the coordinator and carries out its instructions."""
        if self.is_over:
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
        # The attempt waits for slots that hang before it is over. The state must not be shown as running meanwhile.
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
        delay_s = max(0.0, (deadline_ms - self._now_ms()) / 1000)
        self._timer = self._loop.call_later(delay_s, lambda: self.feed(Tick(self._now_ms())))

    async def _release(self) -> None:
        """Releases the transactions while the job ends and a savepoint is copied: a slot that hangs delays nothing."""
        await self._executor.settle()
        writing = any(not slot.closed.is_set() for slot in self._slots.connections)
        left = await release_transactions(self._plan, self._services, self._outcome.exception())
        if left:
            logger.warning("%s", left)
        self.may_have_left_transactions = writing and not left
        self._released.set()

    async def _end_job(self, cancel: Callable[[], None]) -> None:
        """Asks the slots to return, which takes a few hundred ms. Those that do not are left to Spark's slower kill."""
        for slot in self._slots.connections:
            slot.send(Stop())
        limit_s = derive_return_limit_s(self._slots.prepare_s)
        done, _ = await asyncio.wait([self._job_ended], timeout=limit_s)
        if not done:
            logger.warning("attempt %d: not all slots returned within %.0f s, cancelling", self.attempt, limit_s)
            await asyncio.to_thread(cancel)
            done, _ = await asyncio.wait([self._job_ended], timeout=CANCEL_TIMEOUT_S)
            if not done:
                logger.error("attempt %d: Spark has not ended the job; its slots are fenced off", self.attempt)
        # Spark reports a failed barrier job as ended at once, while slots that were asked to stop are still closing.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._host.server.wait_closed(self._slots.connections), limit_s / 2)

    def _on_start_timeout(self) -> None:
        if not self.is_running:
            run, registered = len(self._slots.running), len(self._slots.connections)
            self.fail(
                DeploymentTimeout(
                    f"only {run} of {self._plan.parallelism} slots are running after {self._start_timeout_s:.0f} s "
                    f"({registered} have registered): check that the master offers enough free cores, or raise "
                    "`runtime.start_timeout` if restoring state takes longer"
                )
            )

    def _on_job_ended_in_thread(self, error: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: the daemon ended without its slots
            self._loop.call_soon_threadsafe(self._on_job_ended, error)

    def _on_job_ended(self, error: str | None) -> None:
        self._job_ended.set_result(error)
        if not self._ending:
            self.fail(derive_job_error(error))
