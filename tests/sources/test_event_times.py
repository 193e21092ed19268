"""`__tidegate_time` and `__tidegate_behind` of rows, and records whose event time cannot be used."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.sources.scripted import NAME, P0, P1, TIMESTAMPS, Scripted, order
from tidegate.coordinator.types import SourcePositions
from tidegate.datatypes import BIGINT, BINARY, INT
from tidegate.expressions.parse import parse_expression
from tidegate.native.library import Library, loaded
from tidegate.operators import lateness as measured
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.operators.lateness import measure_behind
from tidegate.operators.runtime import LOWEST
from tidegate.operators.spec import Requirement
from tidegate.sources.event_times import FIRST_MS, LAST_MS, YEAR_1971_MS

AT = EventTime("at", 0)
TIMED = (Requirement.EVENT_TIME,)


def stamps(frame: pl.DataFrame) -> list[tuple[int, int]]:
    return list(frame.select("__tidegate_time", "__tidegate_behind").iter_rows())


def naive(rows: list[tuple[int, int]], delay_ms: int) -> tuple[list[int], dict[int, int]]:
    """One row at a time: everything before this much after its time had been passed."""
    marks: dict[int, int] = {}
    behind = []
    for place, time_ms in rows:
        mark = marks.get(place)
        behind.append(0 if mark is None else max(0, mark + 1 - time_ms))
        reached = time_ms - delay_ms - 1
        marks[place] = reached if mark is None else max(mark, reached)
    return behind, marks


@pytest.mark.parametrize("library", [None, loaded()], ids=["Python", "C"])
@example([(0, 5), (1, 5), (0, 6)], 0, [3])
@example([(0, LAST_MS), (0, FIRST_MS)], 0, [2])
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(-50, 50) | st.integers(FIRST_MS, LAST_MS)), max_size=60),
    st.integers(0, 30) | st.just(366 * 86_400_000),
    st.lists(st.integers(1, 20), min_size=1, max_size=5),
)
def test_how_late_a_row_came_is_that_of_its_own_partition_whatever_the_batches(
    library: Library | None, rows: list[tuple[int, int]], delay_ms: int, sizes: list[int]
) -> None:
    found: list[int] = []
    marks = dict.fromkeys(range(4), LOWEST)
    at = 0
    while at < len(rows):
        batch = rows[at : at + sizes[at % len(sizes)]]
        at += len(batch)
        parts = list(dict.fromkeys(place for place, _ in batch))
        own = [marks[part] for part in parts]
        times = pl.Series("__tidegate_time", [time_ms for _, time_ms in batch], dtype=pl.Int64)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(measured, "loaded", lambda: library)
            behind = measure_behind(times, [parts.index(place) for place, _ in batch], own, delay_ms)
        assert behind.name == "__tidegate_behind"
        assert behind.dtype == pl.Int64
        found += behind.to_list()
        marks.update(zip(parts, own, strict=True))
    expected, expected_marks = naive(rows, delay_ms)
    assert found == expected
    assert {place: mark for place, mark in marks.items() if mark != LOWEST} == expected_marks


def test_rows_carry_their_time_and_how_late_they_came() -> None:
    with Scripted(EventTime("at", 10)) as one:
        frame = one.read((P0, order(1, 100)), (P0, order(2, 95)), (P0, order(3, 88)), (P1, order(4, 50)))
        assert stamps(frame) == [(100, 0), (95, 0), (88, 2), (50, 0)]
        assert frame.columns == [
            "id",
            "at",
            "__tidegate_partition",
            "__tidegate_offset",
            "__tidegate_time",
            "__tidegate_behind",
        ]
        assert one.source.positions().watermarks == ((P0, 89), (P1, 39))


@pytest.mark.parametrize("event_time", [AT, EventTime()], ids=["a column", "the Kafka timestamp"])
def test_how_late_rows_came_continues_after_a_restart_as_before(event_time: EventTime) -> None:
    def at(number: int, time_ms: int) -> tuple[bytes, int]:
        return order(number, time_ms), time_ms

    with Scripted(event_time) as one:
        one.read((P0, at(1, 100)), (P1, at(2, 500)))
        positions = one.source.positions()
    column = event_time.column or ""
    assert positions == SourcePositions(NAME, ((P0, 1), (P1, 1)), (), ((P0, 99), (P1, 499)), column)
    with Scripted(event_time, positions) as again:
        frame = again.read((P0, at(3, 90)), (P0, at(4, 100)), (P1, at(5, 490)))
        assert stamps(frame) == [(90, 10), (100, 0), (490, 10)]


def test_watermarks_begin_again_where_the_event_time_is_read_from_something_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    restored = SourcePositions(NAME, ((P0, 1), (P1, 1)), (), ((P0, 9_000_000), (P1, 9_000_000)))
    with Scripted(AT, restored) as one:
        assert one.source.positions() == SourcePositions(NAME, ((P0, 1), (P1, 1)), event_time="at")
        assert stamps(one.read((P0, order(3, 90)))) == [(90, 0)]
    assert "its event time is now at and was the Kafka timestamp: its watermarks start anew" in caplog.text


def test_batches_of_one_row_give_the_same_as_one_batch() -> None:
    values = [
        (part, order(n, at)) for n, (part, at) in enumerate([(P0, 9), (P1, 5), (P0, 7), (P1, 8), (P0, 3), (P1, 2)])
    ]
    with Scripted(AT) as whole, Scripted(AT) as single:
        assert stamps(whole.read(*values)) == stamps(single.read(*values, rows_max=1))
        assert whole.source.positions() == single.source.positions()


def test_two_topics_keep_their_event_times_apart() -> None:
    other = type(P0)("other", 0)
    with Scripted(AT, partitions=(P0, other), topics=("orders", "other")) as one:
        frame = one.read((P0, order(1, 100)), (other, order(2, 5)), (other, order(3, 1)), (P0, order(4, 99)))
        assert stamps(frame) == [(100, 0), (5, 0), (1, 4), (99, 1)]
        assert one.source.positions().watermarks == ((P0, 99), (other, 4))


def test_a_timestamp_column_is_rounded_down_to_the_millisecond() -> None:
    with Scripted(AT, schema=TIMESTAMPS, output=TIMESTAMPS) as one:
        texts = ('"1970-01-01T00:00:01.234999Z"', '"1969-12-31T23:59:59.999999Z"')
        frame = one.read(*((P0, order(number, text)) for number, text in enumerate(texts)))
        assert [time_ms for time_ms, _ in stamps(frame)] == [1234, -1]


def test_the_kafka_timestamp_is_the_event_time_where_no_column_is_named() -> None:
    with Scripted(EventTime()) as one:
        frame = one.read((P0, (order(1, 7), 5000)), (P0, (order(2, 7), 4000)))
        assert stamps(frame) == [(5000, 0), (4000, 1000)]


def test_a_column_that_nobody_reads_further_down_is_read_for_its_time_and_goes_no_further() -> None:
    with Scripted(AT, output=(("id", BIGINT),)) as one:
        frame = one.read((P0, order(1, 100)))
        assert frame.columns == [
            "id",
            "__tidegate_partition",
            "__tidegate_offset",
            "__tidegate_time",
            "__tidegate_behind",
        ]


def test_a_raw_source_has_its_columns_and_the_time_of_one_of_them() -> None:
    schema = (("value", BINARY), ("partition", INT), ("offset", BIGINT))
    with Scripted(EventTime("offset"), format="raw", schema=schema, output=schema[:1]) as one:
        frame = one.read((P1, b"x"), (P1, b"y"))
        assert frame.drop("__tidegate_partition").rows() == [(b"x", 0, 0, 0), (b"y", 1, 1, 0)]


# -- records without a usable event time -----------------------------------------------------------------------------


@pytest.mark.parametrize("carried", [True, False])
def test_a_record_without_a_usable_event_time_is_bad_whether_anybody_needs_the_time_or_not(carried: bool) -> None:
    with Scripted(EventTime("at"), carries=TIMED if carried else (), output=(("id", BIGINT),)) as one:
        values = [order(1, 1), order(2, "null"), b"{", order(3, LAST_MS + 1), order(4, FIRST_MS - 1), order(5, LAST_MS)]
        frame = one.read(*((P0, value) for value in values))
        assert frame["id"].to_list() == [1, 5]
        assert frame["__tidegate_offset"].to_list() == [0, 5]
        assert ("__tidegate_time" in frame.columns) == carried
        assert [where for where, _ in one.bad] == [f"source orders: orders[0] offset {at}" for at in (1, 2, 3, 4)]
        outside = "the event time, `at`, is before the year 1 or after 9999: "
        assert [str(failure) for _, failure in one.bad if "JSON" not in failure.kind] == [
            "NO_EVENT_TIME: the event time, `at`, is NULL",
            f"EVENT_TIME_OUT_OF_RANGE: {outside}253402300800000 ms since 1970",
            f"EVENT_TIME_OUT_OF_RANGE: {outside}-62135596800001 ms since 1970",
        ]
        assert one.source.records == 6


@pytest.mark.parametrize("none", [None, -1, -62_135_596_800_001])
def test_a_record_without_a_kafka_timestamp_is_bad_where_that_is_the_event_time(none: int | None) -> None:
    with Scripted(EventTime()) as one:
        frame = one.read((P0, (order(1, 7), none)), (P0, (order(2, 7), 2**62)), (P0, (order(3, 7), 10)))
        assert frame["id"].to_list() == [3]
        assert [failure.kind for _, failure in one.bad] == ["NO_EVENT_TIME", "EVENT_TIME_OUT_OF_RANGE"]
        assert "no Kafka timestamp" in one.bad[0][1].message
        assert one.bad[1][1].message.startswith("the event time, its Kafka timestamp, is before the year 1")


def test_a_record_without_a_kafka_timestamp_is_good_where_nobody_needs_the_time() -> None:
    with Scripted(None) as one:
        frame = one.read((P0, (order(1, 7), None)))
        assert frame.columns == ["id", "at", "__tidegate_partition", "__tidegate_offset"]
        assert one.bad == []
        assert one.source.positions().watermarks == ()


@pytest.mark.parametrize("event_time", [AT, EventTime()], ids=["a column", "the Kafka timestamp"])
def test_a_record_that_cannot_be_read_takes_no_time_from_the_others(event_time: EventTime) -> None:
    with Scripted(event_time) as one:
        frame = one.read((P0, (b"{", 1)), (P0, (order(2, 7), 7)), (P1, (order(3, 8), 8)), (P1, (b"{", 9)))
        assert frame.select("id", "__tidegate_partition", "__tidegate_offset", "__tidegate_time").rows() == [
            (2, 0, 1, 7),
            (3, 1, 0, 8),
        ]


@pytest.mark.parametrize("event_time", [AT, EventTime()], ids=["a column", "the Kafka timestamp"])
def test_times_have_their_types_where_no_record_has_one(event_time: EventTime) -> None:
    """Batches are put together further down."""
    with Scripted(event_time) as one:
        one.client.put(P0, (order(1, "null"), None))
        one.gather()
        batch = one.source.take(10)
        assert batch is not None
        assert batch.frame.schema["__tidegate_time"] == batch.frame.schema["__tidegate_behind"] == pl.Int64
        assert batch.frame.is_empty()


def test_a_bad_record_does_not_move_the_watermark() -> None:
    with Scripted(AT) as one:
        one.read((P0, order(1, 100)), (P0, order(2, LAST_MS + 1)), (P0, b'{"id": "x", "at": 900}'), (P1, order(3, 1)))
        assert one.source.positions().watermarks == ((P0, 99), (P1, 0))


def test_bad_records_between_good_ones_of_several_partitions_shift_no_time() -> None:
    with Scripted(AT) as one:
        frame = one.read(
            (P0, order(1, 100)),
            (P1, order(2, "null")),
            (P1, order(3, 7)),
            (P0, b"{"),
            (P0, order(4, 98)),
            (P1, order(5, 8)),
        )
        assert frame.select("id", "__tidegate_partition", "__tidegate_time", "__tidegate_behind").rows() == [
            (1, 0, 100, 0),
            (3, 1, 7, 0),
            (4, 0, 98, 2),
            (5, 1, 8, 0),
        ]


@pytest.mark.parametrize("carried", [True, False])
def test_a_record_that_is_too_far_ahead_of_its_kafka_timestamp_is_bad_and_moves_no_watermark(carried: bool) -> None:
    with Scripted(EventTime("at", ahead_ms=3_600_000), carries=TIMED if carried else ()) as one:
        values = [
            (order(1, 3_600_500), 500),
            (order(2, 3_600_501), 500),
            (order(3, LAST_MS + 1), 500),
            (order(4, LAST_MS), None),
            (order(5, -7), 500),
        ]
        frame = one.read(*((P1 if at_ms is None else P0, (value, at_ms)) for value, at_ms in values))
        assert frame["id"].to_list() == [1, 4, 5]
        assert {failure.kind for _, failure in one.bad} == {"EVENT_TIME_OUT_OF_RANGE"}
        assert [failure.message for _, failure in one.bad] == [
            "the event time, `at`, is 1h1ms after the record's Kafka timestamp: `watermark.ahead` is 1h",
            "the event time, `at`, is before the year 1 or after 9999: 253402300800000 ms since 1970",
        ]
        if carried:
            assert dict(one.source.positions().watermarks)[P0] == 3_600_499


def test_a_record_without_a_kafka_timestamp_is_ahead_of_nothing() -> None:
    with Scripted(EventTime("at", ahead_ms=1)) as one:
        frame = one.read((P0, (order(1, 7_000), -1)), (P0, (order(2, 7_000), 1)))
        assert frame["id"].to_list() == [1]


def test_nothing_is_refused_where_all_are_near_enough() -> None:
    with Scripted(EventTime("at", ahead_ms=0)) as one:
        assert len(one.read((P0, (order(1, 500), 500)), (P0, (order(2, 1), 500)))) == 2
    assert one.bad == []


def computed(text: str, **more: Any) -> EventTime:
    return EventTime(expression=parse_expression(text, {"id": BIGINT, "at": BIGINT}), written=text, **more)


@pytest.mark.parametrize("carried", [True, False])
def test_event_time_is_computed_from_columns_that_go_no_further(carried: bool) -> None:
    with Scripted(
        computed("timestamp_seconds(at)"),
        carries=TIMED if carried else (),
        output=(("id", BIGINT),),
    ) as one:
        frame = one.read((P0, order(1, 7)), (P0, order(2, 1_767_225_600)))
        assert frame.columns[:3] == ["id", "__tidegate_partition", "__tidegate_offset"]
        assert not carried or frame["__tidegate_time"].to_list() == [7_000, 1_767_225_600_000]
        assert one.bad == []


def test_a_number_that_is_computed_is_in_ms() -> None:
    with Scripted(computed("at * 1000 + id")) as one:
        assert one.read((P0, order(1, 7)))["__tidegate_time"].to_list() == [7_001]


@pytest.mark.parametrize("carried", [True, False])
def test_a_record_whose_event_time_cannot_be_computed_is_bad_alone(carried: bool) -> None:
    with Scripted(
        computed("timestamp_seconds(10000 div at)"),
        carries=TIMED if carried else (),
        output=(("id", BIGINT),),
    ) as one:
        frame = one.read(
            (P0, order(1, 10)),
            (P0, b"{"),
            (P0, order(2, 0)),
            (P0, order(3, "null")),
            (P1, order(4, 0)),
            (P0, order(5, 1)),
        )
        assert frame.select("id", "__tidegate_partition", "__tidegate_offset").rows() == [(1, 0, 0), (5, 0, 4)]
        assert not carried or frame["__tidegate_time"].to_list() == [1_000_000, 10_000_000]
        assert [(where.rpartition("orders")[2], failure.kind) for where, failure in one.bad] == [
            ("[0] offset 1", "MALFORMED_JSON"),
            ("[0] offset 2", "DIVIDE_BY_ZERO"),
            ("[0] offset 3", "NO_EVENT_TIME"),
            ("[1] offset 0", "DIVIDE_BY_ZERO"),
        ]
        assert one.bad[1][1].message.startswith("the event time: division by zero in `")
        assert one.bad[2][1].message == "the event time, `timestamp_seconds(10000 div at)`, is NULL"


def test_how_far_ahead_a_computed_time_is_goes_by_the_timestamp_of_its_own_record() -> None:
    with Scripted(computed("timestamp_seconds(id div at)", ahead_ms=1_000)) as one:
        frame = one.read((P0, (order(1, 0), 1)), (P0, (order(9, 1), 9_000)), (P0, (order(9, 1), 1_000)))
        assert frame["__tidegate_offset"].to_list() == [1]
        assert [failure.kind for _, failure in one.bad] == ["DIVIDE_BY_ZERO", "EVENT_TIME_OUT_OF_RANGE"]


def test_watermarks_begin_again_where_the_expression_is_another() -> None:
    first = computed("timestamp_seconds(at)")
    with Scripted(first) as one:
        one.read((P0, order(1, 7)))
        positions = one.source.positions()
    assert positions.event_time == "timestamp_seconds(at)"
    with Scripted(first, positions) as same:
        assert dict(same.source.positions().watermarks)[P0] == 6_999
    with Scripted(computed("timestamp_millis(at)"), positions) as other:
        assert other.source.positions().watermarks == ()


@pytest.mark.parametrize(
    ("event_time", "counted"),
    [(AT, 2), (EventTime(), 1), (computed("timestamp_seconds(at)"), 1)],
)
def test_event_times_before_1971_are_counted_and_good(event_time: EventTime, counted: int) -> None:
    with Scripted(event_time) as one:
        one.read((P0, (order(1, YEAR_1971_MS - 1), YEAR_1971_MS)), (P0, (b"{", 5)))
        one.read((P0, (order(2, YEAR_1971_MS), YEAR_1971_MS)), (P1, (order(3, 86_400), 5)))
        assert one.source.before_1971 == counted
        assert len(one.bad) == 1
