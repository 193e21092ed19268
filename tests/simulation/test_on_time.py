"""The oracle of joins and absence accepts what a streaming computation writes, and sees every kind of wrong output."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import pytest

from tidegate.ids import TopicPartition
from tidegate.simulation.kernel import START_S
from tidegate.simulation.lateness import ObservedWatermark
from tidegate.simulation.on_time import OnTimeOracle
from tidegate.simulation.shapes.joined import LEFT, REPEAT_MS, RIGHT, IntervalJoin, Quiet, WindowJoin, _Join, key_of
from tidegate.simulation.shapes.oracle import OracleHistory
from tidegate.simulation.shapes.shape import LATE_TOPIC, Content, OnTimeShape, alternate
from tidegate.simulation.timing import Timing
from tidegate.simulation.workload import InputRecord, draw_workload

TIMING = Timing(size_ms=100, delay_ms=30, idle="never", disorder_ms=60, stray=0.2, silence=0.0, steady=False, lag_ms=0)
CAUGHT_UP = msgspec.structs.replace(TIMING, idle="caught-up")
WORKLOAD = msgspec.structs.replace(
    draw_workload(1), timing=TIMING, partitions=2, exactly_once=True, bounded=False, noisy=False
)
SHAPES: Final[Mapping[str, OnTimeShape]] = {
    **{f"join-{rows}": IntervalJoin(rows) for rows in ("inner", "left", "right", "full", "semi", "anti")},
    "window-join": WindowJoin("full"),
    "quiet": Quiet(),
}
JOINS = [name for name in SHAPES if name != "quiet"]
PLACES = [TopicPartition(topic, number) for topic in (LEFT, RIGHT) for number in range(2)]
FAR = 1_000_000

Rows = dict[str, list[list[Content]]]


def record_of(number: int, place: TopicPartition, at: int, sku: str = "s0", arrived_s: float = START_S) -> InputRecord:
    return InputRecord(
        place=place,
        id=number,
        customer="c0",
        sku=sku,
        quantity=number * 7 % 5 + 1,
        price_cents=1,
        status="paid",
        at=at,
        arrived_s=arrived_s,
    )


def records_of(seed: int, count: int = 100) -> list[InputRecord]:
    """Out of order, some late; the last ones let the watermark pass all others."""
    draw = random.Random(seed)
    made = [
        record_of(
            number,
            draw.choice(PLACES),
            1000 + number * 10 - draw.randint(0, 60) - (number % 11 == 0) * 200,
            f"s{draw.randrange(4)}",
        )
        for number in range(count)
    ]
    return [*made, *(record_of(count + index, place, FAR, f"far{index}") for index, place in enumerate(PLACES))]


def split(records: Sequence[InputRecord], *, windows: bool = False) -> tuple[list[InputRecord], list[InputRecord]]:
    """The records that are not late by their own partition, and the others."""
    highest: dict[TopicPartition, int] = {}
    taken: list[InputRecord] = []
    late: list[InputRecord] = []
    for record in records:
        at, before = record.event_ms, highest.get(record.place)
        open_until = at // 100 * 100 + 99 if windows else at
        (late if before is not None and open_until <= before - TIMING.delay_ms - 1 else taken).append(record)
        highest[record.place] = at if before is None else max(at, before)
    return taken, late


def streamed(name: str, records: Sequence[InputRecord]) -> Rows:
    """Joins every record with those before it, and adds the unmatched ones in the end."""
    shape = SHAPES[name]
    assert isinstance(shape, _Join)
    taken, late = split(records, windows=name == "window-join")
    pairs: list[tuple[int | None, int | None]] = []
    partners: dict[int, list[int]] = defaultdict(list)
    for index, record in enumerate(taken):
        for other in taken[:index]:
            if (
                record.place.topic == other.place.topic
                or record.sku != other.sku
                or None in (key_of(record), key_of(other))
            ):
                continue
            left, right = (record, other) if record.place.topic == LEFT else (other, record)
            near = -25 <= right.event_ms - left.event_ms <= 100
            if name == "window-join":
                near = left.event_ms // 100 == right.event_ms // 100
            if near and (right.quantity > 1 or left.quantity > 2):
                if shape.rows == "semi" and not partners[left.id]:
                    pairs.append((left.id, None))
                elif shape.rows not in ("semi", "anti"):
                    pairs.append((left.id, right.id))
                partners[left.id].append(right.id)
                partners[right.id].append(left.id)
    for record in taken:
        if partners[record.id] or record.event_ms == FAR:
            continue
        if record.place.topic == LEFT and shape.rows in ("left", "full", "anti"):
            pairs.append((record.id, None))
        if record.place.topic == RIGHT and shape.rows in ("right", "full"):
            pairs.append((None, record.id))
    skus = {record.id: key_of(record) for record in records}
    both = {} if shape.rows in ("semi", "anti") else {"payment": None}
    rows = [
        {"sku": skus[right if left is None else left], "id": left, **({"payment": right} if both else {})}  # type: ignore[index]  # one is there
        for left, right in pairs
    ]
    contents = [Content(None if row["sku"] is None else str(row["sku"]).encode(), row) for row in rows]
    return {"pairs": [contents], LATE_TOPIC: [[late_row(record) for record in late if key_of(record)]]}


def late_row(record: InputRecord) -> Content:
    side = "order" if record.place.topic == LEFT else "payment"
    own = {"id": record.id} if side == "order" else {"payment": record.id}
    return Content(None, {"order": None, "payment": None, side: own, "_side": side})


def oracle_of(name: str, records: Sequence[InputRecord], timing: Timing = TIMING) -> OnTimeOracle:
    shape = SHAPES[name]
    workload = msgspec.structs.replace(WORKLOAD, timing=timing)
    return OnTimeOracle(shape, workload, timing, ObservedWatermark(records, frozenset(), {}))


def problems_of(name: str, records: Sequence[InputRecord], output: Rows, timing: Timing = TIMING) -> str:
    return "; ".join(oracle_of(name, records, timing).check([OracleHistory(frozenset(), output)]))


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("seed", range(4))
def test_what_a_streaming_join_writes_is_right(name: str, seed: int) -> None:
    records = records_of(seed)
    output = streamed(name, records)
    assert len(output["pairs"][0]) > 10
    assert output[LATE_TOPIC][0]
    assert problems_of(name, records, output) == ""
    oracle = oracle_of(name, records)
    named = {topic: {SHAPES[name].name_of(topic, one) for one in rows[0]} for topic, rows in output.items()}
    assert oracle.is_complete(frozenset(), named, named)
    assert not oracle.is_complete(frozenset(), {**named, LATE_TOPIC: set()}, named)
    assert not oracle.is_complete(frozenset(), {**named, "pairs": set(list(named["pairs"])[1:])}, named)


@pytest.mark.parametrize("name", JOINS)
def test_a_row_that_is_missing_and_one_that_comes_twice_are_seen(name: str) -> None:
    records = records_of(1)
    output = streamed(name, records)
    row = output["pairs"][0].pop(3)
    assert "missing" in problems_of(name, records, output)
    output["pairs"][0] += [row, row]
    assert "more than once" in problems_of(name, records, output)


def test_an_unmatched_row_that_has_a_partner_is_seen() -> None:
    records = records_of(1)
    output = streamed("join-left", records)
    pair = next(one.row for one in output["pairs"][0] if one.row and one.row["payment"] is not None)
    output["pairs"][0].append(Content(str(pair["sku"]).encode(), {**pair, "payment": None}))
    assert "unexpected" in problems_of("join-left", records, output)


def test_an_unmatched_row_that_no_watermark_has_reached_is_seen() -> None:
    records = records_of(1)
    output = streamed("join-anti", records)
    last = records[100]
    output["pairs"][0].append(Content(last.sku.encode(), {"sku": last.sku, "id": last.id}))
    assert "no watermark" in problems_of("join-anti", records, output)


def test_a_late_row_that_is_joined_and_one_that_is_not_late_are_seen() -> None:
    records = records_of(1)
    output = streamed("join-full", records)
    lost = output[LATE_TOPIC][0].pop()
    assert "are missing" in problems_of("join-full", records, output)
    taken, _ = split(records)
    output[LATE_TOPIC][0] += [lost, late_row(taken[5])]
    assert "not late" in problems_of("join-full", records, output)


def test_where_a_record_may_be_late_the_late_rows_decide() -> None:
    """The partition of the payment was silent, and the order's watermark is far ahead when it comes."""
    orders, payments = PLACES[0], PLACES[2]
    records = [
        record_of(0, payments, 1000),
        record_of(1, orders, 1020),
        record_of(2, orders, 5000, arrived_s=START_S + 2),
        record_of(3, payments, 1050, arrived_s=START_S + 2.1),
    ]
    records += [record_of(4 + index, place, FAR, f"far{index}", START_S + 3) for index, place in enumerate(PLACES)]
    records = [msgspec.structs.replace(one, quantity=3) for one in records]
    first = [row("s0", 1, 0), row("s0", 2, None)]
    taken: Rows = {"pairs": [[*first, row("s0", 1, 3)]], LATE_TOPIC: [[]]}
    late: Rows = {"pairs": [first], LATE_TOPIC: [[late_row(records[3])]]}
    neither: Rows = {"pairs": [first], LATE_TOPIC: [[]]}
    assert problems_of("join-left", records, taken, CAUGHT_UP) == ""
    assert problems_of("join-left", records, late, CAUGHT_UP) == ""
    assert "missing" in problems_of("join-left", records, neither, CAUGHT_UP)
    assert "unexpected" in problems_of("join-left", records, {**taken, LATE_TOPIC: late[LATE_TOPIC]}, CAUGHT_UP)
    assert "not late" in problems_of("join-left", records, late), "nothing is ever idle"


def row(sku: str, left: int | None, right: int | None) -> Content:
    return Content(sku.encode(), {"sku": sku, "id": left, "payment": right})


def test_behind_a_place_to_which_somebody_went_back_pairs_come_again_and_others_do_not() -> None:
    records = [record_of(number, PLACES[number % 2 * 2], 1000 + number) for number in range(4)]
    records += [record_of(4 + index, place, FAR, f"far{index}") for index, place in enumerate(PLACES)]
    records = [msgspec.structs.replace(one, quantity=3) for one in records]
    first, later = [row("s0", 0, 1)], [row("s0", 0, 3), row("s0", 2, 1), row("s0", 2, 3)]

    def check(before: list[Content], after: list[Content]) -> str:
        histories = [
            OracleHistory(frozenset(), {"pairs": [before], LATE_TOPIC: [[]]}),
            OracleHistory(frozenset({0, 1}), {"pairs": [after], LATE_TOPIC: [[]]}),
        ]
        return "; ".join(oracle_of("join-inner", records).check(histories))

    assert check(first, later) == ""
    assert check([*first, later[0]], later) == ""
    assert "came again" in check(first, [*first, *later])
    assert "missing" in check(first, later[1:])
    assert "missing" in check([], later)


def test_absence_is_what_the_event_times_of_a_key_say() -> None:
    place = PLACES[0]
    records = [record_of(number, place, at) for number, at in enumerate((1000, 1100, 1080, 1301, 1400))]
    records.append(record_of(5, place, FAR))
    made = Quiet().derive(records[:-1], TIMING)
    assert [(one.content.row, one.due_ms) for one in made[:3]] == [
        ({"sku": "s0", "quiet": True, "last_ms": 1100}, 1200),
        ({"sku": "s0", "quiet": False, "last_ms": 1100}, 1301),
        ({"sku": "s0", "quiet": True, "last_ms": 1400}, 1500),
    ]
    rows = [one.content for one in Quiet().derive(records, TIMING) if one.due_ms is not None and one.due_ms < FAR]
    output: Rows = {
        "silent": [[*rows, Content(b"s0", {"sku": "s0", "quiet": False, "last_ms": 1400})]],
        LATE_TOPIC: [[]],
    }
    assert "no watermark" in problems_of("quiet", records, output)
    output["silent"][0].pop()
    assert problems_of("quiet", records, output) == ""
    output["silent"][0].append(rows[0])
    assert "unexpected" in problems_of("quiet", records, output)


def test_behind_a_place_to_which_somebody_went_back_a_silence_is_repeated_from_there_on() -> None:
    """The records do not show where: what came out before may come again, and every repetition must have come out."""
    times = 4
    last_ms = 1100 + (times - 1) * REPEAT_MS + TIMING.delay_ms + 1
    records = [record_of(0, PLACES[0], 1000), record_of(1, PLACES[0], last_ms, "far")]

    def check(before: int, after: int, done: frozenset[int] = frozenset({0})) -> str:
        silence = Content(b"s0", {"sku": "s0", "quiet": True, "last_ms": 1000})
        outputs: list[Rows] = [{"silent": [[silence] * count], LATE_TOPIC: [[]]} for count in (before, after)]
        histories = [
            OracleHistory(frozenset(), outputs[0]),
            OracleHistory(done, outputs[1]),
        ]
        return "; ".join(oracle_of("quiet", records).check(histories))

    assert [check(before, times - before) for before in range(times)] == [""] * times
    assert check(times, times) == check(3, 2) == check(times, 0) == ""
    assert "missing" in check(1, times - 2)
    assert "no watermark" in check(1, times + 1)
    assert "missing" in check(1, times - 1, frozenset())


def test_inputs_take_turns_in_being_silent_for_longer_than_it_takes_to_be_idle() -> None:
    chosen: list[Any] = [tuple(alternate(["a", "b"], moment / 10)) for moment in range(60)]
    assert [sum(one == other for one in chosen) for other in (("a", "b"), ("a",), ("b",))] == [22, 17, 21]
