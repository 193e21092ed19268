"""`import tidegate`: pipelines loaded, tested and previewed in the process of a notebook or a test."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import tidegate
from tests.api.shop import SHOP, at, order
from tidegate.operators.kinds.aggregate.runtime import AggregateRuntime

ORDERS = [order(1, "ann", 150, 0), order(2, "bo", 5, 10), order(3, "ann", 100, 70)]


@pytest.fixture(scope="module")
def shop() -> tidegate.Pipeline:
    return tidegate.loads(SHOP)


def changed(**settings: object) -> str:
    """The shop with other settings of its source."""
    text = SHOP
    for name, value in settings.items():
        text = text.replace("    event_time: at\n", f"    event_time: at\n    {name}: {value}\n")
    return text


# -- loading -----------------------------------------------------------------------------------------------------------


def test_importing_tidegate_loads_nothing_else() -> None:
    code = (
        "import sys, tidegate; print(sorted(one for one in sys.modules if one.startswith('tidegate.')), dir(tidegate))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] ")
    assert "'load'" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        tidegate.lod  # type: ignore[attr-defined]  # noqa: B018  # a misspelt name, which mypy also reports


def test_a_file_is_loaded_by_its_path_and_its_variables(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP.replace("name: shop", "name: ${SHOP_NAME}"), encoding="utf-8")
    loaded = tidegate.load(file, environ={"SHOP_NAME": "corner"})
    assert (loaded.name, loaded.sources, loaded.steps) == ("corner", ("orders",), ("large", "rows", "per_minute"))
    assert loaded.outputs == ("big", "totals")
    assert [str(case.name) for case in loaded.cases] == ["only large orders go out", "a customer is expected"]
    assert [SHOP.splitlines()[case.line - 1].strip()[:7] for case in loaded.cases] == ["- name:"] * 2


def test_problems_come_all_at_once_with_place_and_remedy() -> None:
    text = SHOP.replace("amount >= 100", "amoun >= 100").replace("count(*)", "cuont(*)")
    with pytest.raises(tidegate.ConfigErrors) as raised:
        tidegate.loads(text)
    lines = str(raised.value).splitlines()
    assert lines[0] == "<pipeline>:14:40: steps.large.where: there is no column `amoun`; did you mean `amount`?"
    assert len(lines) == len(raised.value.problems) == 2
    assert raised.value._render_traceback_() == ["ConfigErrors:", *lines]


def test_a_pipeline_is_built_of_a_mapping(tmp_path: Path) -> None:
    built: dict[str, Any] = {
        "version": 1,
        "name": "built",
        "kafka": {"bootstrap.servers": "127.0.0.1:9092"},
        "checkpoints": {"directory": tmp_path / "checkpoints", "interval": dt.timedelta(seconds=5)},
        "sources": {"lines": {"topic": "lines", "schema": {"n": "bigint", "text": "string"}}},
        "sinks": {"out": {"from": "lines", "topic": "out"}},
    }
    assert tidegate.loads(built).test({"lines": [{"n": 1, "text": "ü: #"}]})["out"].rows() == [(1, "ü: #")]
    built["steps"] = [{"name": "f", "from": "lines", "where": len}]
    with pytest.raises(TypeError, match="cannot be written in a pipeline file; a function or class is named as"):
        tidegate.loads(built)
    built["steps"] = [{"name": "f", "from": "lines", "where": "m > 1"}]
    with pytest.raises(tidegate.ConfigErrors, match=r"steps\.f\.where: there is no column `m`"):
        tidegate.loads(built)


def test_files_that_a_text_names_are_in_the_directory(tmp_path: Path) -> None:
    (tmp_path / "row.avsc").write_text(
        '{"type": "record", "name": "row", "fields": [{"name": "n", "type": "long"}]}', encoding="utf-8"
    )
    text = (
        'version: 1\nname: files\nkafka: {bootstrap.servers: "127.0.0.1:1"}\ncheckpoints: {directory: /nowhere}\n'
        "sources: {rows: {topic: rows, format: avro, schema: {file: row.avsc}, schema_id: none}}\n"
        "sinks: {out: {from: rows, topic: out}}\n"
    )
    assert tidegate.loads(text, directory=tmp_path).test({"rows": [{"n": 7}]})["out"].rows() == [(7,)]


def test_a_pipeline_tells_its_columns_and_explains_itself(shop: tidegate.Pipeline) -> None:
    assert shop.columns("totals") == {
        "customer": "string",
        "window_start": "timestamp",
        "window_end": "timestamp",
        "n": "bigint",
        "net": "decimal(20,2)",
    }
    assert list(shop.columns("orders")) == [
        "id",
        "customer",
        "amount",
        "at",
        "tags",
        "rk",
        "headers",
        "written",
        "part",
    ]
    assert shop.columns("large") == shop.columns("orders")
    assert shop.explain().startswith("pipeline shop: exactly-once, 1 slot")
    assert shop.explain(format="json")["pipeline"] == "shop"
    assert json.dumps(shop.explain(format="json"))
    with pytest.raises(tidegate.TidegateError, match="has no source, step or output 'other'; it has: orders, large"):
        shop.columns("other")
    assert "net decimal(20,2)" in shop._repr_html_()


# -- frames in and out -------------------------------------------------------------------------------------------------


def test_rows_come_out_with_the_declared_types(shop: tidegate.Pipeline) -> None:
    result = shop.test({"orders": [*ORDERS, order(4, "bo", 200, 80, tags={"a": 1}, written=at(3))]})
    assert list(result) == ["big", "totals", "dead_letters"]
    assert result["big"].schema == {
        "id": pl.Int64(),
        "customer": pl.String(),
        "amount": pl.Decimal(10, 2),
        "tags": pl.List(pl.Struct({"key": pl.String(), "value": pl.Int32()})),
        "written": pl.Datetime("us", "UTC"),
    }
    assert result["big"]["amount"].to_list() == [Decimal(150), Decimal(100), Decimal(200)]
    assert result["big"].row(2)[3:] == ([{"key": "a", "value": 1}], at(3))
    assert result["totals"].select("customer", "n").rows() == [("ann", 1), ("bo", 1), ("ann", 1), ("bo", 1)]
    assert result["dead_letters"].height == 0
    assert (result.bad_records, result.skipped, result.late, result.notes) == ({}, [], {}, [])


def test_a_frame_gives_the_same_as_its_rows(shop: tidegate.Pipeline) -> None:
    rows = [
        order(n, f"c{n % 3}", n, n, tags={"n": n}, rk=f"k{n}", headers=[("h", b"x")], part=n % 2) for n in range(90)
    ]
    frame = pl.DataFrame(
        [{**row, "tags": [{"key": "n", "value": row["id"]}], "headers": [{"key": "h", "value": b"x"}]} for row in rows],
        schema_overrides={"amount": pl.Decimal(10, 2)},
    )
    wanted = shop.test({"orders": rows}, at=["orders"], batch=90, restart=False)["orders"]
    assert wanted.filter(pl.col("id") == 5)["rk"].to_list() == ["k5"]
    assert shop.test({"orders": frame}, at="orders", batch=90, restart=False)["orders"].equals(wanted)
    assert shop.test({"orders": wanted}, at="orders", batch=90, restart=False)["orders"].equals(wanted), "out is in"


def test_rows_of_a_step_are_shown_instead_of_sinks(shop: tidegate.Pipeline) -> None:
    result = shop.test({"orders": ORDERS}, at=["large", "per_minute"])
    assert {name: frame.height for name, frame in result.items()} == {"large": 2, "per_minute": 3}
    with pytest.raises(KeyError, match="there is no frame 'big'; available: large, per_minute"):
        result["big"]


@pytest.mark.parametrize(
    ("watermark", "windows"), [("end", 3), (None, 2), (at(119), 2), (at(121), 3), (at(180).replace(tzinfo=None), 3)]
)
def test_event_time_goes_as_far_as_it_is_told(shop: tidegate.Pipeline, watermark: Any, windows: int) -> None:
    result = shop.test({"orders": ORDERS}, watermark=watermark)
    assert result["totals"].height == windows
    assert any("open window" in note for note in result.notes) == (windows < 3)


def test_bad_records_go_where_the_file_says(shop: tidegate.Pipeline) -> None:
    rows = [*ORDERS, {"id": "x"}]
    letters = shop.test({"orders": rows})
    assert letters.bad_records == {"WRONG_TYPE": 1}
    assert letters["dead_letters"].select("offset", "kind", "value").rows() == [(3, "WRONG_TYPE", b'{"id":"x"}')]
    skipping = tidegate.loads(SHOP.replace("bad_records: dead-letter", "bad_records: skip")).test({"orders": rows})
    assert [line.partition(": WRONG")[0] for line in skipping.skipped] == ["source orders: orders[0] offset 3"]
    assert "skipped: source orders" in skipping._repr_html_()
    with pytest.raises(tidegate.TidegateError, match="WRONG_TYPE"):
        tidegate.loads(SHOP.replace("bad_records: dead-letter", "bad_records: fail")).test({"orders": rows})


def test_records_are_given_as_in_a_case(shop: tidegate.Pipeline) -> None:
    result = shop.test(
        {
            "orders": [
                {"text": "{"},
                {"value": order(1, "ann", 100, 0), "key": b"k", "timestamp": at(9), "headers": [("h", b"\xff")]},
                {"advance": dt.timedelta(minutes=2)},
                {"value": order(2, "ann", 100, 1)},
                {"watermark": at(60)},
            ]
        },
        records=True,
        watermark=None,
        now=at(0),
        at=["orders", "per_minute"],
    )
    assert result["orders"].select("id", "rk", "written").rows() == [(1, "k", at(9)), (2, None, at(120))]
    assert result["orders"]["headers"].to_list()[0] == [{"key": "h", "value": b"\xff"}]
    assert result["per_minute"].height == 1
    assert result.bad_records == {"MALFORMED_JSON": 1}


def test_a_sink_with_tombstones_shows_which_rows_they_are() -> None:
    text = SHOP.partition("sources:")[0].replace("dead_letters: {topic: dead}\n", "") + (
        "sources: {rows: {topic: rows, schema: {id: bigint, gone: boolean}, on_null: tombstone, metadata: {key: k}}}\n"
        "steps: [{name: kept, from: rows, select: {k: k, id: id, lost: 'gone OR _deleted'}}]\n"
        "sinks: {copy: {from: kept, topic: copy, key: k, on_null: {column: lost}}}\n"
    )
    pipeline = tidegate.loads(text)
    rows = [{"id": 1, "gone": False, "k": "a"}, {"id": 2, "gone": True, "k": "b"}, {"_deleted": True, "k": "c"}]
    assert pipeline.test({"rows": rows})["copy"].rows() == [("a", 1, False), ("b", 2, True), ("c", None, True)]
    assert pipeline.columns("copy") == {"k": "string", "id": "bigint", "lost": "boolean"}


def test_a_raw_copy_has_keys_and_topics() -> None:
    text = SHOP.partition("sources:")[0].replace("dead_letters: {topic: dead}\n", "") + (
        "sources: {lines: {topics: [a, b], format: raw}}\n"
        "sinks:\n  copy:\n    {from: lines, format: raw, "
        "topic: {expression: \"concat(topic, '-copy')\", allow: [a-copy, b-copy]}}\n"
    )
    pipeline = tidegate.loads(text)
    rows: list[dict[str, object]] = [{"value": "x", "key": b"k", "topic": "b"}, {"value": None}]
    assert sorted(pipeline.test({"lines": rows})["copy"].rows(), key=str) == [
        (None, None, "a-copy"),
        (b"x", b"k", "b-copy"),
    ]
    assert pipeline.columns("copy") == {"value": "binary", "key": "binary", "topic": "string"}
    with pytest.raises(tidegate.TidegateError, match="offsets follow from the order of the rows"):
        pipeline.test({"lines": [{"value": "x", "offset": 3}]})


def test_changes_are_given_as_records() -> None:
    text = SHOP.partition("sources:")[0].replace("dead_letters: {topic: dead}\n", "") + (
        "sources: {orders: {topic: orders, format: debezium, schema: {id: bigint, n: bigint}}}\n"
        "steps: [{name: sums, from: orders, key: id, aggregate: {total: sum(n)}}]\n"
        "sinks: {out: {from: sums, topic: out, key: id, on_null: {column: _deleted}}}\n"
    )
    pipeline = tidegate.loads(text)
    with pytest.raises(
        tidegate.TidegateError, match="a row of the debezium source `orders` is not a record; records=True takes"
    ):
        pipeline.test({"orders": [{"id": 1}]})
    insert = {"value": {"op": "c", "before": None, "after": {"id": 1, "n": 5}}}
    delete = {"value": {"op": "d", "before": {"id": 1, "n": 5}, "after": None}}
    assert pipeline.test({"orders": [insert, {"advance": "1s"}, delete]}, records=True)["out"].rows() == [
        (1, 5, False),
        (1, 5, True),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"other": []}, "reads no source 'other'; it has: orders"),
        ({"orders": [{"idd": 1}]}, "orders, row 0: the source has no column `idd`; did you mean `id`"),
        ({"orders": 5}, "the rows of `orders` are of the type int; give a polars DataFrame or a list of dicts"),
        ({"orders": {"id": [1]}}, "the rows of `orders` are of the type dict; give a polars DataFrame or a list"),
        ({"orders": pl.LazyFrame({"id": [1]})}, "are of the type LazyFrame; convert it with"),
        ({"orders": [5]}, "orders, row 0 is a int; give a dict of columns"),
        ({"orders": [{"written": "now"}]}, "row 0, column `written` is a str; give a datetime, or the ms since 1970"),
        ({"orders": [{"headers": ["a"]}]}, "row 0, column `headers`: headers are pairs"),
        ({"orders": [{"id": float("nan")}]}, "JSON has neither infinities nor NaN"),
        ({"orders": [{"tags": {"a": {1}}}]}, "row 0, column `tags`: a value of the type set is not of any column type"),
    ],
)
def test_rows_that_cannot_be_given_are_refused(shop: tidegate.Pipeline, rows: Any, message: str) -> None:
    with pytest.raises(tidegate.TidegateError) as raised:
        shop.test(rows)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"valu": 1}, "orders, record 0, `valu`: unknown key"),
        ({"key": "a"}, "orders, record 0: `value` is missing"),
        ({"value": {}, "timestamp": "x"}, "orders, record 0, `timestamp`: `x` is not a timestamp"),
        ({"value": {}, "topic": "other"}, "orders, record 0, `topic`: the source does not read `other`"),
        (7, "orders, record 0 is a int; records=True takes records"),
    ],
)
def test_records_that_cannot_be_given_are_refused(shop: tidegate.Pipeline, record: Any, message: str) -> None:
    with pytest.raises(tidegate.TidegateError) as raised:
        shop.test({"orders": [record]}, records=True)
    assert message in str(raised.value)


def test_partitions_are_read_in_the_same_order_with_a_restart(shop: tidegate.Pipeline) -> None:
    rows = [order(n, "ann", 100 + n, n, part=n % 2) for n in range(9)]
    assert shop.test({"orders": rows})["big"]["id"].to_list() == list(range(9))
    assert shop.test({"orders": rows}, batch=100)["big"]["id"].to_list() == [0, 2, 1, 3, 4, 6, 8, 5, 7]


def _no_states(runtime: AggregateRuntime) -> dict[str, object]:
    return {}


# -- restarts, slots, notebooks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_restart_in_the_middle_changes_nothing(shop: tidegate.Pipeline, parallelism: int) -> None:
    rows = [order(n, f"c{n % 5}", n, n, part=n % 4) for n in range(100)]
    result = shop.test({"orders": rows}, parallelism=parallelism, batch=30)
    assert sum(result["totals"]["n"]) == 100
    assert result["totals"].height == 10


def test_a_step_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch, shop: tidegate.Pipeline) -> None:
    monkeypatch.setattr(AggregateRuntime, "states", property(_no_states, lambda *_: None))
    sums = tidegate.loads(SHOP.replace("window: {tumbling: 1m}, ", ""))
    with pytest.raises(
        tidegate.TidegateError, match="sink totals: a restart in the middle of the case changes the result: - without"
    ) as raised:
        sums.test({"orders": ORDERS})
    assert raised.value.code == "restart-changes-result"
    assert sums.test({"orders": ORDERS}, restart=False)["totals"]["n"].to_list() == [1, 1, 2]


CALLING = SHOP.partition("sources:")[0].replace("dead_letters: {topic: dead}\n", "") + (
    "sources: {rows: {topic: rows, schema: {n: bigint}}}\n"
    "steps: [{name: doubled, from: rows, async: 'doubling:double', output: {twice: bigint}}]\n"
    "sinks: {out: {from: doubled, topic: out}}\n"
)


def test_functions_run_within_a_loop_and_are_read_again_when_they_change(tmp_path: Path) -> None:
    async def cell(factor: int) -> list[Any]:
        source = f"async def double(row):\n    return {{'twice': {factor} * row['n']}}\n"
        (tmp_path / "doubling.py").write_text(source, encoding="utf-8")
        pipeline = tidegate.loads(CALLING, directory=tmp_path)
        return pipeline.test({"rows": [{"n": 4}]})["out"].rows()

    assert asyncio.run(cell(2)) == [(4, 8)]
    assert asyncio.run(cell(20)) == [(4, 80)]


def test_what_a_module_keeps_is_lost_in_a_restart_and_the_message_says_so(tmp_path: Path) -> None:
    source = "calls = []\nasync def double(row):\n    calls.append(row)\n    return {'twice': len(calls)}\n"
    (tmp_path / "doubling.py").write_text(source, encoding="utf-8")
    pipeline = tidegate.loads(CALLING, directory=tmp_path)
    rows = [{"n": n} for n in range(4)]
    with pytest.raises(tidegate.TidegateError, match="the code of doubled must keep its state in a Value, List, Map"):
        pipeline.test({"rows": rows})
    for _ in range(2):
        assert pipeline.test({"rows": rows}, restart=False)["out"]["twice"].to_list() == [1, 2, 3, 4]
    assert "doubling" not in sys.modules


VISITS = """\
from tidegate.python import Step, Timer, Value

class Visits(Step):
    clicks = Value("bigint", default=0)
    quiet = Timer("event-time")

    def open(self, settings):
        self.gap = settings.duration("gap")

    def process(self, row, out):
        self.clicks.set(self.clicks.get() + 1)
        self.quiet.set(row.time + self.gap)
        out.emit(clicks=self.clicks.get())

    def on_timer(self, name, at, out):
        out.to("ended", customer=self.key[0], at=at, clicks=self.clicks.take())
"""


def test_timers_of_a_step_in_python_fire_as_far_as_event_time_goes(tmp_path: Path) -> None:
    (tmp_path / "visits.py").write_text(VISITS, encoding="utf-8")
    step = (
        "  - {name: visits, from: orders, key: customer, python: visits:Visits, with: {gap: 30s}, "
        "output: {clicks: bigint}, outputs: {ended: {customer: string, at: timestamp, clicks: bigint}}}\n"
    )
    pipeline = tidegate.loads(SHOP.replace("steps:\n", f"steps:\n{step}"), directory=tmp_path)
    assert pipeline.columns("visits.ended") == {"customer": "string", "at": "timestamp", "clicks": "bigint"}
    rows = [order(1, "ann", 5, 0), order(2, "bo", 5, 50), order(3, "ann", 5, 70)]
    result = pipeline.test({"orders": rows}, at=["visits", "visits.ended"])
    assert result["visits"]["clicks"].to_list() == [1, 1, 1]
    assert result["visits.ended"].rows() == [("ann", at(30), 1), ("bo", at(80), 1), ("ann", at(100), 1)]
    assert pipeline.test({"orders": rows}, at="visits.ended", watermark=None)["visits.ended"].height == 1


# -- preview and cases -------------------------------------------------------------------------------------------------


def test_a_file_is_previewed(shop: tidegate.Pipeline, tmp_path: Path) -> None:
    file = tmp_path / "orders.jsonl"
    file.write_text('{"id": 1, "amount": 100, "at": "2026-01-01T00:00:00Z"}\n{\n' * 3, encoding="utf-8")
    result = shop.preview({"orders": file}, limit=2)
    assert result["big"]["id"].to_list() == [1, 1]
    assert result.bad_records == {"MALFORMED_JSON": 3}
    assert shop.preview({"orders": ORDERS}, at="large")["large"].height == 2
    file.write_text('{"value": {"id": 9, "amount": 100}, "key": "k"}\n', encoding="utf-8")
    assert shop.preview({"orders": str(file)}, records=True, at="orders").bad_records == {"NO_EVENT_TIME": 1}


def test_the_cases_of_the_file_run(shop: tidegate.Pipeline) -> None:
    first, second = shop.run_cases()
    assert (first.passed, first.text, str(first)) == (True, "", f"passed  {first.name}")
    assert second.text.splitlines()[0] == "sink big: 1 record came out, as many as expected, but with other contents"
    assert str(second) == f"failed  {second.name}\n{second.text}"
    assert shop.cases[1].run().text == second.text
