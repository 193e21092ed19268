"""What is damage of a checkpoint, and what is not."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, handle
from tests.support.clusters import alone
from tidegate.committable import Committable
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.recovery import RestoreFacts, RestoreRefused
from tidegate.coordinator.restore_target import Fallback, TransactionStatus
from tidegate.daemon.restore_point import RestorePointSelector
from tidegate.journal.journal import Journal, JournalLost

STATE = b"the totals of checkpoint 2"
WHOLE = msgspec.structs.replace(handle(2), size_bytes=len(STATE), sha256=hashlib.sha256(STATE).hexdigest())


class Directory(FakeStorage):
    """Something happens to it when a state is read."""

    on_reading: Callable[[], None] = staticmethod(lambda: None)

    def get_range(self, name: str, start: int, length: int) -> bytes:
        self.on_reading()
        return super().get_range(name, start, length)


class Start:
    """A daemon that starts after the death of another one between the decision of checkpoint 2 and its commit."""

    def __init__(self, fate: TransactionStatus) -> None:
        self.storage = Directory()
        before = Journal(self.storage, OTHER, retained=3, id_reserve=5)
        before.take_over(IDENTITY, 1)
        before.append_checkpoint(completed(1))
        before.append_checkpoint(completed(2, states=[WHOLE], committables=[committable(2)]))
        self.storage.put(WHOLE.path, STATE)
        self.journal = Journal(self.storage, ME, retained=3, id_reserve=5)
        self.asked = 0
        """How often Kafka was asked what became of the transactions after an older checkpoint."""
        self._fate = fate
        services = SimpleNamespace(
            storage=self.storage, journal=self.journal, kafka=alone(self), in_journal_thread=self._at_once
        )
        self._services = cast("Any", services)

    async def _at_once(self, call: Callable[[], Any]) -> Any:
        return call()

    async def find_transaction_statuses(self, wanted: tuple[Committable, ...]) -> dict[Key, TransactionStatus]:
        self.asked += 1
        return {key_of(one): self._fate for one in wanted}

    def look(self) -> object:
        """What would be done in place of restoring the newest checkpoint."""
        state = self.journal.read()
        restore_point = RestorePointSelector(self._services, RestoreFacts(IDENTITY, {}, frozenset()), None, verify=True)
        return asyncio.run(restore_point.look(state))


def test_a_file_that_is_missing_is_damage() -> None:
    for fate in (TransactionStatus.OPEN, TransactionStatus.COMMITTED):
        start = Start(fate)
        start.storage.delete(WHOLE.path)
        if fate is TransactionStatus.OPEN:
            assert isinstance(start.look(), Fallback)
        else:
            with pytest.raises(RestoreRefused, match=f"checkpoint 2 is damaged: memory: there is no {WHOLE.path}"):
                start.look()
        assert start.asked == 1


@pytest.mark.parametrize("fate", [TransactionStatus.OPEN, TransactionStatus.COMMITTED])
@pytest.mark.parametrize("taken_over", [False, True])
def test_X03_a_file_that_is_missing_with_the_whole_directory_is_no_damage(
    fate: TransactionStatus, taken_over: bool
) -> None:
    """The volume was unmounted: nothing may be aborted for that, and no message may offer to repeat output."""
    start = Start(fate)
    if taken_over:
        start.journal.take_over(IDENTITY, 2)
    start.storage.on_reading = start.storage.shared.objects.clear
    with pytest.raises(JournalLost, match="the volume was unmounted"):
        start.look()
    assert start.asked == 0


def test_X03_a_file_that_is_missing_only_while_the_directory_is_away_is_no_damage() -> None:
    """It is mounted again when it is looked for."""
    start = Start(TransactionStatus.OPEN)
    objects, shared = dict(start.storage.shared.objects), start.storage.shared

    def unmount() -> None:
        shared.objects = {}
        start.storage.on_reading = lambda: None

    def list_again(prefix: str) -> list[str]:
        shared.objects = objects
        return FakeStorage.list(start.storage, prefix)

    start.storage.on_reading = unmount
    start.storage.list = list_again  # type: ignore[method-assign]  # mounted by the first look at the journal
    assert start.look() is None
    assert start.asked == 0
