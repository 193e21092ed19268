"""`join` against the SQL join over all rows that are not late, whatever batches, restarts and numbers of subtasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, BOOLEAN, STRING, DataType
from tidegate.expressions.parse import parse_qualified
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.operators.keyed import REASONS
from tidegate.operators.kinds.join import JoinOperator
from tidegate.operators.kinds.join.running import runtime, side
from tidegate.operators.kinds.join.settings import JoinRows, Matching
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import InputOrder
from tidegate.task.elements import StreamStatus, Watermark

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


MATCHINGS = [INTERVAL, Matching(), Matching(after_ms=9), Matching(before_ms=30), WINDOWS, SLIDING]
JOINS = st.builds(join, st.sampled_from(list(JoinRows)), st.sampled_from(MATCHINGS), st.sampled_from(["", GOOD]))


@given(JOINS, STEPS)
@settings(deadline=None, max_examples=70 * DEPTH)
def test_a_join_is_the_sql_join_over_rows_that_are_not_late(operator: JoinOperator, steps: list[Any]) -> None:
    play(operator, steps)


@pytest.mark.deep
@pytest.mark.slow
@given(JOINS, STEPS)
@settings(deadline=None, max_examples=30 * DEPTH)
def test_a_join_is_the_sql_join_over_rows_that_are_not_late_on_disk(operator: JoinOperator, steps: list[Any]) -> None:
    play(operator, steps, "rocksdb")


@given(JOINS, STEPS)
@settings(deadline=None, max_examples=15 * DEPTH)
def test_limits_of_pieces_change_nothing(operator: JoinOperator, steps: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(side, "PAIRS_AT_ONCE", 2)
        patch.setattr(runtime, "FIRED_MAX", 1)
        patch.setattr(runtime, "REMOVED_AT_ONCE", 1)
        patch.setattr(side, "_FEW", 1)
        play(operator, steps)


class Played:
    """One subtask, by hand."""

    def __init__(self, operator: JoinOperator, backend: str = "memory") -> None:
        self.tasks = Subtasks(operator, ["k"], backend)
        self.number = 0

    @property
    def runtime(self) -> Any:
        return self.tasks.runtimes[0]

    def left(self, *times: int, key: str | None = "a", behind: int = 0) -> list[Any]:
        return self._process(0, times, key, behind)

    def right(self, *times: int, key: str | None = "a", behind: int = 0) -> list[Any]:
        return self._process(1, times, key, behind)

    def _process(self, port: int, times: Sequence[int], key: str | None, behind: int) -> list[Any]:
        records = [Record(self.number + index, key, time, behind) for index, time in enumerate(times)]
        self.number += len(times)
        self.tasks.process(frame(records), port)
        return self.rows()

    def watermark(self, time: int) -> list[Any]:
        self.tasks.watermark(time)
        return self.rows()

    def rows(self) -> list[Any]:
        """Numbers, and the event time."""
        return [(row["l"], row.get("r"), row[TIME]) for row in self.tasks.rows()]

    def watermarks(self) -> list[int]:
        return [one.time_ms for one in self.tasks.out.order if isinstance(one, Watermark)]


def test_both_ends_of_the_interval_belong_to_it() -> None:
    """flink#5094, flink#23699, spark#23634: rows at the ends."""
    played = Played(join(JoinRows.INNER))
    assert played.left(100) == []
    assert played.right(94, 95, 120, 121) == [(0, 2, 100), (0, 3, 120)]
    assert played.left(99, 125) == [(5, 1, 99), (5, 2, 99), (6, 3, 125), (6, 4, 125)]


@pytest.mark.parametrize("rows", [JoinRows.LEFT, JoinRows.ANTI])
def test_W20_an_unmatched_row_comes_out_with_the_watermark_that_ends_its_wait_and_before_it_is_passed_on(
    rows: JoinRows,
) -> None:
    played = Played(join(rows))
    played.left(100)
    assert played.watermark(119) == [], "a partner at 120 may arrive"
    assert played.right(120) == ([(0, 1, 120)] if rows.pairs else [])
    assert played.watermark(120) == [], "it has matched"
    played.left(130)
    assert played.watermark(149) == []
    assert played.watermark(150) == [(2, None, 130)]
    assert played.watermarks() == [99, 100, 129, 130], "held back by the wait, and not a millisecond more"


def test_the_watermark_of_an_inner_join_is_not_held_back() -> None:
    played = Played(join(JoinRows.INNER))
    played.left(100)
    played.watermark(110)
    assert played.watermarks() == [110]
    assert played.right(111) == [(0, 1, 111)], "a pair has the later time"


def test_rows_of_a_window_have_its_last_millisecond() -> None:
    played = Played(join(JoinRows.FULL, WINDOWS))
    assert played.left(13, 22) == []
    assert played.right(14) == [(0, 2, 22), (1, 2, 22)]
    played.right(23)
    assert played.watermark(31) == []
    assert played.watermark(32) == [(None, 3, 32)]
    assert played.watermarks() == [31, 32]


def test_a_row_with_a_null_key_matches_nothing() -> None:
    """KAFKA-12317, kafka#19580: a left join keeps it."""
    played = Played(join(JoinRows.LEFT))
    played.right(100)
    assert played.left(100, key=None) == [(1, None, 100)]
    assert Played(join(JoinRows.ANTI)).left(100, key=None) == [(0, None, 100)]


def test_state_of_keys_that_get_no_more_rows_is_removed() -> None:
    """risingwave#16045."""
    played = Played(join(JoinRows.FULL))
    played.left(100, key="once")
    played.right(2_000, key="other")
    played.watermark(2_000)
    assert played.runtime.gauges == {"left_rows": 0, "right_rows": 1, "waiting_rows": 1, "waiting_until_ms": 2_005}
    played.watermark(5_000)
    assert played.runtime.gauges == {"left_rows": 0, "right_rows": 0, "waiting_rows": 0}


def test_W01_after_the_end_of_an_input_a_later_start_contradicts_nothing() -> None:
    played = Played(join(JoinRows.LEFT))
    played.left(100, 300)
    played.right(105)
    played.watermark(150)
    assert played.watermark(END_OF_TIME) == [(1, None, 300)]
    played.tasks.restart(2)
    assert played.right(310) == [], "the left row came out without it"
    assert sum(one.late_rows for one in played.tasks.runtimes) == 1
    assert played.left(330) == []
    assert played.right(321) == []
    assert played.right(331) == [(4, 6, 331)]


def test_an_inner_join_goes_on_after_the_end_of_an_input() -> None:
    played = Played(join(JoinRows.INNER))
    played.left(100)
    played.watermark(90)
    played.watermark(END_OF_TIME)
    played.tasks.restart(1)
    assert played.right(110) == [(0, 1, 110)]


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_another_interval_keeps_the_rows_that_are_kept(backend: str) -> None:
    played = Played(join(JoinRows.LEFT, Matching(after_ms=5_000)), backend)
    played.left(1_000, 9_000)
    played.left(1_500)
    played.right(9_100)
    played.watermark(500)
    for spec, parallelism in ((Matching(after_ms=50_000), 2), (Matching(after_ms=500), 3)):
        played.tasks.spec = join(JoinRows.LEFT, spec)
        played.tasks.restart(parallelism)
    assert played.right(9_400, 9_501) == [(1, 4, 9_400)]
    assert played.watermark(1_500) == [(0, None, 1_000)]
    assert played.right(2_000) == [(2, 6, 2_000)]
    assert played.watermark(99_999) == []
    played.tasks.close()


def test_rows_beyond_the_limits_of_a_key_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side, "ROWS_MAX", 3)
    played = Played(join(JoinRows.LEFT))
    played.left(1, 2, 3, 4)
    played.left(5, key="b")
    played.left(6)
    failed = played.tasks.out.failures
    assert [(one.row, one.kind) for one in failed] == [(3, "TOO_MANY_ROWS"), (0, "TOO_MANY_ROWS")]
    assert len(played.right(7)) == 3
    assert played.runtime.gauges["left_rows"] == 2


def test_a_condition_that_fails_is_a_bad_record_and_no_match() -> None:
    played = Played(join(JoinRows.LEFT, where="1 / (l.n - r.n + 1) > 0"))
    played.left(100)
    assert played.right(100) == []
    assert [one.kind for one in played.tasks.out.failures] == ["DIVIDE_BY_ZERO"]
    assert played.watermark(120) == [(0, None, 100)]


def test_W05_a_status_waits_for_the_rows_that_a_watermark_makes_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FIRED_MAX", 2)
    played = Played(join(JoinRows.ANTI))
    played.left(1, 2, 3)
    one, out = played.runtime, played.tasks.out
    out.order.clear()
    one.on_watermark(50, out)
    one.on_status(True, out)
    assert not one.settled
    while one.poll(10, out):
        pass
    kinds = [type(what) for what in out.order]
    assert kinds == [pl.DataFrame, pl.DataFrame, Watermark, StreamStatus]
    assert one.settled


def test_late_rows_of_both_sides_go_to_one_output() -> None:
    late = {"_side": STRING, **{alias: DataType("struct", fields=tuple(COLUMNS.items())) for alias in "lr"}}
    operator = msgspec.structs.replace(join(JoinRows.INNER), late=(*late.items(), *REASONS))
    played = Played(operator)
    played.watermark(99)
    assert played.left(99, 100) == []
    assert played.right(120, behind=5) == []
    rows = [row for frame in played.tasks.out.sides["late"] for row in frame.to_dicts()]
    assert [(row["_side"], row["l"], row["r"], row[TIME]) for row in rows] == [
        ("l", {"n": 0, "k": "a", "good": True}, None, 99),
        ("r", None, {"n": 2, "k": "a", "good": True}, 120),
    ]
    assert [round(row["_watermark"].timestamp() * 1000) for row in rows] == [99, 124]
    assert played.runtime.late_rows == 2
