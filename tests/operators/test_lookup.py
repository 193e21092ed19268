"""`table` and `lookup` in subtasks: against a model, over restarts at another parallelism, in both backends."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest

from tests.operators.subtasks import Subtasks
from tidegate.config.load import parse_pipeline
from tidegate.formats.failures import FailureKind
from tidegate.formats.row_kinds import DELETE, INSERT, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.ids import OperatorName
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import StepOperator
from tidegate.plan.build import build_plan
from tidegate.task.elements import StreamStatus, Watermark

BACKENDS = pytest.mark.parametrize("backend", ["memory", "rocksdb"])
SEEDS = pytest.mark.parametrize(
    ("backend", "seed"), [*(("memory", seed) for seed in range(3)), pytest.param("rocksdb", 3, marks=pytest.mark.deep)]
)
FILE = """\
version: 1
name: lookups
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/lookups}
sources:
  orders: {topic: orders, schema: {n: bigint, k: string}}
  rows: {topic: rows, schema: {k: string, v: double, more: string, _deleted: boolean}}
steps:
  - {name: table, from: rows, table: {key: k}}
  - {name: found, from: orders, lookup: table, on: {k: k}, add: {v: table.v, more: table.more}, missing: MISSING}
sinks:
  found: {from: found, topic: found}
  table: {from: table, topic: changes, key: k, on_null: {column: _deleted}}
"""
MINUTE_MS = 60_000


def operator(name: str, missing: str = '"null"', ttl: str = "") -> StepOperator:
    text = FILE.replace("MISSING", missing).replace("found: {from", "out: {from").replace("table: {from", "all: {from")
    text = text.replace("{key: k}}", f"{{key: k, ttl: {ttl}}}}}") if ttl else text
    plan = build_plan(parse_pipeline(text, "lookups.yaml", {}))
    return next(one for one in plan.operators(StepOperator) if one.name == OperatorName(name))


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000_000

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def opened() -> Iterator[Callable[..., Subtasks]]:
    made: list[Subtasks] = []

    def make(
        name: str, missing: str = '"null"', backend: str = "memory", clock: Clock | None = None, ttl: str = ""
    ) -> Subtasks:
        keys: Any = {0: ["k"], 1: ["k"]} if name == "found" else ["k"]
        made.append(Subtasks(operator(name, missing, ttl), keys, backend, clock or Clock()))
        return made[-1]

    yield make
    for one in made:
        one.close()


def table_rows(*rows: tuple[str, float | None, str | None], partition: int = 0, deleted: bool = False) -> pl.DataFrame:
    schema = {"k": pl.String(), "v": pl.Float64(), "more": pl.String()}
    return pl.DataFrame(list(rows), schema=schema, orient="row").with_columns(
        pl.lit(deleted).alias("_deleted"),
        pl.lit(partition, pl.Int32).alias("__tidegate_partition"),
        pl.int_range(pl.len(), dtype=pl.Int64).alias("__tidegate_offset"),
    )


def gone(*keys: str, partition: int = 0) -> pl.DataFrame:
    return table_rows(*((key, None, None) for key in keys), partition=partition, deleted=True)


def stream(*rows: tuple[int, str | None], behind_ms: int = 0) -> pl.DataFrame:
    """Rows whose event time in ms and offset is their number."""
    frame = pl.DataFrame(list(rows), schema={"n": pl.Int64(), "k": pl.String()}, orient="row")
    return frame.with_columns(
        pl.lit(0, pl.Int32).alias("__tidegate_partition"),
        frame["n"].alias("__tidegate_offset"),
        frame["n"].alias("__tidegate_time"),
        pl.lit(behind_ms, pl.Int64).alias("__tidegate_behind"),
    )


def poll(subtasks: Subtasks, now_ms: int | None = None) -> None:
    """What the loop does between batches."""
    for runtime in subtasks.runtimes:
        while now_ms is not None and (due_ms := runtime.next_deadline_ms) is not None and due_ms <= now_ms:
            runtime.on_time(now_ms, subtasks.out)
        while runtime.poll(1000, subtasks.out):
            pass


def numbers(subtasks: Subtasks) -> list[tuple[int, float | None]]:
    return [(row["n"], row["v"]) for row in subtasks.rows()]


def waiting(subtasks: Subtasks) -> int:
    return sum(runtime.gauges["waiting_rows"] for runtime in subtasks.runtimes)


# -- a table -----------------------------------------------------------------------------------------------------------


def changes(subtasks: Subtasks) -> list[tuple[int, str, float | None]]:
    return [(row[ROW_KIND], row["k"], row["v"]) for row in subtasks.rows()]


@BACKENDS
def test_a_table_emits_the_net_effect_of_a_batch_on_each_key(opened: Callable[..., Subtasks], backend: str) -> None:
    table = opened("table", backend=backend)
    table.process(table_rows(("a", 1.0, "x"), ("b", 2.0, "x"), ("a", 3.0, "x")))
    assert changes(table) == [(INSERT, "b", 2.0), (INSERT, "a", 3.0)]
    table.process(pl.concat([table_rows(("a", 9.0, "x")), gone("b"), table_rows(("a", 4.0, "y")), gone("c")]))
    assert changes(table) == [(DELETE, "b", 2.0), (UPDATE_BEFORE, "a", 3.0), (UPDATE_AFTER, "a", 4.0)]
    table.restart(3)
    table.process(pl.concat([gone("a"), table_rows(("a", 4.0, "y"))]))
    table.process(table_rows(("a", 4.0, "y")))
    assert changes(table) == [], (
        "a row that is deleted and written again in one batch is unchanged, and so is a rewrite"
    )
    assert sum(runtime.gauges["table_rows"] for runtime in table.runtimes) == 1


def test_zero_and_negative_zero_are_different_rows_and_nan_is_the_same_row(opened: Callable[..., Subtasks]) -> None:
    table = opened("table")
    table.process(table_rows(("a", 0.0, None), ("b", float("nan"), None)))
    table.rows()
    table.process(table_rows(("a", -0.0, None), ("b", float("nan"), None)))
    assert [row["k"] for row in table.rows()] == ["a", "a"]


@BACKENDS
def test_a_key_in_two_partitions_is_known_over_a_restart(opened: Callable[..., Subtasks], backend: str) -> None:
    table = opened("table", backend=backend)
    table.process(table_rows(("a", 1.0, None), partition=4))
    table.restart(2)
    table.process(pl.concat([table_rows(("a", 2.0, None), partition=5), gone("a", partition=5)]))
    assert [one.kind for one in table.out.failures] == [FailureKind.KEY_IN_TWO_PARTITIONS] * 2
    assert "partition 4" in table.out.failures[0].message
    assert "partition 5" in table.out.failures[0].message
    table.process(pl.concat([gone("a", partition=4), table_rows(("a", 3.0, None), partition=5)]))
    assert changes(table)[-2:] == [(UPDATE_BEFORE, "a", 1.0), (UPDATE_AFTER, "a", 3.0)]


@SEEDS
def test_a_table_and_its_changes_agree_with_a_dict(opened: Callable[..., Subtasks], backend: str, seed: int) -> None:
    chance = random.Random(seed)
    table, model = opened("table", backend=backend), dict[str, float]()
    replica: dict[str, float | None] = {}
    for _ in range(30):
        parts = []
        for _ in range(chance.randint(1, 12)):
            key, value = chance.choice("abcdef"), float(chance.randint(0, 2))
            if chance.random() < 0.3:
                parts.append(gone(key))
                model.pop(key, None)
            else:
                parts.append(table_rows((key, value, None)))
                model[key] = value
        table.process(pl.concat(parts))
        for kind, changed, shown in changes(table):
            if kind in (UPDATE_BEFORE, DELETE):
                assert replica.pop(changed) == shown
            else:
                assert changed not in replica
                replica[changed] = shown
        assert replica == model, f"seed {seed}"
        if chance.random() < 0.2:
            table.restart(chance.randint(1, 4))


def timed(frame: pl.DataFrame, at_ms: int) -> pl.DataFrame:
    times = pl.lit(at_ms, pl.Int64).alias("__tidegate_time"), pl.lit(0, pl.Int64).alias("__tidegate_behind")
    return frame.with_columns(*times)


@BACKENDS
def test_a_row_of_a_table_is_deleted_a_ttl_after_it_was_written_last(
    opened: Callable[..., Subtasks], backend: str
) -> None:
    table = opened("table", backend=backend, ttl="10s")
    table.process(timed(table_rows(("a", 1.0, None), ("b", 2.0, None), ("c", 3.0, None)), 0))
    table.process(timed(table_rows(("b", 2.0, None)), 5_000))
    table.process(timed(table_rows(("c", 4.0, None)), -9_000))
    table.rows()
    table.watermark(10_000)
    assert table.rows() == []
    table.restart(2)
    table.watermark(10_001)
    ended = table.rows()
    assert sorted((row[ROW_KIND], row["k"], row["v"], row["_deleted"]) for row in ended) == [
        (DELETE, "a", 1.0, True),
        (DELETE, "c", 4.0, True),
    ]
    assert {row["__tidegate_time"] for row in ended} == {10_000}
    assert sum(runtime.gauges["table_rows"] for runtime in table.runtimes) == 1
    table.watermark(END_OF_TIME)
    assert table.rows() == [], "nothing ends with a bounded input: another start may bring more"


@BACKENDS
def test_a_lookup_does_not_find_rows_that_have_ended_and_their_keys_may_be_in_another_partition(
    opened: Callable[..., Subtasks], backend: str
) -> None:
    found = opened("found", backend=backend, ttl="10s")
    found.process(timed(table_rows(("a", 1.0, None)), 0), 1)
    found.watermark(10_000)
    found.process(stream((1, "a")))
    found.watermark(10_001)
    found.process(stream((2, "a")))
    found.process(timed(table_rows(("a", 2.0, None), partition=1), 10_500), 1)
    found.process(stream((3, "a")))
    assert numbers(found) == [(1, 1.0), (2, None), (3, 2.0)]
    assert found.out.failures == []


def test_rows_that_were_kept_without_a_ttl_end_a_ttl_after_it_is_added_and_sweeps_take_all(
    opened: Callable[..., Subtasks],
) -> None:
    table = opened("table")
    table.process(table_rows(*((f"k{n}", 1.0, None) for n in range(5000))))
    table.spec = operator("table", ttl="10s")
    table.restart(1)
    for step in range(40):
        table.watermark(1_000 + 500 * step)
    ended = [row for row in table.rows() if row[ROW_KIND] == DELETE]
    assert len(ended) == 5000
    assert min(row["__tidegate_time"] for row in ended) == 11_000
    table.spec = operator("table")
    table.restart(2)
    table.process(table_rows(("k1", 1.0, None)))
    assert changes(table) == [(INSERT, "k1", 1.0)]


# -- a lookup ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "parallelism"), [("memory", 1), ("memory", 5), ("rocksdb", 2)])
def test_risingwave_22935_a_row_gets_the_row_of_the_table_that_was_the_latest_when_it_came(
    opened: Callable[..., Subtasks], backend: str, parallelism: int
) -> None:
    chance, model = random.Random(parallelism), dict[str, float]()
    found, expected = opened("found", backend=backend), list[tuple[int, float | None]]()
    for batch in range(40):
        key = chance.choice("abcd")
        if chance.random() < 0.3:
            found.process(gone(key), 1)
            model.pop(key, None)
        else:
            found.process(table_rows((key, float(batch), "m")), 1)
            model[key] = float(batch)
        rows = [(10 * batch + i, chance.choice("abcde")) for i in range(3)]
        found.process(stream(*rows))
        expected += [(n, model.get(key)) for n, key in rows]
        if batch % 9 == 8:
            found.restart(parallelism if batch % 2 else 1)
    assert sorted(numbers(found)) == sorted(expected)


def test_rows_of_the_table_that_are_larger_than_a_batch_are_joined_in_parts(opened: Callable[..., Subtasks]) -> None:
    from tidegate.operators.runtime import BatchTooLarge

    found = opened("found")
    found.process(table_rows(("a", 1.0, "x" * (1 << 20))), 1)
    batch = stream(*((n, "a") for n in range(100)))
    with pytest.raises(BatchTooLarge):
        found.process(batch)
    assert found.rows() == []
    found.process(batch[:50])
    assert len(found.rows()) == 50


# -- waiting -----------------------------------------------------------------------------------------------------------


@BACKENDS
def test_waiting_rows_survive_a_restart_at_another_parallelism_in_their_order(
    opened: Callable[..., Subtasks], backend: str
) -> None:
    clock = Clock()
    found = opened("found", "wait 1m", backend, clock)
    found.process(table_rows(("z", 0.0, None)), 1)
    found.process(stream((1, "a"), (2, "b"), (3, "a"), (4, "z"), (5, None)))
    assert numbers(found) == [(4, 0.0), (5, None)]
    found.restart(4)
    clock.now_ms += 1000
    found.process(stream((6, "a"), (7, "b")))
    assert numbers(found) == []
    found.restart(3)
    poll(found, clock.now_ms)
    assert waiting(found) == 5
    found.process(table_rows(("a", 1.0, None)), 1)
    poll(found)
    assert numbers(found) == [(1, 1.0), (3, 1.0), (6, 1.0)]
    found.restart(2)
    poll(found, clock.now_ms)
    assert max(runtime.gauges.get("waiting_until_ms", 0) for runtime in found.runtimes) == clock.now_ms + MINUTE_MS
    poll(found, 1_000_000 + MINUTE_MS)
    assert numbers(found) == [(2, None)]
    poll(found, clock.now_ms + MINUTE_MS)
    assert numbers(found) == [(7, None)]
    assert waiting(found) == 0
    assert not any("waiting_until_ms" in runtime.gauges for runtime in found.runtimes)


def test_a_row_that_arrived_between_the_checkpoint_of_a_waiting_row_and_its_restore_is_found(
    opened: Callable[..., Subtasks],
) -> None:
    found = opened("found", "wait 1m")
    found.process(stream((1, "a")))
    (runtime,) = found.runtimes
    runtime._rows.apply(table_rows(("a", 1.0, None)))  # as if the barrier had come before the row left
    found.restart(2)
    poll(found)
    assert numbers(found) == [(1, 1.0)]


def test_a_clock_that_goes_back_and_a_shorter_wait_keep_the_order_of_a_key(opened: Callable[..., Subtasks]) -> None:
    clock = Clock()
    found = opened("found", "wait 1m", clock=clock)
    found.process(stream((1, "a")))
    clock.now_ms -= 30_000
    found.process(stream((2, "a"), (3, "b")))
    poll(found, clock.now_ms + MINUTE_MS)
    assert numbers(found) == [(3, None)]
    found.spec = operator("found", "wait 1s")
    found.restart(2)
    found.process(stream((4, "a")))
    poll(found, 1_000_000 + MINUTE_MS)
    assert numbers(found) == [(1, None), (2, None), (4, None)]


def test_a_row_waits_no_longer_than_it_may_after_a_restart_where_the_clock_is_behind(
    opened: Callable[..., Subtasks],
) -> None:
    clock = Clock()
    found = opened("found", "wait 1m", clock=clock)
    found.process(stream((1, "a")))
    clock.now_ms -= 2 * 60 * MINUTE_MS
    found.restart(2)
    poll(found, clock.now_ms + MINUTE_MS - 1)
    assert numbers(found) == []
    poll(found, clock.now_ms + MINUTE_MS)
    assert numbers(found) == [(1, None)]


def test_watermarks_and_a_status_do_not_overtake_waiting_rows(opened: Callable[..., Subtasks]) -> None:
    found = opened("found", "wait 1m")
    (runtime,) = found.runtimes
    found.process(stream((50, "a"), (30, "b")))
    found.watermark(100)
    runtime.on_status(True, found.out)
    assert found.out.order == [Watermark(29)]
    found.process(table_rows(("b", 1.0, None)), 1)
    assert [one for one in found.out.order if not isinstance(one, pl.DataFrame)] == [Watermark(29), Watermark(49)]
    found.process(table_rows(("a", 1.0, None)), 1)
    assert [one for one in found.out.order if not isinstance(one, pl.DataFrame)][2:] == [
        Watermark(100),
        StreamStatus(idle=True),
    ]
    assert numbers(found) == [(30, 1.0), (50, 1.0)]


def test_a_late_row_that_waits_does_not_hold_back_the_watermark(opened: Callable[..., Subtasks]) -> None:
    found = opened("found", "wait 1m")
    found.process(stream((50, "a"), behind_ms=10))
    found.watermark(100)
    assert found.out.order == [Watermark(100)]


def test_a_row_of_the_table_that_is_deleted_before_rows_have_left_lets_them_wait_on(
    opened: Callable[..., Subtasks],
) -> None:
    clock = Clock()
    found = opened("found", "wait 1m", clock=clock)
    found.process(stream(*((n, "a") for n in range(2500))))
    found.process(table_rows(("a", 1.0, None)), 1)
    assert numbers(found) == [(n, 1.0) for n in range(1000)], "one call emits a part"
    (runtime,) = found.runtimes
    assert not runtime.settled
    found.process(stream((2500, "a")))
    found.process(gone("a"), 1)
    poll(found, clock.now_ms)
    left = numbers(found)
    assert left == [(n, 1.0) for n in range(1000, 1000 + len(left))]
    assert waiting(found) == 1501 - len(left) > 0
    poll(found, clock.now_ms + MINUTE_MS)
    assert numbers(found) == [(n, None) for n in range(1000 + len(left), 2501)]


def test_rows_of_many_keys_that_arrive_together_leave_together(opened: Callable[..., Subtasks]) -> None:
    found = opened("found", "wait 1m")
    found.process(stream(*((n, f"k{n}") for n in range(1500))))
    found.process(table_rows(*((f"k{n}", float(n), None) for n in range(1500))), 1)
    poll(found)
    assert len(found.out.batches) == 2, "1000 rows in a call"
    assert numbers(found) == [(n, float(n)) for n in range(1500)]


def test_waiting_ends_at_the_end_of_time_in_parts(opened: Callable[..., Subtasks]) -> None:
    found = opened("found", "wait 1m")
    found.process(stream(*((n, f"k{n}") for n in range(1500))))
    (runtime,) = found.runtimes
    runtime.on_watermark(END_OF_TIME, found.out)
    assert not runtime.settled
    assert [one for one in found.out.order if isinstance(one, Watermark)] == [Watermark(999)]
    poll(found)
    assert runtime.settled
    assert found.out.order[-1] == Watermark(END_OF_TIME)
    assert len(numbers(found)) == 1500


@SEEDS
def test_waiting_agrees_with_a_model_and_keeps_the_order_of_keys(
    opened: Callable[..., Subtasks], backend: str, seed: int
) -> None:
    chance, clock = random.Random(seed), Clock()
    found = opened("found", "wait 1m", backend, clock)
    table: dict[str, float] = {}
    queues: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    expected: defaultdict[str, list[tuple[int, float | None]]] = defaultdict(list)
    keys: dict[int, str] = {}

    def expire() -> None:
        for key, queue in queues.items():
            while queue and queue[0][1] <= clock.now_ms:
                expected[key].append((queue.pop(0)[0], None))

    for step in range(120):
        key = chance.choice("abcd")
        match chance.randint(0, 5):
            case 0:
                found.process(table_rows((key, float(step), None)), 1)
                table[key] = float(step)
                expected[key] += [(n, float(step)) for n, _ in queues.pop(key, [])]
            case 1:
                found.process(gone(key), 1)
                table.pop(key, None)
            case 2:
                found.restart(chance.randint(1, 4))
            case 3:
                clock.now_ms += chance.choice((1, 20_000, 50_000))
                expire()
            case _:
                keys[step] = key
                found.process(stream((step, key)))
                if key in table:
                    expected[key].append((step, table[key]))
                else:
                    queues[key].append((step, clock.now_ms + MINUTE_MS))
        poll(found, clock.now_ms)
    seen: defaultdict[str, list[tuple[int, float | None]]] = defaultdict(list)
    for n, value in numbers(found):
        seen[keys[n]].append((n, value))
    assert seen == {key: rows for key, rows in expected.items() if rows}, f"seed {seed}"
    assert waiting(found) == sum(map(len, queues.values()))
    assert any(value is None for rows in expected.values() for _, value in rows)
