"""16,000 records out of order, or many times as many: windows of the running step against Polars over the whole input.

Polars sees all records at once, and no batches, watermarks, slots or kills: a record is late for a window when the
highest event time before it in its partition, less the delay, had passed the window's end and the lateness allowed.
"""

from __future__ import annotations

import random
import statistics
from collections import defaultdict
from functools import cache
from math import fsum
from typing import Any

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.operators.window.whole_input import COLUMNS, WindowRig, WindowStart, make_plan
from tidegate.datatypes import BOOLEAN, TIMESTAMP
from tidegate.expressions.expression import AggregateCall
from tidegate.expressions.parse import parse_aggregate
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.kinds.window import WindowOperator
from tidegate.operators.kinds.window.settings import Windowing

pytestmark = pytest.mark.slow

PARTITIONS, DELAY_MS = 4, 5_000
TEXTS = {
    "rows": "count(*)",
    "total": "sum(x)",
    "mean": "avg(x)",
    "low": "min(x)",
    "high": "max(x)",
    "opening": "first(x)",
    "closing": "last(x)",
    "whole": "sum(n)",
    "users": "count(distinct n)",
    "best": "max_by(n, x)",
    "spread": "stddev_pop(x)",
    "median": "percentile_approx(n, 0.5)",
    "all": "collect_list(n)",
}
RECORDS = {
    "tumbling": 2_000 * DEPTH,
    "corrected": 2_000 * DEPTH,
    "sliding": 800 * DEPTH,
    "sessions": 800 * DEPTH,
    "kept sessions": 2_000 * DEPTH,
}
"""Of each partition. A key that never rests has one session of thousands of records, which keeps all their values."""
WINDOWS = {
    "tumbling": (Windowing(10_000, 10_000), 0),
    "corrected": (Windowing(10_000, 10_000), 3_000),
    "sliding": (Windowing(20_000, 5_000), 0),
    "sessions": (Windowing(1_500, 0), 0),
    "kept sessions": (Windowing(1_000, 0), 12_000),
}

WAYS = [
    ("tumbling", 0),
    pytest.param("tumbling", 1, marks=pytest.mark.deep),
    pytest.param("corrected", 2, marks=pytest.mark.deep),
    pytest.param("sliding", 3, marks=pytest.mark.deep),
    ("sessions", 4),
    pytest.param("kept sessions", 5, marks=pytest.mark.deep),
]
"""Seeds of parallelism, backends, kills and frames."""


@cache
def make_history(kind: str, seed: int) -> dict[int, pl.DataFrame]:
    """Times grow by 20 ms at every record and are up to 4 s out of order, one in a hundred, or ten, up to 40 s."""
    far = 0.1 if kind == "kept sessions" else 0.01
    chance, history = random.Random(seed), {}
    for partition in range(PARTITIONS):
        now, times, keys, numbers, values = 1_700_000_000_000 + chance.randrange(3_000), [], [], [], []
        for _ in range(RECORDS[kind]):
            now += chance.randrange(40)
            back = chance.randrange(40_000) if chance.random() < far else chance.randrange(4_000)
            times.append(now - back if chance.random() < 0.6 else now)
            keys.append(None if chance.random() < 0.01 else f"key{min(int(chance.expovariate(0.1)), 60)}")
            numbers.append(None if chance.random() < 0.02 else chance.randrange(200))
            values.append(None if chance.random() < 0.02 else round(chance.uniform(-50, 1_000), 2))
        history[partition] = pl.DataFrame(
            {"k": keys, "x": values, "n": numbers, "__tidegate_time": times},
            schema={"k": pl.String, "x": pl.Float64, "n": pl.Int64, "__tidegate_time": pl.Int64},
        )
    return history


def make_step(window: Windowing, lateness_ms: int) -> WindowOperator:
    calls: dict[str, AggregateCall] = {
        name: parse_aggregate(text, dict(COLUMNS), windowed=True) for name, text in TEXTS.items()
    }
    output = (
        COLUMNS[0],
        ("window_start", TIMESTAMP),
        ("window_end", TIMESTAMP),
        *((n, c.type) for n, c in calls.items()),
        *((("_deleted", BOOLEAN),) if window.session and lateness_ms else ()),
    )
    return WindowOperator(
        OperatorName("windows"), ("k",), tuple(calls.items()), window, lateness_ms, output, BadRecordPolicy.FAIL
    )


@cache
def derive_expected(kind: str, seed: int) -> tuple[dict[Any, tuple[Any, ...]], int]:
    """By key, start and end; and the records that are late for all of their windows."""
    window, lateness_ms = WINDOWS[kind]
    reached = (pl.col("__tidegate_time").cum_max().shift(1) - DELAY_MS - 1).fill_null(-(2**62))
    rows = pl.concat([part.with_columns(reached=reached) for part in make_history(kind, seed).values()])
    if window.session:
        return _sessions(rows, window.size_ms, lateness_ms)
    last = pl.col("__tidegate_time") // window.every_ms * window.every_ms
    starts = [last - index * window.every_ms for index in range(window.size_ms // window.every_ms)]
    held = rows.with_row_index("row").with_columns(start=pl.concat_list(starts)).explode("start")
    held = held.with_columns(end=pl.col("start") + window.size_ms)
    late = pl.col("end") - 1 + lateness_ms <= pl.col("reached")
    taken = held.filter(~late)
    found = {}
    for (key, start, end), group in taken.group_by("k", "start", "end"):
        found[key, start, end] = _aggregates(group)
    return found, rows.height - taken["row"].n_unique()


def _sessions(rows: pl.DataFrame, gap_ms: int, lateness_ms: int) -> tuple[dict[Any, tuple[Any, ...]], int]:
    """Records in the order of how far their partitions were: each ends what was over by then, and joins the others."""
    opened: defaultdict[str | None, list[tuple[int, int, list[int]]]] = defaultdict(list)
    found, late = {}, 0
    rows = rows.sort(pl.col("reached"), -pl.col("__tidegate_time"))

    def close(key: str | None, sessions: list[tuple[int, int, list[int]]]) -> None:
        for first, last, members in sessions:
            found[key, first, last + gap_ms] = _aggregates(rows[members])

    for index, (key, time, reached) in enumerate(rows.select("k", "__tidegate_time", "reached").iter_rows()):
        over = [one for one in opened[key] if one[1] + gap_ms + lateness_ms <= reached]
        close(key, over)
        still = [one for one in opened[key] if one not in over]
        near = [one for one in still if one[0] - gap_ms <= time <= one[1] + gap_ms]
        if not near and time + gap_ms + lateness_ms <= reached:
            late += 1
        else:
            still = [one for one in still if one not in near]
            members = [member for one in near for member in one[2]]
            first, last = min([time, *(one[0] for one in near)]), max([time, *(one[1] for one in near)])
            still.append((first, last, [*members, index]))
        opened[key] = still
    for key, sessions in opened.items():
        close(key, sessions)
    return found, late


def _aggregates(group: pl.DataFrame) -> tuple[Any, ...]:
    values, numbers = group["x"].drop_nulls().to_list(), group["n"].drop_nulls()
    by_time = group.sort("__tidegate_time", "x", nulls_last=False)["x"].to_list()
    known = group.filter(pl.col("x").is_not_null()).sort("x", "n", nulls_last=False)["n"].to_list()
    listed = group.filter(pl.col("n").is_not_null()).sort("__tidegate_time", "n")["n"].to_list()
    some, ordered = bool(values), sorted(numbers.to_list())
    return (
        group.height,
        fsum(values) if some else None,
        pytest.approx(fsum(values) / len(values), rel=1e-15) if some else None,
        min(values, default=None),
        max(values, default=None),
        by_time[0],
        by_time[-1],
        sum(ordered) if ordered else None,
        numbers.n_unique(),
        known[-1] if known else None,
        pytest.approx(statistics.pstdev(values), rel=1e-12) if some else None,
        ordered[(len(ordered) + 1) // 2 - 1] if ordered else None,
        listed,
    )


def run(kind: str, seed: int, way: int) -> tuple[list[tuple[Any, ...]], int]:
    """Results in the order in which they were committed, and late records.

    `way` draws parallelism, backend, sizes of batches, when it is killed, and whether barriers overtake rows.
    """
    chance = random.Random(way)
    window, lateness_ms = WINDOWS[kind]
    step = make_step(window, lateness_ms)
    parallelism = (1, 2, 4)[way % 3]
    backend = ("memory", "rocksdb")[way // 3 % 2]
    plan = make_plan(step, parallelism)
    start = WindowStart(plan, make_history(kind, seed), RECORDS[kind] // chance.choice([250, 50]), DELAY_MS)
    committed: list[pl.DataFrame] = []
    late = 0
    for life in range(1, 4):
        rig = WindowRig(plan, start, backend, unaligned=chance.random() < 0.6, run=life)
        if life == 3:
            rig.settle()
            committed += [frame for one in rig.committed for batch in one.by_snapshot for frame in batch]
            late += sum(one.step.late_rows for one in rig.committed)
            rig.close()
            break
        place = (life - chance.random()) * 0.4 * PARTITIONS * RECORDS[kind]
        for _ in range(10_000):
            if rig.records_read >= place:
                break
            stir(rig, chance, 1)
        assert rig.records_read < PARTITIONS * RECORDS[kind]
        rig.trigger_savepoint(life)
        for _ in range(10_000):
            if rig.is_complete(life):
                break
            stir(rig, chance, 1)
        assert rig.is_complete(life)
        committed += [frame for one in rig.committed for frame in one.by_snapshot[0]]
        late += sum(one.late[0] for one in rig.committed)
        stir(rig, chance, chance.randrange(100))  # lost by the kill
        rig.close()
        plan = make_plan(step, chance.choice([1, 2, 4]))
        backend = chance.choice(["memory", "rocksdb"])
        start = start.restart(rig, life, plan)
    times = [pl.col(name).cast(pl.Int64) // 1000 for name in ("window_start", "window_end")]
    rows = pl.concat(committed).with_columns(times).select([name for name, _ in step.output]).rows()
    return rows, late


def stir(rig: WindowRig, chance: random.Random, turns: int) -> None:
    """Slots take turns; frames and bytes move when they are drawn."""
    for _ in range(turns):
        for slot in rig.slots:
            if chance.random() < 0.7:
                slot.loop.turn()
        for connection in rig.connections:
            if chance.random() < 0.6:
                connection.send()
            if chance.random() < 0.6:
                connection.receive(chance.choice([1_000, 1 << 20]))
        rig.upload(chance.choice(rig.slots))


def newest_of(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What a reader has who keeps the newest row per key and start, and drops what is taken back."""
    held: dict[Any, tuple[Any, ...]] = {}
    taken_back = 0
    for *row, deleted in rows:
        if deleted:
            taken_back += 1
            del held[*row[:2]]
        else:
            held[*row[:2]] = tuple(row)
    assert taken_back >= 4
    assert len(rows) > len(held) + 2 * taken_back + 10, "some are corrected"
    return list(held.values())


@pytest.mark.parametrize(("kind", "way"), WAYS)
def test_windows_are_those_of_polars_over_all_records(kind: str, way: int) -> None:
    expected, late = derive_expected(kind, 7)
    assert late
    rows, found_late = run(kind, 7, way)
    assert found_late == late
    if kind == "kept sessions":
        rows = newest_of(rows)
    found = {row[:3]: row[3:] for row in rows}
    if not WINDOWS[kind][1] or kind == "kept sessions":
        assert len(rows) == len(found)
    assert found.keys() == expected.keys()
    wrong = {key: (found[key], expected[key]) for key in expected if found[key] != expected[key]}
    assert not wrong, f"{len(wrong)} of {len(expected)}: {next(iter(wrong.items()))}"
