"""Maps, lists and the `ttl` of states of a Python step."""

from __future__ import annotations

from typing import Any

import pytest

from tests.operators.kinds.python.running import messages, operator, rows, taken
from tests.operators.subtasks import Subtasks
from tidegate.operators.spec import StepOperator


def entries(tasks: Subtasks, name: str) -> dict[Any, Any]:
    """All entries of a state."""
    states = [one.states[name] for one in tasks.runtimes]
    return {key: state.get(key) for state in states for key in list(state.keys())}


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_entries_of_maps_and_lists_are_kept_one_by_one(backend: str) -> None:
    tasks = Subtasks(operator("Seen"), ("user",), backend)
    tasks.process(rows(("a", 3), ("a", 1), ("b", 2), ("a", 3), ("a", 2)))
    assert taken(tasks, "user", "clicks") == [
        ("3:4 [3]", 2),
        ("1:2,3:4 [3, 1]", 4),
        ("2:3 [2]", 2),
        ("1:2,3:4 [3, 1]", 4),
        ("1:2,2:3,3:4 [3, 1, 2]", 6),
    ]
    assert entries(tasks, "order") == {("a", 0): (3,), ("a", 1): (1,), ("a", 2): (2,), ("b", 0): (2,)}
    tasks.restart(3)
    tasks.process(rows(("a", 101), ("a", 102), ("a", 103), ("a", 5), ("b", 2)))
    assert sorted(taken(tasks, "user")) == ["1:2,2:3,3:4 [1, 2]", "2:3 [1, 2]", "2:3 [2]", "2:3,5:6 [1, 2, 5]"]
    assert [text[:29] for _, text in messages(tasks)] == ["ValueError: a row that fails,"]
    assert entries(tasks, "order") == {("a", 0): (1,), ("a", 1): (2,), ("a", 2): (5,), ("b", 0): (2,)}
    day = 86_400_000_000
    assert entries(tasks, "seen") == {("a", 2): (2 * day,), ("a", 5): (5 * day,), ("b", 2): (2 * day,)}
    tasks.process(rows(("a", 100), ("a", 7), ("a", -1), ("a", 7)))
    assert taken(tasks, "user") == [" []", "7:8 [7]", "7:8 [7]"]
    assert entries(tasks, "order") == {("a", 0): (7,), ("b", 0): (2,)}
    tasks.restart(1)
    tasks.process(rows(("a", 103), ("a", 100)))
    assert taken(tasks, "user") == [" []"]
    assert entries(tasks, "seen") == {("b", 2): (2 * day,)}
    tasks.close()


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def forgetting(backend: str, clock: Clock) -> Subtasks:
    spec: StepOperator = operator("Forgetting", timed=True)
    return Subtasks(spec, ("user",), backend, clock)


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_an_entry_ends_its_ttl_after_it_was_written(backend: str) -> None:
    clock = Clock()
    tasks = forgetting(backend, clock)
    tasks.process(rows(("a", 1), ("a", 2), times=[0, 4000]))
    assert taken(tasks, "user") == ["1 1 ['p1'] [1]", "2 2 ['p1', 'p2'] [1, 2]"]
    clock.now_ms = 10_000
    tasks.restart(2)
    tasks.process(rows(("a", 3), ("a", 4), times=[10_001, 20_002]))
    assert taken(tasks, "user") == ["3 3 ['p2', 'p3'] [2, 3]", "1 4 ['p4'] [4]"]
    clock.now_ms = 20_001
    tasks.process(rows(("a", 5), times=[20_003]))
    assert taken(tasks, "user") == ["2 1 ['p4', 'p5'] [4, 5]"]
    tasks.close()


def test_what_a_late_row_writes_does_not_end_earlier() -> None:
    tasks = forgetting("memory", Clock())
    tasks.process(rows(("a", 1), ("a", 2), ("a", 1), ("a", 3), times=[9000, 1000, 500, 19_000]))
    assert taken(tasks, "user")[-1] == "4 4 ['p1', 'p3'] [1, 3]"
    tasks.close()


def test_ended_entries_are_removed_in_parts() -> None:
    clock = Clock()
    tasks = forgetting("memory", clock)
    tasks.process(rows(*((f"k{n}", n) for n in range(50)), times=range(50)))
    tasks.watermark(60_000)
    clock.now_ms = 60_000
    assert len(entries(tasks, "by_time")) == 50
    tasks.restart(1)
    assert [entries(tasks, name) for name in ("by_time", "by_clock", "pages", "recent")] == [{}, {}, {}, {}]
    tasks.close()
