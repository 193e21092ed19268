"""A family of aggregates is one module: it works wherever there are aggregates, and nothing else is changed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.testing.pipelines import HEAD, messages, run_one
from tidegate.expressions.aggregates import AGGREGATES, declare_aggregate
from tidegate.operators import aggregates
from tidegate.operators.aggregates import registry

PIPELINE = (
    HEAD
    + """\
parallelism: 2
sources:
  readings: {topic: readings, schema: {device: string, x: double, at: timestamp}, event_time: at}
  rows: {topic: rows, format: debezium, schema: {id: bigint, device: string, x: double}}
steps:
  - {name: running, from: readings, key: device, aggregate: {n: count(*), middle: median_exact(x)}}
  - {name: minutes, from: readings, key: device, window: {tumbling: 1m}, aggregate: {middle: median_exact(x)}}
  - {name: slide, from: readings, key: device, window: {sliding: 1m, every: 30s}, aggregate: {middle: median_exact(x)}}
  - {name: visits, from: readings, key: device, window: {session: 10s}, aggregate: {middle: median_exact(x)}}
  - name: table
    from: rows
    key: device
    aggregate: {middle: median_exact(x), some: median_exact(x) filter (where x > 0)}
sinks:
  totals: {from: running, topic: totals, key: device}
  per_minute: {from: minutes, topic: per-minute, key: device}
  slides: {from: slide, topic: slides, key: device}
  sessions: {from: visits, topic: sessions, key: device}
  table_out: {from: table, topic: table, key: device, on_null: {column: _deleted, write: tombstone}}
tests:
"""
)


@pytest.fixture
def _median_exact(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`families/median_exact.py` stands next to the other families."""
    folder = str(Path(__file__).with_name("families"))
    monkeypatch.setattr(aggregates, "__path__", [*aggregates.__path__, folder])
    registry.find_functions.cache_clear()
    registry.find_functions()
    yield
    registry.find_functions.cache_clear()
    del AGGREGATES["median_exact"]
    del sys.modules["tidegate.operators.aggregates.median_exact"]


MISTAKES = {
    "is of no AggregateFunction": ("declare_aggregate(FUNCTION)", ""),
    "has no `add`": ("def add(", "def adds("),
    "has no `result`": ("def result(", "def results_of("),
    "has no `merge`, which windows need": ("def merge(", "def merges("),
    "has no `retract`, which changes need": ("def retract(", "def retracts("),
    "is in another family": ('{"median_exact": d', '{"median_exact": dict.fromkeys(AggregateUse, Median), "max": d'),
}


@pytest.mark.parametrize("said", MISTAKES)
def test_a_family_that_could_not_compute_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    text = (Path(__file__).with_name("families") / "median_exact.py").read_text("utf-8")
    old, new = MISTAKES[said]
    assert old in text
    (tmp_path / "wrong_family.py").write_text(text.replace(old, new), "utf-8")
    monkeypatch.setattr(aggregates, "__path__", [*aggregates.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "tidegate.operators.aggregates.wrong_family", raising=False)
    registry.find_functions.cache_clear()
    try:
        with pytest.raises(TypeError, match=rf"wrong_family: `\w+` {said}"):
            registry.find_functions()
    finally:
        registry.find_functions.cache_clear()
        AGGREGATES.pop("median_exact", None)


def test_a_declaration_that_nothing_computes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = replace(AGGREGATES["max"], name="maximum", aliases=())
    monkeypatch.setitem(AGGREGATES, "maximum", unknown)
    with pytest.raises(TypeError, match="the aggregate `maximum` is in no `FUNCTIONS`"):
        registry.find_functions.__wrapped__()


def test_two_declarations_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="there is already an aggregate `max`"):
        declare_aggregate(replace(AGGREGATES["max"], running=False))


def reading(second: int, x: str) -> str:
    return f"{{value: {{device: a, x: {x}, at: 2026-01-01T00:00:{second:02}Z}}}}"


def window(first: str, last: str, middle: float) -> str:
    start, end = (f"2026-01-01T00:{at}Z" if at[0] != "-" else f"2025-12-31T23:{at[1:]}Z" for at in (first, last))
    return f"{{key: a, value: {{device: a, window_start: {start}, window_end: {end}, middle: {middle}}}}}"


@pytest.mark.usefixtures("_median_exact")
@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_new_family_runs_in_totals_windows_and_sessions(parallelism: int) -> None:
    """Each case is played once more with a restart in it, so the state is written and read as well."""
    given = [reading(1, "5.0"), reading(3, "1.0"), reading(2, "null"), reading(40, "2.5"), reading(35, "9.0")]
    totals = [(1, 5.0), (2, 3.0), (3, 3.0), (4, 2.5), (5, 3.75)]
    result = run_one(
        f"given: {{readings: [{', '.join([*given, '{watermark: 2026-01-01T00:03:00Z}'])}]}}, "
        f"expect: {{totals: [{', '.join(f'{{value: {{device: a, n: {n}, middle: {x}}}}}' for n, x in totals)}], "
        f"per_minute: [{window('00:00', '01:00', 3.75)}], "
        f"slides: {{set: [{window('-59:30', '00:30', 3.0)}, {window('00:00', '01:00', 3.75)}, "
        f"{window('00:30', '01:30', 5.75)}]}}, "
        f"sessions: {{set: [{window('00:01', '00:13', 3.0)}, {window('00:35', '00:50', 5.75)}]}}}}",
        PIPELINE,
        parallelism,
    )
    assert result.passed, [line for one in result.failures for line in (one.message, *(one.difference or ()))]


def change(op: str, before: str, after: str) -> str:
    return f"{{value: {{op: {op}, before: {before}, after: {after}}}}}"


@pytest.mark.usefixtures("_median_exact")
def test_a_new_family_takes_rows_back() -> None:
    row = "{{id: {0}, device: a, x: {1}}}".format
    given = [
        change("c", "null", row(1, 5.0)),
        change("c", "null", row(2, -1.0)),
        change("u", row(2, -1.0), row(2, 8.0)),
        change("d", row(1, 5.0), "null"),
        change("d", row(2, 8.0), "null"),
    ]
    totals = [(5.0, 5.0), (2.0, 5.0), (6.5, 6.5), (8.0, 8.0)]
    out = [f"{{key: a, value: {{device: a, middle: {middle}, some: {some}}}}}" for middle, some in totals]
    out.append("{key: a, value: null}")
    result = run_one(f"given: {{rows: [{', '.join(given)}]}}, expect: {{table_out: [{', '.join(out)}]}}", PIPELINE)
    assert result.passed, messages(result)
