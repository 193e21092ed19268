"""The stores that hold a pipeline's state: its journal, its storage and Kafka. The preflight needs nothing else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from tidegate.clock import SYSTEM_CLOCK, Clock
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.journal.journal import Journal
from tidegate.storage.base import Storage
from tidegate.storage.open import StorageOpener, open_storage

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
