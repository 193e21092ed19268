"""Headers, partitions and tombstones of the records that a sink writes."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.routed import Header
from tests.support.records import listed
from tidegate.datatypes import BIGINT
from tidegate.formats.columns import polars_type
from tidegate.formats.failures import FailureKind
from tidegate.formats.part_values import header_lists
from tidegate.formats.record_limits import RecordLimits
from tidegate.formats.record_parts import HEADERS_TYPE, HeaderRules, RecordParts
from tidegate.formats.records import OutputRecords, RecordEncoder
from tidegate.sources.record_parts import header_column

COLUMNS = [("v", BIGINT)]
LIMITS = RecordLimits("out", 1_000_000, partitions=3)
NAMES = st.sampled_from(["", "a", "b", "é"])
HEADERS = st.lists(st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=4), max_size=6)


def encode(frame: pl.DataFrame, parts: RecordParts, limits: RecordLimits | None = LIMITS) -> OutputRecords:
    return RecordEncoder("json", COLUMNS, parts).encode(frame, limits)


def passed_on(headers: Sequence[Sequence[Header]], rules: HeaderRules) -> list[list[Header]]:
    frame = pl.DataFrame(
        [pl.Series("v", range(len(headers)), dtype=pl.Int64), header_column("__tidegate_headers", headers)]
    )
    records = encode(frame, RecordParts(headers=rules))
    assert len(records) == len(headers)
    return [list(one or ()) for one in listed(records).headers or [None] * len(headers)]


@given(HEADERS)
def test_all_headers_keep_order_repeated_names_and_null_values(headers: list[list[Header]]) -> None:
    assert passed_on(headers, HeaderRules(passed=None)) == headers


@given(HEADERS)
def test_headers_are_chosen_dropped_and_renamed_by_the_names_that_they_came_with(headers: list[list[Header]]) -> None:
    rules = HeaderRules(passed=("a", "é"), dropped=("é",), renamed={"a": "b"})
    assert passed_on(headers, rules) == [[("b", value) for name, value in one if name == "a"] for one in headers]


@given(st.lists(st.none() | st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=4)), st.data())
def test_of_a_part_of_a_frame_rows_without_a_list_have_no_headers(
    headers: list[list[Header] | None], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(headers)))
    some = pl.Series(headers_of(headers), dtype=polars_type(HEADERS_TYPE))
    passed = header_lists(
        pl.DataFrame({"__tidegate_headers": some})[start:], HeaderRules(passed=None, dropped=("é",), renamed={"a": "b"})
    )
    new = {"a": "b"}
    expected = [one and [(new.get(name, name), value) for name, value in one if name != "é"] for one in headers[start:]]
    if passed is None:
        assert not any(expected)
    else:
        assert passed.to_list() == headers_of(expected)


def headers_of(lists: Sequence[Sequence[Header] | None]) -> list[list[dict[str, str | bytes | None]] | None]:
    return [None if one is None else [{"key": name, "value": value} for name, value in one] for one in lists]


def test_added_headers_are_after_those_that_are_passed_on() -> None:
    frame = pl.DataFrame({"v": [1, 2], "text": ["é", None], "data": [b"\xff", b""]})
    frame = frame.with_columns(header_column("__tidegate_headers", [[("t", b"1")], []]))
    rules = HeaderRules(passed=None, added=(("t", "text"), ("d", "data")), texts=("text", "data"))
    records = encode(frame, RecordParts(headers=rules))
    assert listed(records).headers == [
        [("t", b"1"), ("t", "é".encode()), ("d", b"\xff")],
        [("t", None), ("d", b"")],
    ]
    assert records.size_bytes == len('{"v":1}{"v":2}t1téd.td') + 1


@given(st.lists(st.none() | st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=3)), max_size=4)), st.data())
def test_added_headers_do_not_depend_on_those_of_the_record(
    headers: list[list[Header] | None], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(headers)))
    added = [f"v{row}" for row in range(len(headers))]
    some = pl.Series(headers_of(headers), dtype=polars_type(HEADERS_TYPE))
    made = header_lists(
        pl.DataFrame({"__tidegate_headers": some, "one": added, "two": [None] * len(added)})[start:],
        HeaderRules(passed=None, added=(("a", "one"), ("b", "two"))),
    )
    expected = [[*(one or ()), ("a", b"v%d" % row), ("b", None)] for row, one in enumerate(headers)][start:]
    assert ([] if made is None else made.to_list()) == headers_of(expected)


def test_records_without_any_header_are_written_the_fast_way() -> None:
    frame = pl.DataFrame({"v": [1, 2]}).with_columns(header_column("__tidegate_headers", [[], []]))
    assert encode(frame, RecordParts(headers=HeaderRules(passed=None))).keyed_values
    assert encode(frame, RecordParts(key="v")).keyed_values


def test_rows_that_were_in_flight_without_headers_have_none() -> None:
    assert encode(pl.DataFrame({"v": [1]}), RecordParts(headers=HeaderRules(passed=None))).headers is None


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int32, pl.Int64])
def test_a_partition_that_the_topic_does_not_have_makes_a_bad_record(kind: type[pl.DataType]) -> None:
    frame = pl.DataFrame({"v": [0, 1, 2, 3, 4], "p": pl.Series([2, None, 3, -1, 0], dtype=kind)})
    records = encode(frame, RecordParts(partition="p"))
    assert (listed(records).values, listed(records).partitions) == ([b'{"v":0}', b'{"v":1}', b'{"v":4}'], [2, None, 0])
    assert [(one.row, one.kind) for one in records.failures] == [
        (2, FailureKind.NO_PARTITION),
        (3, FailureKind.NO_PARTITION),
    ]
    assert records.failures[0].message == "`p` is 3, but topic out has the partitions 0 to 2"


def test_a_partition_beyond_any_topic_is_bad_where_the_topic_is_unknown() -> None:
    frame = pl.DataFrame({"v": [0, 1], "p": [2**31, 2**31 - 1]})
    records = encode(frame, RecordParts(partition="p"), None)
    assert (listed(records).partitions, [one.row for one in records.failures]) == ([2**31 - 1], [0])


def test_deleted_rows_are_tombstones_and_need_a_key() -> None:
    deleted = [True, None, False, True, True]
    frame = pl.DataFrame({"k": ["a", "b", None, None, "e"], "v": [1, 2, 3, 4, None], "d": deleted})
    records = encode(frame, RecordParts(key="k", deleted="d"))
    assert listed(records).keys == [b"a", b"b", None, b"e"]
    assert listed(records).values == [None, b'{"v":2}', b'{"v":3}', None]
    assert [(one.row, one.kind) for one in records.failures] == [(3, FailureKind.NO_KEY)]
    assert records.keyed_values


def test_what_the_format_fails_keeps_its_row_next_to_tombstones(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.formats.routed import RoutedFormat
    from tidegate.formats.registry import FORMATS

    monkeypatch.setattr("tidegate.formats.records.FORMATS", {**FORMATS, "routed": RoutedFormat()})
    frame = pl.DataFrame({"k": ["a", "b", "c"], "value": [b"bad", b"bad", b"good"], "d": [True, False, False]})
    records = RecordEncoder("routed", (), RecordParts(key="k", deleted="d")).encode(
        frame.rename({"k": "key"}).with_columns(k="key")
    )
    assert (listed(records).keys, listed(records).values) == ([b"a", b"c"], [None, b"good"])
    assert [one.row for one in records.failures] == [1]
