"""The services that the daemon owns and its attempts use: stores with metrics, the host of the slots, and the settings.

The stores hold a pipeline's state: its journal, its storage and Kafka. The preflight needs nothing else.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import msgspec

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.config.models import PipelineSettings
from tidegate.coordinator.restart import RestartStrategy
from tidegate.coordinator.triggers import FIRST_TRIGGER_MS, CheckpointPolicy
from tidegate.daemon.control_server import ControlServer
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.progress_lines import ProgressLines
from tidegate.daemon.schema_service import SchemaService
from tidegate.journal.journal import Journal
from tidegate.spark.host import SparkHost
from tidegate.storage.base import Storage
from tidegate.storage.open import StorageOpener, open_storage, scheme_of
from tidegate.task.messages import SlotSettings
from tidegate.user_code.files import LocalFile

LOOK_S: Final = 10.0
"""Interval between checks of the topics: one metadata request for a few topics, on a connection that is open anyway."""

NEW_TOPICS_S: Final = 60.0
"""Interval between searches for new topics of a pattern. Each topic that is found costs an attempt."""


class AttemptSettings(msgspec.Struct, frozen=True):
    """Settings that all attempts of a daemon share."""

    checkpoints: CheckpointPolicy
    restarts: RestartStrategy
    slots: SlotSettings
    start_timeout_s: float
    look_s: float = LOOK_S
    """Interval between checks of the topics for new partitions."""
    new_topics_s: float = NEW_TOPICS_S


def derive_attempt_settings(settings: PipelineSettings, log_level: int) -> AttemptSettings:
    """Derives the settings from the pipeline file."""
    checkpoints, restart, runtime = settings.checkpoints, settings.restart, settings.runtime
    return AttemptSettings(
        CheckpointPolicy(
            interval_ms=checkpoints.interval_ms,
            timeout_ms=checkpoints.timeout_ms,
            min_pause_ms=checkpoints.min_pause_ms,
            max_concurrent=checkpoints.max_concurrent,
            tolerable_failures=checkpoints.tolerable_failures,
            retained=checkpoints.retained,
            first_ms=min(checkpoints.interval_ms, FIRST_TRIGGER_MS),
        ),
        RestartStrategy(
            initial_ms=restart.initial_ms,
            max_ms=restart.max_ms,
            give_up_failures=restart.give_up_after.failures,
            give_up_window_ms=restart.give_up_after.within_ms,
        ),
        SlotSettings(
            group_id=settings.name,
            storage_url=str(checkpoints.directory),
            transaction_timeout_ms=checkpoints.transaction_timeout_ms,
            checkpoint_interval_ms=checkpoints.interval_ms,
            max_concurrent=checkpoints.max_concurrent,
            heartbeat_interval_ms=runtime.heartbeat_interval_ms,
            lease_ms=runtime.heartbeat_timeout_ms,
            pipeline_log_level=log_level,
            unaligned_after_ms=checkpoints.unaligned.after_ms,
            checkpoints_retained=checkpoints.retained,
            state_backend=settings.state.backend,
            storage=checkpoints.storage.options,
            local_copies_max_bytes=_derive_copies_max(settings),
        ),
        runtime.start_timeout_ms / 1000,
    )


def _derive_copies_max(settings: PipelineSettings) -> int:
    """Returns 0 for a mounted directory by default: the machine's page cache already holds copies of its files."""
    wanted = settings.state.local_copies
    mounted = scheme_of(str(settings.checkpoints.directory)) == "file"
    return 0 if wanted == "never" or (wanted == "auto" and mounted) else settings.state.local_copies_max_bytes


T = TypeVar("T")


class Stores(msgspec.Struct, frozen=True):
    """The stores of one pipeline. Journal and storage are accessed in `journal_thread` only."""

    storage: Storage
    journal: Journal
    journal_thread: ThreadPoolExecutor
    kafka: KafkaClusters
    clock: Clock = SYSTEM_CLOCK
    open_storage: StorageOpener = open_storage
    make_token: Callable[[], str] = secrets.token_hex

    async def in_journal_thread(self, call: Callable[[], T]) -> T:
        """Runs a call that accesses the journal or the state files; raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self.journal_thread, call)


class Services(Stores, frozen=True, kw_only=True):
    """The stores with their metrics: all that recovery and housekeeping need."""

    metrics: PipelineMetrics
    files: tuple[LocalFile, ...] | None = None
    """The files of `code:` on this machine; None in the simulation, which has none and never looks for any."""
    schemas: SchemaService = msgspec.field(default_factory=SchemaService)
    progress: ProgressLines = msgspec.field(default_factory=ProgressLines)


async def _do_nothing() -> None:
    """Waits for nothing."""


class SlotHost(msgspec.Struct, frozen=True):
    """How slots are started and reached."""

    spark: SparkHost
    server: ControlServer
    address: str
    """The address by which executors reach the daemon."""
    wait_open: Callable[[], Awaitable[None]] = _do_nothing
    """Waits until Spark offers the slots. Raises what prevents that."""
