"""Schemas from records: every record that has decided a schema is read with it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.formats.any_records import RECORDS
from tidegate.config.draft import render_type
from tidegate.config.fields.columns import derive_type
from tidegate.formats.kinds.json.inference import FIELDS_MAX, Inference, LeftOut, derive_schema
from tidegate.formats.kinds.json.reader import JsonDecoder

MAP = f"it has {FIELDS_MAX + 1} different fields, so it is probably a map"


def infer(*records: object) -> Inference:
    return derive_schema([json.dumps(record).encode() for record in records])


def types(*records: object) -> dict[str, str]:
    return {column.name: str(column.type) for column in infer(*records).columns}


@pytest.mark.slow
@given(RECORDS)
@example([{"a": 10**30}, {"a": 1}])
@example([{"a": 10**400}])
@example([{"a": [{"b": 1}, {"b": 1.5}, None]}, {"a": []}])
@example([{"a": "9999-12-31T23:59:59-01:00"}, {"a": "2026-01-01T00:00:00"}, {"a": "2026-01-01T00:00:00Z"}])
def test_every_record_is_read_with_the_schema_that_it_has_decided(records: list[dict[str, Any]]) -> None:
    values = [json.dumps(record).encode() for record in records]
    found = derive_schema(values)
    assert (found.objects, found.others, found.tombstones) == (len(records), 0, 0)
    frame, failures = JsonDecoder([(column.name, column.type) for column in found.columns]).decode_values(values)
    assert failures == []
    assert frame.height == len(records)
    for column in found.columns:
        missing = [record.get(column.name) is None for record in records]
        assert frame[column.name].is_null().to_list() == missing, "a value was lost"


@pytest.mark.slow
@given(RECORDS)
def test_every_field_is_a_column_or_left_out_with_a_reason(records: list[dict[str, Any]]) -> None:
    found = infer(*records)
    columns = {column.name for column in found.columns}
    left_out = {one.path for one in found.left_out}
    for name in {name for record in records for name in record}:
        assert name in columns or any(path.startswith(name) for path in left_out)
    assert all(one.reason for one in found.left_out)


@pytest.mark.slow
@given(RECORDS)
def test_a_pipeline_file_can_say_every_type(records: list[dict[str, Any]]) -> None:
    for column in infer(*records).columns:
        assert derive_type(render_type(column.type)) == column.type


@pytest.mark.slow
@given(RECORDS, st.randoms(use_true_random=False))
def test_the_types_do_not_depend_on_the_order_of_the_records(records: list[dict[str, Any]], order: Any) -> None:
    shuffled = records[:]
    order.shuffle(shuffled)

    def as_sets(found: Inference) -> set[tuple[str, str]]:
        return {(column.name, "".join(sorted(str(column.type)))) for column in found.columns}

    assert as_sets(infer(*records)) == as_sets(infer(*shuffled))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], "bigint"),
        ([1, 2.5], "double"),
        ([2**63, 1], "decimal(20,0)"),
        ([-(2**63) - 1, 2**64 - 1], "decimal(20,0)"),
        ([10**20, 5], "decimal(38,0)"),
        ([10**38], "double"),
        ([2**63, 2.5], "double"),
        ([True, False], "boolean"),
        (["x", "2026-01-01"], "string"),
        (["2026-01-01", None], "date"),
        (["2026-01-01T00:00:00Z", "2026-01-01 00:00:00"], "timestamp"),
        (["2026-01-01T00:00:00Z", "2026-01-01"], "string"),
        (["0001-01-01T00:00:00+05:00"], "string"),
        ([None, None], "string"),
        ([[1], [2.5, None], []], "array<double>"),
        ([[]], "array<string>"),
        ([{"x": 1}, {"y": "a"}], "struct<x: bigint, y: string>"),
        ([[{"x": [True]}]], "array<struct<x: array<boolean>>>"),
    ],
)
def test_the_narrowest_type_is_taken(values: list[object], kind: str) -> None:
    assert types(*({"a": value} for value in values)) == {"a": kind}


@pytest.mark.parametrize(
    ("records", "left_out"),
    [
        ([{"a": 1}, {"a": "x"}], LeftOut("a", "its type differs from record to record: bigint, string")),
        ([{"a": True}, {"a": 1}], LeftOut("a", "its type differs from record to record: bigint, boolean")),
        ([{"a": [1, "x"]}], LeftOut("a[]", "its type differs from record to record: bigint, string")),
        ([{"a": {"b": 1}}, {"a": {"b": []}}], LeftOut("a.b", "its type differs from record to record: array, bigint")),
        ([{"a": 10**400}], LeftOut("a", "a number that exceeds all types")),
        ([{"__tidegate": 1}], LeftOut("__tidegate", "names that begin with `__tidegate` belong to Tidegate")),
        ([{"^a$": 1}], LeftOut("^a$", "its name is reserved for several columns")),
        (
            [{"a": {str(n): n for n in range(FIELDS_MAX + 1)}}],
            LeftOut("a", "it has 201 different fields, so it is probably a map"),
        ),
        ([{"a": json.loads("[" * 9 + "]" * 9)}], LeftOut("a[][][][][][][]", "it is nested too deeply")),
    ],
)
def test_what_has_no_type_is_left_out_with_the_reason(records: list[object], left_out: LeftOut) -> None:
    found = infer(*records)
    assert left_out in found.left_out
    assert left_out.path not in [column.name for column in found.columns]


def test_a_part_without_a_type_leaves_the_rest_of_its_struct() -> None:
    assert types({"a": {"b": 1, "c": 1}}, {"a": {"b": "x"}}) == {"a": "struct<c: bigint>"}


def test_what_is_null_everywhere_is_text_with_a_note() -> None:
    (column,) = infer({"a": None}).columns
    assert (str(column.type), column.note) == ("string", "it is null in all sampled records")


def test_records_that_are_no_objects_are_counted_and_decide_nothing() -> None:
    found = derive_schema([b'{"a": 1}', b'{"a": 2}', b"text", b"[1]", None])
    assert (found.objects, found.others, found.tombstones, found.is_json) == (2, 2, 1, False)
    assert derive_schema([b'{"a": 1}', b'{"a": 2}', b"text"]).is_json
    assert not derive_schema([b"{}", b"{}"]).is_json
    assert not derive_schema([]).is_json
