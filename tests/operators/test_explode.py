"""`explode`: which rows a record becomes, in which order, and how large what leaves at a time may be."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from tests.operators.driven import Collected
from tidegate.datatypes import BIGINT, INT, STRING, DataType, map_of
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import BadRecordPolicy, FailureKind
from tidegate.formats.record_parts import HEADERS_TYPE
from tidegate.ids import OperatorName
from tidegate.operators.kinds.explode import Explode, ExplodeOperator
from tidegate.operators.runtime import BatchTooLarge, OperatorRuntime
from tidegate.operators.spec import Planned, Slot
from tidegate.state.backends import choose_backend

ITEMS = DataType("array", element=BIGINT)
TAGS = map_of(STRING, INT)
SYSTEM = {"__tidegate_partition": [0] * 4, "__tidegate_offset": [10, 11, 12, 13], "__tidegate_time": [5, 6, 7, 8]}
FRAME = pl.DataFrame({"a": ["x", "y", "z", "w"], "items": [[1, 2], [], None, [None]], **SYSTEM})
ENTRY = pl.List(pl.Struct({"key": pl.String, "value": pl.Int32}))


def opened(one: Explode, kind: DataType, *, rows_max: int = 1 << 31, bytes_max: int = 1 << 26) -> OperatorRuntime:
    columns: dict[str, DataType] = {"a": STRING} | ({one.column: kind} if one.keep else {})
    made = [kind.key, kind.element] if kind.kind == "map" else [kind.element]
    columns |= {one.position: INT} if one.position else {}
    columns |= {name: of for name, of in zip(one.made, made, strict=True) if of is not None}
    spec = ExplodeOperator(OperatorName("e"), one, kind, tuple(columns.items()), BadRecordPolicy.SKIP)
    return spec.open(Slot(128, choose_backend("memory", retained=1), rows_max=rows_max, bytes_max=bytes_max))


def exploded(one: Explode, frame: pl.DataFrame = FRAME, kind: DataType = ITEMS) -> list[dict[str, Any]]:
    out = Collected()
    opened(one, kind).process(0, frame, out)
    assert out.failures == []
    return pl.concat(out.batches).to_dicts() if out.batches else []


def test_a_row_for_each_element_with_the_other_columns_and_the_engines_own() -> None:
    found = exploded(Explode("items", ("item",)))
    assert [(row["a"], row["item"], row["__tidegate_offset"], row["__tidegate_time"]) for row in found] == [
        ("x", 1, 10, 5),
        ("x", 2, 10, 5),
        ("w", None, 13, 8),
    ]
    assert "items" not in found[0]


def test_outer_keeps_records_without_elements() -> None:
    found = exploded(Explode("items", ("item",), position="n", outer=True))
    assert [(row["a"], row["n"], row["item"]) for row in found] == [
        ("x", 0, 1),
        ("x", 1, 2),
        ("y", None, None),
        ("z", None, None),
        ("w", 0, None),
    ]


def test_the_array_stays_where_it_is_kept() -> None:
    found = exploded(Explode("items", ("item",), keep=True))
    assert [(row["items"], row["item"]) for row in found] == [([1, 2], 1), ([1, 2], 2), ([None], None)]


def test_an_element_may_have_the_name_of_its_array() -> None:
    assert [row["items"] for row in exploded(Explode("items", ("items",)))] == [1, 2, None]


def test_entries_of_a_map_are_two_columns() -> None:
    entries = [[{"key": "p", "value": 1}, {"key": "q", "value": None}], [], None, [{"key": "r", "value": 3}]]
    frame = FRAME.drop("items").with_columns(pl.Series("tags", entries, dtype=ENTRY))
    found = exploded(Explode("tags", ("k", "v"), position="n", outer=True), frame, TAGS)
    assert [(row["a"], row["n"], row["k"], row["v"]) for row in found] == [
        ("x", 0, "p", 1),
        ("x", 1, "q", None),
        ("y", None, None, None),
        ("z", None, None, None),
        ("w", 0, "r", 3),
    ]


def test_elements_that_are_structs_stay_structs() -> None:
    frame = FRAME.head(1).with_columns(pl.Series("items", [[{"sku": "s", "n": 2}, None]]))
    kind = DataType("array", element=DataType("struct", fields=(("sku", STRING), ("n", BIGINT))))
    assert [row["item"] for row in exploded(Explode("items", ("item",)), frame, kind)] == [{"sku": "s", "n": 2}, None]


def test_nothing_comes_of_records_without_elements() -> None:
    assert exploded(Explode("items", ("item",)), FRAME[1:3]) == []
    assert exploded(Explode("items", ("item",)), FRAME.clear()) == []


def test_columns_that_nobody_reads_are_left_out_and_the_rows_stay() -> None:
    spec = ExplodeOperator(
        OperatorName("e"),
        Explode("items", ("item",), position="n"),
        ITEMS,
        (("a", STRING), ("n", INT), ("item", BIGINT)),
        BadRecordPolicy.SKIP,
        planned=Planned(outputs={"": ("a",)}),
    )
    out = Collected()
    spec.open(Slot(128, choose_backend("memory", retained=1))).process(0, FRAME, out)
    assert spec.reads() == {"a", "items"}
    assert pl.concat(out.batches).columns == ["a", "__tidegate_partition", "__tidegate_offset", "__tidegate_time"]
    assert pl.concat(out.batches)["a"].to_list() == ["x", "x", "w"]


def test_what_leaves_is_cut_to_what_the_vertex_takes_at_a_time() -> None:
    frame = pl.DataFrame(
        {"a": ["x"], "items": [list(range(1_000_000))], "__tidegate_partition": [0], "__tidegate_offset": [1]}
    )
    out = Collected()
    opened(Explode("items", ("item",), position="n"), ITEMS, rows_max=300_000).process(0, frame, out)
    assert [batch.height for batch in out.batches] == [300_000, 300_000, 300_000, 100_000]
    assert pl.concat(out.batches)["item"].to_list() == pl.concat(out.batches)["n"].to_list() == list(range(1_000_000))


def test_pieces_keep_to_the_bytes() -> None:
    frame = pl.DataFrame(
        {"a": ["x" * 1000], "items": [list(range(1000))], "__tidegate_partition": [0], "__tidegate_offset": [1]}
    )
    out = Collected()
    opened(Explode("items", ("item",)), ITEMS, bytes_max=100_000).process(0, frame, out)
    assert [batch.height for batch in out.batches] == [100] * 10


def test_records_that_become_too_large_together_are_taken_in_parts() -> None:
    wide = pl.DataFrame({"a": ["x" * 10_000] * 4, "items": [list(range(2000))] * 4})
    runtime, out = opened(Explode("items", ("item",)), ITEMS), Collected()
    with pytest.raises(BatchTooLarge):
        runtime.process(0, wide, out)
    assert out.batches == []
    runtime.process(0, wide[:2], out)
    assert sum(batch.height for batch in out.batches) == 4000


def test_a_record_that_becomes_too_large_by_itself_fails_alone() -> None:
    bomb = pl.DataFrame({"a": ["x" * 1_000_000], "items": [list(range(2000))]})
    runtime, out = opened(Explode("items", ("item",)), ITEMS), Collected()
    runtime.process(0, bomb, out)
    assert out.batches == []
    assert [(one.row, one.kind) for one in out.failures] == [(0, FailureKind.RESULT_TOO_LARGE)]
    assert out.failures[0].message == "the rows of `items` have more than 256 MiB together"


def test_headers_that_are_copied_with_a_record_count_in_its_size() -> None:
    headers = pl.Series(
        "__tidegate_headers", [[{"key": "h", "value": b"x" * (1 << 20)}], []], dtype=polars_type(HEADERS_TYPE)
    )
    frame = pl.DataFrame({"a": ["x", "y"], "items": [list(range(10_000)), [1]]}).with_columns(headers)
    out = Collected()
    opened(Explode("items", ("item",)), ITEMS).process(0, frame[:1], out)
    assert [(one.row, one.kind) for one in out.failures] == [(0, FailureKind.RESULT_TOO_LARGE)]
    opened(Explode("items", ("item",)), ITEMS).process(0, frame[1:], out)
    assert out.batches[0]["__tidegate_headers"].to_list() == [[]]
