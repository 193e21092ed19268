"""What the attempts of a daemon use and the daemon owns."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.stores import Stores
from tidegate.ids import Attempt
from tidegate.spark.host import SparkHost
from tidegate.storage.base import Storage
from tidegate.storage.open import StorageOpener, open_storage

LOOK_S: Final = 10.0
"""Between two looks at the topics: a metadata request of a few topics, on a connection that is open anyway."""


class Services(Stores):
    """What an attempt uses and the daemon owns."""

    def __init__(
        self,
        storage: Storage,
        journal: Journal,
        journal_thread: ThreadPoolExecutor,
        kafka: KafkaEdge,
        spark: SparkHost,
        metrics: PipelineMetrics,
        control_host: str,
        on_running: Callable[[Attempt], None],
        on_completed: Callable[[CompletedCheckpoint], None],
        clock: Clock = SYSTEM_CLOCK,
        open_storage: StorageOpener = open_storage,
        make_token: Callable[[], str] = secrets.token_hex,
        look_s: float = LOOK_S,
    ) -> None:
        """`look_s`: between two looks at the topics while an attempt runs."""
        super().__init__(storage, journal, journal_thread, kafka, clock, open_storage, make_token)
        self.spark = spark
        self.metrics = metrics
        self.control_host = control_host
        self.on_running = on_running
        self.on_completed = on_completed
        self.look_s = look_s
