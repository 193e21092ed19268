"""Snapshots of states in memory: files as slots write them, in a storage that counts what is read."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from tests.coordinator.fake_storage import FakeStorage
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle, StateKind
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, StateName
from tidegate.journal.state_files import derive_head
from tidegate.storage.checksum import seal
from tidegate.tables.source import StateSnapshot


class Written(NamedTuple):
    """A file of a state, before it is stored."""

    data: bytes
    subtask: int = 0
    increment: bool = False
    state: str = "totals"
    step: str = "step"
    kind: StateKind = StateKind.OPERATOR


class CountingStorage(FakeStorage):
    """`reads`: bytes that were read of each object."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()

    def get(self, name: str) -> bytes:
        found = super().get(name)
        self.reads[name] += len(found)
        return found

    def get_range(self, name: str, start: int, length: int) -> bytes:
        found = FakeStorage.get(self, name)[start : start + length]
        self.reads[name] += len(found)
        return found


def make_snapshot(
    files: Iterable[Written], groups: int, parallelism: int = 1, *, storage: FakeStorage | None = None
) -> StateSnapshot:
    """A savepoint that holds these files, in this order."""
    held = CountingStorage() if storage is None else storage
    handles = []
    for number, file in enumerate(files):
        data = seal(file.data)
        path = f"state/{number:05d}-{file.step}-{file.subtask}.state"
        held.put(path, data)
        head_bytes, head_sha256 = derive_head(data)
        handles.append(
            StateHandle(
                OperatorName(file.step),
                SlotIndex(file.subtask),
                path,
                len(data),
                hashlib.sha256(data).hexdigest(),
                kind=file.kind,
                increment=file.increment,
                state=StateName(file.state),
                head_bytes=head_bytes,
                head_sha256=head_sha256,
            )
        )
    checkpoint = CompletedCheckpoint(CheckpointId(7), Attempt(1), 0, 0, (), tuple(handles), ())
    identity = Identity("shop", {}, parallelism, groups)
    return StateSnapshot("savepoint memory", held, checkpoint, identity, retained=False)
