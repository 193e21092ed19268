"""Determines for the checks what a start would continue from, using the journal, the checkpoint storage and Kafka."""

from __future__ import annotations

import logging

from typing_extensions import override

from tidegate.checks.facts import Comparison, StartTarget
from tidegate.checks.unfit_state import refuse_unfit_state
from tidegate.config.load import LoadedPipeline, derive_opener
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.upgrade import Upgrade, UpgradeOutcome
from tidegate.daemon.preflight import run_preflight
from tidegate.daemon.restore_point import StartOptions
from tidegate.daemon.start_offsets import find_ahead, find_lost_input
from tidegate.daemon.stores import Stores
from tidegate.plan.graph import Plan
from tidegate.storage.base import Storage

logger = logging.getLogger(__name__)


def open_checkpoints(loaded: LoadedPipeline) -> Storage:
    """Opens the checkpoint directory of a pipeline file. Raises StorageError."""
    return derive_opener(loaded.settings)(str(loaded.settings.checkpoints.directory))


class StoredTarget(StartTarget):
    """Implements `StartTarget` for a start with these options. It opens `stores.kafka`, which the caller closes."""

    def __init__(self, stores: Stores, options: StartOptions) -> None:
        self._stores = stores
        self._options = options

    @override
    async def try_storage(self) -> None:
        await self._stores.in_journal_thread(self._stores.storage.probe)

    @override
    async def read_journal(self) -> JournalState:
        return await self._stores.in_journal_thread(self._stores.journal.read)

    @override
    async def compare(self, plan: Plan) -> Comparison:
        stores = self._stores
        await stores.kafka.open()
        look = await run_preflight(plan, stores, self._options, first=True, verify=False)
        newest, identity = look.before.newest_checkpoint, look.before.identity
        if not look.goes_back and newest is not None and identity is not None:
            upgrade = await stores.in_journal_thread(
                lambda: refuse_unfit_state(stores.storage, newest, identity, look.facts)
            )
            _log_dropped_state(upgrade)
        restore = look.decide_restore()
        return Comparison(
            await find_lost_input(plan, stores.kafka, restore, continuing=False),
            await find_lost_input(plan, stores.kafka, restore, continuing=True),
            tuple(find_ahead(plan, restore, stores.clock.now_ms())),
            look.goes_back,
        )


def _log_dropped_state(upgrade: Upgrade) -> None:
    """Logs how much state the next checkpoint will drop."""
    for step in upgrade.steps:
        if step.outcome in (UpgradeOutcome.DROPPED, UpgradeOutcome.RESET):
            for state in step.states:
                logger.warning(
                    "step %s is %s: up to %s keys of its state %s, %s bytes, are discarded with the next checkpoint",
                    step.name,
                    step.outcome,
                    f"{state.keys or 0:,}",
                    state.name,
                    f"{state.size_bytes:,}",
                )
