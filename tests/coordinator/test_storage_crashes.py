"""A daemon dies before and after every single storage call of its life; the next one loses nothing and leaves nothing.

The life: takeovers, incremental checkpoints that share objects, clean-up, a sweep, a savepoint, a checkpoint that is
chosen again, a savepoint that is imported. (Every system call inside one storage call: tests/storage.)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, completed, handle, positions
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.restore_target import RestoreTarget, derive_chosen, find_retained
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions, StateHandle
from tidegate.ids import CheckpointId, JournalSequence, OperatorName
from tidegate.journal.journal import Journal
from tidegate.journal.savepoint import METADATA, import_states, read_savepoint, write_savepoint
from tidegate.storage.base import Storage
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import JOURNAL_PREFIX, STATE_PREFIX, journal_name

FACTS = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 2}}, frozenset({OperatorName("totals")}))
RETAINED = 2
Maker = Callable[[], Storage]


class Death(BaseException):
    """The process is gone."""


class MortalStorage:
    """Dies at its n-th call: before it has an effect, or after it. The first call is 1; 0 never dies."""

    def __init__(self, inner: Storage, dies_at: int = 0, *, behind: bool = False) -> None:
        self.location = inner.location
        self.calls = 0
        self._inner, self._dies_at, self._behind = inner, dies_at, behind

    def _call(self, name: str, *arguments: object) -> object:
        self.calls += 1
        if self.calls == self._dies_at and not self._behind:
            raise Death
        result = getattr(self._inner, name)(*arguments)
        if self.calls == self._dies_at:
            raise Death
        return result

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return bool(self._call("put_if_absent", name, data))

    def put(self, name: str, data: bytes) -> None:
        self._call("put", name, data)

    def get(self, name: str) -> bytes:
        result = self._call("get", name)
        assert isinstance(result, bytes)
        return result

    def get_range(self, name: str, start: int, length: int) -> bytes:
        result = self._call("get_range", name, start, length)
        assert isinstance(result, bytes)
        return result

    def exists(self, name: str) -> bool:
        return bool(self._call("exists", name))

    def list(self, prefix: str) -> list[str]:
        result = self._call("list", prefix)
        assert isinstance(result, list)
        return result

    def delete(self, name: str) -> None:
        self._call("delete", name)

    def delete_all(self, names: Sequence[str]) -> None:
        for name in names:
            self.delete(name)

    def probe(self) -> None:
        self._call("probe")


class Life:
    """What one daemon does; `decided` is the newest checkpoint whose append has returned."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.decided = CheckpointId(0)
        self.journal = Journal(storage, ME, retained=RETAINED, id_reserve=5)

    def run(self) -> None:
        first = self.take_over()
        base = self.put(first, 0)
        for number in range(first, first + 4):
            own = self.put(CheckpointId(number), 1)
            self.append(completed(number, attempt=self.journal.state.attempt, states=[base, own], at=at(number)))
            self.journal.clean_up()
        self.put(CheckpointId(first + 4), 1)  # undecided when the attempt ends
        saved = self.journal.state.retained[-1].checkpoint
        write_savepoint(self.storage, self.storage, "savepoints/s", saved, IDENTITY, "token")
        self.take_over()
        self.choose_oldest()
        self.take_over()
        self.choose_savepoint()
        self.journal.clean_up()

    def put(self, checkpoint: CheckpointId, subtask: int) -> StateHandle:
        data = f"state {checkpoint} {subtask}".encode()
        made = handle(checkpoint, subtask=subtask, size=len(data))
        self.storage.put(made.path, data)
        return msgspec.structs.replace(made, sha256=hashlib.sha256(data).hexdigest())

    def take_over(self) -> CheckpointId:
        self.journal.take_over(IDENTITY, 1)
        self.journal.sweep_orphans()
        self.journal.clean_up()
        return decide_restore(self.journal.state, FACTS).first_checkpoint

    def append(self, checkpoint: CompletedCheckpoint) -> None:
        self.journal.append_checkpoint(checkpoint)
        self.decided = checkpoint.id

    def choose_oldest(self) -> None:
        plan = decide_restore(self.journal.state, FACTS)
        oldest = find_retained(self.journal.state, self.journal.state.retained[0].checkpoint.id)
        self.journal.append_restored(plan, derive_chosen(oldest, IDENTITY), 2)
        self.decided = plan.first_checkpoint
        self.journal.clean_up()

    def choose_savepoint(self) -> None:
        plan = decide_restore(self.journal.state, FACTS)
        folder = _Folder(self.storage, "savepoints/s")
        found = read_savepoint(folder)
        states = import_states(found, folder, self.storage, plan.first_checkpoint)
        target = RestoreTarget("savepoint", "savepoint token", found.checkpoint, found.identity, retained=False)
        chosen = derive_chosen(target, IDENTITY)
        checkpoint = msgspec.structs.replace(chosen.checkpoint, states=states)
        self.journal.append_restored(plan, msgspec.structs.replace(chosen, checkpoint=checkpoint), 3)
        self.decided = plan.first_checkpoint


class _Folder(FakeStorage):
    """A folder of a storage, to be read as a storage of its own."""

    def __init__(self, inner: Storage, folder: str) -> None:
        super().__init__()
        self._inner, self._folder = inner, folder

    def get(self, name: str) -> bytes:
        return self._inner.get(f"{self._folder}/{name}")


def at(number: int) -> list[SourcePositions]:
    return [positions("orders", {"orders": {0: number, 1: number}})]


def check(storage: Storage, life: Life) -> None:
    """What the next daemon finds, and what it leaves."""
    journal = Journal(storage, OTHER, retained=RETAINED, id_reserve=5)
    before = journal.read()
    assert (before.newest_checkpoint.id if before.newest_checkpoint else 0) >= life.decided, "a decision is lost"
    state = journal.take_over(IDENTITY, 9)
    assert state.retained == before.retained[-RETAINED:]
    journal.sweep_orphans()
    journal.clean_up()
    listed = {one.path: one.sha256 for entry in state.retained for one in entry.checkpoint.states}
    found = {name: hashlib.sha256(storage.get(name)).hexdigest() for name in storage.list(STATE_PREFIX)}
    assert found == listed, "an object is missing, or an orphan is left"
    assert state.newest is not None
    entries = [journal_name(JournalSequence(n)) for n in range(state.newest.floor, state.newest.sequence + 1)]
    assert storage.list(JOURNAL_PREFIX) == entries
    if f"savepoints/s/{METADATA}" in storage.list("savepoints/"):
        folder = _Folder(storage, "savepoints/s")
        for one in read_savepoint(folder).checkpoint.states:
            assert hashlib.sha256(folder.get(one.path)).hexdigest() == one.sha256


def die_everywhere(make: Maker, step: int = 1) -> int:
    """At every `step`-th call; how many calls a life has."""
    whole = MortalStorage(make())
    Life(whole).run()
    for number in range(1, whole.calls + 1, step):
        for behind in (False, True):
            inner = make()
            life = Life(MortalStorage(inner, number, behind=behind))
            with pytest.raises(Death):
                life.run()
            check(inner, life)
    return whole.calls


@pytest.mark.slow
def test_C30_C31_a_death_at_any_storage_call_loses_nothing_and_leaves_nothing() -> None:
    assert die_everywhere(FakeStorage) > 50


@pytest.mark.slow
def test_C30_C31_a_death_at_any_storage_call_in_a_real_directory(tmp_path: Path) -> None:
    made = 0

    def make() -> LocalStorage:
        nonlocal made
        made += 1
        return LocalStorage(str(tmp_path / str(made)))

    assert die_everywhere(make, step=3) > 50
