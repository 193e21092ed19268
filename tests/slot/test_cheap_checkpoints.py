"""Checkpoints of small changes are cheap: counted in storage calls and bytes, from the state to the journal (F29)."""

from __future__ import annotations

from collections import Counter

import polars as pl
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME
from tests.operators.rows import make_aggregate
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, SubtaskId, VertexId
from tidegate.journal.journal import Journal
from tidegate.slot.uploads import Uploads
from tidegate.task.loop import UploadJob

KEYS = 10_000
SUBTASK = SubtaskId(VertexId("totals"), SlotIndex(0))
CALLS_MAX = 5
"""A look for the entry before, the journal's entry, whether it counts, what can go, and an old entry that goes."""


class CountingStorage(FakeStorage):
    """Every call, and the bytes of state written."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()
        self.state_bytes = 0

    def put_if_absent(self, name: str, data: bytes) -> bool:
        self.calls["put_if_absent"] += 1
        return super().put_if_absent(name, data)

    def put(self, name: str, data: bytes) -> None:
        self.calls["put"] += 1
        self.state_bytes += len(data)
        super().put(name, data)

    def get(self, name: str) -> bytes:
        self.calls["get"] += 1
        return super().get(name)

    def exists(self, name: str) -> bool:
        self.calls["exists"] += 1
        return super().exists(name)

    def list(self, prefix: str) -> list[str]:
        self.calls["list"] += 1
        return super().list(prefix)

    def delete(self, name: str) -> None:
        self.calls["delete"] += 1
        super().delete(name)


class InlineUploads(Uploads):
    """Does a job at once."""

    def _start(self) -> None:
        """No thread."""

    def _put(self, job: UploadJob | StateHandle) -> None:
        self._do(job)


class Life:
    """One operator, its uploads and the journal."""

    def __init__(self) -> None:
        self.storage = CountingStorage()
        self._operator = make_aggregate(["count(*)", "sum"])
        self._uploads = InlineUploads(self.storage, lambda: None)
        self._journal = Journal(self.storage, ME, retained=2, id_reserve=5)
        self._journal.take_over(IDENTITY, 1)
        self._next = 1

    def process(self, keys: range) -> None:
        self._operator.process(pl.DataFrame({"k": list(keys), "x": [1] * len(keys)}))

    def checkpoint(self) -> CompletedCheckpoint:
        """A whole one; the counters count this one alone."""
        self.storage.calls.clear()
        self.storage.state_bytes = 0
        number, self._next = CheckpointId(self._next), self._next + 1
        state = self._operator.state
        capture = state.capture(number)
        own: tuple[StateHandle, ...] = ()
        if capture.encode is not None:
            name = OperatorName("totals")
            self._uploads.submit(UploadJob(SUBTASK, number, name, capture.encode, increment=capture.increment))
            (result,) = self._uploads.take_results()
            own = result.handles
            state.stored(number, own)
        made = CompletedCheckpoint(number, self._journal.state.attempt, 0, 0, (), (*capture.builds_on, *own), ())
        self._journal.append_checkpoint(made)
        state.completed(number)
        self._journal.clean_up()
        return made


@pytest.fixture
def life() -> Life:
    one = Life()
    one.process(range(KEYS))
    for _ in range(3):  # as many as make the journal's own work the usual one
        one.checkpoint()
    return one


def test_F29_a_checkpoint_in_which_no_key_changed_writes_no_state_and_calls_the_storage_a_few_times(life: Life) -> None:
    before = {name for name in life.storage.shared.objects if name.startswith("state/")}
    made = life.checkpoint()
    assert {handle.path for handle in made.states} == before
    assert life.storage.calls["put"] == 0
    assert life.storage.calls.total() <= CALLS_MAX


@pytest.mark.parametrize("changed", [1, 10, 100, 1000])
def test_F29_a_checkpoint_in_which_few_keys_changed_writes_bytes_for_these(life: Life, changed: int) -> None:
    life.process(range(changed))
    made = life.checkpoint()
    assert [handle.increment for handle in made.states] == [False, True]
    assert life.storage.calls["put"] == 1
    assert life.storage.calls.total() <= CALLS_MAX + 1
    header_bytes = 3000
    assert life.storage.state_bytes <= header_bytes + 10 * changed
    assert made.states[0].size_bytes > 5 * KEYS


def test_F28_old_files_go_when_nothing_builds_on_them_any_more(life: Life) -> None:
    for first in range(0, KEYS, KEYS // 4):
        life.process(range(first, first + KEYS // 4))
        life.checkpoint()
    life.process(range(KEYS))
    made = [life.checkpoint(), life.checkpoint()][-1]
    names = {name for name in life.storage.shared.objects if name.startswith("state/")}
    assert names == {handle.path for handle in made.states}
    assert len(names) == 1
