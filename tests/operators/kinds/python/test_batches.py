"""User code on batches: results by row or new ones, failures by row, and state that follows the rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.operators.kinds.python.batch_steps import BatchStep, declare
from tidegate.config.fields.steps import Ttl
from tidegate.datatypes import BIGINT, DOUBLE, STRING, DataType, decimal_of
from tidegate.errors import AttemptFailed
from tidegate.operators.event_time import BEHIND, TIME
from tidegate.python import Out, Value

OFFSET = "__tidegate_offset"


def _rows(users: Sequence[str | None], first: int = 0) -> pl.DataFrame:
    numbers = range(first, first + len(users))
    return pl.DataFrame(
        {"user": users, "n": numbers, OFFSET: [100 + n for n in numbers]},
        schema={"user": pl.String, "n": pl.Int64, OFFSET: pl.Int64},
    )


def _running_sum(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
    result = frame.select("user", n=total.get_many(frame) + pl.col("n").cum_sum().over("user"))
    total.set_many(result, result["n"])
    out.emit(result)


# -- rows --------------------------------------------------------------------------------------------------------------


def test_results_of_the_same_rows_keep_the_columns_of_the_engine_and_the_order() -> None:
    step = BatchStep(lambda frame, out: out.emit(frame.with_columns(pl.col("n") * 2)), same_rows=True)
    result = step.process(_rows(["a", "b", "a"]))
    assert result.to_dicts() == [
        {"user": "a", "n": 0, OFFSET: 100},
        {"user": "b", "n": 2, OFFSET: 101},
        {"user": "a", "n": 4, OFFSET: 102},
    ]


def test_other_results_are_new_rows_without_the_columns_of_the_engine() -> None:
    def count(frame: pl.DataFrame, out: Out) -> None:
        assert frame.columns == ["user", "n"]
        out.emit(frame.group_by("user", maintain_order=True).agg(n=pl.len()))
        out.emit(frame[:0])
        out.to("odd", frame.filter(pl.col("n") % 2 == 1))

    step = BatchStep(count, others={"odd": (("n", BIGINT),)})
    result = step.process(_rows(["a", "b", "a"]))
    assert result.to_dicts() == [{"user": "a", "n": 2}, {"user": "b", "n": 1}]
    assert [frame.to_dicts() for frame in step.out.sides["odd"]] == [[{"n": 1}]]


def test_new_rows_have_the_latest_event_time_of_the_rows_they_are_made_of_where_rows_have_one() -> None:
    def pick(frame: pl.DataFrame, out: Out) -> None:
        if frame["n"][0] == 0 and frame.height > 2:
            raise ValueError("too many")
        out.emit(frame[:1])

    step = BatchStep(pick)
    rows = _rows(["a", "b", "c", "d"]).with_columns(
        pl.Series(TIME, [5, 8, 1, 3], dtype=pl.Int64), pl.Series(BEHIND, [0, 0, 2, 0], dtype=pl.Int64)
    )
    assert step.process(rows).to_dicts() == [
        {"user": "a", "n": 0, TIME: 8, BEHIND: 0},
        {"user": "c", "n": 2, TIME: 1, BEHIND: 0},
        {"user": "d", "n": 3, TIME: 3, BEHIND: 0},
    ]


def test_many_new_rows_are_emitted_in_pieces_that_fit_downstream() -> None:
    step = BatchStep(lambda frame, out: out.emit(pl.concat([frame] * 5)), rows_max=4)
    many = _rows(["a", "b"])
    assert step.process(many).height == 10
    assert [batch.height for batch in step.out.order if isinstance(batch, pl.DataFrame)] == [4, 4, 2]


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda frame, out: None, "ValueError: there is no result: with `rows: same`, a batch has one"),
        (lambda frame, out: [out.emit(frame), out.emit(frame)], "ValueError: there is a second result: with"),
        (lambda frame, out: out.emit(pl.concat([frame, frame])), "ValueError: the result has 2 rows, and the batch 1"),
        (lambda frame, out: out.emit(frame.lazy()), "TypeError: got a LazyFrame: return `frame.collect()`"),
        (lambda frame, out: out.to("other", frame), "ValueError: there is no output 'other': declare it under"),
    ],
)
def test_a_call_that_breaks_the_contract_fails_its_rows(call: Any, reason: str) -> None:
    step = BatchStep(call, same_rows=True)
    assert step.process(_rows(["a", "b"])).is_empty()
    failures = step.failures()
    assert [row for row, _ in failures] == [0, 1]
    assert all(message.startswith(reason) for _, message in failures)


# -- failures ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("same_rows", [False, True])
def test_rows_that_raise_fail_alone_and_the_others_keep_their_order(same_rows: bool) -> None:
    draw = random.Random(3)

    def picky(frame: pl.DataFrame, out: Out) -> None:
        for user in frame["user"]:
            if user == "bad":
                raise SystemExit(1) if draw.random() < 0.5 else ValueError("bad")
        out.emit(frame)

    step = BatchStep(picky, same_rows=same_rows)
    for _ in range(5 * DEPTH):
        users = ["bad" if draw.random() < 0.1 else "a" for _ in range(200)]
        result = step.process(_rows(users))
        bad = [row for row, user in enumerate(users) if user == "bad"]
        assert [row for row, _ in step.failures()] == bad
        assert result["n"].to_list() == [row for row in range(200) if row not in bad]
        if same_rows:
            assert (result[OFFSET] == result["n"] + 100).all()


def test_values_that_do_not_fit_fail_by_row_in_one_call() -> None:
    calls = []

    def scale(frame: pl.DataFrame, out: Out) -> None:
        calls.append(frame.height)
        out.emit(frame.select("user", n=pl.col("n").cast(pl.Decimal(38, 0))))

    step = BatchStep(scale, (("user", STRING), ("n", decimal_of(1))), same_rows=True)
    result = step.process(_rows(["a"] * 12))
    assert calls == [12]
    assert step.failures() == [(row, f"`n` is {row}, which does not fit decimal(1,0)") for row in (10, 11)]
    assert result[OFFSET].to_list() == list(range(100, 110))


def test_values_of_new_rows_that_do_not_fit_fail_the_rows_they_are_made_of() -> None:
    step = BatchStep(
        lambda frame, out: out.emit(frame.select("user", n=pl.col("n").cast(pl.Decimal(38, 0)))),
        (("user", STRING), ("n", decimal_of(1))),
    )
    assert step.process(_rows(["a"] * 12)).height == 10
    assert [row for row, _ in step.failures()] == [10, 11]


def test_an_error_of_tidegate_ends_the_attempt() -> None:
    def lose(frame: pl.DataFrame, out: Out) -> None:
        raise AttemptFailed("the disk is gone")

    with pytest.raises(AttemptFailed):
        BatchStep(lose).process(_rows(["a"]))


def test_code_that_changes_its_frame_or_keeps_frames_changes_nothing_else() -> None:
    kept: list[pl.DataFrame] = []

    def change(frame: pl.DataFrame, out: Out) -> None:
        kept.append(frame)
        if frame.height > 2:
            frame[0, "user"] = "changed"
            frame.drop_in_place("n")
            raise ValueError("too many")
        out.emit(frame[:])

    step = BatchStep(change, same_rows=True)
    batch = _rows(["a", "b", "c", "d"])
    before = batch.clone()
    assert step.process(batch).equals(before)
    assert batch.equals(before)
    assert not step.failures()
    assert len(kept) == 4


# -- state -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_running_sum_is_that_of_a_loop_whatever_the_batches_are_and_whichever_rows_raise(backend: str) -> None:
    draw = random.Random(4)

    def picky(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        _running_sum(total, keys, frame, out)
        if (frame["n"] % 17 == 3).any():
            raise ValueError("seventeen")

    step = BatchStep(picky, keyed=True, same_rows=True, backend=backend)
    sums: dict[str | None, int] = {}
    number = 0
    for _ in range(15 * DEPTH):
        users = [draw.choice(["a", "b", "c", None]) for _ in range(draw.choice([1, 5, 80]))]
        batch = _rows(users, number)
        expected = []
        for user in users:
            if number % 17 != 3:
                sums[user] = sums.get(user, 0) + number
                expected.append((user, sums[user], 100 + number))
            number += 1
        assert step.process(batch).rows() == expected
        step.failures()
    assert {key: step.state.get(key) for key in sums} == {key: (value,) for key, value in sums.items()}
    step.state.close()


def test_the_keys_are_each_there_once_in_the_order_of_their_rows() -> None:
    def check(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        assert keys.to_dicts() == [{"user": "b"}, {"user": None}, {"user": "a"}]
        assert total.get_many(keys).to_list() == [7, 7, 7]
        total.set_many(keys, pl.Series([1, 2, 3]))
        assert total.get_many(keys.reverse()).to_list() == [3, 2, 1]
        total.set_many(frame, frame["n"])
        assert total.get_many(keys).to_list() == [2, 1, 3], "the last row of a key counts"
        total.clear_many(keys[1:2])
        total.set_many(keys[2:], pl.Series([None], dtype=pl.Int32))
        assert total.get_many(keys).to_list() == [2, 7, 7], "what has no value has the default"
        out.emit(frame)

    step = BatchStep(check, state=declare(BIGINT, 7))
    step.process(_rows(["b", None, "b", "a"]))
    assert not step.failures()
    assert [step.state.get(key) for key in ("b", None, "a")] == [(2,), None, None]


def test_state_is_read_and_written_once_per_call_and_read_only_if_it_is_used() -> None:
    calls: list[str] = []

    def use(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        if frame["n"][0] == 0:
            _running_sum(total, keys, frame, out)
            _running_sum(total, keys, frame, out)
        else:
            total.set_many(keys, pl.int_range(keys.height, eager=True))

    step = BatchStep(use, keyed=True)
    for name in ("get_many", "put_many", "delete_many"):
        _record(step.state, name, calls)
    step.process(_rows(["a", "b"] * 4))
    assert calls == ["get_many", "put_many"]
    step.process(_rows(["a", "b"] * 4, 1))
    assert calls[2:] == ["put_many"]
    assert not step.failures()


def _record(state: Any, name: str, calls: list[str]) -> None:
    own = getattr(state, name)

    def recorded(*given: Any) -> Any:
        calls.append(name)
        return own(*given)

    setattr(state, name, recorded)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (
            lambda total, keys: total.get_many(pl.DataFrame({"user": ["z"]})),
            "ValueError: ('z',) is not the key of a row",
        ),
        (lambda total, keys: total.get_many(["a"]), "TypeError: keys are a polars.DataFrame with the key columns, not"),
        (lambda total, keys: total.get_many(pl.DataFrame({"x": ["a"]})), "TypeError: the frame of keys has no key col"),
        (
            lambda total, keys: total.get_many(pl.DataFrame({"user": [1]})),
            "TypeError: `user` of the keys is pl.Int64, and the",
        ),
        (lambda total, keys: total.set_many(keys, [1]), "TypeError: values are a polars.Series, not list"),
        (lambda total, keys: total.set_many(keys, pl.Series([1, 2])), "ValueError: there are 2 values for 1 keys"),
        (
            lambda total, keys: total.set_many(keys, pl.Series([1.5])),
            "TypeError: `total` is pl.Float64, and bigint is declared: add `.cast(pl.Int64)`, or declare the state",
        ),
        (
            lambda total, keys: total.set_many(keys.insert_column(0, pl.Series("q", [1])), pl.Series([1, 2])),
            "ValueError: there are 2 values for 1 keys",
        ),
    ],
)
def test_state_of_other_keys_and_values_that_do_not_fit_are_refused(use: Any, reason: str) -> None:
    def call(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        use(total, keys)

    step = BatchStep(call, state=declare(BIGINT))
    step.process(_rows(["a"]))
    ((_, message),) = step.failures()
    assert message.startswith(reason)


def test_keys_of_an_earlier_batch_are_refused() -> None:
    kept: list[pl.DataFrame] = []

    def call(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        kept.append(keys)
        total.get_many(kept[0])

    step = BatchStep(call, state=declare(BIGINT))
    step.process(_rows(["a"]))
    step.process(_rows(["b"]))
    ((_, message),) = step.failures()
    assert message.startswith("ValueError: ('a',) is not the key of a row of this call")


def test_values_are_structs_decimals_and_moments_as_well() -> None:
    kind = DataType("struct", fields=(("last", BIGINT), ("mean", DOUBLE)))

    def fold(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        values = total.get_many(frame)
        total.set_many(
            frame, frame.select(pl.struct(pl.col("n").alias("last"), (pl.col("n") / 2).alias("mean"))).to_series()
        )
        out.emit(frame.select("user", n=values.struct.field("last")))

    step = BatchStep(fold, state=declare(kind))
    assert step.process(_rows(["a", "b"]))["n"].to_list() == [None, None]
    assert step.process(_rows(["b", "a"], 10))["n"].to_list() == [1, 0]
    assert step.state.get("a") == ((11, 5.5),)


def _timed(users: Sequence[str], times: Sequence[int], behind: Sequence[int] = ()) -> pl.DataFrame:
    return _rows(users).with_columns(
        pl.Series(TIME, times, dtype=pl.Int64), pl.Series(BEHIND, behind or [0] * len(times), dtype=pl.Int64)
    )


def _count(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
    counts = frame.group_by("user", maintain_order=True).len("n")
    result = counts.with_columns(n=(total.get_many(counts) + counts["n"]).cast(pl.Int64))
    total.set_many(result, result["n"])
    out.emit(result)


def test_a_value_lasts_in_event_time_after_its_last_row_whatever_the_order_of_rows_is() -> None:
    step = BatchStep(_count, state=declare(BIGINT, 0, Ttl(10)))
    users = ["a", "b", "a"]
    assert step.process(_timed(users, [100, 100, 90]))["n"].to_list() == [2, 1]
    assert step.process(_timed(users[:2], [110, 111]))["n"].to_list() == [3, 1], "`a` lasts until 110"
    assert step.process(_timed(["a"], [50]))["n"].to_list() == [4], "a late row finds it"
    assert step.process(_timed(["a"], [120]))["n"].to_list() == [5], "and ends it no earlier"
    assert step.process(_timed(["a"], [121], [10]))["n"].to_list() == [1], "the watermark of its partition was 131"
    assert step.state.get("a") == (1, 131)


def test_a_value_lasts_in_processing_time_and_is_removed_when_it_has_ended() -> None:
    step = BatchStep(_count, state=declare(BIGINT, 0, Ttl(10, processing=True)))
    step.process(_rows(["a", "b"]))
    step.now_ms = 10
    assert step.process(_rows(["a"]))["n"].to_list() == [2]
    assert step.state.get("a") == (2, 20)
    step.now_ms = 21
    assert step.process(_rows(["a"]))["n"].to_list() == [1]
    step.now_ms = 31
    step.runtime.before_snapshot()
    assert [step.state.get(key) for key in ("a", "b")] == [(1, 31), None]


def test_a_value_with_a_ttl_that_is_only_written_ends_no_earlier_than_before() -> None:
    def call(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        total.set_many(keys, pl.int_range(keys.height, eager=True))

    step = BatchStep(call, state=declare(BIGINT, 0, Ttl(10)))
    step.process(_timed(["a"], [100]))
    step.process(_timed(["a", "b"], [50, 60]))
    assert [step.state.get(key) for key in ("a", "b")] == [(0, 110), (1, 70)]


def test_keys_that_user_code_changes_are_not_taken_for_those_of_its_rows() -> None:
    def call(total: Value[Any], keys: pl.DataFrame, frame: pl.DataFrame, out: Out) -> None:
        keys[0, "user"] = "z"
        total.set_many(keys, pl.int_range(keys.height, eager=True))

    step = BatchStep(call, state=declare(BIGINT))
    step.process(_rows(["a"]))
    ((_, message),) = step.failures()
    assert message.startswith("ValueError: ('z',) is not the key of a row of this call")
    assert step.state.get("a") is None
