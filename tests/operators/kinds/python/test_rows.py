"""`python` with a row at a time: what it emits, what it keeps, and a row that raises fails alone."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import msgspec
import polars as pl
import pytest

from tests.operators.kinds.python import steps
from tests.operators.kinds.python.running import MAIN, messages, operator, rows, taken
from tests.operators.subtasks import Subtasks
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import BIGINT, STRING, DataType
from tidegate.errors import AttemptFailed
from tidegate.formats.columns import polars_type
from tidegate.operators.kinds.python.running import rows as running_rows
from tidegate.operators.spec import Planned

PLACE = "__tidegate_offset"


@pytest.mark.parametrize("backend", ["memory", "rocksdb"])
def test_a_value_is_that_of_the_key_over_batches_and_restarts(backend: str) -> None:
    tasks = Subtasks(operator("Visits"), ("user",), backend)
    tasks.process(rows(("a", 1), ("b", 1), ("a", 1)))
    assert taken(tasks, "user", "clicks", PLACE) == [("a", 1, 0), ("b", 1, 1), ("a", 2, 2)]
    tasks.process(rows(("b", 1), (None, 1), ("a", 1)))
    tasks.restart(3)
    tasks.process(rows(("a", 1), (None, 1)))
    assert sorted(taken(tasks, "user", "clicks"), key=str) == sorted(
        [("b", 2), (None, 1), ("a", 3), ("a", 4), (None, 2)], key=str
    )
    tasks.close()


def test_a_row_that_raises_writes_and_emits_nothing() -> None:
    tasks = Subtasks(operator("Visits"), ("user",))
    tasks.process(rows(("a", 1), ("a", -1), ("a", 1), ("b", -2)))
    assert taken(tasks, "user", "clicks", PLACE) == [("a", 1, 0), ("a", 2, 2)]
    assert messages(tasks) == [
        (1, "ValueError: no -1, at steps.py in process"),
        (3, "ValueError: no -2, at steps.py in process"),
    ]
    (state,) = tasks.runtimes[0].states.values()
    assert {key: state.get(key) for key in state.keys()} == {"a": (2,)}  # noqa: SIM118  # a state, no dict
    tasks.close()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("change", "TypeError: a row cannot be changed: make a new one, for instance `{**row, 'price': 1}`"),
        ("time", "RuntimeError: these rows have no event time: declare `event_time` of their source"),
        (
            "text",
            "WrongValue: `clicks` of the state is bigint, and 'one' is not (Expected `integer | null`, got",
        ),
        ("none", "TypeError: `clicks` has a default, and cannot be None: use `clear()`"),
        ("half", "WrongValue: the state has a string with a lone surrogate, which is not valid text: '\\ud83d'"),
        ("wrong", "WrongValue: `user` of the output is string, and 1 is not (Expected `string | null`, got `integer`"),
        ("missing", "WrongValue: the output has no `clicks`: give every column, None for NULL"),
        ("output", "ValueError: there is no output 'nowhere': declare it under `outputs` (declared: none)"),
        ("row", "TypeError: [1] is not a row: emit a mapping, or the columns as keywords"),
        ("exit", "SystemExit: 3"),
        ("thread", "RuntimeError: state, timers and outputs belong to the thread that calls `process`"),
        ("silent", "Silent: (its text raises RuntimeError)"),
    ],
)
def test_what_a_step_may_not_do_fails_its_row_with_the_place(what: str, reason: str) -> None:
    tasks = Subtasks(operator("Taking", ("n",)), ("n",))
    tasks.process(rows(("fine", 1), (what, 1), ("fine", 1)))
    assert taken(tasks, "clicks") == [1, 2]
    ((row, message),) = messages(tasks)
    assert (row, message[: len(reason)]) == (1, reason)
    assert ", at steps.py in " in message
    tasks.close()


def test_an_interrupt_from_the_keyboard_is_no_failure_of_a_row() -> None:
    tasks = Subtasks(operator("Taking", ("n",)), ("n",))
    with pytest.raises(KeyboardInterrupt):
        tasks.process(rows(("interrupt", 1)))
    tasks.close()


@pytest.mark.parametrize("timers", [False, True])
def test_the_watermark_of_a_key_is_restored(*, timers: bool) -> None:
    spec = operator("Beats" if timers else "Lives", timed=True)
    tasks = Subtasks(spec, ("user",), now_ms=lambda: 0)
    tasks.watermark(5000)
    tasks.restart(3)
    seen = {one._scope.watermark for one in tasks.runtimes}
    assert seen == {None}
    for one in tasks.runtimes:
        one._scope.begin()
        one._scope.state_key = "a"
    found = [one._scope.watermark for one in tasks.runtimes]
    assert dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC) in found
    for one in tasks.runtimes:
        one._scope.end()
    tasks.watermark(6000)
    assert {one._scope.watermark for one in tasks.runtimes} == {dt.datetime(1970, 1, 1, 0, 0, 6, tzinfo=dt.UTC)}
    tasks.close()


def test_every_type_is_kept_as_it_is() -> None:
    kinds: dict[str, DataType] = {name: derive_type(getattr(steps.Typed, name).type) for name in steps.Typed.NAMES}
    columns = (("user", STRING), *kinds.items())
    spec = operator("Typed", columns=columns, main=tuple(kinds.items()))
    given: dict[str, Any] = {
        "price": Decimal("12.50"),
        "at": dt.datetime(2026, 2, 3, 4, 5, 6, 7, tzinfo=dt.UTC),
        "local": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001  # without zone on purpose
        "day": dt.date(1960, 2, 29),
        "share": 0.1,
        "small": 0.5,
        "parts": [{"name": "x", "n": 1}, None, {"name": None, "n": 2}],
        "counts": [{"key": "b", "value": 2}, {"key": "a", "value": None}],
        "raw": b"\x00\xff",
        "flag": True,
    }
    frame = pl.DataFrame(
        {"user": ["a", "a", "a"], **{name: [value, None, None] for name, value in given.items()}},
        schema={name: polars_type(kind) for name, kind in columns},
    )
    tasks = Subtasks(spec, ("user",))
    tasks.process(frame[:1])
    tasks.restart(2)
    tasks.process(frame[1:])
    first, second, third = tasks.rows()
    assert first == dict.fromkeys(given) | {"flag": False}
    assert second == third == given
    assert messages(tasks) == []
    tasks.close()


def test_a_row_may_emit_any_number_of_rows_on_several_outputs() -> None:
    words = (("word", STRING), ("n", BIGINT))
    spec = operator("Split", (), others={"words": words}, settings={"separator": " "})
    tasks = Subtasks(spec, ())
    tasks.process(rows(("x y", 1), (None, 2), ("z", 3)))
    assert taken(tasks, "clicks", PLACE) == [(2, 0), (0, 1), (1, 2)]
    assert pl.concat(tasks.out.sides["words"])["word", "n", PLACE].rows() == [("x", 1, 0), ("y", 1, 0), ("z", 3, 2)]
    tasks.close()


def test_an_output_that_nothing_reads_is_checked_and_dropped() -> None:
    words = (("word", BIGINT), ("n", BIGINT))
    spec = operator("Split", (), others={"words": words}, settings={"separator": " "})
    spec = msgspec.structs.replace(spec, planned=Planned({"": ("clicks",)}))
    tasks = Subtasks(spec, ())
    tasks.process(rows((None, 1), ("x y", 2)))
    (batch,) = tasks.out.batches
    assert batch.columns == ["clicks", "__tidegate_partition", PLACE]
    assert (tasks.out.sides, len(messages(tasks))) == ({}, 1)
    tasks.close()


def test_a_function_maps_a_row_to_a_row_or_none() -> None:
    tasks = Subtasks(operator("double", ()), ())
    tasks.process(rows(("a", 1), (None, 2), ("b", 3)))
    assert taken(tasks, "user", "clicks", PLACE) == [("a", 2, 0), ("b", 6, 2)]
    tasks.close()


def test_a_row_keeps_its_row_kind_and_its_headers() -> None:
    tasks = Subtasks(operator("double", ()), ())
    kinds = pl.Series("__tidegate_kind", [3, 1], dtype=pl.Int8)
    headers = pl.Series("__tidegate_headers", [[{"key": "a", "value": b"b"}], []])
    tasks.process(rows((None, 2), ("b", 3)).with_columns(kinds, headers))
    assert taken(tasks, "clicks", "__tidegate_kind", "__tidegate_headers") == [(6, 1, [])]
    tasks.close()


def test_a_function_gets_settings_and_yields_rows() -> None:
    tasks = Subtasks(operator("repeat", (), settings={"times": 2}), ())
    tasks.process(rows(("a", 1), ("b", -1), ("c", 1)))
    assert taken(tasks, "user", "clicks") == [("a", 0), ("a", 1), ("c", 0), ("c", 1)]
    assert messages(tasks) == [(1, "KeyError: 'below zero', at steps.py in repeat")]
    tasks.close()


def test_a_function_that_returns_anything_else_fails_its_rows() -> None:
    tasks = Subtasks(operator("wrong", ()), ())
    tasks.process(rows(("a", 1)))
    remedy = "return a mapping, a list of mappings, or None"
    assert messages(tasks) == [(0, f"TypeError: the function returned 'a': {remedy}")]
    tasks.close()


def test_much_output_leaves_in_parts_that_the_vertex_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_rows, "ROWS_KEPT", 5)
    monkeypatch.setattr(running_rows, "_LIMIT", 12)
    tasks = Subtasks(operator("many", ()), ())
    tasks.process(rows(("a", 6), ("b", 2), ("c", 13), ("d", 3)))
    assert [batch.height for batch in tasks.out.batches] == [6, 5]
    assert taken(tasks, "user") == ["a"] * 6 + ["b"] * 2 + ["d"] * 3
    assert [row for row, _ in messages(tasks)] == [2]
    tasks.close()


def test_event_time_is_that_of_the_row() -> None:
    tasks = Subtasks(operator("later", (), timed=True), ())
    tasks.process(rows(("a", 1), times=[1_000_000]))
    assert taken(tasks, "user", "__tidegate_time") == [("1970-01-01T01:16:40+00:00", 1_000_000)]
    tasks.close()


def test_a_step_is_opened_once_and_closed() -> None:
    steps.Lives.calls.clear()
    tasks = Subtasks(operator("Lives", ("n", "user"), settings={"x": [1]}), ("n", "user"), now_ms=lambda: 3_600_000)
    tasks.process(rows(("a", 1)))
    tasks.watermark(5000)
    tasks.process(rows(("a", 1)))
    assert taken(tasks, "user", "clicks") == [
        ("(1, 'a') 01:00 None", 0),
        ("(1, 'a') 01:00 1970-01-01 00:00:05+00:00", 7),
    ]
    tasks.close()
    assert steps.Lives.calls == ["open {'x': [1]}", "process", "process", "close"]


def test_an_open_that_raises_ends_the_attempt() -> None:
    with pytest.raises(AttemptFailed, match=r"cannot be opened: RuntimeError: state, .* at steps.py:\d+ in open"):
        Subtasks(operator("Lives", settings={"read": True}), ("user",))


def test_main_columns_have_the_types_of_the_file() -> None:
    assert dict(operator("Visits").output_columns()) == dict(MAIN)
