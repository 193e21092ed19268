"""One checkpoint and one recovery, each in a process of its own on a real checkpoint directory, and the invariants
afterwards.

Without brokers: covers what is uploaded, journalled, cleaned up, taken over and swept. `judge` is a fresh recovery that
examines what a crash has left.
"""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.coordinator.values import IDENTITY, committable, completed, positions
from tests.support.crash_tracer import Child
from tidegate.coordinator.entries import Takeover, Writer
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.types import CompletedCheckpoint, StateHandle
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, SubtaskId, VertexId
from tidegate.journal.journal import AppendUnsettled, Journal
from tidegate.slot.uploads import Uploads
from tidegate.storage.base import StorageError
from tidegate.storage.checksum import seal, unseal
from tidegate.storage.local import STALE_AFTER_S, UNFINISHED, LocalStorage
from tidegate.storage.names import state_name
from tidegate.task.loop import Uploaded, UploadJob

RETAINED: Final = 2
ID_RESERVE: Final = 5
BASE: Final = 3
"""Checkpoints 1 to 3 of the initial directory; the first is already cleaned up."""
OPERATORS: Final = (OperatorName("totals"), OperatorName("names"))
UPLOAD_LIMIT_S: Final = 30.0
FACTS: Final = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 1}}, frozenset(OPERATORS))


def journal_of(storage: LocalStorage, token: str) -> Journal:
    return Journal(storage, Writer(token, "host", os.getpid()), retained=RETAINED, id_reserve=ID_RESERVE)


def body(checkpoint: int, operator: str) -> bytes:
    """Returns the state of the operator at this checkpoint."""
    return f"{operator} at {checkpoint} ".encode() * 500


def handle_of(checkpoint: int, operator: OperatorName) -> StateHandle:
    data = seal(body(checkpoint, operator))
    path = state_name(CheckpointId(checkpoint), operator, SlotIndex(0))
    return StateHandle(operator, SlotIndex(0), path, len(data), hashlib.sha256(data).hexdigest(), 0, "")


def checkpoint_of(number: int, attempt: int) -> CompletedCheckpoint:
    return completed(
        number,
        attempt=attempt,
        at=[positions("orders", {"orders": {0: 100 * number}})],
        states=[handle_of(number, operator) for operator in OPERATORS],
        committables=[committable(number)],
    )


def build(root: Path) -> None:
    """Creates a directory with a takeover and three checkpoints, two of them retained, and nothing else."""
    storage = LocalStorage(str(root))
    journal = journal_of(storage, "builder")
    journal.take_over(IDENTITY, 1)
    for number in range(1, BASE + 1):
        for operator in OPERATORS:
            storage.put(handle_of(number, operator).path, seal(body(number, operator)))
        journal.append_checkpoint(checkpoint_of(number, journal.state.attempt))
        journal.clean_up()


def litter(root: Path) -> None:
    """Adds what a daemon that died during a checkpoint leaves: unlisted state, an unfinished write, an old entry."""
    storage = LocalStorage(str(root))
    for operator in OPERATORS:
        storage.put(handle_of(BASE + 1, operator).path, seal(body(BASE + 1, operator)))
    old = root / UNFINISHED / "old"
    old.write_bytes(b"half")
    os.utime(old, (0, 0))


def take_checkpoints(child: Child, root: Path) -> None:
    """Runs a daemon that takes a checkpoint: uploads in the helper thread, append, clean-up. If it fails, takes the
    next one.

    Prints `attempts N`, `decided N`, `failed N` and `cleaned`.
    """
    storage = LocalStorage(str(root))
    journal = journal_of(storage, "daemon")
    journal.take_over(IDENTITY, 1)
    first = journal.state.newest
    assert isinstance(first, Takeover)
    child.begin()
    uploaded = threading.Event()
    uploads = Uploads(storage, uploaded.set)
    with ThreadPoolExecutor(1, "journal") as thread:
        for number in range(first.first_checkpoint, first.first_checkpoint + 2):
            child.tell(f"attempts {number}")
            if _take(child, journal, thread, uploads, uploaded, number):
                break
    uploads.close(UPLOAD_LIMIT_S)


def _take(
    child: Child, journal: Journal, thread: ThreadPoolExecutor, uploads: Uploads, uploaded: threading.Event, number: int
) -> bool:
    for operator in OPERATORS:
        data = body(number, operator)
        subtask = SubtaskId(VertexId(operator), SlotIndex(0))
        uploads.submit(UploadJob(subtask, CheckpointId(number), operator, lambda data=data: [data]))  # type: ignore[misc]  # mypy cannot infer a lambda with a default
    results: list[Uploaded] = []
    while len(results) < len(OPERATORS):
        assert uploaded.wait(UPLOAD_LIMIT_S), "no upload ended"
        uploaded.clear()
        results += uploads.take_results()
    if any(not result.handles for result in results):
        child.tell(f"failed {number}")
        return False
    assert {result.handles for result in results} == {(handle_of(number, operator),) for operator in OPERATORS}
    try:
        thread.submit(journal.append_checkpoint, checkpoint_of(number, journal.state.attempt)).result()
    except AppendUnsettled:
        child.tell(f"failed {number}")
        thread.submit(_take_over_again, journal).result()
        return False
    except StorageError:
        child.tell(f"failed {number}")
        return False
    child.tell(f"decided {number}")
    try:
        thread.submit(journal.clean_up).result()
    except StorageError:
        return True  # logged and left to the next one
    child.tell("cleaned")
    return True


def _take_over_again(journal: Journal) -> None:
    journal.take_over(IDENTITY, 2)


def recover(child: Child, root: Path) -> None:
    """Runs a recovery: reads, takes over, decides, loads the state, sweeps. Prints `owns N`, `restores N`, `swept`."""
    child.begin()
    storage = LocalStorage(str(root))
    journal = journal_of(storage, "recovering")
    decide_restore(journal.read(), FACTS)
    state = journal.take_over(IDENTITY, 2)
    child.tell(f"owns {state.attempt}")
    restore = decide_restore(state, FACTS)
    assert restore.checkpoint is not None
    for handle in restore.checkpoint.states:
        _load(storage, handle)
    child.tell(f"restores {restore.checkpoint.id}")
    journal.sweep_orphans()
    journal.clean_up()
    child.tell("swept")


def _load(storage: LocalStorage, handle: StateHandle) -> None:
    data = storage.get(handle.path)
    assert hashlib.sha256(data).hexdigest() == handle.sha256
    unseal(handle.path, data)


def judge(root: Path, told: str) -> str:
    """Runs a fresh recovery; returns a short text that names the allowed state it found. Raises AssertionError.

    Allowed: the journal can be read. The newest checkpoint is the last one reported as decided, or one attempted after
    it, and it is complete. Ids are never reused. After sweeping nothing unneeded is left, and the pipeline continues.
    """
    decided = [int(line.split()[1]) for line in told.splitlines() if line.startswith("decided ")]
    attempted = [int(line.split()[1]) for line in told.splitlines() if line.startswith("attempts ")]
    owned = [int(line.split()[1]) for line in told.splitlines() if line.startswith("owns ")]
    storage = LocalStorage(str(root))
    journal = journal_of(storage, "judge")
    before = journal.read()
    state = journal.take_over(IDENTITY, 3)
    assert state.attempt > max(owned, default=0), "an attempt number was used twice"
    restore = decide_restore(state, FACTS)
    newest = restore.checkpoint
    assert newest is not None, "every checkpoint is gone"
    assert newest.id >= max(decided, default=BASE), f"checkpoint {decided} was decided and is gone"
    assert newest.id == BASE or newest.id in attempted, f"checkpoint {newest.id} was never attempted"
    for entry in state.retained:
        wanted = checkpoint_of(entry.checkpoint.id, entry.checkpoint.attempt)
        assert entry.checkpoint == wanted, f"checkpoint {wanted.id} is not what was written"
        for handle in entry.checkpoint.states:
            _load(storage, handle)
    assert restore.first_checkpoint > max([*attempted, newest.id]), "a checkpoint id would be used twice"
    _sweep(root, journal)
    _go_on(storage, journal, restore.first_checkpoint)
    return f"newest {newest.id}, {len(before.retained)} retained"


def _sweep(root: Path, journal: Journal) -> None:
    """Checks that everything no retained checkpoint needs is collected: state, entries, unfinished writes."""
    stale = STALE_AFTER_S + 1
    for file in (root / UNFINISHED).iterdir():
        os.utime(file, (file.stat().st_atime - stale, file.stat().st_mtime - stale))
    storage = LocalStorage(str(root))
    assert list((root / UNFINISHED).iterdir()) == [], "writes under way were not collected"
    journal.sweep_orphans()
    journal.clean_up()
    kept = {handle.path for entry in journal.state.retained for handle in entry.checkpoint.states}
    assert set(storage.list("state/")) == kept, "orphans were not collected"
    newest = journal.state.newest
    assert newest is not None
    span = range(newest.floor, newest.sequence + 1)
    assert storage.list("journal/") == [f"journal/{number:012d}.json" for number in span]


def _go_on(storage: LocalStorage, journal: Journal, number: CheckpointId) -> None:
    for operator in OPERATORS:
        storage.put(handle_of(number, operator).path, seal(body(number, operator)))
    journal.append_checkpoint(checkpoint_of(number, journal.state.attempt))
    journal.clean_up()
    again = journal_of(storage, "reader").read().newest_checkpoint
    assert again is not None
    assert again.id == number
