"""A Python step with every kind of state, timers and random failures equals a model, whatever batches and restarts."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.operators.kinds.python.running import operator, rows, taken
from tests.operators.subtasks import Subtasks
from tidegate.operators.kinds.python.running import timers

Record = tuple[str, int, int]
"""Key, what it says, event time."""


@dataclass
class Of:
    """What the model has of one key."""

    value: int = 0
    entries: dict[int, int] = field(default_factory=dict)
    elements: list[int] = field(default_factory=list)
    timers: dict[str, int] = field(default_factory=dict)


class Model:
    """`Scripted`, in a few lines and without batches."""

    def __init__(self) -> None:
        self.keys: dict[str, Of] = {}
        self.emitted: Counter[tuple[str, int]] = Counter()
        self.failed = 0

    def process(self, key: str, n: int, time: int) -> None:
        one = copy.deepcopy(self.keys.get(key, Of()))
        for place, digit in enumerate(str(n)):
            match digit:
                case "1":
                    one.value += 1
                case "2":
                    one.entries[place] = one.entries.get(place, 0) + 1
                case "3":
                    one.elements.append(place)
                case "4":
                    one.timers["first"] = time + 10 * place
                case "5":
                    one.timers["second"] = time + 15
                case "6":
                    one.timers.pop("first", None)
                case "7":
                    one.entries, one.value = {}, 0
                case "8":
                    one.elements = one.elements[place:]
                case "9":
                    self.failed += 1
                    return
        self.show(key, "row", one)

    def advance(self, watermark: int) -> None:
        while due := [
            (at, key, name) for key, one in self.keys.items() for name, at in one.timers.items() if at <= watermark
        ]:
            at, key, name = min(due)
            del self.keys[key].timers[name]
            one = copy.deepcopy(self.keys[key])
            one.elements.append(100)
            one.value += 10
            if one.value % 7 == 3:
                self.failed += 1
                continue
            if name == "first" and one.value % 3 == 0:
                one.timers["second"] = at + 5
            self.show(key, f"{name} {at}", one)

    def show(self, key: str, what: str, one: Of) -> None:
        self.keys[key] = one
        text = f"{key} {what} {sorted(one.entries.items())} {one.elements} {len(one.elements)}"
        self.emitted[text, one.value] += 1


RECORDS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 99_999), st.integers(0, 60)), min_size=1, max_size=12
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("records"), RECORDS),
        st.tuples(st.just("watermark"), st.integers(0, 80)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    max_size=12,
)


def play(backend: str, steps: list[Any]) -> None:
    tasks, model, watermark = Subtasks(operator("Scripted", timed=True), ("user",), backend), Model(), -1
    for what, argument in [*steps, ("watermark", 200)]:
        if what == "restart":
            tasks.restart(argument)
            tasks.watermark(watermark)
        elif what == "watermark":
            watermark = max(watermark, argument)
            tasks.watermark(watermark)
            model.advance(watermark)
        else:
            records = [(key, n, time + watermark + 1) for key, n, time in argument]  # none of their timers is late
            tasks.process(rows(*((key, n) for key, n, _ in records), times=[time for _, _, time in records]))
            for record in records:
                model.process(*record)
        assert Counter(taken(tasks, "user", "clicks")) == model.emitted
        model.emitted.clear()
    assert len(tasks.out.failures) == model.failed
    assert sum(one.gauges["timers"] for one in tasks.runtimes) == 0
    tasks.close()


@pytest.mark.slow
@example([("records", [("a", 5, 0)]), ("records", [("a", 5, 10), ("a", 114, 5)]), ("watermark", 79)])
@given(STEPS)
@settings(deadline=None, max_examples=25 * DEPTH)
def test_a_step_equals_the_model(steps: list[Any]) -> None:
    play("memory", steps)


@pytest.mark.deep
@given(STEPS)
@settings(deadline=None, max_examples=20 * DEPTH)
def test_a_step_equals_the_model_in_rocksdb(steps: list[Any]) -> None:
    play("rocksdb", steps)


@pytest.mark.deep
@given(STEPS, st.integers(1, 4))
@settings(deadline=None, max_examples=40 * DEPTH)
def test_a_step_equals_the_model_however_many_timers_fire_at_once(steps: list[Any], count: int) -> None:
    before = timers.FIRED_AT_ONCE
    timers.FIRED_AT_ONCE = count  # type: ignore[misc]  # put back below; a fixture would not be reset between examples
    try:
        play("memory", steps)
    finally:
        timers.FIRED_AT_ONCE = before  # type: ignore[misc]  # as above
