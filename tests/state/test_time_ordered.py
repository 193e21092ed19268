"""Entries by time: taken in order, each once, whatever is put meanwhile, restored and dealt out to other subtasks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.state.driving import ALL, GROUPS, Backend, declare, encoded
from tidegate.datatypes import STRING
from tidegate.state import time_ordered
from tidegate.state.base import Share
from tidegate.state.declaration import StateDeclaration, StateField
from tidegate.state.time_ordered import TIME, TimeOrdered, declare_time_ordered

DECLARED = declare_time_ordered(declare())
TIMES = st.integers(-3, 6) | st.integers(-(2**63), 2**63 - 1)
KEYS = st.none() | st.text("abcdefq\x00", max_size=2)
ENTRIES = st.dictionaries(st.tuples(TIMES, KEYS), st.integers(0, 9), max_size=25)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), ENTRIES),
        st.tuples(st.just("delete"), st.lists(st.integers(0, 99), max_size=4)),
        st.tuples(st.sampled_from(["take", "remove"]), TIMES, st.integers(1, 40)),
        st.tuples(st.just("look")),
        st.tuples(st.just("restart"), st.integers(1, 4)),
    ),
    max_size=12,
)
Entry = tuple[Any, Any]


def group_of(row: tuple[Any, ...]) -> int:
    return sum((row[1] or "").encode()) % GROUPS


def in_order(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return row[0], group_of(row), row[1] is not None, row[1] or ""


class Subtasks:
    """TimeOrdered states of one operator, next to a dict."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._parallelism = 0
        self.model: dict[Any, tuple[int]] = {}
        self.held: list[TimeOrdered] = []
        self._states: list[Any] = []
        self.restart(2)

    def owned(self, index: int) -> range:
        return range(GROUPS * index // self._parallelism, GROUPS * (index + 1) // self._parallelism)

    def put(self, entries: dict[Any, int]) -> None:
        for index, held in enumerate(self.held):
            part = {row: (number,) for row, number in entries.items() if group_of(row) in self.owned(index)}
            held.put_many(part, part.values())
        self.model |= {row: (number,) for row, number in entries.items()}

    def delete(self, places: list[int]) -> None:
        there = sorted(self.model, key=in_order)
        rows = {there[place % len(there)] for place in places if there}
        for index, held in enumerate(self.held):
            held.delete_many([row for row in rows if group_of(row) in self.owned(index)])
        self.model = {row: value for row, value in self.model.items() if row not in rows}

    def take(self, until: int, limit: int) -> None:
        for index, held in enumerate(self.held):
            due = [row for row in self.rows(index) if row[0] <= until][:limit]
            assert held.take_due(until, limit) == [(row, self.model.pop(row)) for row in due]

    def remove(self, until: int, limit: int) -> None:
        for index, held in enumerate(self.held):
            rows = self.rows(index)
            due = [row for row in rows if row[0] <= until]
            assert held.remove_due(until, limit) == min(len(due), limit)
            left = [key for group in self.owned(index) for key, _ in held._state.scan(group)]
            assert {*rows} - {*left} <= {*due}
            assert len(left) == len(held) == len(rows) - min(len(due), limit)
            self.model = {row: value for row, value in self.model.items() if row not in rows or row in left}
            assert held.last_ms == max((row[0] for row in left), default=None)

    def look(self) -> None:
        for index, held in enumerate(self.held):
            rows = self.rows(index)
            assert len(held) == len(rows)
            assert held.first_ms == (rows[0][0] if rows else None)
            assert held.get_many(rows) == [self.model[row] for row in rows]

    def restart(self, parallelism: int) -> None:
        files = [data for state in self._states for data in encoded(state)]
        self._parallelism = parallelism
        self._states = [self._backend(declaration=DECLARED) for _ in range(parallelism)]
        for index, state in enumerate(self._states):
            state.restore(files, Share(self.owned(index), index, parallelism))
        self.held = [TimeOrdered(state, self.owned(index)) for index, state in enumerate(self._states)]

    def rows(self, index: int) -> list[Any]:
        return sorted((row for row in self.model if group_of(row) in self.owned(index)), key=in_order)


def play(name: str, steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        backend = Backend(name, Path(directory))
        subtasks = Subtasks(backend)
        for what, *arguments in steps:
            getattr(subtasks, what)(*arguments)
        subtasks.look()
        for limit in (3, 100):
            subtasks.take(2**63 - 1, limit)
        backend.close()


@given(STEPS, st.sampled_from([(1, 3), (time_ordered._READ_LEAST, time_ordered._READ_MOST)]))
@settings(deadline=None)
def test_W21_entries_are_taken_in_the_order_of_time(steps: list[Any], read: tuple[int, int]) -> None:
    """However few are read at a time."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time_ordered, "_READ_LEAST", read[0])
        patched.setattr(time_ordered, "_READ_MOST", read[1])
        play("memory", steps)


@pytest.mark.slow
@given(STEPS)
@settings(deadline=None, max_examples=40)
def test_W21_entries_are_taken_in_the_order_of_time_from_disk(steps: list[Any]) -> None:
    play("rocksdb", steps)


@pytest.fixture(params=["memory", "rocksdb"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TimeOrdered]:
    backend = Backend(request.param, tmp_path)
    state = backend(declaration=DECLARED)
    state.restore((), ALL)
    yield TimeOrdered(state)
    backend.close()


@pytest.mark.parametrize("times", [1, 7, 3000])
def test_W21_many_are_taken_in_parts_each_once(held: TimeOrdered, times: int) -> None:
    rows = [(number * 7919 % times, f"k{number}") for number in range(3000)]
    held.put_many(rows, [(number,) for number in range(3000)])
    values = {row: (number,) for number, row in enumerate(rows)}
    taken: list[Entry] = []
    while part := held.take_due(times, 250):
        assert len(part) == 250
        taken += part
    assert taken == [(row, values[row]) for row in sorted(rows, key=in_order)]
    assert (len(held), held.first_ms) == (0, None)


@pytest.mark.parametrize("limit", [700, 5000, 20_000])
def test_many_of_one_time_and_group_are_removed_each_once(held: TimeOrdered, limit: int) -> None:
    rows = [(0, "".join(letters)) for letters in product("aq", repeat=13)]
    assert {group_of(row) for row in rows} == {group_of((9, "a" * 13))}
    later = [(9, "a" * 13), (9, "q" * 13)]
    held.put_many([*rows, *later], [(0,)] * (len(rows) + len(later)))
    left = len(rows)
    while left:
        assert held.remove_due(5, limit) == min(limit, left)
        left = max(0, left - limit)
        assert len(held) == left + len(later)
    assert held.remove_due(5, limit) == 0
    assert [row for row, _ in held.take_due(9, 99)] == later


@pytest.mark.parametrize("limit", [90, 400])
def test_W21_few_of_one_group_lie_between_many_of_another(held: TimeOrdered, limit: int) -> None:
    """Whatever is read of one at a time, so that the other is taken up again in its middle."""
    many = [(5, name) for name in map("k{}".format, range(2000)) if group_of((5, name)) == 1]
    assert len(many) > 90
    rows = [*many, (4, "b"), (5, "b"), *((time, "c") for time in (0, *range(1000, 1100)))]
    rows += [*((time, "d") for time in range(1, 50)), *((10**6, chr(ord("a") + number)) for number in range(GROUPS))]
    held.put_many(rows, [(0,)] * len(rows))
    taken: list[Any] = []
    while part := held.take_due(10**6, limit):
        taken += [row for row, _ in part]
    assert taken == sorted(rows, key=in_order)


@pytest.mark.parametrize(
    ("groups", "limit", "read_most"),
    [(1, 250, 300), (GROUPS, 250, 600), (1, 1, 10), (GROUPS, 1, 20), (1, 5000, 5100)],
)
def test_what_is_read_to_take_some_is_not_much_more_than_them(
    held: TimeOrdered, monkeypatch: pytest.MonkeyPatch, groups: int, limit: int, read_most: int
) -> None:
    rows = [(number, chr(ord("a") + number % groups)) for number in range(10_000)]
    held.put_many(rows, [(0,)] * len(rows))
    held.take_due(0, 1)  # the first times are known from here on
    read = count_reads(held, monkeypatch)
    assert len(held.take_due(10_000, limit)) == limit
    assert sum(read) <= read_most


def test_what_is_due_later_is_not_read(held: TimeOrdered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows take the entries of one time after the other, and may hold many of later times."""
    rows = [(number // GROUPS, chr(ord("a") + number % GROUPS)) for number in range(100 * GROUPS)]
    held.put_many(rows, [(0,)] * len(rows))
    held.take_due(0, 1000)  # the first times are known from here on
    read = count_reads(held, monkeypatch)
    for time in range(1, 50):
        assert len(held.take_due(time, 1000)) == GROUPS
    assert sum(read) <= 49 * 2 * GROUPS


def count_reads(held: TimeOrdered, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collects a 1 for each entry that is read."""
    read: list[int] = []
    scan = held._state.scan

    def counted(*arguments: Any, **more: Any) -> Iterator[Entry]:
        for entry in scan(*arguments, **more):
            read.append(1)
            yield entry

    monkeypatch.setattr(held._state, "scan", counted)
    return read


def test_what_is_put_with_an_earlier_time_is_taken_next(held: TimeOrdered) -> None:
    held.put_many([(5, "a"), (9, "a")], [(1,), (2,)])
    assert held.take_due(9, 1) == [((5, "a"), (1,))]
    held.put_many([(3, "a"), (4, "b")], [(3,), (4,)])
    assert held.first_ms == 3
    assert held.take_due(8, 9) == [((3, "a"), (3,)), ((4, "b"), (4,))]
    assert held.take_due(8, 9) == []
    assert held.first_ms == 9


def test_what_comes_and_goes_before_a_far_time_leaves_nothing(held: TimeOrdered) -> None:
    far = [(10**9, "a"), (10**9, "b")]
    held.put_many(far, [(0,), (0,)])
    assert held.first_ms == 10**9
    for time in range(1000):
        held.put_many([(time, "b")], [(1,)])
        assert held.take_due(time, 9) == [((time, "b"), (1,))]
    assert len(held._heap) <= 4 * GROUPS  # memory, which nothing outside shows
    assert [row for row, _ in held.take_due(10**9, 9)] == far


def test_keys_of_one_time_may_be_null_where_every_group_has_entries(held: TimeOrdered) -> None:
    held.put_many([(5, chr(ord("a") + number)) for number in range(GROUPS)], [(0,)] * GROUPS)
    assert held.first_ms == 5
    held.put_many([(7, None), (7, "a"), (6, None)], [(1,), (2,), (3,)])
    assert [row for row, _ in held.take_due(9, 99)[GROUPS:]] == [(6, None), (7, None), (7, "a")]


def test_a_state_that_is_not_in_the_order_of_time_is_refused(tmp_path: Path) -> None:
    named = StateDeclaration(
        DECLARED.name,
        msgspec.structs.replace(DECLARED.shape, keys=(StateField("time", STRING), *DECLARED.shape.keys[1:])),
    )
    for declaration in (declare(2), named):
        with pytest.raises(ValueError, match="state totals is not in the order of a time"):
            TimeOrdered(Backend("memory", tmp_path)(declaration=declaration))


def test_the_time_comes_first_and_does_not_count_for_the_key_group() -> None:
    assert DECLARED.shape == msgspec.structs.replace(declare().shape, keys=(TIME, *declare().shape.keys), prefix=1)
    assert DECLARED.name == declare().name


def test_keys_with_and_without_a_value_come_at_one_time_when_every_group_has_entries(held: TimeOrdered) -> None:
    rows = [(time, key) for time in (3, 5) for key in (*map(chr, range(97, 97 + GROUPS)), None)]
    held.put_many(rows[:-1], [(1,)] * (len(rows) - 1))
    assert held.first_ms == 3  # the first time of each group is known from now on
    held.put_many([(5, "a"), (5, None)], [(2,), (2,)])
    assert [row for row, _ in held.take_due(5, 99)] == sorted(rows, key=in_order)
