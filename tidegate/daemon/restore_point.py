"""Selects what a recovery restores if not the newest checkpoint: a requested target, or the last intact checkpoint.

The selection runs before the takeover, so that a refused start has no effect, and again after it, when no other daemon
can decide anything. The decisions are in `coordinator/restore_target.py`. The selected checkpoint is appended to the
journal as the newest one, so that there is only one way to restore.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from tidegate.checks.unfit_state import refuse_unfit_rows
from tidegate.config.fields.schemas import LATEST
from tidegate.coordinator.entries import CheckpointEntry, Savepoint
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ledger import key_of
from tidegate.coordinator.recovery import Chosen, RestoreFacts, RestorePlan, decide_restore, refuse_unfit
from tidegate.coordinator.restore_target import (
    Fallback,
    RestoreTarget,
    TransactionStatus,
    carry_positions,
    decide_fallback,
    derive_asked,
    derive_candidates,
    derive_chosen,
    derive_saved,
    describe_output,
    find_retained,
    refuse_damaged,
    refuse_missing_partitions,
    validate_restore_target,
)
from tidegate.coordinator.upgrade import CommandLineDirectives, StoredStates
from tidegate.daemon.recovery_stages import RestorePointAppended, StateVerified, TakenOver, TransactionsResolved
from tidegate.daemon.services import Stores
from tidegate.ids import CheckpointId, OperatorName, is_checkpoint_number
from tidegate.journal.journal import NOTHING_USED, Used
from tidegate.journal.savepoint import check_whole, import_states, mark_of, read_savepoint
from tidegate.journal.state_files import find_damage, read_stored
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.storage.base import Storage, StorageError

logger = logging.getLogger(__name__)


class RestoreOption(msgspec.Struct, frozen=True):
    """The options `tidegate run FILE --restore TARGET [--repeat-output]`."""

    target: str
    """The number of a retained checkpoint, or the path of a savepoint."""
    repeat_output: bool = False


class StartOptions(msgspec.Struct, frozen=True):
    """The options of `tidegate run` that affect the recovery."""

    restore: RestoreOption | None = None
    begin_anew: bool = False
    """Accept an empty checkpoint directory although Kafka knows the pipeline."""
    accept_gone: CheckpointId | None = None
    """The checkpoint whose transactions count as committed even if Kafka no longer knows them."""
    command_line: CommandLineDirectives = CommandLineDirectives()
    """Directives for state of another definition. They apply until they are recorded in the journal."""

    @property
    def repeats_output(self) -> bool:
        """True if the user has agreed that output after the restore point may be written again."""
        return self.restore is not None and self.restore.repeat_output


NO_OPTIONS: Final = StartOptions()


class RestorePointSelector:
    """Selects the restore point of one recovery.

    With `verify`, the newest checkpoint's state is read before its transactions are resolved.
    """

    def __init__(self, services: Stores, facts: RestoreFacts, option: RestoreOption | None, *, verify: bool) -> None:
        self._services = services
        self._facts = facts
        self._option = option
        self._verify = verify
        self._folder: Storage | None = None
        self._savepoint: Savepoint | None = None
        self._damages: dict[CheckpointId, str] = {}

    @property
    def used(self) -> Used:
        """The numbers that the history of a savepoint has used."""
        if self._savepoint is None:
            return NOTHING_USED
        return Used(self._savepoint.checkpoint.attempt, self._savepoint.checkpoint.id)

    async def look(self, state: JournalState) -> RestoreTarget | Fallback | None:
        """Determines what would be restored, without changing anything. None means the newest checkpoint.

        Raises RestoreRefused, SavepointRefused, JournalLost, ObjectCorrupt, StorageError, BrokerUnavailable.
        """
        target = await self._read_restore_target(state)
        if target is not None:
            target = carry_positions(target, state.newest_checkpoint, self._latest)
            assert self._option is not None
            await self._refuse_unfit(target)
            if validate_restore_target(state, target, repeat_output=self._option.repeat_output):
                refuse_missing_partitions(target, self._facts.sources)
                return target
        if self._verify and state.retained:
            return await self._find_fallback(state)
        return None

    @property
    def _latest(self) -> set[OperatorName]:
        """The sources that start at the end of their topics."""
        plan = self._facts.plan
        return set() if plan is None else {one.name for one in plan.operators(SourceOperator) if one.start == LATEST}

    async def get_round_damage(self, owned: TakenOver) -> StateVerified:
        """Falls back to the last intact checkpoint if the newest is damaged and its output can still be aborted.

        From here on the facts are those of `owned`. Raises what `look` raises.
        """
        self._facts = owned.facts
        found = await self.look(self._services.journal.state)
        if not isinstance(found, Fallback):
            return StateVerified(owned.restore, owned.facts)
        kafka = self._services.kafka
        await kafka.abort(found.abort)
        statuses = await kafka.find_transaction_statuses(found.abort)
        left = [one for one in found.abort if statuses[key_of(one)] is not TransactionStatus.ABORTED]
        if left:
            raise BrokerUnavailable(
                f"{len(left)} transactions of a damaged checkpoint are not known to be aborted (first: "
                f"{left[0].transactional_id}, {statuses[key_of(left[0])].value}); nothing is restored until they are"
            )
        logger.error(
            "falling back to checkpoint %d: %s. No output after it was committed. %d transactions were aborted, and "
            "the input is read again",
            found.chosen.checkpoint.id,
            "; ".join(filter(None, self._damages.values())),
            len(found.abort),
        )
        return StateVerified(await self._append(owned.restore, found.chosen), owned.facts)

    async def go_back(self, ended: TransactionsResolved) -> RestorePointAppended:
        """Restores the requested target, if there is one. Raises what `look` raises."""
        found, plan = await self.look(self._services.journal.state), ended.restore
        if not isinstance(found, RestoreTarget):  # if there was a target, another daemon has restored it meanwhile
            return RestorePointAppended(
                plan if plan.slots else decide_restore(self._services.journal.state, self._facts), ended.facts
            )
        chosen = derive_chosen(found, self._facts.identity)
        savepoint, folder, services, mark = self._savepoint, self._folder, self._services, ""
        if savepoint is not None and folder is not None:
            mark = mark_of(savepoint)
            location = folder.location.encode(errors="replace")
            await self._sweep()
            await services.in_journal_thread(lambda: services.storage.put(mark, location))
            states = await services.in_journal_thread(
                lambda: import_states(savepoint, folder, services.storage, plan.first_checkpoint)
            )
            chosen = msgspec.structs.replace(
                chosen, checkpoint=msgspec.structs.replace(chosen.checkpoint, states=states)
            )
        logger.warning("restoring %s, as requested: %s", found.title, describe_output(services.journal.state, found))
        decided = RestorePointAppended(await self._append(plan, chosen), ended.facts)
        if mark:
            await services.in_journal_thread(lambda: services.storage.delete(mark))
        return decided

    async def _sweep(self) -> None:
        """Removes what an interrupted restore has copied, because it may take the space that this one needs."""
        try:
            await self._services.in_journal_thread(self._services.journal.sweep_orphans)
        except StorageError as error:
            logger.warning("files of an interrupted restore were not removed: %s", error.message)

    async def _append(self, plan: RestorePlan, chosen: Chosen) -> RestorePlan:
        journal = self._services.journal
        now_ms = self._services.clock.now_ms()
        await self._services.in_journal_thread(lambda: journal.append_restored(plan, chosen, now_ms))
        return decide_restore(journal.state, self._facts)

    # -- the requested target --------------------------------------------------------------------------------------

    async def _read_restore_target(self, state: JournalState) -> RestoreTarget | None:
        if self._option is None:
            return None
        target = self._option.target
        if is_checkpoint_number(target):
            if state.origin == f"checkpoint {target}":  # done already; it may no longer be retained
                return None
            return find_retained(state, CheckpointId(int(target)))
        if self._savepoint is None:
            services = self._services
            folder = await services.in_journal_thread(lambda: services.open_storage(target, create=False))
            self._folder = folder
            found = await services.in_journal_thread(lambda: read_savepoint(folder))
            if derive_saved(target, found, self._facts.identity).origin == state.origin:
                return None  # done already; by now it may be damaged or not fit the current file
            await services.in_journal_thread(lambda: check_whole(found, folder))
            self._savepoint = found
        return derive_saved(target, self._savepoint, self._facts.identity)

    async def _refuse_unfit(self, target: RestoreTarget) -> None:
        """Refuses a target that does not fit, including its states, before anything is changed for it."""
        services, plan = self._services, self._facts.plan
        storage = services.storage if self._folder is None else self._folder
        stored: StoredStates = {}
        if plan is not None:
            stored = await services.in_journal_thread(lambda: read_stored(storage, target.checkpoint.states))
        upgrade = refuse_unfit(target.checkpoint, target.identity, self._facts, stored)
        if plan is not None:
            states = target.checkpoint.states
            await services.in_journal_thread(lambda: refuse_unfit_rows(storage, plan, states, upgrade))

    # -- damage ----------------------------------------------------------------------------------------------------

    async def _find_fallback(self, state: JournalState) -> Fallback | None:
        if not await self._damage(state.retained[-1]):
            return None
        damages = [self._damages[state.retained[-1].checkpoint.id]]
        for entry in derive_candidates(state):
            damage = await self._damage(entry)
            if damage:
                damages.append(damage)
                continue
            now = self._facts.identity
            statuses = await self._services.kafka.find_transaction_statuses(derive_asked(state, entry, now))
            refuse_unfit(entry.checkpoint, entry.identity, self._facts)
            return decide_fallback(state, entry, statuses, damages, now)
        raise refuse_damaged(state, damages, "no other checkpoint is intact")

    async def _damage(self, entry: CheckpointEntry) -> str:
        """Describes the damage of a checkpoint's state; empty if it is intact.

        Each checkpoint is read once, a damaged one twice. Files that are missing together with the journal do not count
        as damage: the volume was unmounted, and may be mounted again by the second read. Raises JournalLost.
        """
        number, services = entry.checkpoint.id, self._services
        if number not in self._damages:

            def find() -> str:
                return find_damage(services.storage, entry.checkpoint.states)

            found = await services.in_journal_thread(find)
            if found:
                await services.in_journal_thread(services.journal.read)
                found = await services.in_journal_thread(find)
            self._damages[number] = f"checkpoint {number} is damaged: {found}" if found else ""
        return self._damages[number]
