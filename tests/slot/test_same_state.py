"""The same random workload on both backends, killed and restored again and again: after each restore the same state.

What runs is production: states, increments, uploads, the journal with its clean-up, copies on the machine, the restore.
What is read are tables, and what they have to be is known from a dictionary. Checkpoints are given up, notices of
completed ones come late or never, keys change while a snapshot is encoded, and each restore has another parallelism.

`TIDEGATE_KILLS=1000 pytest tests/slot/test_same_state.py` plays more, `TIDEGATE_SEED` chooses another workload.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME
from tests.slot.test_cheap_checkpoints import InlineUploads
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.datatypes import BIGINT, DATE, STRING
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, StateName, SubtaskId, VertexId
from tidegate.journal.journal import Journal
from tidegate.plan.assignment import key_group_range
from tidegate.slot.copies import LocalCopies, RestoredFiles
from tidegate.state.backends import choose_backend
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.storage.names import checkpoint_of_state
from tidegate.tables.files import list_states, read_files
from tidegate.tables.source import StateSnapshot
from tidegate.tables.table import StateTable, read_frames
from tidegate.task.loop import UploadJob
from tidegate.task.restore import restore_states

KILLS = int(os.environ.get("TIDEGATE_KILLS", "20"))
SEED = int(os.environ.get("TIDEGATE_SEED", "2026"))
GROUPS = 16
STEP = OperatorName("step")
DECLARED = StateDeclaration(
    StateName("totals"),
    StateShape(
        keys=(StateField("k", STRING), StateField("n", BIGINT)),
        values=(StateField("sum", BIGINT, nullable=False), StateField("name", STRING), StateField("day", DATE)),
        key_hash="sum of bytes",
        max_parallelism=GROUPS,
    ),
)
EPOCH = dt.date(1970, 1, 1)

Rows = dict[tuple[str | None, int], tuple[int, str | None, dt.date | None]]


def groups_of(rows: Sequence[tuple[Any, ...]]) -> list[int]:
    return [sum((row[0] or "").encode()) % GROUPS for row in rows]


class Change(msgspec.Struct, frozen=True):
    """Of one batch of records."""

    put: Rows
    deleted: tuple[tuple[str | None, int], ...]


def draw(dice: random.Random) -> Change:
    """Some hot keys and many cold ones, NULLs and what is not ASCII among them."""

    def key() -> tuple[str | None, int]:
        number = min(dice.randrange(600), dice.randrange(600))
        return dice.choice([None, f"key-{number}", f"é{number}"]), number % 3

    keys = {key() for _ in range(dice.choice([1, 10, 150]))}
    put: Rows = {
        one: (
            dice.randrange(-(2**63), 2**63),
            dice.choice([None, "", "x" * dice.randrange(60)]),
            None if dice.random() < 0.3 else EPOCH + dt.timedelta(days=dice.randrange(-900, 30_000)),
        )
        for one in sorted(keys, key=repr)
    }
    return Change(put, tuple(sorted({key() for _ in range(len(put) // 2)} - keys, key=repr)))


class Life:
    """A pipeline of one step on one backend, through all its deaths."""

    def __init__(self, backend: str, folder: Path) -> None:
        self.storage = FakeStorage()
        self.happened: Counter[str] = Counter()
        self._backend = backend
        self._folder = folder
        self._next = 1
        self._parallelism = 0
        self._journal = Journal(self.storage, ME, retained=2, id_reserve=5)
        self._begin(1)

    def _begin(self, parallelism: int) -> None:
        former, self._parallelism = self._parallelism, parallelism
        self._first = True
        self._identity = msgspec.structs.replace(IDENTITY, parallelism=parallelism, max_parallelism=GROUPS)
        self._journal.take_over(self._identity, 1)
        newest = self._journal.state.newest_checkpoint
        self._next = max(self._next, self._journal.state.reserved_to) + 1
        open_state = choose_backend(self._backend, retained=2)
        self._states: list[Any] = [open_state(STEP, DECLARED, groups_of) for _ in range(parallelism)]
        base = frozenset[CheckpointId]()
        if newest is not None and former == parallelism:
            base = frozenset(number for one in newest.states if (number := checkpoint_of_state(one.path)) is not None)
        copies = LocalCopies(self._folder, "shop", 1 << 40, base)
        self._uploads = InlineUploads(self.storage, lambda: None)
        self._uploads.copies = self._copies = copies
        files = RestoredFiles(self.storage, copies)
        for slot, state in enumerate(self._states):
            groups = key_group_range(SlotIndex(slot), parallelism, GROUPS)
            share = Share(groups, slot, parallelism)
            handles = () if newest is None else newest.states
            if base:
                handles = tuple(one for one in handles if one.subtask == slot)
            restore_states(
                STEP,
                {DECLARED.name: state},
                handles,
                lambda handle, groups=groups: files.read_parts(handle, groups),  # type: ignore[misc]  # bound early
                share,
                same_key_groups=bool(base),
            )
            copies.restored([one.path for one in handles])
            self.happened["increments restored"] += any(handle.increment for handle in handles)
        self.happened["bytes from copies"] += files.copied_bytes
        self.happened["bytes from storage"] += files.fetched_bytes

    def kill(self, parallelism: int, *, machine: bool) -> None:
        """Everything that was not in a completed checkpoint is gone; with `machine` its disk, too."""
        for state in self._states:
            state.close()
        self._copies.close()
        if machine:
            for path in self._folder.glob("*/*/*"):
                path.unlink()
        self._begin(parallelism)

    def change(self, change: Change) -> None:
        for slot, state in enumerate(self._states):
            groups = key_group_range(SlotIndex(slot), self._parallelism, GROUPS)
            own = [one for one, group in zip(change.put, groups_of(list(change.put)), strict=True) if group in groups]
            values = [change.put[one] for one in own]
            state.put_many(own, [(n, name, day and (day - EPOCH).days) for n, name, day in values])
            gone = zip(change.deleted, groups_of(list(change.deleted)), strict=True)
            state.delete_many([one for one, group in gone if group in groups])

    def checkpoint(self, meanwhile: Change, *, given_up: bool, noticed: bool) -> None:
        """What changes meanwhile is not in it."""
        number, self._next = CheckpointId(self._next), self._next + 1
        first, self._first = self._first, False
        captures = [state.capture(number) for state in self._states]
        self.change(meanwhile)
        handles: list[StateHandle] = []
        for slot, (state, capture) in enumerate(zip(self._states, captures, strict=True)):
            subtask = SubtaskId(VertexId(STEP), SlotIndex(slot))
            own: tuple[StateHandle, ...] = ()
            if capture.encode is not None:
                job = UploadJob(subtask, number, STEP, capture.encode, increment=capture.increment, state=DECLARED.name)
                self._uploads.submit(job)
                (result,) = self._uploads.take_results()
                assert not result.error
                own = result.handles
                state.stored(number, own)
            handles += (*capture.builds_on, *own)
            self.happened["built on restored files"] += first and bool(capture.builds_on)
            if given_up:
                state.abandoned(number)
                self._uploads.discard(own)
        self._copies.acknowledged(number, [handle.path for handle in handles])
        if given_up:
            return
        made = CompletedCheckpoint(number, self._journal.state.attempt, 0, 0, (), tuple(handles), ())
        self._journal.append_checkpoint(made)
        if noticed:
            self._copies.completed(number)
            for state in self._states:
                state.completed(number)
        self._journal.clean_up()

    def read(self) -> pl.DataFrame:
        """The newest checkpoint, as anybody reads it."""
        newest = self._journal.state.newest_checkpoint
        assert newest is not None
        snapshot = StateSnapshot("newest", self.storage, newest, self._identity, retained=True)
        (state,) = list_states(snapshot)
        files = read_files(snapshot, state)
        table = StateTable(files.shape)
        frame = pl.concat([table.empty(), *read_frames(snapshot, files, table)])
        return frame.sort(frame.columns)

    def close(self) -> None:
        for state in self._states:
            state.close()
        self._copies.close()


def as_rows(frame: pl.DataFrame) -> Rows:
    rows = [((k, n), (total, name, day)) for k, n, total, name, day, *_ in frame.iter_rows()]
    assert len(dict(rows)) == len(rows), "a key is there twice"
    return dict(rows)


@pytest.mark.slow
def test_F17_F18_F28_both_backends_have_the_state_of_a_model_after_every_restore(tmp_path: Path) -> None:
    print(f"seed {SEED}, {KILLS} kills")
    dice = random.Random(SEED)
    for backend in ("memory", "rocksdb"):
        (tmp_path / backend).mkdir()
    lives = [Life(backend, tmp_path / backend) for backend in ("memory", "rocksdb")]
    model: Rows = {}
    durable: Rows = {}
    happened: Counter[str] = Counter()

    def change() -> Change:
        made = draw(dice)
        model.update(made.put)
        for key in made.deleted:
            happened["deleted"] += model.pop(key, None) is not None
        return made

    for kill in range(KILLS):
        for _ in range(dice.randrange(1, 6)):
            for made in [change() for _ in range(dice.randrange(1, 5))]:
                for life in lives:
                    life.change(made)
            held = dict(model)
            meanwhile, given_up, noticed = change(), dice.random() < 0.2, dice.random() < 0.9
            for life in lives:
                life.checkpoint(meanwhile, given_up=given_up, noticed=noticed)
            durable = durable if given_up else held
            happened["given up"] += given_up
        lost = change()
        parallelism, machine = dice.randrange(1, 5), dice.random() < 0.2
        for life in lives:
            life.change(lost)
            life.kill(parallelism, machine=machine)
        model = dict(durable)
        nothing = Change({}, ())
        for life in lives:
            life.checkpoint(nothing, given_up=False, noticed=True)  # all that was restored, and nothing else
        frames = [life.read() for life in lives]
        assert as_rows(frames[0]) == model, f"kill {kill}"
        assert frames[0].equals(frames[1]), f"kill {kill}"
    for life in lives:
        life.close()
        happened += life.happened
    print(f"{len(model)} keys; {dict(happened)}")
    for one in (
        "given up",
        "deleted",
        "increments restored",
        "built on restored files",
        "bytes from copies",
        "bytes from storage",
    ):
        assert happened[one] > 0, f"{one} did not happen"
