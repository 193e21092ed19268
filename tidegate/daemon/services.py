"""What the daemon owns and its attempts use, in parts: figures beside the stores, and the host of the slots."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.coordinator.journal import Journal
from tidegate.daemon.control_server import ControlServer
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.stores import Stores
from tidegate.spark.host import SparkHost
from tidegate.storage.base import Storage
from tidegate.storage.open import StorageOpener, open_storage


class Services(Stores):
    """The stores, and the figures of what is done with them: all that recovery and janitors need."""

    def __init__(
        self,
        storage: Storage,
        journal: Journal,
        journal_thread: ThreadPoolExecutor,
        kafka: KafkaEdge,
        metrics: PipelineMetrics,
        clock: Clock = SYSTEM_CLOCK,
        open_storage: StorageOpener = open_storage,
        make_token: Callable[[], str] = secrets.token_hex,
    ) -> None:
        super().__init__(storage, journal, journal_thread, kafka, clock, open_storage, make_token)
        self.metrics = metrics


class SlotHost(msgspec.Struct, frozen=True):
    """How slots are brought up and reached."""

    spark: SparkHost
    server: ControlServer
    address: str
    """By which executors reach the daemon."""
