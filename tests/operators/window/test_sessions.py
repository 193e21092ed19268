"""Sessions against a model that has all rows of all partitions in one line."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest

from tests.operators.window.feeding import Record, Step, Subtasks, aggregate, make_partitions, make_steps, make_window
from tidegate.operators.kinds.window.settings import Windowing
from tidegate.operators.runtime import END_OF_TIME


def derive_expected(partitions: Sequence[Sequence[Record]], gap: int) -> tuple[dict[Any, Any], int]:
    """Rows in the order of where their partitions were: each closes what has ended by then, and joins what is open."""
    rows = sorted((row for part in partitions for row in part), key=lambda row: (row.m, -row.time))
    opened: defaultdict[str | None, list[list[Record]]] = defaultdict(list)
    done: dict[Any, Any] = {}
    late = 0

    def close(key: str | None, session: list[Record]) -> None:
        start, end = min(row.time for row in session), max(row.time for row in session) + gap
        done[key, start, end] = aggregate(session)

    for row in rows:
        still = []
        for session in opened[row.key]:
            if max(one.time for one in session) + gap - 1 <= row.m:
                close(row.key, session)
            else:
                still.append(session)
        touched = [one for one in still if any(abs(other.time - row.time) < gap for other in one)]
        if not touched and row.time + gap - 1 <= row.m:
            late += 1
        else:
            still = [one for one in still if one not in touched]
            still.append([row, *(other for one in touched for other in one)])
        opened[row.key] = still
    for key, sessions in opened.items():
        for session in sessions:
            close(key, session)
    return done, late


@pytest.mark.parametrize("seed", range(15))
def test_sessions_are_those_of_the_model_whatever_the_batches_restarts_and_parallelism(seed: int) -> None:
    chance = random.Random(seed)
    delay, gap = chance.choice([0, 3, 10]), chance.choice([1, 4, 9])
    spread, step_ms = chance.choice([0, 5, 25]), chance.choice([1, 4, 8])
    partitions = make_partitions(seed, chance.randrange(1, 4), 50, delay, spread, step_ms)
    expected, late = derive_expected(partitions, gap)
    for way in range(2):
        step = Subtasks(make_window(Windowing(gap, 0)), chance.choice([1, 2, 3]))
        for one in make_steps(seed * 10 + way, partitions, delay):
            step.feed(one)
            if chance.random() < 0.5:
                step.poll(3)
            if chance.random() < 0.1:
                step.restart(chance.choice([1, 2, 4]), chance.choice(["memory", "memory", "rocksdb"]))
        step.settle()
        assert {row[:3]: row[3:] for row in step.results} == expected
        assert len(step.results) == len(expected)
        assert step.late == late


def test_rows_that_are_as_far_apart_as_the_gap_are_in_two_sessions() -> None:
    step = Subtasks(make_window(Windowing(10, 0)))
    step.feed(Step((Record("a", 1, 0, -99), Record("a", 1, 9, -99), Record("a", 1, 19, -99))))
    step.feed(Step(watermark=END_OF_TIME))
    assert step.results == [("a", 0, 19, 2, 2, 1), ("a", 19, 29, 1, 1, 1)]


def test_a_row_between_two_sessions_makes_them_one() -> None:
    step = Subtasks(make_window(Windowing(10, 0)))
    step.feed(Step((Record("a", 1, 0, -99), Record("a", 2, 15, -99))))
    step.restart(2, "rocksdb")
    step.feed(Step((Record("a", 4, 8, -99),)))
    step.feed(Step(watermark=24))
    assert step.results == [("a", 0, 25, 3, 7, 1)]
