"""The oracle of windows sees every kind of wrong output, and takes what a streaming computation writes."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

import msgspec
import pytest

from tidegate.ids import TopicPartition
from tidegate.simulation.kernel import START_S
from tidegate.simulation.lateness import ObservedWatermark, RowOutcome, derive_limits, derive_sessions, passed_by
from tidegate.simulation.shapes.oracle import OracleHistory
from tidegate.simulation.timing import (
    CHANGES_MS,
    DAY_MS,
    DAYS,
    PAUSE_MS,
    START_MS,
    ZONE,
    EventTimeModel,
    Timing,
    begins_of,
)
from tidegate.simulation.windows import WindowOracle
from tidegate.simulation.workload import MOST_SUBTASKS, InputRecord, Workload, draw_workload

TIMING = Timing(size_ms=100, delay_ms=30, idle="never", disorder_ms=60, stray=0.2, silence=0.0, steady=False, lag_ms=0)
CAUGHT_UP = msgspec.structs.replace(TIMING, idle="caught-up")
WORKLOAD = msgspec.structs.replace(
    draw_workload(1),
    topology="windows",
    timing=TIMING,
    partitions=2,
    exactly_once=True,
    bounded=False,
    noisy=False,
    unaligned_after_ms=None,
)
WIDE = msgspec.structs.replace(WORKLOAD, topology="wide-windows")
AT_LEAST_ONCE = msgspec.structs.replace(WORKLOAD, exactly_once=False)
PLACES = [TopicPartition("orders", number) for number in range(2)]
FAR = 1_000_000

Rows = dict[str, list[list[dict[str, Any]]]]


def record_of(number: int, place: TopicPartition, at: int, arrived_s: float = START_S) -> InputRecord:
    draw = random.Random(number)
    return InputRecord(
        place=place,
        id=number,
        customer=f"c{draw.randrange(2)}",
        sku=f"s{draw.randrange(2)}",
        quantity=draw.randint(1, 5),
        price_cents=draw.randint(1, 999),
        status="paid",
        at=at,
        arrived_s=arrived_s,
    )


def records_of(count: int, seed: int = 1) -> list[InputRecord]:
    """Out of order and late ones; at last one far ahead in every partition."""
    draw = random.Random(seed)
    records = []
    for number in range(count):
        at = 10_000 + 10 * number - draw.choice((0, draw.randint(0, 60), draw.randint(0, 300)))
        records.append(record_of(number, draw.choice(PLACES), at))
    return records + [record_of(count + index, place, FAR) for index, place in enumerate(PLACES)]


RECORDS = records_of(60)


def streamed(records: list[InputRecord], size_ms: int = 100) -> Rows:
    """As a pipeline writes it that has one subtask: windows close when the lowest watermark passes their end."""
    highest: dict[TopicPartition, int] = {}
    late: set[int] = set()
    open_panes: dict[tuple[str, int], list[InputRecord]] = defaultdict(list)
    rows: list[dict[str, Any]] = []
    for record in records:
        at, before = record.event_ms, highest.get(record.place)
        begin = at // size_ms * size_ms
        if before is None or begin + size_ms - 1 > before - 30 - 1:
            open_panes[record.sku, begin].append(record)
        else:
            late.add(record.id)
        highest[record.place] = at if before is None else max(at, before)
        if len(highest) < len(PLACES):
            continue
        watermark = min(highest.values()) - 30 - 1
        due = [key for key in open_panes if key[1] + size_ms - 1 <= watermark]
        rows += [row_of(*key, open_panes.pop(key)) for key in sorted(due, key=lambda key: (key[1], key[0]))]
    return {"windows": [rows]}


def row_of(sku: str, begin: int, found: list[InputRecord], size_ms: int = 100) -> dict[str, Any]:
    ids = [record.id for record in found]
    return {
        "sku": sku,
        "window_start": f"1970-01-01T00:{begin // 60_000:02}:{begin % 60_000 / 1000:06.3f}Z",
        "window_end": begin + size_ms,
        "orders": len(ids),
        "revenue_cents": sum(record.quantity * record.price_cents for record in found),
        "id_sum": sum(ids),
        "first_id": min(ids),
        "last_id": max(ids),
    }


def oracle_of(workload: Workload = WORKLOAD, records: list[InputRecord] = RECORDS, **settled: Any) -> WindowOracle:
    assert workload.timing is not None
    return WindowOracle(workload, workload.timing, ObservedWatermark(records, frozenset(), settled.get("settled", {})))


def fates_of(
    records: list[InputRecord],
    timing: Timing = TIMING,
    settled: dict[int, int] | None = None,
    workload: Workload = WORKLOAD,
) -> list[RowOutcome]:
    """In tumbling windows."""
    workload = msgspec.structs.replace(workload, timing=timing)
    limits = derive_limits(workload, timing, ObservedWatermark(records, frozenset(), settled or {}), 100)
    return [limits[record.id].outcome(record.event_ms // 100 * 100 + 99) for record in records]


def problems_of(output: Rows, workload: Workload = WORKLOAD) -> str:
    return "; ".join(oracle_of(workload).check([OracleHistory(frozenset(), output)]))


@pytest.mark.parametrize("seed", range(20))
def test_what_a_streaming_computation_writes_is_right(seed: int) -> None:
    records = records_of(60, seed)
    assert set(fates_of(records)) == {RowOutcome.COUNTED, RowOutcome.LATE}
    assert oracle_of(records=records).check([OracleHistory(frozenset(), streamed(records))]) == []


def test_a_window_that_is_lost_is_seen_and_so_is_one_that_comes_twice() -> None:
    output = streamed(RECORDS)
    lost = output["windows"][0].pop(3)
    assert "1 windows are lost" in problems_of(output)
    output["windows"][0] += [lost, lost]
    assert "duplicate" in problems_of(output)


def test_a_record_that_is_missing_and_one_too_many_are_seen() -> None:
    for change in (-1, 1):
        output = streamed(RECORDS)
        output["windows"][0][2]["orders"] += change
        assert "was expected" in problems_of(output)


def test_a_late_record_that_is_counted_is_seen() -> None:
    late = next(
        record for record, outcome in zip(RECORDS, fates_of(RECORDS), strict=True) if outcome is RowOutcome.LATE
    )
    begin = late.event_ms // 100 * 100
    output = streamed(RECORDS)
    rows = output["windows"][0]
    index = next(index for index, row in enumerate(rows) if row["window_end"] == begin + 100 and row["sku"] == late.sku)
    pane = oracle_of().panes("windows")[late.sku, str(begin)].sure
    rows[index] = row_of(late.sku, begin, [*pane, late])
    assert "was expected" in problems_of(output)


def test_a_window_whose_end_nothing_has_passed_must_not_come() -> None:
    output = streamed(RECORDS)
    last = RECORDS[-1]
    output["windows"][0].append(row_of(last.sku, FAR, [one for one in RECORDS[-2:] if one.sku == last.sku]))
    assert "no watermark has passed" in problems_of(output)


def test_windows_of_a_key_out_of_order_are_seen() -> None:
    output = streamed(RECORDS)
    output["windows"][0].reverse()
    assert "comes after" in problems_of(output)


def test_a_key_in_two_partitions_is_seen() -> None:
    output = streamed(RECORDS)
    output["windows"].append([output["windows"][0].pop()])
    assert "is in partitions" in problems_of(output)


def test_at_least_once_a_window_may_come_again_with_more_but_not_with_less() -> None:
    output = streamed(RECORDS)
    again = dict(output["windows"][0][4])
    again["orders"] += 1
    output["windows"][0].append(again)
    assert problems_of(output, AT_LEAST_ONCE) == ""
    again["orders"] -= 2
    assert "at least" in problems_of(output, AT_LEAST_ONCE)


# -- sliding windows and corrections ---------------------------------------------------------------------------------


@pytest.mark.parametrize("every_ms", [20, 30, 50, 100])
def test_a_time_is_in_every_window_that_begins_before_it_and_ends_after_it(every_ms: int) -> None:
    for at in range(1000, 1100):
        expected = [begin for begin in range(0, 2000, every_ms) if begin <= at < begin + 100]
        assert list(begins_of(at, 100, every_ms)) == expected


def test_a_record_is_late_for_the_windows_that_were_closed_and_in_time_for_the_others() -> None:
    sliding = msgspec.structs.replace(TIMING, every_ms=50)
    records = [record_of(0, PLACES[0], 1100), record_of(1, PLACES[0], 1020)]
    oracle = oracle_of(msgspec.structs.replace(WORKLOAD, timing=sliding), records)
    names = [(records[1].sku, str(begin)) for begin in (950, 1000)]
    assert [oracle.outcome("windows", records[1], name) for name in names] == [RowOutcome.LATE, RowOutcome.COUNTED]


def test_with_allowed_lateness_a_window_is_corrected_and_the_last_row_is_exact() -> None:
    allowing = msgspec.structs.replace(TIMING, allowed_ms=1000)
    workload = msgspec.structs.replace(WORKLOAD, timing=allowing)
    records = [record_of(0, PLACES[0], 1010), record_of(1, PLACES[1], 1500), record_of(2, PLACES[0], 1500)]
    records.append(msgspec.structs.replace(record_of(3, PLACES[0], 1020), sku=records[0].sku))
    records += [record_of(4 + index, place, FAR) for index, place in enumerate(PLACES)]
    both = sorted({record.sku for record in records[1:3]})
    later = [row_of(sku, 1500, [record for record in records[1:3] if record.sku == sku]) for sku in both]
    first, corrected = (
        row_of(records[0].sku, 1000, [records[0]]),
        row_of(records[0].sku, 1000, [records[0], records[3]]),
    )

    def problems(*rows: dict[str, Any]) -> str:
        return "; ".join(
            oracle_of(workload, records).check([OracleHistory(frozenset(), {"windows": [[*rows, *later]]})])
        )

    assert problems(first, corrected) == ""
    assert problems(corrected) == ""
    assert "was expected" in problems(first)
    assert "duplicate" in problems(first, corrected, corrected)
    assert "duplicate" in problems(corrected, first)


# -- what may have been late ------------------------------------------------------------------------------------------


def test_behind_a_pause_a_record_whose_window_others_have_passed_may_be_counted_or_not() -> None:
    records = [
        record_of(0, PLACES[0], 1000),
        record_of(1, PLACES[1], 5000, START_S + 2),
        record_of(2, PLACES[0], 1050, START_S + 2.1),
    ]
    assert fates_of(records, CAUGHT_UP) == [RowOutcome.COUNTED, RowOutcome.COUNTED, RowOutcome.EITHER]
    assert fates_of(records)[2] is RowOutcome.COUNTED
    quick = [*records[:2], msgspec.structs.replace(records[2], arrived_s=START_S + 0.5)]
    assert fates_of(quick, CAUGHT_UP)[2] is RowOutcome.COUNTED


def test_what_was_processed_before_others_came_is_not_late_by_them() -> None:
    """Nor is one that was there before them (ADR 52), unless nobody can say what came first."""
    records = [
        record_of(0, PLACES[0], 1000),
        record_of(1, PLACES[0], 1050, START_S + 2.1),
        record_of(2, PLACES[1], 5000, START_S + 3),
    ]
    assert fates_of(records, CAUGHT_UP, {1: 3})[1] is RowOutcome.COUNTED
    noisy = msgspec.structs.replace(WORKLOAD, noisy=True)
    assert fates_of(records, CAUGHT_UP, {1: 2}, noisy)[1] is RowOutcome.COUNTED
    assert fates_of(records, CAUGHT_UP, {1: 3}, noisy)[1] is RowOutcome.EITHER


def test_a_window_with_either_is_right_with_and_without_and_wrong_in_between() -> None:
    first, second = record_of(0, PLACES[0], 1010), record_of(2, PLACES[0], 1050, START_S + 2.1)
    second = msgspec.structs.replace(second, sku=first.sku)
    records = [first, record_of(1, PLACES[1], 5000, START_S + 2), second]
    records += [record_of(3 + index, place, FAR, START_S + 3) for index, place in enumerate(PLACES)]
    workload = msgspec.structs.replace(WORKLOAD, timing=CAUGHT_UP)
    oracle = oracle_of(workload, records)
    others = row_of(records[1].sku, 5000, [records[1]])
    for found in ([first], [first, second]):
        assert oracle.check([OracleHistory(frozenset(), {"windows": [[row_of(first.sku, 1000, found), others]]})]) == []
    wrong = row_of(first.sku, 1000, [first]) | {"orders": 2}
    assert oracle.check([OracleHistory(frozenset(), {"windows": [[wrong, others]]})])


# -- going back --------------------------------------------------------------------------------------------------------


AT_ONCE = msgspec.structs.replace(WORKLOAD, partitions=MOST_SUBTASKS)
"""No subtask is without a partition: a watermark waits for nobody's answer."""


def cut_at(number: int) -> tuple[frozenset[int], int]:
    """Records before it, and the watermark that they have brought."""
    done = frozenset(range(number))
    passed, _ = passed_by(RECORDS, done, TIMING)
    assert passed is not None
    return done, passed


def test_windows_that_were_closed_where_somebody_went_back_to_have_come_out_and_stay_closed() -> None:
    done, passed = cut_at(30)
    rows = streamed(RECORDS)["windows"][0]
    closed = [row for row in rows if row["window_end"] - 1 <= passed]
    later = [row for row in rows if row["window_end"] - 1 > passed]
    assert closed
    assert later

    def check(first: list[dict[str, Any]], second: list[dict[str, Any]], workload: Workload = AT_ONCE) -> str:
        histories = [OracleHistory(frozenset(), {"windows": [first]}), OracleHistory(done, {"windows": [second]})]
        return "; ".join(oracle_of(workload).check(histories))

    assert check(closed, later) == ""
    assert check(rows[: len(closed) + 2], later) == ""
    assert "have never come out" in check(closed[:-1], later)
    assert "came out again" in check(closed, rows)
    assert "lost" in check(closed, later[1:])
    for waited in (WORKLOAD, msgspec.structs.replace(AT_ONCE, timing=CAUGHT_UP)):  # for a subtask, for a partition
        assert check(rows, rows[len(closed) - 1 :], waited) == "", "watermarks wait for those that may be idle"
        assert "lost" in check(closed, later[1:], waited)


# -- windows of windows ------------------------------------------------------------------------------------------------


def wide_rows(records: list[InputRecord]) -> Rows:
    oracle = oracle_of(WIDE, records)
    rows: Rows = {"parts": [[]], "wide": [[]]}
    for topic, size_ms in (("parts", 100), ("wide", 300)):
        for name, pane in sorted(oracle.panes(topic).items(), key=lambda item: int(item[0][-1])):
            if int(name[-1]) >= FAR - 300:
                continue
            row = row_of("", int(name[-1]), pane.sure, size_ms) | {"customer": name[-2]}
            if topic == "wide":
                row["parts"] = len({(record.sku, record.event_ms // 100) for record in pane.sure})
            else:
                row["sku"] = name[0]
            rows[topic][0].append(row)
    return rows


def test_windows_of_windows_have_what_their_parts_have() -> None:
    output = wide_rows(RECORDS)
    assert problems_of(output, WIDE) == ""
    output["wide"][0][1]["parts"] += 1
    assert "was expected" in problems_of(output, WIDE)


# -- sessions ----------------------------------------------------------------------------------------------------------


def sessions_of(*records: tuple[int, int]) -> list[tuple[int, int, list[int]]]:
    """Of (partition, time): begin, end and records."""
    made = [record_of(number, PLACES[place], at) for number, (place, at) in enumerate(records)]
    same = [msgspec.structs.replace(record, sku="s0") for record in made]
    found = derive_sessions(same, TIMING)
    return sorted((one.first_ms, one.end_ms, [record.id for record in one.records]) for one in found)


def test_records_at_most_the_gap_apart_are_one_session_and_one_between_two_joins_them() -> None:
    assert sessions_of((0, 1000), (0, 1100), (0, 1201)) == [(1000, 1200, [0, 1]), (1201, 1301, [2])]
    assert sessions_of((0, 1000), (1, 1120), (1, 1080)) == [(1000, 1220, [0, 1, 2])]


def test_a_record_joins_no_session_that_its_partition_had_closed_and_is_late_where_its_own_was() -> None:
    assert sessions_of((0, 1000), (0, 1250), (0, 1155)) == [(1000, 1100, [0]), (1155, 1350, [1, 2])]
    assert sessions_of((0, 1000), (0, 1250), (0, 1090)) == [(1000, 1100, [0]), (1250, 1350, [1])]
    assert sessions_of((0, 1000), (0, 1250), (1, 1090)) == [(1000, 1190, [0, 2]), (1250, 1350, [1])]
    assert sessions_of((0, 1000), (1, 1150), (1, 1080)) == [(1000, 1100, [0]), (1080, 1250, [1, 2])]


def test_a_session_that_begins_where_an_older_one_did_is_another_one() -> None:
    """The first one was closed; a record of the same time is joined to a later one by a third record."""
    workload = msgspec.structs.replace(
        WORKLOAD, topology="session-windows", timing=msgspec.structs.replace(TIMING, delay_ms=0)
    )
    times = [(0, 1000), (0, 1101), (0, 1000), (0, 1050), (0, FAR), (1, FAR)]
    made = [record_of(number, PLACES[place], at) for number, (place, at) in enumerate(times)]
    oracle = oracle_of(workload, [msgspec.structs.replace(record, sku="s0") for record in made])
    first, second = made[:1], made[1:4]
    assert {("s0", "1000"): [1, 2, 3]}.items() <= {
        name: [record.id for record in pane.sure] for name, pane in oracle.panes("sessions").items()
    }.items()
    rows = [row_of("s0", 1000, first, 100), row_of("s0", 1000, second, 201)]
    assert oracle.check([OracleHistory(frozenset(), {"sessions": [rows]})]) == []
    rows[0]["revenue_cents"] += 1
    assert "belongs to no window" in "; ".join(oracle.check([OracleHistory(frozenset(), {"sessions": [rows]})]))


def test_a_rest_of_days_is_a_minute_of_the_schedule_where_windows_are_days() -> None:
    timing = msgspec.structs.replace(
        TIMING, size_ms=DAY_MS, zone=ZONE, first_ms=CHANGES_MS[0], disorder_ms=0, stray=0.0
    )
    times = EventTimeModel(1, timing)
    before, after = (times.next_ms(PLACES[0], START_MS + 40_000 + days * DAY_MS) for days in (0, 8))
    assert (before, after) == (CHANGES_MS[0] + 40_000 * DAYS, CHANGES_MS[0] + (40_000 + PAUSE_MS) * DAYS)
