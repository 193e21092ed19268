"""The slots of one attempt: they register, are deployed, prove that they share the checkpoint directory, and report.

Their reports become events for the coordinator and values for the metrics. The attempt decides what follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from tidegate.coordinator.events import AckReceived, DeclineReceived, OpenTransaction, SubtaskRunning
from tidegate.coordinator.recovery import RestorePlan
from tidegate.daemon.control_server import SlotConnection, SlotLost
from tidegate.daemon.services import Services
from tidegate.daemon.slot_metrics import LoopAge
from tidegate.daemon.source_holds import SourceHolds
from tidegate.daemon.taps import SlotTaps
from tidegate.errors import AttemptFailed, PipelineStopped, TidegateError
from tidegate.formats.failures import RecordPlace
from tidegate.ids import OperatorName, SlotIndex, SubtaskId, VertexId
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Plan
from tidegate.process.logs import emit_slot_record
from tidegate.slot.faults import ExecutorLacksModule, lacking_module
from tidegate.spark.job_errors import SparkJobEnded
from tidegate.storage.base import StorageError
from tidegate.storage.shared import Proof, StorageNotShared
from tidegate.task.bad_records import DeadLetterRateLimit, TooManyDeadLetters
from tidegate.task.messages import (
    Acknowledged,
    Begin,
    Declined,
    Deploy,
    DriverMessage,
    Heartbeat,
    InputCaughtUp,
    LogRecord,
    PeerAddress,
    RowsTapped,
    Running,
    SchemasWanted,
    SchemaUnfit,
    SlotFailed,
    SlotMessage,
    SlotSettings,
    SourceFinished,
    Stop,
    Stopped,
)

if TYPE_CHECKING:
    from tidegate.daemon.attempt import AttemptRunner


class SlotError(AttemptFailed):
    """A slot failed for a reason that another attempt may resolve."""

    code = "slot-failed"


class SlotRefused(PipelineStopped):
    """A slot failed for a reason that every further attempt would meet again."""

    code = "slot-refused"


def derive_cause(errors: Sequence[TidegateError]) -> TidegateError:
    """Returns the most informative error; among bad records of several slots, the first one of the lowest partition."""
    cause = min(errors, key=_rank)
    others = [error for error in errors if _rank(error) == _rank(cause) and "offset" in error.fields]
    return min(others, key=_place) if cause in others else cause


def _place(error: TidegateError) -> tuple[object, ...]:
    return tuple(error.fields[name] for name in RecordPlace.__struct_fields__)


def _rank(error: TidegateError) -> int:
    """Ranks errors that need a person first, and a lost slot before the errors of its peers."""
    if not error.retriable:
        return 0
    if isinstance(error, SlotLost):
        return 1
    if isinstance(error, SlotError) and error.fields.get("code") in {"peer-lost", "control-lost"}:
        return 4
    return 3 if isinstance(error, SparkJobEnded) else 2


def derive_slot_error(slot: SlotConnection, failed: SlotFailed) -> TidegateError:
    """Turns a slot's failure report into an error that is retriable or not."""
    if failed.code == StorageNotShared.code:
        return StorageNotShared(failed.message)
    if failed.code == ExecutorLacksModule.code:
        return lacking_module(f"{slot} cannot run", failed.message)
    kind = SlotError if failed.retriable else SlotRefused
    text = f"{slot}: {failed.message}" if failed.retriable else failed.message
    place = {} if failed.record is None else msgspec.structs.asdict(failed.record)
    error = kind(text, code=failed.code, fault=failed.fault, **place)
    if failed.traceback:
        error.add_note(failed.traceback)
    return error


logger = logging.getLogger(__name__)


class AttemptSlots:
    """The slots of one attempt. `now_ms` is monotonic."""

    def __init__(
        self,
        plan: Plan,
        restore: RestorePlan,
        services: Services,
        settings: SlotSettings,
        owner: AttemptRunner,
        now_ms: Callable[[], int],
    ) -> None:
        self.token = services.make_token()
        self.running: set[SlotIndex] = set()
        self.all_running = asyncio.Event()
        self.running_since: float | None = None
        self.prepare_s = 0.0
        """The longest time that a sink took to prepare a checkpoint."""
        self._plan = plan
        self._restore = restore
        self._services = services
        self._settings = settings
        self._owner = owner
        self._now_ms = now_ms
        self._connections: list[SlotConnection] = []
        self._unfinished = _bounded_sources(plan)
        self._bounded = bool(self._unfinished)
        self._starting: set[asyncio.Task[None]] = set()
        self._proof = Proof(services.storage, restore.attempt, services.make_token(), services.clock)
        self._open_since_ms: dict[tuple[VertexId, SlotIndex], int | None] = {}
        self._holds = SourceHolds(plan, restore.attempt, self.send_one, services.metrics.on_hold, now_ms)
        self.taps = SlotTaps(self.send_all, plan.parallelism)
        self._letters = DeadLetterRateLimit(
            next((one.per_minute_max for one in plan.operators(DeadLetterOperator)), None)
        )

    @property
    def connections(self) -> list[SlotConnection]:
        """The registered slots, by index."""
        return self._connections

    async def find_cause(self, unseen: StorageNotShared) -> TidegateError:
        """Returns the likely cause of a checkpoint directory that a slot does not share."""
        return await self._services.in_journal_thread(lambda: self._proof.derive_cause(unseen))

    def send_one(self, index: SlotIndex, order: DriverMessage) -> None:
        """Sends a message to one slot."""
        self._connections[index].send(order)

    def send_all(self, message: DriverMessage) -> list[str]:
        """Sends a message to every slot; returns the slots whose connection has ended."""
        return [str(slot) for slot in self._connections if not slot.send(message)]

    def on_registered(self, slot: SlotConnection) -> None:
        """Registers a slot that has connected; the last one starts the deployment."""
        if self._owner.is_ending:
            slot.send(Stop())
            return
        slot.index = SlotIndex(len(self._connections))
        self._connections.append(slot)
        if len(self._connections) == self._plan.parallelism:
            self._begin(self._deploy())

    async def _deploy(self) -> None:
        await self._services.in_journal_thread(self._proof.write_daemons)
        peers = tuple(PeerAddress(slot.hello.host, slot.hello.data_port) for slot in self._connections)
        code_steps = tuple(node.operator.name for node in self._plan.nodes if node.operator.user_code() is not None)
        for slot, restore in zip(self._connections, self._restore.slots, strict=True):
            logger.info("%s is deployed", slot)
            slot.code_steps = code_steps
            slot.begin_watch(asyncio.get_running_loop().time())
            slot.send(
                Deploy(
                    attempt=self._restore.attempt,
                    slot=restore.slot,
                    token=self.token,
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
                    base=self._restore.base,
                )
            )

    def on_message(self, slot: SlotConnection, message: SlotMessage) -> None:
        """Handles a message of a registered slot."""
        assert slot.index is not None
        now_ms = self._now_ms()
        match message:
            case Heartbeat():
                self.on_heartbeat(slot.index, message, now_ms)
            case Acknowledged(ack=ack):
                self.prepare_s = max(self.prepare_s, ack.prepare_ms / 1000)
                self._owner.feed(AckReceived(ack, now_ms))
            case Declined(decline=decline):
                self._owner.feed(DeclineReceived(decline, now_ms))
            case LogRecord():
                emit_slot_record(message, self._restore.attempt, slot.index)
            case Running():
                self._begin(self.check_running(slot, slot.index))
            case SourceFinished(source=source):
                self._on_source_finished(slot.index, source)
            case InputCaughtUp():
                self._holds.on_caught_up(slot.index, message)
            case SchemasWanted(ids=ids):
                self._services.schemas.ask(ids, slot.send)
            case SchemaUnfit(id=schema_id, why=why):
                self._services.schemas.refuse(schema_id, why)
            case RowsTapped():
                self.taps.on_rows(slot.index, message)
            case SlotFailed():
                if message.traceback:
                    logger.error("%s failed:\n%s", slot, message.traceback)
                self._owner.fail(derive_slot_error(slot, message))
            case Stopped():
                slot.stopped = True
            case _:
                raise AttemptFailed(f"{slot} sent an unexpected {type(message).__name__}")

    def on_heartbeat(self, index: SlotIndex, beat: Heartbeat, now_ms: int) -> None:
        """Handles the report that a slot sends about once a second."""
        self._services.metrics.slot_report(
            self._restore.attempt, index, beat.report, LoopAge(beat.loop_age_ms / 1000, beat.user_code)
        )
        self._holds.on_report(index, beat.report.operators)
        try:
            self._letters.on_report(index, beat.report.dead_letters, now_ms)
        except TooManyDeadLetters as stop:
            self._owner.fail(stop)
        timeout_ms = self._settings.transaction_timeout_ms
        for vertex, age_ms in beat.open_transactions.items():
            self._open_since_ms[vertex, index] = None if age_ms is None else now_ms - age_ms
            if self._plan.exactly_once:
                self._owner.feed(OpenTransaction(SubtaskId(vertex, index), age_ms, timeout_ms, now_ms))
        oldest = min((since for since in self._open_since_ms.values() if since is not None), default=None)
        self._services.metrics.oldest_transaction(None if oldest is None else (now_ms - oldest) / 1000)

    async def check_running(self, slot: SlotConnection, index: SlotIndex) -> None:
        """Counts a slot as running once it is proven that the others can read what it stores."""
        await self._services.in_journal_thread(lambda: self._proof.check(index, slot.hello.host))
        if not self._owner.is_over:
            self._on_running(index)
        if self.all_running.is_set():
            with contextlib.suppress(StorageError):  # the next attempt removes them
                await self._services.in_journal_thread(self._proof.remove)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Starts a start-up task; if it fails, the attempt fails."""

        def on_done(task: asyncio.Task[None]) -> None:
            self._starting.discard(task)
            error = None if task.cancelled() else task.exception()
            if isinstance(error, TidegateError):
                self._owner.fail(error)
            elif error is not None:
                logger.error("internal error", exc_info=error)
                self._owner.fail(AttemptFailed(f"internal error: {type(error).__name__}: {error}"))

        task = asyncio.get_running_loop().create_task(work)
        self._starting.add(task)
        task.add_done_callback(on_done)

    def _on_running(self, index: SlotIndex) -> None:
        self.running.add(index)
        for vertex in self._plan.vertices:
            self._owner.feed(SubtaskRunning(SubtaskId(vertex.id, index), self._now_ms()))
        if len(self.running) == self._plan.parallelism:
            self.running_since = asyncio.get_running_loop().time()
            self.all_running.set()
            self._holds.begin()
            self.send_all(Begin())
            self._owner.on_all_running()
            self._end_if_finished()

    def _on_source_finished(self, index: SlotIndex, source: OperatorName) -> None:
        self._unfinished.discard((source, index))
        self._end_if_finished()

    def _end_if_finished(self) -> None:
        """Requests the final checkpoint once every source subtask has reached its end.

        A source may reach its end before its slot counts as running.
        """
        if self._bounded and not self._unfinished and self.all_running.is_set():
            self._bounded = False
            logger.info("all sources have reached their end: taking the final checkpoint")
            self._owner.request_final()


def _bounded_sources(plan: Plan) -> set[tuple[OperatorName, SlotIndex]]:
    """Lists all source subtasks if every source is bounded; an unbounded pipeline never ends by itself."""
    sources = plan.operators(SourceOperator)
    if any(source.until == "never" for source in sources):
        return set()
    return {(source.name, SlotIndex(slot)) for source in sources for slot in range(plan.parallelism)}
