"""A million open windows: memory, how long they take to close, and how long one call holds the slot loop meanwhile.

    python bench/timers.py [KIND] [BACKEND] [WINDOWS]

KIND is tumbling (default), sliding, or session; BACKEND memory (default) or rocksdb. Every key has one window; all are
due at once. A snapshot is taken before they close and after every 20 calls of the closing, encoded as a slot's uploader
would, but in between instead of on a thread of its own, so that it is not counted as the loop's. A call is one batch,
one poll, or one barrier. Times of calls are CPU, which other processes do not disturb; on an idle machine that is the
time that they last.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import polars as pl

from tests.operators.driven import Collected
from tests.operators.window.feeding import make_window
from tidegate.ids import CheckpointId
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME, OperatorRuntime
from tidegate.operators.spec import Slot
from tidegate.state.backends import choose_backend

BATCH = 2500
WINDOWS = {
    "tumbling": Windowing(60_000, 60_000),
    "sliding": Windowing(60_000, 20_000),
    "session": Windowing(60_000, 0),
}


class Counted(Collected):
    """An `Out` that keeps nothing."""

    rows = 0
    done = False

    def emit(self, batch: pl.DataFrame) -> None:
        """Count them."""
        self.rows += batch.height

    def watermark(self, time_ms: int) -> None:  # noqa: ARG002  # there is one
        """All is emitted."""
        self.done = True


class Calls:
    """CPU of calls, in ms."""

    def __init__(self) -> None:
        self.spent: list[float] = []

    def time(self, call: Callable[[], Any]) -> Any:
        """Make a call."""
        before = time.process_time()
        result = call()
        self.spent.append((time.process_time() - before) * 1000)
        return result

    def __str__(self) -> str:
        ordered = sorted(self.spent)
        middle, longest = ordered[len(ordered) // 2], ordered[-1]
        return (
            f"{sum(ordered) / 1000:.2f} CPU s, {len(ordered)} calls: median {middle:.1f} ms, longest {longest:.1f} ms"
        )


class Barriers:
    """Snapshots of an operator, each completed before the next."""

    def __init__(self, runtime: OperatorRuntime) -> None:
        self.calls = Calls()
        self._runtime = runtime
        self._taken = 0

    def take(self) -> None:
        """One snapshot."""
        self._taken += 1
        checkpoint = CheckpointId(self._taken)
        captures = self.calls.time(lambda: self._capture(checkpoint))
        for state, capture in captures:
            files = list(capture.encode()) if capture.encode is not None else []
            state.stored(checkpoint, [len(file) for file in files])
            state.completed(checkpoint)

    def _capture(self, checkpoint: CheckpointId) -> list[tuple[Any, Any]]:
        self._runtime.before_snapshot()
        return [(state, state.capture(checkpoint)) for state in self._runtime.states.values()]


def batch_of(number: int) -> pl.DataFrame:
    """Rows of new keys, a little later than the batch before."""
    first = number * BATCH
    return pl.DataFrame(
        {
            "k": [f"customer-{first + row}" for row in range(BATCH)],
            "x": list(range(BATCH)),
            "__tidegate_time": [number * 100 + row % 100 for row in range(BATCH)],
            "__tidegate_behind": [0] * BATCH,
        }
    )


def memory_mib() -> float:
    """The largest size of the process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(kind: str = "tumbling", backend: str = "memory", windows: str = "1000000") -> None:
    """Open windows, close them, print."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # as a slot does
    runtime = make_window(WINDOWS[kind]).open(Slot(128, choose_backend(backend, retained=1), range(128)))
    out, before = Counted(), memory_mib()
    opening, closing, barriers = Calls(), Calls(), Barriers(runtime)
    for number in range(int(windows) // BATCH):
        batch = batch_of(number)
        opening.time(partial(runtime.process, 0, batch, out))
    print(f"{kind}, {backend}: {runtime.gauges['open_windows']} windows open, {memory_mib() - before:.0f} MiB")
    print("opening:", opening)
    barriers.take()
    closing.time(lambda: runtime.on_watermark(END_OF_TIME, out))
    while not out.done:
        closing.time(lambda: runtime.poll(1 << 30, out))
        if len(closing.spent) % 20 == 0:
            barriers.take()
    first, *others = barriers.calls.spent
    print("closing:", closing, f"({out.rows} results)")
    print(f"barriers: {first:.1f} ms while all are open, then {max(others):.1f} ms at most of {len(others)}")
    print(f"memory with snapshots: {memory_mib() - before:.0f} MiB")


if __name__ == "__main__":
    main(*sys.argv[1:])
