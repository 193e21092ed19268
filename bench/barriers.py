"""How long a step keeps a barrier while rows wait in it, and what a row costs it.

    python bench/barriers.py [STEPS] [BACKENDS] [SHAPES] [RUNS]

Each is a list with commas, `all` for all. SHAPES are of keys: `few` (1,000), `some` (6,000) and `own` (each row has its
own). Rows come in batches of 2,500; a window lasts as long as 40 of them. First 100,000 rows go through without
barriers, which is the CPU a row costs; then the watermark stands, and barriers come after 1 to 5 batches, so that
they meet the step with as much waiting in it as there can be. A barrier is `before_snapshot` and the capture of every
state, as the slot's loop does it; what the uploader does is done in between and not counted. Times are CPU of the
thread, the medians of RUNS (3): other processes slow them down, but less than they slow a clock down.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import polars as pl

from tests.operators.driven import Collected
from tests.operators.window.feeding import make_window
from tidegate.datatypes import BIGINT, STRING
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import CheckpointId, OperatorName
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.operators.kinds.dedup import DedupOperator
from tidegate.operators.kinds.keep import EACH, ON_CLOSE, LastOperator, RankingOperator
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import OperatorRuntime
from tidegate.operators.spec import Slot
from tidegate.state.backends import choose_backend

BATCH = 2_500
STEP_MS = 100
"""Event time between two batches."""
SIZE_MS = 40 * STEP_MS
ROWS = 100_000
BARRIERS = 15
COLUMNS = (("k", STRING), ("x", BIGINT))
NAME = OperatorName("w")
FAIL = BadRecordPolicy.FAIL

X = ColumnReference("x", BIGINT)
TOTALS = (("n", AggregateCall("count", None, BIGINT)), ("total", AggregateCall("sum", X, BIGINT)))
STEPS: dict[str, Callable[[], Any]] = {
    "tumbling": lambda: make_window(Windowing(SIZE_MS, SIZE_MS)),
    "sliding": lambda: make_window(Windowing(SIZE_MS, SIZE_MS // 4)),
    "corrected": lambda: make_window(Windowing(SIZE_MS, SIZE_MS), SIZE_MS),
    "early": lambda: make_window(Windowing(SIZE_MS, SIZE_MS, 0, "", SIZE_MS // 4)),
    "early sliding": lambda: make_window(Windowing(SIZE_MS, SIZE_MS // 4, 0, "", SIZE_MS // 4)),
    "session": lambda: make_window(Windowing(SIZE_MS // 4, 0)),
    "kept session": lambda: make_window(Windowing(SIZE_MS // 4, 0), SIZE_MS),
    "early session": lambda: make_window(Windowing(SIZE_MS // 4, 0, 0, "", SIZE_MS // 4)),
    "top-n": lambda: RankingOperator(NAME, ("k",), COLUMNS, FAIL, "x", 3, True, EACH),
    "top-n on close": lambda: RankingOperator(NAME, ("k",), COLUMNS, FAIL, "x", 3, True, ON_CLOSE),
    "last": lambda: LastOperator(NAME, ("k",), COLUMNS, FAIL),
    "dedup": lambda: DedupOperator(NAME, ("k",), COLUMNS, FAIL, SIZE_MS),
    "totals": lambda: AggregateOperator(
        NAME, ("k",), TOTALS, "each", (COLUMNS[0], ("n", BIGINT), ("total", BIGINT)), FAIL
    ),
}
SHAPES = {"few": 1_000, "some": 6_000, "own": 0}


class Counted(Collected):
    """An `Out` that keeps nothing."""

    def emit(self, batch: pl.DataFrame) -> None:
        """Drop it."""

    def watermark(self, time_ms: int) -> None:
        """Drop it."""


def batches(keys: int, count: int, first: int, chance: random.Random) -> Iterator[tuple[pl.DataFrame, int]]:
    """Batches with the watermark after each."""
    for number in range(first, first + count):
        own = range(number * BATCH, (number + 1) * BATCH)
        names = [chance.randrange(keys) for _ in range(BATCH)] if keys else own
        frame = pl.DataFrame(
            {
                "k": [f"customer-{name:09d}" for name in names],
                "x": [chance.randrange(10_000) for _ in range(BATCH)],
                "__tidegate_time": [number * STEP_MS + chance.randrange(STEP_MS) for _ in range(BATCH)],
                "__tidegate_behind": [0] * BATCH,
            }
        )
        yield frame, (number - 1) * STEP_MS


def feed(
    runtime: OperatorRuntime, made: list[tuple[pl.DataFrame, int]], out: Counted, *, moving: bool = True
) -> tuple[float, float]:
    """CPU seconds, and the longest call in ms. `moving`: the watermark does."""
    spent, longest = 0.0, 0.0
    for frame, watermark in made:
        calls: list[Callable[[], Any]] = [partial(runtime.process, 0, frame, out)]
        if moving:
            calls.append(partial(runtime.on_watermark, watermark, out))
        for call in calls:
            before = time.thread_time()
            call()
            took = time.thread_time() - before
            spent, longest = spent + took, max(longest, took * 1000)
        while True:
            before = time.thread_time()
            more = runtime.poll(1 << 20, out)
            took = time.thread_time() - before
            spent, longest = spent + took, max(longest, took * 1000)
            if not more:
                break
    return spent, longest


def barrier(runtime: OperatorRuntime, number: int) -> float:
    """Its CPU in ms."""
    checkpoint = CheckpointId(number)
    before = time.thread_time()
    runtime.before_snapshot()
    captures = [(state, state.capture(checkpoint)) for state in runtime.states.values()]
    took = time.thread_time() - before
    for state, capture in captures:
        files = list(capture.encode()) if capture.encode is not None else []
        state.stored(checkpoint, [len(file) for file in files])
        state.completed(checkpoint)
    return took * 1000


def measure(step: str, backend: str, keys: int, seed: int) -> tuple[float, float, float, float]:
    """CPU seconds per million rows; the longest call, and the median and the longest barrier, in ms."""
    chance = random.Random(seed)
    runtime = STEPS[step]().open(Slot(128, choose_backend(backend, retained=1), range(128)))
    out, count = Counted(), ROWS // BATCH
    spent, longest = 0.0, 0.0
    for part in range(4):
        took, most = feed(runtime, list(batches(keys, count // 4, part * count // 4, chance)), out)
        spent, longest = spent + took, max(longest, most)
    barriers: list[float] = []
    for number in range(BARRIERS):
        turns = 1 + number % 5
        feed(runtime, list(batches(keys, turns, count, chance)), out, moving=False)
        count += turns
        barriers.append(barrier(runtime, number + 1))
    for state in runtime.states.values():
        state.close()
    return spent * 1e6 / ROWS, longest, statistics.median(barriers), max(barriers[1:])


def main(steps: str = "all", backends: str = "all", shapes: str = "all", runs: str = "3") -> None:
    """See the module."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)  # as a slot does
    for step in STEPS if steps == "all" else steps.split(","):
        for backend in ("memory", "rocksdb") if backends == "all" else backends.split(","):
            for shape in SHAPES if shapes == "all" else shapes.split(","):
                found = [measure(step, backend, SHAPES[shape], seed) for seed in range(int(runs))]
                spent, longest, middle, most = (statistics.median(column) for column in zip(*found, strict=True))
                rows = f"{spent:6.2f} CPU s a million rows; longest call {longest:5.1f} ms"
                barriers = f"barrier {middle:5.1f} ms, longest {most:5.1f} ms"
                print(f"{step:15} {backend:8} {shape:5} {rows}; {barriers}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
