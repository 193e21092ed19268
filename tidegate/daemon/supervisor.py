"""Runs attempts until one finishes the pipeline, the restart strategy gives up, or a stop is requested."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

import msgspec
from typing_extensions import override

from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.discovery import TopicFound
from tidegate.coordinator.history import FailureRecord, FollowedBy
from tidegate.coordinator.restart import AttemptFailure, GiveUp, RestartHistory, decide_restart
from tidegate.coordinator.types import CompletedCheckpoint, Job
from tidegate.daemon.attempt import AttemptListener, AttemptRunner
from tidegate.daemon.housekeeping import Housekeeping
from tidegate.daemon.ownership import Ownership
from tidegate.daemon.recovery import recover
from tidegate.daemon.recovery_stages import Recovered
from tidegate.daemon.release_transactions import describe_undone, release_transactions
from tidegate.daemon.restore_point import StartOptions
from tidegate.daemon.services import AttemptSettings, Services, SlotHost
from tidegate.daemon.status import PipelineState
from tidegate.errors import AttemptFailed, Superseded, TidegateError
from tidegate.ids import Attempt, ClusterName
from tidegate.plan.graph import Plan
from tidegate.process.repeated_messages import Repeats, render_repeats
from tidegate.storage.base import StorageError
from tidegate.storage.shared import StorageNotShared

logger = logging.getLogger(__name__)

HURRY_S: Final = 3.0
UNCOUNTED: Final = "; the brokers did not answer, so it does not count for `restart.give_up_after`"


class GaveUp(TidegateError):
    """The restart strategy allows no further attempt."""

    code = "gave-up"
    exit_code = 1


class ShutdownIncomplete(TidegateError):
    """The final checkpoint did not complete within the grace. Nothing is lost: the next start uses the last one."""

    code = "shutdown-incomplete"
    exit_code = 6


class JvmDied(TidegateError):
    """Spark's driver JVM is gone, does not respond, or has no session; only a new process can open another one."""

    code = "jvm-died"
    exit_code = 1


class Supervisor(AttemptListener):
    """The loop over the attempts of a daemon. All methods are called on the daemon's event loop.

    `began` is called for every attempt. `jitter` returns random numbers from 0 to 1.
    """

    def __init__(
        self,
        plan: Plan,
        services: Services,
        host: SlotHost,
        settings: AttemptSettings,
        options: StartOptions,
        began: Callable[[Attempt], None],
        jitter: Callable[[], float],
    ) -> None:
        self.runner: AttemptRunner | None = None
        """The attempt that is running or starting."""
        self._ownership = Ownership(plan.pipeline, services)
        self.housekeeping = Housekeeping(plan, services, self._ownership, self._on_superseded)
        self._plan = plan
        self._services = services
        self._host = host
        self._settings = settings
        self._options = options
        self._began = began
        self._jitter = jitter
        self._verified = False
        self._recovering = False
        self._stop_requested = asyncio.Event()
        self._failed: TidegateError | None = None
        self._left = ""
        self._history = RestartHistory()
        self._failures: Repeats[str] = Repeats(elapsed=services.clock.monotonic)
        """Failures by message since an attempt has run: on a full disk, all attempts fail at once and alike."""

    @property
    def stopping(self) -> bool:
        """True once a stop has been requested."""
        return self._stop_requested.is_set()

    @property
    def taking_orders(self) -> AttemptRunner | None:
        """The attempt that accepts checkpoint and savepoint requests; None if none runs or a stop was requested."""
        return self.runner if self.runner is not None and self.runner.is_running and not self.stopping else None

    @property
    def unsaved(self) -> bool:
        """True if input may have been read beyond the last commit, or transactions are still to be committed."""
        if self._recovering:
            return True
        if self.runner is not None and self.runner.is_running:
            return not self.runner.is_finished
        undone = not self._verified and describe_undone(self._services.journal.last_read)
        return self._failed is not None or bool(undone)

    @property
    def saved(self) -> bool:
        """True once the final checkpoint is committed: further stop requests change nothing."""
        return self.runner is not None and self.runner.is_running and self.runner.is_finished

    @property
    def copying(self) -> bool:
        """True while the final checkpoint is committed but a savepoint is still being copied."""
        return self.runner is not None and self.runner.is_committed and not self.runner.is_finished

    async def run(self) -> None:
        """Returns when the pipeline has ended and all its output is committed; otherwise raises what ended it."""
        await self._run_attempts()
        await self.housekeeping.close()

    async def _run_attempts(self) -> None:
        while not self._stop_requested.is_set():
            if self._services.kafka.unavailable:
                await self._wait_for_brokers()
                continue
            started = self._services.clock.monotonic()
            try:
                await self._run_attempt()
                if not self.unsaved:
                    self._tell_unread()
                    return
            except TidegateError as failure:
                error = await self._find_cause(failure)
                if self._stop_requested.is_set() and error.retriable:
                    self._tell_failure(error, self._derive_failure(error, FollowedBy.STOPPED))
                    raise ShutdownIncomplete(
                        f"the attempt failed before the final checkpoint was committed: {error.message}. Nothing is "
                        "lost: the next start continues from the last checkpoint"
                    ) from error
                await self._after_failure(error, started)
                self._failed = error
        if self._failed is not None:
            raise ShutdownIncomplete(
                "the stop was requested while no attempt was running, so there is no final checkpoint "
                f"({self._failed.message}). Nothing is lost: the next start continues from the last checkpoint"
            ) from self._failed
        await self._refuse_undone()
        self._tell_unread()

    async def _wait_for_brokers(self) -> None:
        """Waits until a broker responds or a stop is requested.

        Without brokers an attempt cannot start and only fills the log.
        """
        waiting = [
            asyncio.ensure_future(self._services.kafka.wait_answering()),
            asyncio.ensure_future(self._stop_requested.wait()),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _refuse_undone(self) -> None:
        """Raises ShutdownIncomplete if a stop precedes the first recovery and a crash has left work undone."""
        if self._verified:
            return
        journal = self._services.journal
        state = journal.last_read
        try:
            state = await self._services.in_journal_thread(journal.read)
        except TidegateError as error:
            logger.warning(
                "the journal could not be read at the stop (%s): using its last known content", error.message
            )
        if undone := describe_undone(state):
            raise ShutdownIncomplete(undone)

    def stop(self) -> None:
        """Requests the final checkpoint and then the end; ends at once if no attempt is running."""
        self._stop_requested.set()
        runner = self.runner
        if runner is None:
            return
        if runner.is_running:
            runner.request_final()
        else:
            runner.cancel()

    def on_grace_over(self, grace_s: float) -> None:
        """Fails the attempt because the grace period is over.

        The next start repeats what the final checkpoint did not commit.
        """
        if self.runner is not None and self.unsaved:
            why = "a savepoint is still being copied after" if self.copying else "no final checkpoint within"
            self.runner.fail(AttemptFailed(f"{why} {grace_s:g} s (runtime.shutdown_grace)"))

    async def hurry(self) -> None:
        """Aborts the open transactions, within `HURRY_S`, without a final checkpoint: a second stop was requested.

        The process ends afterwards, whatever else is in progress.
        """
        try:
            async with asyncio.timeout(HURRY_S):
                await self._end_at_once()
        except TimeoutError:
            logger.warning(
                "some open transactions could not be aborted within %g s: readers of committed records may be "
                "blocked until the next start, or until `checkpoints.transaction_timeout` expires",
                HURRY_S,
            )

    async def _end_at_once(self) -> None:
        """Ends the attempt without a final checkpoint. Returns when it decides nothing more and no transaction is left
        open in Kafka.
        """
        if self.runner is not None and self.runner.is_begun:
            await self.runner.end_at_once()
        else:
            self._tell_left(await release_transactions(self._plan, self._services, None, verified=self._verified))

    def _tell_left(self, left: str) -> None:
        if left and left != self._left:
            logger.warning("%s", left)
        self._left = left

    def _tell_unread(self) -> None:
        """Logs why there is no final checkpoint, because an earlier log line announced one."""
        if self.stopping and (self.runner is None or not self.runner.is_running):
            logger.info(
                "the stop was requested before anything was read, so there is no final checkpoint: the next start "
                "restores the same checkpoint"
            )

    def _on_superseded(self, error: Superseded) -> None:
        if self.runner is not None:
            self.runner.fail(error)

    @override
    def on_running(self, attempt: Attempt) -> None:
        self._services.metrics.state(PipelineState.RUNNING)
        self._tell_repeats(everything=True)
        logger.info("attempt %d is running", attempt)
        self.housekeeping.resume(attempt)
        if self.stopping and self.runner is not None:
            self.runner.request_final()

    @override
    def on_completed(self, checkpoint: CompletedCheckpoint) -> None:
        self.housekeeping.completed(checkpoint)

    def on_brokers(self, cluster: ClusterName, *, answering: bool) -> None:
        """Takes the result of each probe of a cluster's broker watch."""
        kafka = self._services.kafka
        kafka.clusters[cluster].note(answering=answering)
        if self.runner is not None:
            self.runner.on_brokers(answering=not kafka.unavailable)

    async def _find_cause(self, error: TidegateError) -> TidegateError:
        """Returns the cause behind an error that would stop the daemon for good.

        A daemon that takes over changes and removes files that the older one still reads. The older one may then fail
        with a misleading error before it notices that it is superseded. A volume that is unmounted and mounted again
        has the same effect.
        """
        if isinstance(error, StorageNotShared) and self.runner is not None and not self.runner.is_running:
            error = await self.runner.find_cause(error)
        if error.retriable or isinstance(error, Superseded):
            return error
        try:
            await self._services.in_journal_thread(self._services.journal.read_own)
        except Superseded as superseded:
            superseded.__cause__ = error
            return superseded
        except TidegateError as trouble:  # journal damaged, gone or unreachable: the original error is the cause
            logger.debug("the journal was not read after a failure: %s", trouble.message)
        return error

    async def _sweep(self) -> None:
        """Removes orphaned state once the slots have returned.

        The final checkpoint may overtake an older one whose files arrive late.
        """
        try:
            await self._services.in_journal_thread(lambda: self._services.journal.sweep_orphans(own=True))
        except StorageError as error:
            logger.warning("state of checkpoints that were given up was not deleted: %s", error.message)

    async def _run_attempt(self) -> None:
        settings, services = self._settings, self._services
        services.metrics.state(PipelineState.RESTORING)
        recovered = await self._recover(settings.slots.transaction_timeout_ms)
        await self._host.wait_open()
        attempt = recovered.restore.attempt
        services.metrics.attempt_started(attempt)
        self._began(attempt)
        self.runner = AttemptRunner(
            self._plan,
            recovered,
            self._make_coordinator(recovered.job),
            services,
            self._host,
            settings,
            self,
        )
        try:
            if not self.stopping:
                await self.runner.run()
                await self._sweep()
        except TidegateError as error:
            if self.runner.may_have_left_transactions:
                self._tell_left(await release_transactions(self._plan, services, error))
            raise
        finally:
            self.housekeeping.pause()

    async def _recover(self, timeout_ms: int) -> Recovered:
        services, first = self._services, not self._verified
        self._recovering = True
        try:
            recovered = await recover(self._plan, services, self._ownership, timeout_ms, self._options, first=first)
        except TidegateError as error:
            self._tell_left(await release_transactions(self._plan, services, error, verified=self._verified))
            raise
        finally:
            self._recovering = False
        self._verified = True
        # Restored: the savepoint may be deleted from now on.
        self._options = msgspec.structs.replace(self._options, restore=None)
        return recovered

    def _make_coordinator(self, job: Job) -> Coordinator:
        """Creates the coordinator. The simulation overrides this to observe it."""
        return Coordinator(self._settings.checkpoints, job)

    async def _after_failure(self, error: TidegateError, started: float) -> None:
        """Waits for the delay that the restart strategy decides, or raises."""
        metrics, now = self._services.metrics, self._services.clock.monotonic()
        failed = self._derive_failure(error, FollowedBy.GAVE_UP)
        self.runner = None
        try:
            delay_ms = self._decide_restart(error, int(now * 1000), failed.ran_ms)
        except TidegateError:
            self._tell_repeats(everything=True)
            self._tell_failure(error, failed)
            raise
        restarting = msgspec.structs.replace(failed, followed_by=FollowedBy.RESTART, restart_after_ms=delay_ms)
        self._tell_failure(error, restarting)
        metrics.restarted(error.code)
        metrics.state(PipelineState.RESTARTING, error.message)
        self._tell_repeats(everything=False)
        logger.log(
            logging.WARNING if self._failures.may_say(error.message) else logging.DEBUG,
            "attempt failed after %.1f s: %s%s; %s",
            now - started,
            error.message,
            UNCOUNTED if self._services.kafka.explains_failures else "",
            "retrying when they answer"
            if self._services.kafka.unavailable
            else f"retrying {f'in {delay_ms / 1000:.1f} s' if delay_ms else 'now'}",
            extra={"error": error},
        )
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stop_requested.wait(), delay_ms / 1000)

    def _tell_repeats(self, *, everything: bool) -> None:
        """Logs how often attempts have failed alike since that had a line."""
        for message, times, seconds in self._failures.overdue(everything=everything):
            logger.warning("attempts failed %s in %.0f s: %s", render_repeats(times), max(1.0, seconds), message)

    def _decide_restart(self, error: TidegateError, now_ms: int, ran_ms: int) -> int:
        """Returns the delay before the next attempt in milliseconds.

        Raises the error that ends the daemon. An error that is not retriable always does, because the next start would
        meet it again.
        """
        if error.retriable and not self._host.spark.jvm_alive:
            raise JvmDied(f"Spark's driver can run no more jobs ({error.message}); start the daemon again") from error
        fault = str(error.fields.get("fault", ""))
        expected = isinstance(error, TopicFound) or self._services.kafka.explains_failures
        failure = AttemptFailure(now_ms, ran_ms, error.retriable, error.message, fault, expected=expected)
        self._history, decision = decide_restart(self._settings.restarts, self._history, failure, self._jitter())
        if not isinstance(decision, GiveUp):
            return decision.delay_ms
        if not error.retriable:
            raise error
        raise GaveUp(decision.reason, cause=error.code) from error

    def _tell_failure(self, error: TidegateError, failure: FailureRecord) -> None:
        self._services.metrics.attempt_failed(failure, "\n".join(getattr(error, "__notes__", ())))

    def _derive_failure(self, error: TidegateError, followed_by: FollowedBy) -> FailureRecord:
        """Describes the attempt that has just failed."""
        runner, clock = self.runner, self._services.clock
        ran_s = 0.0
        if runner is not None and runner.running_since is not None:
            ran_s = clock.monotonic() - runner.running_since
        return FailureRecord(
            failed_at_ms=clock.now_ms(),
            attempt=None if runner is None else runner.attempt,
            code=error.code,
            cause=error.message,
            ran_ms=int(ran_s * 1000),
            followed_by=followed_by,
        )
