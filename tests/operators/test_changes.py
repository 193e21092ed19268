"""Totals of changes: whatever was added, changed and deleted, the totals are those of the table as it is."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.operators.driven import Driven, drive
from tests.operators.rows import make_frame, result_type
from tests.operators.subtasks import Subtasks
from tidegate.datatypes import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, DataType, decimal_of, is_reserved
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.formats.row_kinds import DELETE, INSERT, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.ids import OperatorName
from tidegate.operators.kinds.aggregate import ChangesOperator
from tidegate.operators.kinds.aggregate.runtime import INCOMPLETE, UNKNOWN
from tidegate.operators.runtime import BatchTooLarge
from tidegate.plan.evolving import evolve, state_columns
from tidegate.plan.graph import UpgradeDirective
from tidegate.state.compatibility import Fit
from tidegate.state.verdict import judge

MONEY = decimal_of(10, 2)
TABLE: dict[str, DataType] = {
    "k": STRING,
    "i": BIGINT,
    "d": DOUBLE,
    "m": MONEY,
    "s": STRING,
    "b": BOOLEAN,
    "t": DATE,
}
CALLS = {
    "rows": ("count", None),
    "some": ("count", "i"),
    "sum_i": ("sum", "i"),
    "sum_d": ("sum", "d"),
    "sum_m": ("sum", "m"),
    "avg_d": ("avg", "d"),
    "avg_m": ("avg", "m"),
    "min_i": ("min", "i"),
    "max_i": ("max", "i"),
    "min_d": ("min", "d"),
    "max_s": ("max", "s"),
    "min_s": ("min", "s"),
    "max_m": ("max", "m"),
    "min_t": ("min", "t"),
    "every": ("bool_and", "b"),
    "any": ("bool_or", "b"),
    "different_i": ("count_distinct", "i"),
    "different_d": ("count_distinct", "d"),
    "different_s": ("count_distinct", "s"),
    "different_m": ("count_distinct", "m"),
}
FILTERED = {f"{name}_of_true": call for name, call in CALLS.items()}
"""The same with FILTER: of the rows in which `b` is true."""
Table = dict[int, tuple[Any, ...]]


def operator_of(calls: Mapping[str, tuple[str, str | None]], keys: Sequence[str] = ("k",)) -> ChangesOperator:
    made = tuple(
        (
            name,
            AggregateCall(
                function,
                None if column is None else ColumnReference(column, TABLE[column]),
                BIGINT if column is None else result_type(function, TABLE[column]),
                condition=ColumnReference("b", BOOLEAN) if name in FILTERED else None,
            ),
        )
        for name, (function, column) in calls.items()
    )
    output = (*((key, TABLE[key]) for key in keys), *((name, call.type) for name, call in made), ("_deleted", BOOLEAN))
    return ChangesOperator(OperatorName("totals"), tuple(keys), made, "latest", output, BadRecordPolicy.SKIP)


def frame_of(rows: Sequence[tuple[int, tuple[Any, ...]]], columns: Mapping[str, DataType] = TABLE) -> pl.DataFrame:
    frame = make_frame(columns, [row for _, row in rows])
    offsets = pl.Series("__tidegate_offset", range(len(rows)), dtype=pl.Int64)
    return frame.with_columns(pl.Series(ROW_KIND, [kind for kind, _ in rows], dtype=pl.Int8), offsets)


@pytest.mark.parametrize("name", ["rows", "count", "value", "aggregate"])
def test_totals_may_be_called_as_what_is_kept_next_to_them(name: str) -> None:
    more: dict[str, tuple[str, str | None]] = {"low": ("min", "i")}
    old, new = (operator_of({total: ("max", "i"), **more}) for total in (name, "other"))
    directive = UpgradeDirective(columns={"other": name})
    for before, now in zip(old.states(4), new.states(4), strict=True):
        assert judge(before.shape, evolve(now, directive)).fit is not Fit.INCOMPATIBLE
        assert state_columns([now.shape]).keys() <= {"k", "other", "low"}


# -- the oracle: the table itself --------------------------------------------------------------------------------------


def exact_sum(values: Sequence[float], count: int = 1) -> float:
    """The nearest double of the sum, or of its `count`th part."""
    special = [value for value in values if not math.isfinite(value)]
    if special:
        return sum(special)
    found = sum(map(Fraction, values), Fraction()) / count
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def totals_of(table: Table) -> dict[Any, dict[str, Any]]:
    """Each group's totals, from all rows of the table at once."""
    nothing = {name: 0 if name in ("rows", "some") or name.startswith("different") else None for name in CALLS}
    of_true = all_totals_of({number: row for number, row in table.items() if row[5]})
    return {
        key: found | {f"{name}_of_true": value for name, value in of_true.get(key, nothing).items()}
        for key, found in all_totals_of(table).items()
    }


def all_totals_of(table: Table) -> dict[Any, dict[str, Any]]:
    """The same without FILTER."""
    frame = make_frame(TABLE, list(table.values()))
    grouped = frame.group_by("k").agg(
        rows=pl.len().cast(pl.Int64),
        some=pl.col("i").count().cast(pl.Int64),
        sum_i=pl.when(pl.col("i").count() > 0).then(pl.col("i").sum()),
        sum_d=pl.col("d").drop_nulls().implode(),
        sum_m=pl.when(pl.col("m").count() > 0).then(pl.col("m").sum()),
        min_i=pl.col("i").min(),
        max_i=pl.col("i").max(),
        min_d=pl.col("d").min(),
        max_s=pl.col("s").max(),
        min_s=pl.col("s").min(),
        max_m=pl.col("m").max(),
        min_t=pl.col("t").min(),
        every=pl.when(pl.col("b").count() > 0).then(pl.col("b").all()),
        any=pl.when(pl.col("b").count() > 0).then(pl.col("b").any()),
        count_m=pl.col("m").count(),
        **{f"different_{name}": pl.col(name).drop_nulls().implode() for name in "idsm"},
    )
    found = {}
    for row in grouped.to_dicts():
        doubles, count = row.pop("sum_d"), row.pop("count_m")
        row["sum_d"] = exact_sum(doubles) if doubles else None
        row["avg_d"] = exact_sum(doubles, len(doubles)) if doubles else None
        for name in ("different_i", "different_d", "different_s", "different_m"):
            row[name] = len({"NaN" if value != value else value for value in row[name]})
        rounded = Decimal("0.000001")
        row["avg_m"] = None if not count else (row["sum_m"] / count).quantize(rounded, "ROUND_HALF_UP")
        found[row.pop("k")] = row
    return found


class View:
    """What somebody has who reads the changes of the totals and keeps the newest ones."""

    def __init__(self) -> None:
        self.rows: dict[Any, dict[str, Any]] = {}

    def read(self, changes: Sequence[dict[str, Any]]) -> None:
        """Each change fits to what is known: nothing is taken back that is not there."""
        for change in changes:
            row = dict(change)
            kind, key, deleted = row.pop(ROW_KIND), row.pop("k"), row.pop("_deleted")
            row = {name: value for name, value in row.items() if not is_reserved(name)}
            assert deleted is (kind == DELETE)
            if kind in (UPDATE_BEFORE, DELETE):
                assert same(self.rows.pop(key), row)
            else:
                assert key not in self.rows
                self.rows[key] = row


def same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """NaN is itself; a zero may have any sign."""
    return one.keys() == other.keys() and all(
        value == other[name] or (value != value and other[name] != other[name]) for name, value in one.items()
    )


# -- histories of a table ----------------------------------------------------------------------------------------------

DOUBLES = (0.1, 0.2, 1e300, -1e300, 1e-300, 5e-324, -0.0, 3.5, 1e16, 1.0)


def a_row(draw: random.Random, *, special: bool) -> tuple[Any, ...]:
    some = [math.nan, math.inf, -math.inf] if special else []

    def maybe(value: Any) -> Any:
        return None if draw.random() < 0.2 else value

    return (
        maybe(draw.choice("abcdé")),
        maybe(draw.choice([1, 2, 3, -(2**60), 2**60])),
        maybe(draw.choice([*DOUBLES, *some, draw.uniform(-100, 100)])),
        maybe(Decimal(draw.randrange(-(10**6), 10**6)).scaleb(-2)),
        maybe(draw.choice(["", "x", "y\0", "y", "ß", "\U0001f600"])),
        maybe(draw.random() < 0.5),
        maybe(dt.date(2026, 1, draw.randrange(1, 28))),
    )


def changes_of(draw: random.Random, table: Table, *, special: bool) -> list[tuple[int, tuple[Any, ...]]]:
    """One change of the table, and its rows."""
    kind = draw.random()
    if not table or kind < 0.4:
        new = a_row(draw, special=special)
        table[max(table, default=0) + 1] = new
        return [(INSERT, new)]
    of = draw.choice(list(table))
    old = table.pop(of)
    if kind < 0.7:
        return [(DELETE, old)]
    table[of] = a_row(draw, special=special)
    return [(UPDATE_BEFORE, old), (UPDATE_AFTER, table[of])]


@pytest.mark.parametrize("backend", ["memory", pytest.param("rocksdb", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(2 * DEPTH))
def test_totals_are_those_of_the_table_after_any_history_and_any_restart(seed: int, backend: str) -> None:
    draw = random.Random(seed)
    subtasks, table, view = Subtasks(operator_of(CALLS | FILTERED), ["k"], backend), Table(), View()
    for _ in range(12):
        rows = [row for _ in range(draw.randrange(1, 12)) for row in changes_of(draw, table, special=seed % 2 == 1)]
        while rows:  # an update may be cut in two
            count = draw.randrange(1, len(rows) + 1)
            subtasks.process(frame_of(rows[:count]))
            rows = rows[count:]
        view.read(subtasks.rows())
        if draw.random() < 0.3:
            subtasks.restart(draw.randrange(1, 4))
        expected = totals_of(table)
        assert view.rows.keys() == expected.keys()
        for key, found in view.rows.items():
            assert same(found, expected[key]), [(name, found[name], expected[key][name]) for name in found]
    for key in list(table):
        subtasks.process(frame_of([(DELETE, table.pop(key))]))
    view.read(subtasks.rows())
    assert view.rows == {}
    assert [len(state) for one in subtasks.runtimes for state in one.states.values()] == [0] * len(
        [state for one in subtasks.runtimes for state in one.states]
    )
    assert subtasks.out.failures == []
    subtasks.close()


# -- one behaviour each ------------------------------------------------------------------------------------------------

SMALL = {"k": STRING, "i": BIGINT}


def changes(*rows: tuple[int, str | None, int | None]) -> pl.DataFrame:
    return frame_of([(kind, (key, value)) for kind, key, value in rows], SMALL)


def driven(**calls: tuple[str, str | None]) -> Driven:
    return drive(operator_of(calls or {"n": ("count", None), "sum": ("sum", "i")}))


def out_of(operator: Driven, *rows: tuple[int, str | None, int | None]) -> list[tuple[Any, ...]]:
    found = operator.process(changes(*rows))
    return [] if found is None else found.select(ROW_KIND, pl.exclude(ROW_KIND, "__tidegate_offset")).rows()


def test_a_group_comes_changes_and_goes() -> None:
    operator = driven()
    assert out_of(operator, (INSERT, "a", 5), (INSERT, "b", None)) == [
        (INSERT, "a", 1, 5, False),
        (INSERT, "b", 1, None, False),
    ]
    assert out_of(operator, (UPDATE_BEFORE, "a", 5), (UPDATE_AFTER, "a", 7)) == [
        (UPDATE_BEFORE, "a", 1, 5, False),
        (UPDATE_AFTER, "a", 1, 7, False),
    ]
    assert out_of(operator, (DELETE, "a", 7)) == [(DELETE, "a", 1, 7, True)]
    assert len(operator.state) == 1


def test_a_batch_that_changes_nothing_says_nothing() -> None:
    operator = driven()
    assert out_of(operator, (INSERT, "a", 5), (DELETE, "a", 5)) == []
    out_of(operator, (INSERT, "a", 5))
    assert out_of(operator, (UPDATE_BEFORE, "a", 5), (UPDATE_AFTER, "a", 5)) == []
    assert len(operator.state) == 1


def test_rows_without_kinds_are_added() -> None:
    operator = driven()
    operator.process(changes((INSERT, "a", 5)).drop(ROW_KIND))
    assert out_of(operator, (INSERT, "a", 1)) == [(UPDATE_BEFORE, "a", 1, 5, False), (UPDATE_AFTER, "a", 2, 6, False)]


def test_a_change_has_the_place_of_the_last_row_that_made_it() -> None:
    found = driven().process(changes((INSERT, "a", 5), (INSERT, "b", 1), (INSERT, "a", 1)))
    assert found is not None
    assert found.select("k", "__tidegate_offset").rows() == [("b", 1), ("a", 2)]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([(DELETE, "x", 1)], UNKNOWN),  # no such group
        ([(DELETE, "a", 5), (DELETE, "a", 5)], UNKNOWN),  # twice
        ([(DELETE, "a", 6)], INCOMPLETE),  # the last one, with another value
        ([(DELETE, "a", None)], INCOMPLETE),
    ],
)
def test_what_was_never_added_is_not_taken_back(rows: list[Any], reason: str) -> None:
    operator = driven()
    out_of(operator, (INSERT, "a", 5))
    out_of(operator, *rows)
    [failure] = operator.take_failures()
    assert (failure.row, failure.kind) == (len(rows) - 1, FailureKind.INCONSISTENT_CHANGE)
    assert failure.message.startswith(reason)
    if len(rows) == 1:
        assert out_of(operator, (INSERT, "a", 1))[-1] == (UPDATE_AFTER, "a", 2, 6, False)


def test_a_row_that_is_refused_by_one_total_moves_none() -> None:
    operator = driven(n=("count", None), sum=("sum", "i"), least=("min", "i"))
    out_of(operator, (INSERT, "a", 5), (INSERT, "a", 6))
    assert out_of(operator, (DELETE, "a", 4)) == []  # the sum could be moved
    assert [one.kind for one in operator.take_failures()] == [FailureKind.INCONSISTENT_CHANGE]
    assert out_of(operator, (DELETE, "a", 5))[-1] == (UPDATE_AFTER, "a", 1, 6, 6, False)


def test_a_total_that_leaves_its_type_is_withdrawn_and_comes_back() -> None:
    operator = driven(sum=("sum", "i"))
    most = 2**63 - 1
    assert out_of(operator, (INSERT, "a", most)) == [(INSERT, "a", most, False)]
    assert out_of(operator, (INSERT, "a", 1)) == [(DELETE, "a", most, True)]
    assert [one.kind for one in operator.take_failures()] == [FailureKind.ARITHMETIC_OVERFLOW]
    assert out_of(operator, (DELETE, "a", most)) == [(INSERT, "a", 1, False)]
    assert operator.take_failures() == []


def test_the_next_extreme_follows_one_that_is_taken_back() -> None:
    operator = driven(least=("min", "i"), most=("max", "i"))
    rows = [(INSERT, "a", value) for value in (5, 1, 3, 1, None)]
    assert out_of(operator, *rows) == [(INSERT, "a", 1, 5, False)]
    assert out_of(operator, (DELETE, "a", 1)) == []  # there is another one
    assert out_of(operator, (DELETE, "a", 1), (DELETE, "a", 5))[-1] == (UPDATE_AFTER, "a", 3, 3, False)
    assert out_of(operator, (DELETE, "a", 3))[-1] == (UPDATE_AFTER, "a", None, None, False)


def test_a_value_is_counted_once_until_the_last_row_with_it_is_taken_back() -> None:
    operator = driven(different=("count_distinct", "i"))
    rows = [(INSERT, "a", value) for value in (5, 1, 1, None)]
    assert out_of(operator, *rows) == [(INSERT, "a", 2, False)]
    assert out_of(operator, (DELETE, "a", 1)) == []  # there is another one
    assert out_of(operator, (DELETE, "a", 7)) == []
    assert [one.kind for one in operator.take_failures()] == [FailureKind.INCONSISTENT_CHANGE]
    assert out_of(operator, (DELETE, "a", 1))[-1] == (UPDATE_AFTER, "a", 1, False)
    assert out_of(operator, (DELETE, "a", 5))[-1] == (UPDATE_AFTER, "a", 0, False)
    assert out_of(operator, (DELETE, "a", None)) == [(DELETE, "a", 0, True)]


def test_doubles_leave_nothing_behind() -> None:
    operator = drive(operator_of({"sum": ("sum", "d")}))
    columns = {"k": STRING, "d": DOUBLE}
    rows = [(INSERT, ("a", value)) for value in (0.1, 1e300, 1e-300, math.inf, math.nan)]
    operator.process(frame_of(rows, columns))
    operator.process(frame_of([(DELETE, row) for _, row in rows[1:]], columns))
    found = operator.process(frame_of([(INSERT, ("a", 0.2))], columns))
    assert found is not None
    assert found["sum"].to_list() == [0.1, 0.1 + 0.2]


def test_totals_of_totals_take_back_the_zero_that_they_were_given() -> None:
    """-0.0 is less than 0.0 where the least is looked for: a total that changes from one to the other has changed."""
    columns = {"k": STRING, "d": DOUBLE}
    totals, largest = drive(operator_of({"d": ("min", "d")})), drive(operator_of({"most": ("max", "d")}))
    for kind, value in [(INSERT, 0.0), (INSERT, -0.0), (INSERT, -1.0), (DELETE, -1.0), (DELETE, -0.0), (DELETE, 0.0)]:
        found = totals.process(frame_of([(kind, ("a", value))], columns))
        if found is not None:
            largest.process(found)
        assert largest.take_failures() == []
    assert [len(state) for state in largest.runtime.states.values()] == [0, 0]


@pytest.mark.parametrize("function", ["min", "sum", "avg"])
def test_a_total_that_is_no_number_and_stays_it_says_nothing(function: str) -> None:
    operator = drive(operator_of({"d": (function, "d")}))
    columns = {"k": STRING, "d": DOUBLE}
    assert operator.process(frame_of([(INSERT, ("a", math.nan))], columns)) is not None
    assert operator.process(frame_of([(INSERT, ("a", math.nan))], columns)) is None


def test_totals_with_large_texts_are_refused_in_one_batch_before_anything_happens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.operators.kinds.aggregate.runtime.BATCH_BYTES_MAX", 1000)
    operator = drive(operator_of({"most": ("max", "s")}))
    columns = {"k": STRING, "s": STRING}
    rows = [(INSERT, (key, "x" * 300)) for key in "ab"]
    operator.process(frame_of(rows, columns))
    more = [(INSERT, (key, "y")) for key in "ab"]
    with pytest.raises(BatchTooLarge):
        operator.process(frame_of(more, columns))
    found = [operator.process(frame_of([row], columns)) for row in more]
    assert [one["most"].to_list() for one in found if one is not None] == [["x" * 300, "y"]] * 2
