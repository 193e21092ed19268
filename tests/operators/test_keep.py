"""`keep` against models that sort everything, whatever the order of arrival, batches, restarts and subtasks."""

from __future__ import annotations

import math
from itertools import groupby, pairwise
from typing import Any

import msgspec
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.operators.driven import Collected, drive
from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, DATE, DOUBLE, STRING, TIMESTAMP, DataType, decimal_of, decimal_of_units, map_of
from tidegate.formats.columns import make_column, polars_type
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName
from tidegate.operators.keyed import REASONS
from tidegate.operators.kinds.keep import LastOperator, RankingOperator, RankingOrder
from tidegate.operators.runtime import END_OF_TIME
from tidegate.operators.spec import Slot
from tidegate.state.backends import choose_backend
from tidegate.state.declaration import Serializer
from tidegate.state.migration import derive_migration
from tidegate.state.time_ordered import TimeOrdered
from tidegate.task.elements import StreamStatus, Watermark

COLUMNS = (("k", STRING), ("x", DOUBLE), ("name", STRING), ("day", DATE), ("at", TIMESTAMP), ("n", BIGINT))
RANKED = (*dict(COLUMNS), "rank")
LAST = LastOperator(OperatorName("last"), ("k", "day"), COLUMNS, BadRecordPolicy.FAIL)
Record = tuple[Any, ...]
"""k, x, name, day, at, n, event time, by how much the watermark of its partition had passed that."""


def ranking(by: str = "x", places: int = 3, emit: str = "each", *, descending: bool = True) -> RankingOperator:
    return RankingOperator(
        OperatorName("top"), ("k", "day"), COLUMNS, BadRecordPolicy.FAIL, by, places, descending, emit
    )


def frame(records: list[Record]) -> pl.DataFrame:
    columns = list(zip(*records, strict=True))
    kinds = [(name, polars_type(kind)) for name, kind in COLUMNS] + [
        ("__tidegate_time", pl.Int64()),
        ("__tidegate_behind", pl.Int64()),
    ]
    parts = []
    for (name, kind), values in zip(kinds, columns, strict=True):
        physical = {"day": pl.Int32(), "at": pl.Int64()}.get(name, kind)
        parts.append(pl.Series(name, values, physical).cast(kind))
    return pl.DataFrame(parts)


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", None]),
        st.sampled_from([None, math.nan, -1.5, 0.0, 2.0, math.inf]),
        st.sampled_from([None, "", "x", "y"]),
        st.sampled_from([None, 0]),
        st.sampled_from([None, 0, -1]),
        st.integers(0, 3),
        st.integers(0, 30),
        st.just(0),
    ),
    min_size=1,
    max_size=25,
)
STEPS = st.lists(st.one_of(RECORDS, st.integers(1, 3)), max_size=8)
SPECS = st.builds(
    ranking,
    st.sampled_from(["x", "name", "day", "at", "n"]),
    st.integers(1, 4),
    descending=st.booleans(),
)


def test_nested_columns_are_kept_and_settle_ties_and_decimals_rank_by_every_digit() -> None:
    kinds = {
        "k": STRING,
        "x": decimal_of(38, 2),
        "tags": map_of(STRING, DATE),
        "at": DataType("array", element=TIMESTAMP),
    }
    great = 10**38 - 1
    rows = [
        ("a", decimal_of_units(great, 2), (("t", None),), (0, None)),
        ("a", decimal_of_units(great - 1, 2), (), None),
        ("a", decimal_of_units(great, 2), (("s", 5),), (1,)),
        ("a", None, None, ()),
    ]
    for descending, order in ((True, [2, 0, 1, 3]), (False, [1, 2, 0, 3])):
        operator = RankingOperator(
            OperatorName("top"), ("k",), tuple(kinds.items()), BadRecordPolicy.FAIL, "x", 4, descending, "each"
        )
        driven = drive(operator)
        columns = zip(kinds.items(), zip(*rows, strict=True), strict=True)
        for row in pl.DataFrame([make_column(name, kind, values) for (name, kind), values in columns]).iter_slices(1):
            driven.process(row.with_columns(__tidegate_time=pl.lit(0), __tidegate_behind=pl.lit(0)))
        ((kept,),) = driven.state.get_many(["a"])
        assert list(kept) == [rows[place] for place in order]


def value_order(value: Any) -> tuple[Any, ...]:
    if value is None:
        return (2, 0)
    return (1, 0) if value != value else (0, value)


def best(rows: list[Record], spec: RankingOperator) -> list[Record]:
    """The rows of one key that have a rank: by stable sorts from the last criterion to the first."""
    column = [name for name, _ in COLUMNS].index(spec.by)
    found = sorted(rows, key=lambda row: [value_order(value) for value in row])
    there = [row for row in found if row[column] is not None]
    there.sort(key=lambda row: value_order(row[column]), reverse=spec.descending)
    return [*there, *(row for row in found if row[column] is None)][: spec.places]


def shown(rows: list[Record]) -> str:
    """NaN is not equal to itself."""
    return repr([tuple(map(str, row)) for row in rows])


def physical(row: dict[str, Any]) -> Record:
    """A row as records are written here."""
    plain = pl.DataFrame([row], schema={name: polars_type(kind) for name, kind in COLUMNS} | {"rank": pl.Int64})
    found: Record = plain.with_columns(pl.col("day", "at").to_physical()).row(0)
    return found


def by_key(rows: list[Record]) -> list[tuple[Any, list[Record]]]:
    def key(row: Record) -> Any:
        return value_order(row[0]), value_order(row[3])

    return [(one, list(part)) for one, part in groupby(sorted(rows, key=key), key)]


def play_running(spec: RankingOperator, steps: list[Any], backend: str) -> None:
    tasks, seen, newest = Subtasks(spec, ["k", "day"], backend), list[Record](), dict[Any, Record]()
    for step in steps:
        if isinstance(step, int):
            tasks.restart(step)
            continue
        tasks.process(frame(step))
        seen += [record[:6] for record in step]
        for row in tasks.rows():
            made = physical({name: row[name] for name in RANKED})
            newest[made[0], made[3], made[6]] = made[:6]
    tasks.close()
    for _, rows in by_key(seen):
        key, expected = (rows[0][0], rows[0][3]), best(rows, spec)
        held = [newest.pop((*key, rank + 1)) for rank in range(len(expected))]
        assert shown(held) == shown(expected)
    assert not newest


@given(SPECS, STEPS)
@settings(deadline=None, max_examples=30 * DEPTH)
def test_the_newest_record_of_each_rank_is_the_ranking_of_everything(spec: RankingOperator, steps: list[Any]) -> None:
    play_running(spec, steps, "memory")


@pytest.mark.deep
@pytest.mark.slow
@given(SPECS, STEPS)
@settings(deadline=None, max_examples=20)
def test_the_newest_record_of_each_rank_is_the_ranking_on_disk(spec: RankingOperator, steps: list[Any]) -> None:
    play_running(spec, steps, "rocksdb")


def simple(*values: float | None, time: int = 0, k: str = "a") -> pl.DataFrame:
    return frame([(k, value, None, 0, 0, number, time + number, 0) for number, value in enumerate(values)])


def ranks(rows: list[dict[str, Any]]) -> list[tuple[int, Any, int]]:
    return [(row["rank"], row["x"], row["__tidegate_time"]) for row in rows]


def test_a_row_with_a_rank_is_emitted_with_those_it_moves_down_and_its_own_time() -> None:
    tasks = Subtasks(ranking(), ["k", "day"])
    tasks.process(simple(1.0, 3.0, 2.0, 0.5, 9.0))
    assert ranks(tasks.rows()) == [
        *[(1, 1.0, 0)],
        *[(1, 3.0, 1), (2, 1.0, 1)],
        *[(2, 2.0, 2), (3, 1.0, 2)],
        *[(1, 9.0, 4), (2, 3.0, 4), (3, 2.0, 4)],
    ]


@given(RECORDS, st.lists(st.integers(1, 24), max_size=4), SPECS)
@settings(deadline=None, max_examples=20 * DEPTH)
def test_how_rows_are_cut_into_batches_does_not_matter(rows: list[Any], cuts: list[int], spec: RankingOperator) -> None:
    for one in (spec, LAST):
        whole, cut = Subtasks(one, ["k", "day"]), Subtasks(one, ["k", "day"])
        whole.process(frame(rows))
        for start, end in pairwise([0, *sorted(cuts), len(rows)]):
            if rows[start:end]:
                cut.process(frame(rows[start:end]))
        assert shown([tuple(row.values()) for row in whole.rows()]) == shown(
            [tuple(row.values()) for row in cut.rows()]
        )


# -- last ------------------------------------------------------------------------------------------------------------


@given(STEPS)
@settings(deadline=None, max_examples=20 * DEPTH)
def test_the_last_record_passes_whenever_it_changes(steps: list[Any]) -> None:
    tasks, lasts = Subtasks(LAST, ["k", "day"]), dict[Any, int]()
    for step in steps:
        if isinstance(step, int):
            tasks.restart(step)
            continue
        tasks.process(frame(step))
        expected = []
        for record in step:
            key = record[0], record[3]
            if key not in lasts or record[6] >= lasts[key]:
                lasts[key] = record[6]
                expected.append(record)
        found = [(row["k"], row["__tidegate_time"]) for row in tasks.rows()]
        assert sorted(found, key=str) == sorted(((record[0], record[6]) for record in expected), key=str)
    tasks.close()


# -- on close --------------------------------------------------------------------------------------------------------


def play_closing(spec: RankingOperator, steps: list[Any], backend: str) -> None:
    """Integers of a step are watermarks up to 30, above them numbers of subtasks."""
    tasks, open_rows, watermark, late = Subtasks(spec, ["k", "day"], backend), list[Record](), -1, 0
    for step in [*steps, END_OF_TIME]:
        if not isinstance(step, int):
            tasks.process(frame(step))
            open_rows += [record for record in step if record[6] > watermark]
            late += sum(record[6] <= watermark for record in step)
            assert tasks.rows() == []
        elif 30 < step < END_OF_TIME:
            late -= sum(one.late_rows for one in tasks.runtimes)
            tasks.restart(step - 30)
        else:
            watermark = max(watermark, step)
            tasks.watermark(watermark)
            closed = [record for record in open_rows if record[6] <= watermark]
            open_rows = [record for record in open_rows if record[6] > watermark]
            expected = [
                (*row, rank + 1, time)
                for time in sorted({record[6] for record in closed})
                for _, rows in by_key([record[:6] for record in closed if record[6] == time])
                for rank, row in enumerate(best(rows, spec))
            ]
            found = [(*physical({name: row[name] for name in RANKED}), row["__tidegate_time"]) for row in tasks.rows()]
            assert sorted(shown([row]) for row in found) == sorted(shown([row]) for row in expected)
            if len(tasks.runtimes) == 1:
                assert [row[7] for row in found] == [row[7] for row in expected], "in the order of time"
    assert late == sum(one.late_rows for one in tasks.runtimes)
    assert all(not one.gauges["open_rankings"] for one in tasks.runtimes)
    tasks.close()


CLOSING_STEPS = st.lists(st.one_of(RECORDS, st.integers(0, 33)), max_size=8)
CLOSING = st.builds(ranking, st.sampled_from(["x", "name"]), st.integers(1, 3), st.just("on close"))


@given(CLOSING, CLOSING_STEPS)
@settings(deadline=None, max_examples=30 * DEPTH)
def test_W21_W22_each_ranking_is_emitted_once_as_the_watermark_passes(spec: RankingOperator, steps: list[Any]) -> None:
    play_closing(spec, steps, "memory")


@pytest.mark.slow
@given(CLOSING, CLOSING_STEPS)
@settings(deadline=None, max_examples=20)
def test_W21_W22_each_ranking_is_emitted_once_from_disk(spec: RankingOperator, steps: list[Any]) -> None:
    play_closing(spec, steps, "rocksdb")


def test_W05_W20_rankings_are_emitted_in_parts_before_the_watermark_and_idleness_go_on() -> None:
    tasks = Subtasks(ranking(places=1000, emit="on close"), ["k", "day"])
    for key in range(12):
        tasks.process(simple(1.0, k=f"k{key}"))
    (runtime,), out = tasks.runtimes, tasks.out
    runtime.on_watermark(5, out)
    runtime.on_status(True, out)
    assert [type(one) for one in out.order] == [pl.DataFrame]
    assert not runtime.settled
    while runtime.poll(1, out):
        pass
    assert [type(one) for one in out.order] == [pl.DataFrame] * 3 + [Watermark, StreamStatus]
    assert runtime.settled
    runtime.on_status(False, out)
    assert out.order[-1] == StreamStatus(idle=False)


def test_rows_that_their_partition_was_past_are_late_whatever_the_watermark_is() -> None:
    spec = msgspec.structs.replace(ranking(emit="on close"), late=(*COLUMNS, *REASONS))
    tasks = Subtasks(spec, ["k", "day"])
    tasks.process(frame([("a", 1.0, None, 0, 0, 0, 100, 1), ("a", 2.0, None, 0, 0, 0, 100, 0)]))
    tasks.watermark(100)
    assert ranks(tasks.rows()) == [(1, 2.0, 100)]
    tasks.process(frame([("a", 3.0, None, 0, 0, 0, 90, 0)]))
    assert tasks.runtimes[0].late_rows == 2
    late = [row for shown in tasks.out.sides["late"] for row in shown.to_dicts()]
    assert [(row["x"], row["_watermark"].timestamp() * 1000) for row in late] == [(1.0, 100), (3.0, 100)]
    assert {row["_reason"] for row in late} == {"late: its ranking was closed"}


@pytest.mark.parametrize(("text", "least", "most"), [("x", 100, 400), ("x" * 300, 1, 16)])
def test_as_many_rankings_are_taken_at_a_time_as_leave_in_one_part(text: str, least: int, most: int) -> None:
    out, slot = Collected(), Slot(128, choose_backend("memory", retained=1), bytes_max=1000)
    runtime = ranking(places=1, emit="on close").open(slot)
    runtime.process(0, frame([(f"k{key}", 1.0, text, 0, 0, 0, 0, 0) for key in range(400)]), out)
    runtime.on_watermark(0, out)
    taken = [sum(batch.height for batch in out.batches)]
    while runtime.poll(1000, out):
        taken.append(sum(batch.height for batch in out.batches) - sum(taken))
    assert sum(taken) == 400
    assert least <= max(taken) <= most


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
@pytest.mark.parametrize("emit", ["each", "on close"])
def test_what_is_kept_is_ranked_again_where_the_ranking_is_another_one(emit: str, backend: str) -> None:
    """`state: keep`: the rows that are there stay, as far as they have a rank among each other."""
    tasks = Subtasks(ranking(places=3, emit=emit), ["k", "day"], backend)
    tasks.process(frame([("a", x, None, 0, 0, 0, 0, 0) for x in (1.0, 9.0, 5.0)]))
    tasks.rows()
    tasks.spec = ranking(places=2, emit=emit, descending=False)
    tasks.restart(2)
    tasks.process(frame([("a", 3.0, None, 0, 0, 0, 0, 0)]))
    tasks.watermark(9)
    assert [(row["rank"], row["x"]) for row in tasks.rows()] == [*([(1, 1.0)] if emit == "on close" else []), (2, 3.0)]
    tasks.close()


def test_rankings_that_nothing_is_in_are_closed_as_others() -> None:
    """A savepoint that somebody has made may have them."""
    tasks = Subtasks(ranking(emit="on close"), ["k", "day"])
    TimeOrdered(tasks.runtimes[0].states["rankings"]).put_many([(0, "a", None)], [((),)])
    tasks.watermark(9)
    assert tasks.rows() == []
    assert tasks.runtimes[0].settled


def test_what_is_kept_is_ranked_again_where_nobody_has_written_how_it_was() -> None:
    """By a release that did not say so in its files."""
    (declared,) = ranking(places=2, descending=False).states(16)
    silent = msgspec.structs.replace(declared.shape, serializer=Serializer())
    migration = derive_migration(silent, declared)
    assert migration is not None
    rows = [("a", x, None, 0, 0, 0) for x in (9.0, 5.0, 1.0)]
    assert migration.apply([(("a", 0), (tuple(rows),))]) == [(("a", 0), ((rows[2], rows[1]),))]
    assert derive_migration(declared.shape, declared) is None


@pytest.mark.parametrize("descending", [True, False])
def test_texts_and_bytes_have_places_in_both_directions(descending: bool) -> None:
    order = RankingOrder(0, descending=descending)
    for values in (["", "a", "b"], [b"", b"a"], [False, True], [-1, 0, 5]):
        rows = sorted([(value,) for value in [None, *values]], key=lambda row: (order.first(row), order.rest(row)))
        assert [row[0] for row in rows] == [*(values[::-1] if descending else values), None]


@pytest.mark.parametrize(
    ("emit", "by_bytes", "by_rows"), [("each", [2] * 7, [3, 3, 3, 3, 2]), ("on close", [2, 2], [3, 1])]
)
def test_long_texts_of_a_ranking_leave_in_parts_that_have_room_downstream(
    emit: str, by_bytes: list[int], by_rows: list[int]
) -> None:
    """A thousand of them may move at once: more than a connection takes in one frame."""
    spec = ranking(places=4, emit=emit)
    rows = frame([("a", float(number), str(number) * 100, 0, 0, 0, 0, 0) for number in range(5)])

    def emitted(room: Slot) -> list[pl.DataFrame]:
        out = Collected()
        runtime = spec.open(room)
        runtime.process(0, rows, out)
        runtime.on_watermark(9, out)
        return out.batches

    slot = Slot(128, choose_backend("memory", retained=1))
    whole = pl.concat(emitted(slot))
    for heights, room in (
        (by_bytes, msgspec.structs.replace(slot, bytes_max=250)),
        (by_rows, msgspec.structs.replace(slot, rows_max=3)),
    ):
        parts = emitted(room)
        assert [part.height for part in parts] == heights
        assert pl.concat(parts).equals(whole)
