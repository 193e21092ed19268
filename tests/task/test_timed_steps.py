"""Steps that go by event time, in real slot loops: through checkpoints, restores and other numbers of subtasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import msgspec
import pytest

from tests.operators import test_dedup, test_keep, test_quiet, test_ttl
from tests.task.steps import OPERATOR, StepWorld

WorldMaker = Callable[[Any, list[str], str], StepWorld]
BACKENDS = ("memory", pytest.param("rocksdb", marks=pytest.mark.slow))


@pytest.fixture
def make_world() -> Iterator[WorldMaker]:
    """Closes the worlds that it has made: their states may be in RocksDB."""
    with ExitStack() as made:

        def make(spec: Any, keys: list[str], backend: str) -> StepWorld:
            world = StepWorld(spec, keys, backend)
            made.callback(world.close)
            return world

        yield make


def spec_named(spec: Any) -> Any:
    return msgspec.structs.replace(spec, name=OPERATOR)


@pytest.mark.parametrize("backend", BACKENDS)
def test_F01_W22_duplicates_are_known_after_a_restore_at_another_parallelism(
    backend: str, make_world: WorldMaker
) -> None:
    world, number = make_world(spec_named(test_dedup.SPEC), ["k", "day"], backend), 0
    keys = [f"k{index}" for index in range(40)]
    for parallelism, at in ((3, 100), (2, 200), (1, 300)):
        world.feed(test_dedup.frame([(index, key, at, 0) for index, key in enumerate(keys)]), at - 50)
        world.settle()
        assert sorted(row["n"] for row in world.rows()) == list(range(40))
        world.checkpoint(number := number + 1)
        world.feed(test_dedup.frame([(99, "k1", at + 50, 0)]))  # after the checkpoint: gone with the attempt
        world.settle()
        world.start(parallelism)
        again = [(index, key, at + 10, 0) for index, key in enumerate(keys)]
        world.feed(test_dedup.frame([*again, (70, "k1", at + 50, 0), (71, "k2", at - 51, 0)]))
        world.settle()
        assert [row["n"] for row in world.rows()] == [70]
        world.feed(10_000 if parallelism == 1 else at - 49)
        world.settle()
        world.checkpoint(number := number + 1)
    assert sum(slot.operator.gauges["remembered"] for slot in world.slots) == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_F01_rankings_go_on_after_a_restore_at_another_parallelism(backend: str, make_world: WorldMaker) -> None:
    world, number = make_world(spec_named(test_keep.ranking()), ["k", "day"], backend), 0
    for parallelism, best in ((3, 2.0), (2, 3.0), (1, 4.0)):
        for value, kept in ((best, True), (50.0, False)):
            rows = [(f"k{key}", value, None, 0, 0, 0, 100, 0) for key in range(20)]
            world.feed(test_keep.frame(rows))
            world.settle()
            assert {row["x"] for row in world.rows() if row["rank"] == 1} == {value}
            if kept:
                world.checkpoint(number := number + 1)
        world.start(parallelism)
    world.feed(test_keep.frame([(f"k{key}", 1.0, None, 0, 0, 0, 100, 0) for key in range(20)]))
    world.settle()
    assert world.rows() == []
    world.feed(test_keep.frame([("k7", 9.0, None, 0, 0, 0, 100, 0)]))
    world.settle()
    assert [(row["rank"], row["x"]) for row in world.rows()] == [(1, 9.0), (2, 4.0), (3, 3.0)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_F01_W20_what_a_watermark_has_closed_stays_closed_after_a_restore(backend: str, make_world: WorldMaker) -> None:
    world, number = make_world(spec_named(test_keep.ranking(emit="on close")), ["k", "day"], backend), 0
    first = test_keep.frame([(f"k{key}", 1.0, None, 0, 0, 0, 100 + key, 0) for key in range(20)])
    world.feed(first, 109)
    world.settle()
    for slot in world.slots:
        assert [one if isinstance(one, int) else one["__tidegate_time"] for one in slot.end.seen] == [
            *range(100, 110),
            109,
        ]
    world.rows()
    world.checkpoint(number := number + 1)
    for parallelism in (3, 2, 1):
        world.start(parallelism)
        world.feed(first)  # as it comes again from the checkpoint, before any watermark
        world.settle()
        assert sum(slot.operator.late_rows for slot in world.slots) == 10
        assert sum(slot.operator.gauges["open_rankings"] for slot in world.slots) == 10
        world.checkpoint(number := number + 1)
    world.feed(200)
    world.settle()
    assert [(row["__tidegate_time"], row["rank"]) for row in world.rows()] == [
        (time, rank) for time in range(110, 120) for rank in (1, 2, 3)
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_F01_the_last_time_of_a_key_is_known_after_a_restore(backend: str, make_world: WorldMaker) -> None:
    world = make_world(spec_named(test_keep.LAST), ["k", "day"], backend)
    rows = [(f"k{key}", 1.0, None, 0, 0, 0, 100, 0) for key in range(20)]
    world.feed(test_keep.frame(rows))
    world.settle()
    world.checkpoint(1)
    world.start(2)
    world.feed(test_keep.frame([(*row[:6], 99 + (index == 4), 0) for index, row in enumerate(rows)]))
    world.settle()
    assert [row["k"] for row in world.rows()] == ["k4"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_F28_totals_that_have_ended_are_removed_with_checkpoints_and_stay_so(
    backend: str, make_world: WorldMaker
) -> None:
    world, number = make_world(spec_named(test_ttl.SPEC), ["k"], backend), 0
    world.feed(test_ttl.frame([(key, 1, 0, 0) for key in range(40)]))
    world.settle()
    world.checkpoint(number := number + 1)
    world.feed(test_ttl.frame([(3, 1, 9, 0)]), 15)
    world.settle()
    world.checkpoint(number := number + 1)
    for parallelism in (3, 1):
        world.start(parallelism)
        assert sum(len(slot.operator.states["totals"]) for slot in world.slots) == 1
        world.checkpoint(number := number + 1)
    world.feed(test_ttl.frame([(3, 1, 19, 0), (4, 1, 19, 0)]))
    world.settle()
    assert [(row["k"], row["n"]) for row in world.rows()] == [(3, 3), (4, 1)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_F01_absence_goes_on_after_a_restore_at_another_parallelism(backend: str, make_world: WorldMaker) -> None:
    world, number = make_world(spec_named(test_quiet.spec(repeat_ms=30)), ["k", "b"], backend), 0
    keys = [f"k{index}" for index in range(20)]
    world.feed(test_quiet.frame([(key, 0, 0) for key in keys]))
    for parallelism, until in ((3, 10), (2, 40), (1, 70)):
        world.feed(until)
        world.settle()
        assert sorted((row["k"], row["__tidegate_time"]) for row in world.rows()) == sorted(
            (key, until) for key in keys
        )
        world.checkpoint(number := number + 1)
        world.feed(until + 30)  # after the checkpoint: gone with the attempt
        world.settle()
        world.start(parallelism)
    world.feed(test_quiet.frame([("k3", 75, 0), ("k4", 70, 0)]), 80)
    world.settle()
    assert [(row["k"], row["quiet"], row["__tidegate_time"]) for row in world.rows()] == [("k3", False, 75)]
    assert sum(slot.operator.late_rows for slot in world.slots) == 1
