"""What snapshots of a large state cost: the barrier, the files, the process, and the way back.

    python bench/state.py [BACKEND] [KEYS] [DIRECTORY] [rescale]

BACKEND is columns (memory in C, as running totals have it; the default), memory (dicts) or rocksdb, KEYS a million by
default; files go into DIRECTORY, the system's temporary one
by default, as a slot's uploads do, and are removed. A key is a string of 16 characters, its value two numbers. Printed:
the barrier (what the slot loop does itself), the longest that the encoding thread keeps the loop from running in
between (by a thread that asks for its turn all the time), the whole snapshot, its files, an increment in which 2 % of
the keys changed, a batch of 5,000 random keys that are read and written while nothing is frozen and right behind a
barrier, and the restore by one subtask and by one of four, next to a plain read and decode of the same bytes; with
`rescale` also from one subtask to four, and from their snapshots to two.
CPU seconds are of the process: other processes do not disturb them. The holds are wall time, so on a busy machine only
the lowest of several runs means something.
"""

from __future__ import annotations

import gc
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import polars as pl

from tidegate.coordinator.types import StateHandle
from tidegate.datatypes import BIGINT, STRING
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, StateName, SubtaskId, VertexId
from tidegate.journal.state_files import read_parts
from tidegate.process.limits import collect_rarely
from tidegate.slot.uploads import Uploads
from tidegate.state.backends import choose_backend
from tidegate.state.base import KeyedState, Share
from tidegate.state.declaration import StateDeclaration, StateField, StateShape
from tidegate.state.keygroups import KEY_HASH, key_groups_of_keys
from tidegate.state.snapshot import read_entries
from tidegate.storage.checksum import unseal
from tidegate.storage.local import LocalStorage
from tidegate.task.loop import UploadJob

GROUPS: Final = 128
BATCH: Final = 10_000
STEP: Final = OperatorName("totals")
SHAPE: Final = StateShape(
    keys=(StateField("customer", STRING),),
    values=(StateField("n", BIGINT, nullable=False), StateField("sum", BIGINT, nullable=False)),
    key_hash=KEY_HASH,
    max_parallelism=GROUPS,
)
DECLARED: Final = StateDeclaration(StateName("totals"), SHAPE)
BACKENDS: Final = {
    "columns": ("memory", StateDeclaration(StateName("totals"), SHAPE, in_columns=True)),
    "memory": ("memory", DECLARED),
    "rocksdb": ("rocksdb", DECLARED),
}
"""The backend in the pipeline file, and the declaration with which it is chosen."""
PROBED: Final = 5_000


class Measured:
    """Wall and CPU seconds of a piece of work."""

    wall = 0.0
    cpu = 0.0

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} CPU s)"


@contextmanager
def measure() -> Iterator[Measured]:
    """Of what is done inside."""
    measured = Measured()
    wall, cpu = time.perf_counter(), time.process_time()
    yield measured
    measured.wall, measured.cpu = time.perf_counter() - wall, time.process_time() - cpu


class Life:
    """A state of one subtask whose snapshots are stored."""

    def __init__(self, backend: str, directory: Path, state: KeyedState[StateHandle] | None = None) -> None:
        self.storage = LocalStorage(str(directory))
        self.backend = backend
        self.state = self.open() if state is None else state
        self.barriers: list[float] = []
        self.handles: tuple[StateHandle, ...] = ()
        self._done = threading.Event()
        self._uploads = Uploads(self.storage, self._done.set)
        self.taken = 0

    def open(self) -> KeyedState[StateHandle]:
        """An empty state."""
        name, declaration = BACKENDS[self.backend]
        return choose_backend(name, retained=1)(STEP, declaration, groups_of)

    def put(self, keys: Iterable[int], add: int) -> None:
        """Set the values of these keys."""
        part: list[int] = []
        for key in keys:
            part.append(key)
            if len(part) == BATCH:
                self._put(part, add)
                part = []
        self._put(part, add)

    def _put(self, part: list[int], add: int) -> None:
        keys = self.state.number_keys([pl.Series([name_of(key) for key in part], dtype=pl.String)])
        numbers = pl.Series(part, dtype=pl.Int64)
        self.state.put_columns(keys, [numbers, numbers + add])

    def probe(self, count: int, turns: int) -> float:
        """Read and write batches of random keys; the least CPU time of one, us."""
        draw, least = random.Random(count), float("inf")
        for _ in range(turns):
            column = pl.Series([name_of(draw.randrange(count)) for _ in range(PROBED)])
            before = time.thread_time_ns()
            keys = self.state.number_keys([column])
            _, values = self.state.get_columns(keys)
            self.state.put_columns(keys, values)
            least = min(least, (time.thread_time_ns() - before) / 1000)
        return least

    def snapshot(self) -> tuple[int, float]:
        """A completed checkpoint: the bytes that it wrote, and for how many ms the loop could not run meanwhile."""
        self.taken += 1
        checkpoint = CheckpointId(self.taken)
        before = time.thread_time()
        capture = self.state.capture(checkpoint)
        self.barriers.append((time.thread_time() - before) * 1000)
        if capture.encode is None:
            self.state.completed(checkpoint)
            return 0, 0.0
        self._done.clear()
        subtask = SubtaskId(VertexId("totals"), SlotIndex(0))
        self._uploads.submit(UploadJob(subtask, checkpoint, STEP, capture.encode, state=DECLARED.name))
        builds_on = capture.builds_on
        del capture
        held = ask_for_turns(self._done)
        (done,) = self._uploads.take_results()
        if done.error:
            raise RuntimeError(done.error)
        self.state.stored(checkpoint, done.handles)
        self.state.completed(checkpoint)
        self.handles = (*builds_on, *done.handles)
        return sum(handle.size_bytes for handle in done.handles), held

    def parts(self, key_groups: range) -> Iterator[bytes]:
        """What the newest snapshot has of these."""
        return (part for one in self.handles for part in read_parts(self.storage, one, key_groups))

    def restore(self, key_groups: range) -> KeyedState[StateHandle]:
        """A state of these from the newest snapshot."""
        state = self.open()
        state.restore(self.parts(key_groups), Share(key_groups))
        return state

    def decode(self) -> int:
        """Read and decode all files, and keep nothing."""
        count = 0
        for one in self.handles:
            body = unseal(one.path, self.storage.get(one.path))
            for part in read_entries(body, range(GROUPS), STEP, DECLARED):
                count += len(part)
        return count

    def close(self) -> None:
        """Free everything."""
        self._uploads.close(60)
        self.state.close()


def ask_for_turns(done: threading.Event) -> float:
    """Run a little again and again until it is done, as a loop does; the longest wait for a turn, ms."""
    longest, last = 0.0, time.perf_counter()
    while not done.is_set():
        time.sleep(0.0005)  # gives up the lock, and has to take it again
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest * 1000


def groups_of(rows: list[tuple[Any, ...]]) -> Any:
    """Key groups as a slot has them."""
    return key_groups_of_keys(rows, (STRING,), GROUPS)


def name_of(key: int) -> str:
    """16 characters."""
    return f"customer-{key * 2654435761 % 10_000_000:07d}" if key < 10_000_000 else f"client-{key:09d}"


def memory_mib() -> float:
    """The size of the process now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main(backend: str = "columns", keys: str = "1000000", directory: str = "", *more: str) -> None:
    """Fill, snapshot, change, snapshot, restore; print."""
    gc.collect()
    gc.freeze()
    collect_rarely()  # as a slot does
    if directory:
        Path(directory).mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix="tidegate-bench-", dir=directory or None))
    life, count = Life(backend, place), int(keys)
    try:
        report(life, count)
        if more == ("rescale",):
            rescale(life, place)
    finally:
        life.close()
        shutil.rmtree(place)


def report(life: Life, count: int) -> None:
    """See `main`."""
    empty = memory_mib()
    with measure() as filling:
        for part in range(10):
            life.put(range(count * part // 10, count * (part + 1) // 10), 0)
            print(f"{memory_mib():.0f} MiB", end=" ", flush=True)
    print()
    print(
        f"{life.backend}, {count} keys: filled in {filling}, process {empty:.0f} -> {memory_mib():.0f} MiB", flush=True
    )
    print(f"a batch of {PROBED} keys: {life.probe(count, 9):.0f} us", flush=True)
    with measure() as whole:
        size, held = life.snapshot()
    print(f"full: barrier {life.barriers[-1]:.1f} ms, longest hold {held:.1f} ms, whole {whole}", end="")
    print(f", {size / 1e6:.1f} MB in {len(life.handles)} files, process {memory_mib():.0f} MiB", flush=True)
    for turn in range(3):
        life.put(range(turn, count, 50), turn + 1)
        with measure() as spent:
            written, held = life.snapshot()
        print(f"2 % changed: barrier {life.barriers[-1]:.1f} ms, longest hold {held:.1f} ms, {spent}", end="")
        print(
            f", {written / 1e6:.2f} MB: {100 * written / size:.1f} % of the bytes, process {memory_mib():.0f} MiB",
            flush=True,
        )
    capture = life.state.capture(CheckpointId(life.taken), full=True)
    print(f"a batch of {PROBED} keys right behind a barrier: {life.probe(count, 1):.0f} us", flush=True)
    del capture
    life.put(range(0, count, 2), 9)
    with measure() as spent:
        written, held = life.snapshot()
    print(
        f"50 % changed: barrier {life.barriers[-1]:.1f} ms, longest hold {held:.1f} ms, {spent}, {written / 1e6:.1f} MB"
    )
    life.snapshot()
    print(f"nothing changed: barrier {life.barriers[-1]:.1f} ms", flush=True)
    total = sum(handle.size_bytes for handle in life.handles)
    with measure() as decoding:
        life.decode()
    print(f"read and decode {total / 1e6:.1f} MB: {decoding}, {total / 1e6 / decoding.cpu:.0f} MB a CPU s", flush=True)
    for share in (range(GROUPS), range(GROUPS // 4)):
        before = memory_mib()
        with measure() as restoring:
            restored = life.restore(share)
        print(f"restore of {len(share)} of {GROUPS} key groups: {restoring}, {len(restored)} keys", end="")
        print(
            f", {total / 1e6 / restoring.cpu:.0f} MB a CPU s, process {before:.0f} -> {memory_mib():.0f} MiB",
            flush=True,
        )
        restored.close()


def rescale(life: Life, place: Path) -> None:
    """From the newest snapshot to four subtasks, each of which takes one of its own, and from these to two."""
    quarters: list[Life] = []
    for number in range(4):
        share = range(GROUPS * number // 4, GROUPS * (number + 1) // 4)
        with measure() as restoring:
            state = life.restore(share)
        quarter = Life(life.backend, place / str(number), state)
        with measure() as storing:
            quarter.snapshot()
        print(
            f"1 of 4: {len(state)} keys restored in {restoring}, stored in {storing}, {memory_mib():.0f} MiB",
            flush=True,
        )
        quarters.append(quarter)
        quarter.close()
    for number in range(2):
        share = range(GROUPS * number // 2, GROUPS * (number + 1) // 2)
        state = life.open()
        with measure() as restoring:
            state.restore((part for one in quarters for part in one.parts(share)), Share(share))
        print(f"1 of 2: {len(state)} keys restored in {restoring}, {memory_mib():.0f} MiB", flush=True)
        state.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
