"""`join` against the SQL join over all rows that are not late, whatever batches, restarts and numbers of subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, BOOLEAN, STRING
from tidegate.expressions.parse import parse_qualified
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.kinds.join import JoinOperator
from tidegate.operators.kinds.join.settings import JoinRows, Matching
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import InputOrder
from tidegate.task.elements import Watermark

COLUMNS = {"n": BIGINT, "k": STRING, "good": BOOLEAN}
INTERVAL = Matching(before_ms=5, after_ms=20)
WINDOWS = Matching(size_ms=10, every_ms=10, offset_ms=3)
SLIDING = Matching(size_ms=10, every_ms=4)
GOOD = "r.good and l.good"
OVER = 10_000
"""A watermark after which nothing is left."""


def join(rows: JoinRows, matching: Matching = INTERVAL, where: str = "") -> JoinOperator:
    inputs = {"l": COLUMNS, "r": COLUMNS}
    select = {"l": "l.n", "r": "r.n"} if rows.pairs else {"l": "l.n"}
    columns = tuple((name, parse_qualified(text, inputs, {})) for name, text in select.items())
    condition = parse_qualified(where, inputs, {}) if where else None
    sides = (("n", BIGINT), ("good", BOOLEAN)) if where else (("n", BIGINT),)
    return JoinOperator(
        OperatorName("join"),
        ("l", "r"),
        (("k", STRING),),
        (("k",), ("k",)),
        (sides, sides),
        rows,
        matching,
        condition,
        columns,
        tuple((name, one.type) for name, one in columns),
        BadRecordPolicy.FAIL,
        (InputOrder(), InputOrder()),
    )


class Record(NamedTuple):
    """A row of either side."""

    n: int
    key: str | None
    time: int
    behind: int = 0
    good: bool | None = True


def frame(records: Sequence[Record]) -> pl.DataFrame:
    columns = list(zip(*records, strict=True))
    kinds = {"n": pl.Int64, "k": pl.String, TIME: pl.Int64, BEHIND: pl.Int64, "good": pl.Boolean}
    series = zip(kinds.items(), columns, strict=True)
    return pl.DataFrame([pl.Series(name, values, kind) for (name, kind), values in series])


class Model:
    """The SQL join, from the definition."""

    def __init__(self, rows: JoinRows, matching: Matching, where: str) -> None:
        self.rows, self.matching, self.where = rows, matching, where
        self.sides: tuple[list[tuple[Record, int]], list[tuple[Record, int]]] = ([], [])
        """Rows that are not late, with their positions."""
        self.watermark = -(2**63)

    def positions(self, time: int) -> Iterator[int]:
        if not self.matching.size_ms:
            yield time
            return
        size, every, offset = self.matching.size_ms, self.matching.every_ms, self.matching.offset_ms
        yield from (at for at in range(time - size + 1, time + 1) if (at - offset) % every == 0)

    def add(self, port: int, record: Record) -> None:
        passed = max(self.watermark, record.time + record.behind - 1 if record.behind else -(2**63))
        last = self.matching.size_ms - 1 if self.matching.size_ms else 0
        self.sides[port].extend((record, at) for at in self.positions(record.time) if at + last > passed)

    def match(self, one: tuple[Record, int], other: tuple[Record, int]) -> bool:
        (left, at), (right, right_at) = one, other
        close = at - self.matching.before_ms <= right_at <= at + self.matching.after_ms
        good = not self.where or (left.good is True and right.good is True)
        return close and left.key is not None and left.key == right.key and good

    def result(self) -> Counter[tuple[int | None, ...]]:
        left, right = self.sides
        pairs = [(one, other) for one, other in product(left, right) if self.match(one, other)]
        matched = [{id(pair[port]) for pair in pairs} for port in (0, 1)]
        if not self.rows.pairs:
            wanted = self.rows is JoinRows.SEMI
            return Counter((one[0].n,) for one in left if (id(one) in matched[0]) is wanted)
        found: list[tuple[int | None, ...]] = [(one[0].n, other[0].n) for one, other in pairs]
        if self.rows.preserves(0):
            found += [(one[0].n, None) for one in left if id(one) not in matched[0]]
        if self.rows.preserves(1):
            found += [(None, one[0].n) for one in right if id(one) not in matched[1]]
        return Counter(found)


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.integers(-30, 60),
        st.sampled_from([0, 0, 0, 1, 7]),
        st.sampled_from([True, True, False, None]),
    ),
    min_size=1,
    max_size=12,
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from([0, 1]), RECORDS),
        st.tuples(st.just("watermark"), st.integers(-40, 90)),
        st.tuples(st.just("restart"), st.integers(1, 3)),
    ),
    max_size=14,
)


def play(operator: JoinOperator, steps: Sequence[Any], backend: str = "memory") -> Counter[tuple[int | None, ...]]:
    """What comes out, after it was compared with the model and with the watermarks."""
    where = GOOD if operator.where is not None else ""
    tasks, model, number = Subtasks(operator, ["k"], backend), Model(operator.rows, operator.matching, where), 0
    names = [name for name, _ in operator.output]
    emitted: Counter[tuple[int | None, ...]] = Counter()
    for what, argument in [*steps, ("watermark", OVER), ("watermark", END_OF_TIME)]:
        if what == "restart":
            tasks.restart(argument)
        elif what == "watermark":
            model.watermark = max(model.watermark, argument)
            tasks.watermark(model.watermark)
        else:
            records = [Record(number + index, *rest) for index, rest in enumerate(argument)]
            number += len(records)
            for record in records:
                model.add(what, record)
            arriving = [one for one in records if one.key is not None or operator.rows.preserves(what)]
            if arriving:
                tasks.process(frame(arriving), what)
        check_times(tasks)
        if what == "watermark" and argument == OVER:
            states = [state for one in tasks.runtimes for state in one.states.values()]
            assert not any(len(state) for state in states if state.declaration.keyed)
        rows = tasks.rows()
        emitted.update(tuple(row[name] for name in names) for row in rows)
    tasks.close()
    assert emitted == model.result()
    return emitted


def check_times(tasks: Subtasks) -> None:
    """No row comes after a watermark that has passed it."""
    passed = -(2**63)
    for one in tasks.out.order:
        if isinstance(one, Watermark):
            passed = max(passed, one.time_ms) if len(tasks.runtimes) == 1 else passed
        elif isinstance(one, pl.DataFrame):
            assert min(one[TIME].to_list()) > passed, (one, passed)
    tasks.out.order.clear()


@pytest.mark.parametrize("where", ["", GOOD])
@pytest.mark.parametrize("matching", [INTERVAL, WINDOWS, SLIDING], ids=["interval", "tumbling", "sliding"])
@pytest.mark.parametrize("rows", list(JoinRows))
@given(steps=STEPS)
@settings(deadline=None, max_examples=25)
def test_a_join_is_the_sql_join_over_rows_that_are_not_late(
    rows: JoinRows, matching: Matching, where: str, steps: list[Any]
) -> None:
    play(join(rows, matching, where), steps)
