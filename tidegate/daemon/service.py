"""The daemon: one process that runs one pipeline. It starts everything, runs the attempts, and shuts down cleanly.

One asyncio loop runs the control server and the attempts. Blocking work has threads of its own: Spark's session and
job, the journal, Kafka, HTTP. The first signal requests a final checkpoint; a second one ends the daemon at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NoReturn

from tidegate.checks.findings import StartRefused, derive_warnings, find_preventing
from tidegate.checks.judge_machine import judge_storage_error
from tidegate.checks.registry import open_registry, register_schemas
from tidegate.checks.survey import survey
from tidegate.clock import Clock, wall_offset_ms
from tidegate.config.encryption import decide_encryption
from tidegate.config.fields.secrets import reveal
from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.coordinator.entries import Writer
from tidegate.daemon.broker_watch import BrokerWatch, ProbeResult
from tidegate.daemon.checkpoint_requests import (
    SAVEPOINTS,
    CheckpointDone,
    CheckpointUnavailable,
    SavepointDone,
    SavepointUnavailable,
    check_directory,
)
from tidegate.daemon.control_server import ControlServer
from tidegate.daemon.control_token import provide_token
from tidegate.daemon.diagnosis.facts import derive_limits, derive_plan_facts
from tidegate.daemon.diagnosis.watch import DiagnosisWatch
from tidegate.daemon.http.server import HttpServer
from tidegate.daemon.kafka_clusters import open_clusters
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.preflight import StoredTarget, open_checkpoints
from tidegate.daemon.restore_point import StartOptions
from tidegate.daemon.schema_service import SchemaService
from tidegate.daemon.services import Services, SlotHost, derive_attempt_settings
from tidegate.daemon.status import PipelineState
from tidegate.daemon.supervisor import ShutdownIncomplete, Supervisor
from tidegate.daemon.taps import TappedRows, TapService, TapUnavailable
from tidegate.errors import TidegateError
from tidegate.ids import Attempt, ClusterName
from tidegate.journal.journal import Journal
from tidegate.plan.graph import Plan
from tidegate.plan.taps import TapPoint
from tidegate.process.limits import ending_signals, exclude_present_objects
from tidegate.process.logs import LogContext
from tidegate.process.service_manager import open_service_manager
from tidegate.slot.channel_sockets import accepting_context
from tidegate.slot.copies import sweep_copies
from tidegate.spark.gateway import EarlyServer
from tidegate.spark.host import SparkHost
from tidegate.spark.master import find_driver_host
from tidegate.spark.work_directory import WorkDirectory, temporary_directory
from tidegate.storage.base import Storage, StorageError

logger = logging.getLogger(__name__)

BEAT_S: Final = 0.5
BROKERS_S: Final = 30.0
"""How long a start waits for brokers to respond: they may be starting at the same time."""
READY: Final = frozenset({PipelineState.RUNNING, PipelineState.WAITING, PipelineState.DEGRADED})
STOPPING: Final = frozenset({PipelineState.STOPPING, PipelineState.FINISHED})
CLOSE_AFTER_GRACE_S: Final = 5.0
"""How long closing may take once the grace of a stop is over, or after a signal that arrives meanwhile."""
CLOSE_S: Final = 60.0
"""How long closing may take in all other cases."""
STEP_MS_MIN: Final = 1000
"""Smaller steps come from a time service, or from this process not having run between two readings."""


class ClockWatch:
    """Reports when the machine's wall clock is set, on which only timestamps depend. `look` is called periodically.

    `was_set` is called with the seconds by which it was set.
    """

    def __init__(self, clock: Clock, was_set: Callable[[float], None] = lambda _step_s: None) -> None:
        self._clock = clock
        self._was_set = was_set
        self._offset_ms = wall_offset_ms(clock)

    def look(self) -> None:
        """Compares both clocks with the last call, and logs a step."""
        offset_ms = wall_offset_ms(self._clock)
        step_ms = offset_ms - self._offset_ms
        if abs(step_ms) < STEP_MS_MIN:
            return
        self._offset_ms = offset_ms
        logger.warning(
            "the wall clock of this machine was set %s by %.1f s; checkpoints, deadlines and restarts use another "
            "clock and are not affected, but timestamps before and after it (log, checkpoint list) are not comparable",
            "forward" if step_ms > 0 else "back",
            abs(step_ms) / 1000,
        )
        self._was_set(step_ms / 1000)


class Daemon:
    """A daemon. `run` returns when everything is committed, or raises the error that ended it."""

    def __init__(
        self,
        loaded: LoadedPipeline,
        plan: Plan,
        metrics: PipelineMetrics,
        http: HttpServer,
        log_context: LogContext,
        options: StartOptions,
        taps: TapService,
        early_server: EarlyServer | None,
    ) -> None:
        self._loaded = loaded
        self._options = options
        self._settings = loaded.settings
        self.pipeline = plan.pipeline
        self._plan = plan
        self._metrics = metrics
        self._http = http
        self._log_context = log_context
        try:
            storage = open_checkpoints(loaded)
        except StorageError as error:
            raise StartRefused(loaded, [judge_storage_error(error)]) from error
        registry = loaded.settings.registry
        self._registry = None if registry is None else open_registry(registry)
        self._opened = contextlib.AsyncExitStack()
        self._work_dir = WorkDirectory()
        sweep_copies(temporary_directory())
        self._attempt_settings = derive_attempt_settings(self._settings, logging.getLogger().level)
        self._services = self._make_services(loaded, storage, may_repeat=options.repeats_output)
        self._host = self._make_host(early_server)
        self._opening: asyncio.Task[None] | None = None
        """Opens Spark's session; None before that has begun."""
        self._hurrying: asyncio.Task[None] | None = None
        self._code: int | None = None
        """The exit code; set once nothing is left to do except to close."""
        self._error: TidegateError | None = None
        """The error that ended the daemon, if any; the caller of `run` reports it."""
        self._manager = open_service_manager(os.environ)
        self._supervisor = Supervisor(
            plan, self._services, self._host, self._attempt_settings, options, self._on_attempt, _jitter
        )
        taps.serve(self.copy_rows, asyncio.get_running_loop())

    async def run(self) -> None:
        """Runs until the pipeline has ended. Raises TidegateError."""
        loop = asyncio.get_running_loop()
        for number in ending_signals():
            loop.add_signal_handler(number, self._on_signal, number)
        tasks = [loop.create_task(self._beat())]
        ended: BaseException | None = None
        try:
            self._metrics.state(PipelineState.STARTING)
            named = self._settings.http.token_file
            token = provide_token(self._work_dir.path, self._http.port, None if named is None else Path(named))
            self._http.commands.serve(self, loop, token)
            await self._open()
            tasks.append(loop.create_task(self._watch_brokers()))
            await self._supervisor.run()
            self._metrics.state(PipelineState.FINISHED)
        except BaseException as error:
            ended = error
            if isinstance(error, TidegateError):
                self._metrics.state(PipelineState.FAILED, error.message)
            raise
        finally:
            for task in tasks[1:]:
                task.cancel()
            await self._close(ended)
            self._notify_service_manager()
            tasks[0].cancel()

    # -- stopping --------------------------------------------------------------------------------------------------

    def _on_signal(self, number: signal.Signals) -> None:
        if self._hurrying is not None:
            self._end_now(128 + number)
        if self._is_saved:
            logger.info("%s: nothing is left to save, the daemon is closing", number.name)
            if self._code is not None:
                asyncio.get_running_loop().call_later(CLOSE_AFTER_GRACE_S, self._end_unclosed, self._code)
            return
        if self._supervisor.stopping:
            code = 128 + number
            if self._supervisor.copying:
                code = 0
                logger.warning("second signal: the copy of the savepoint is abandoned; everything else is committed")
            else:
                logger.warning("second signal: ending without a final checkpoint; the next start uses the last one")
            self._hurrying = asyncio.get_running_loop().create_task(self._hurry(code))
            return
        self._begin_stop(number.name)

    @property
    def _is_saved(self) -> bool:
        """True if nothing is left for this process to save."""
        return self._code is not None or self._supervisor.saved

    async def _hurry(self, code: int) -> None:
        try:
            await self._supervisor.hurry()
        finally:
            self._end_now(code)

    def _begin_stop(self, who: str) -> None:
        logger.info("%s: taking the final checkpoint, then exiting (a second signal exits at once)", who)
        self._metrics.state(PipelineState.STOPPING)
        grace_s = self._settings.runtime.shutdown_grace_ms / 1000
        asyncio.get_running_loop().call_later(grace_s, self._on_grace_over, grace_s)
        self._supervisor.stop()

    async def stop(self) -> None:
        """Stops like SIGTERM does; repeated calls have no effect."""
        if not (self._supervisor.stopping or self._is_saved):
            self._begin_stop("POST /stop")

    async def copy_rows(self, points: Sequence[TapPoint], rows_max: int) -> TappedRows:
        """Copies the next rows of these outputs. Raises TapUnavailable."""
        runner = self._supervisor.taking_orders
        if runner is None:
            raise TapUnavailable(f"no rows can be copied: the pipeline is {self._state()}")
        return await runner.copy_rows(points, rows_max)

    async def take_savepoint(self, directory: str | None) -> SavepointDone:
        """Takes a savepoint in `directory`, or in `savepoints` of the checkpoint directory.

        Raises SavepointUnavailable, DirectoryRefused.
        """
        own = str(self._settings.checkpoints.directory)
        chosen = directory or f"{own.rstrip('/')}/{SAVEPOINTS}"
        await asyncio.to_thread(check_directory, chosen, [own, *self._settings.savepoints.roots])
        runner = self._supervisor.taking_orders
        if runner is None:
            raise SavepointUnavailable(f"no savepoint was taken: the pipeline is {self._state()}")
        return await runner.take_savepoint(chosen)

    async def take_checkpoint(self) -> CheckpointDone:
        """Takes a checkpoint now, whatever the interval and the minimum pause (C38). Raises CheckpointUnavailable."""
        runner = self._supervisor.taking_orders
        if runner is None:
            raise CheckpointUnavailable(f"no checkpoint was taken: the pipeline is {self._state()}")
        return await runner.take_checkpoint()

    def _state(self) -> str:
        """Describes the current state for log and error messages."""
        state, reason = self._metrics.current_state
        return f"{state.value}: {reason}" if reason else state.value

    def _on_grace_over(self, grace_s: float) -> None:
        """Fails the attempt and limits how long closing may take, for example for clients of an unavailable broker."""
        self._supervisor.on_grace_over(grace_s)
        asyncio.get_running_loop().call_later(CLOSE_AFTER_GRACE_S, self._on_close_limit, grace_s)

    def _on_close_limit(self, grace_s: float) -> None:
        unsaved = self._supervisor.unsaved
        logger.log(
            logging.ERROR if unsaved else logging.WARNING,
            "closing took more than %g s after the grace period of %g s (runtime.shutdown_grace): exiting now. "
            "Nothing is lost: %s",
            CLOSE_AFTER_GRACE_S,
            grace_s,
            "the next start continues from the last checkpoint" if unsaved else "everything that was read is committed",
        )
        self._end_unclosed(ShutdownIncomplete.exit_code if unsaved else 0)

    def _on_stuck(self) -> None:
        """Ends the process.

        It runs in a thread of its own, because the event loop or the exit of the interpreter may be blocked.
        """
        logger.error(
            "closing took more than %g s (a directory or a broker does not answer): exiting now",
            CLOSE_S,
        )
        self._end_unclosed(0)

    def _end_unclosed(self, otherwise: int) -> None:
        """Reports the error that ended the daemon, because the caller of `run` no longer can, and ends the process.

        `otherwise` is the exit code if none is known yet.
        """
        if self._error is not None:
            logger.error("%s", self._error.message, extra={"error": self._error})
        self._end_now(otherwise if self._code is None else self._code)

    def _end_now(self, code: int) -> NoReturn:
        """Exits at once. Slots, executors and the JVM end with this process; all decisions are in the journal."""
        self._work_dir.remove()
        logging.shutdown()
        os._exit(code)

    # -- open and close --------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Opens everything. Spark takes seconds to start, so all checks that can refuse the start run first.

        On this machine Spark then starts while the first recovery takes the pipeline over. A cluster may have no slots
        to offer, so there the takeover, which ends an older daemon, waits until it does.
        """
        await self._host.server.start()
        target = StoredTarget(self._services, self._options)
        strict = self._settings.strict
        findings = await survey(self._loaded, self._plan, target, BROKERS_S, deep=strict)
        for warning in derive_warnings(self._loaded, findings):
            logger.warning("%s", warning)
        if find_preventing(findings, strict=strict):
            raise StartRefused(self._loaded, findings)
        if self._registry is not None:
            await self._opened.enter_async_context(self._registry)
            self._services.schemas.write_with(await register_schemas(self._registry, self._plan))
        self._opening = asyncio.create_task(self._open_spark())
        if not self._host.spark.is_local:
            await self._wait_open()

    async def _open_spark(self) -> None:
        await asyncio.to_thread(self._host.spark.start, self._plan.parallelism)
        if key := self._host.spark.channel_key:
            self._host.server.encrypt(accepting_context(key))

    async def _wait_open(self) -> None:
        """Waits until Spark offers the slots. Raises what prevents that."""
        assert self._opening is not None
        await asyncio.shield(self._opening)

    async def _close(self, ended: BaseException | None) -> None:
        """Closes everything; after `CLOSE_S` the process exits regardless.

        `ended` is the error that ended the daemon, if any.
        """
        self._error = ended if isinstance(ended, TidegateError) else None
        self._code = _derive_code(ended)
        limit = threading.Timer(CLOSE_S, self._on_stuck)
        limit.daemon = True
        limit.start()
        try:
            self._supervisor.housekeeping.pause()
            await self._host.server.stop()
            await self._services.schemas.close()
            await self._opened.aclose()
            await self._services.kafka.close()
            await asyncio.to_thread(self._services.journal_thread.shutdown)
            if self._opening is not None:
                await asyncio.gather(self._opening, return_exceptions=True)
            await asyncio.to_thread(self._host.spark.stop)
            self._work_dir.remove()
            # Otherwise the loop waits for it without a limit.
            await asyncio.get_running_loop().shutdown_default_executor()
        finally:
            limit.cancel()

    async def _beat(self) -> None:
        clock, limits = self._services.clock, derive_limits(self._settings.checkpoints)
        diagnosis = DiagnosisWatch(self._metrics, limits, derive_plan_facts(self._plan), clock.monotonic)
        clocks = ClockWatch(clock, diagnosis.clock_was_set)
        while True:
            self._http.beat()
            clocks.look()
            self._notify_service_manager()
            self._metrics.beat()
            diagnosis.look()
            self._report_progress()
            await asyncio.sleep(BEAT_S)

    def _report_progress(self) -> None:
        progress, now = self._services.progress, self._services.clock.monotonic()
        if not progress.is_due(self._metrics.current_state[0], now):
            return
        line = progress.take(self._metrics.snapshot(), now)
        if line is not None:
            logger.info("%s", line.text, extra={"fields": line.fields})

    def _notify_service_manager(self) -> None:
        """Reports the state to the service manager, if there is one.

        It learns of a failure from the exit code, which is more specific.
        """
        if self._manager is not None:
            state, _ = self._metrics.current_state
            self._manager.look(
                self._services.clock.monotonic(), self._state(), ready=state in READY, stopping=state in STOPPING
            )

    async def _watch_brokers(self) -> None:
        clock = self._services.clock

        async def watch(name: ClusterName, edge: KafkaEdge) -> None:
            def tell(result: ProbeResult) -> None:
                self._supervisor.on_brokers(name, answering=result.unavailable_s is None)
                self._metrics.brokers(name, result)

            await BrokerWatch(edge.place, edge.ask_for_life, tell, clock).run()

        await self._services.kafka.each(watch)

    def _make_services(self, loaded: LoadedPipeline, storage: Storage, *, may_repeat: bool) -> Services:
        settings = loaded.settings
        checkpoints = self._attempt_settings.checkpoints
        writer = Writer(secrets.token_hex(16), socket.gethostname(), os.getpid())
        retained, reserve = checkpoints.retained, checkpoints.id_reserve
        return Services(
            storage=storage,
            journal=Journal(storage, writer, retained=retained, id_reserve=reserve, may_repeat=may_repeat),
            journal_thread=ThreadPoolExecutor(1, "journal"),
            kafka=open_clusters(settings),
            open_storage=derive_opener(settings),
            metrics=self._metrics,
            files=() if loaded.code is None else loaded.code.files,
            schemas=SchemaService(
                self._registry, self._metrics.registry_says, count_incompatible=self._metrics.schemas_incompatible
            ),
        )

    def _make_host(self, early_server: EarlyServer | None) -> SlotHost:
        settings, runtime = self._settings, self._settings.runtime
        properties = {name: value for name, value in settings.spark.items() if name != "master"}
        master = reveal(settings.spark).get("master", f"local[{settings.parallelism}]")
        address = find_driver_host(master, reveal(properties))
        spark = SparkHost(
            settings.name,
            master,
            properties,
            self._work_dir.path,
            self._attempt_settings.start_timeout_s,
            encrypted=decide_encryption(runtime.encryption, master),
            frozen_s=runtime.heartbeat_timeout_ms / 1000,
            early_server=early_server,
        )
        server = ControlServer(
            _control_bind(address),
            runtime.heartbeat_interval_ms / 1000,
            runtime.heartbeat_timeout_ms / 1000,
            unauthenticated_max=2 * self._plan.parallelism + 8,
        )
        return SlotHost(spark, server, address, self._wait_open)

    def _on_attempt(self, attempt: Attempt) -> None:
        self._log_context.attempt = attempt
        exclude_present_objects()  # while the slots start


def _derive_code(ended: BaseException | None) -> int:
    """Returns the exit code of the process."""
    if isinstance(ended, TidegateError):
        return ended.exit_code
    return 0 if ended is None else 1


def _jitter() -> float:
    return secrets.randbelow(1000) / 1000


def _control_bind(host: str) -> str:
    return host if host.startswith("127.") else "0.0.0.0"  # noqa: S104 - executors connect from other hosts
