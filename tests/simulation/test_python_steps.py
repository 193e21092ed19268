"""The oracle of steps in Python accepts what a step writes record by record, and sees every kind of wrong output."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec
import pytest

from tidegate.ids import TopicPartition
from tidegate.simulation.lateness import ObservedWatermark
from tidegate.simulation.python_steps import PythonOracle, derive_watermark_facts
from tidegate.simulation.shapes.oracle import OracleHistory
from tidegate.simulation.shapes.python_steps import AGAIN, NUMBERS, SILENT, PythonBatches, PythonVisits
from tidegate.simulation.shapes.shape import DEAD_TOPIC, LATE_TOPIC, Content
from tidegate.simulation.timing import Timing
from tidegate.simulation.workload import InputRecord, draw_workload

TIMING = Timing(size_ms=100, delay_ms=30, idle="never", disorder_ms=60, stray=0.2, silence=0.0, steady=False, lag_ms=0)
WORKLOAD = msgspec.structs.replace(
    draw_workload(1), timing=TIMING, partitions=2, exactly_once=True, bounded=False, noisy=False
)
PLACES: Final = [TopicPartition("orders", number) for number in range(2)]
VISITS = PythonVisits()
FAR = 1_000_000

Rows = dict[str, list[list[Any]]]


def records_of(seed: int, count: int = 200) -> list[InputRecord]:
    """Out of order, some late; the last ones let the watermark pass all others."""
    draw = random.Random(seed)
    times = [1000 + number * 10 - draw.randint(0, 60) - (number % 11 == 0) * 300 for number in range(count)]
    made = [
        InputRecord(draw.choice(PLACES), number, "c0", f"s{draw.randrange(8)}", 1, 1, "paid", at=at)
        for number, at in enumerate(times)
    ]
    far = [
        InputRecord(place, 8 * count + index, "c0", "far", 1, 1, "paid", at=FAR) for index, place in enumerate(PLACES)
    ]
    return [*made, *far]


class Streamed:
    """What the step writes if it reads records one after the other, from a restored state."""

    def __init__(self) -> None:
        self.output: Rows = {topic: [[]] for topic in VISITS.topics}
        self.highest: dict[TopicPartition, int] = {}
        self.numbers: Counter[str] = Counter()
        self.times: dict[str, list[int]] = defaultdict(list)
        self.failing: dict[str, int] = {}

    @property
    def watermark(self) -> int:
        return min(self.highest.values()) - TIMING.delay_ms - 1 if len(self.highest) == len(PLACES) else -1

    def read(self, records: Sequence[InputRecord]) -> Rows:
        for one in records:
            if VISITS.fails(one):
                self.write(DEAD_TOPIC, None, {"id": one.id})
            elif one.event_ms <= self.watermark:
                self.write(LATE_TOPIC, None, {"id": one.id})
            else:
                self.count(one)
            self.highest[one.place] = max(one.event_ms, self.highest.get(one.place, 0))
            self.fire()
        return self.output

    def count(self, one: InputRecord) -> None:
        self.numbers[one.sku] += 1
        self.times[one.sku].append(one.event_ms)
        if self.numbers[one.sku] == 1:
            self.failing[one.sku] = one.event_ms + TIMING.size_ms
        self.write(NUMBERS, one.sku, {"id": one.id, "sku": one.sku, "number": self.numbers[one.sku]})
        self.write(AGAIN, one.sku, {"id": one.id, "sku": one.sku})

    def fire(self) -> None:
        for sku in [sku for sku, due in self.failing.items() if due <= self.watermark]:
            del self.failing[sku]
            self.write(DEAD_TOPIC, None, {"id": sku})
        for sku, times in self.times.items():
            times.sort()
            while times:
                gaps = [other - one > TIMING.size_ms for one, other in pairwise(times)]
                size = gaps.index(True) + 1 if True in gaps else len(times)
                if times[size - 1] + TIMING.size_ms > self.watermark:
                    break
                self.write(SILENT, sku, {"sku": sku, "last_ms": times[size - 1], "records": size})
                del times[:size]

    def write(self, topic: str, key: str | None, row: dict[str, Any]) -> None:
        content = Content(None if key is None else key.encode(), row)
        self.output[topic][0].append(row if topic == DEAD_TOPIC else content)


def oracle_of(records: Sequence[InputRecord]) -> PythonOracle:
    timed = derive_watermark_facts(WORKLOAD, TIMING, ObservedWatermark(records, frozenset(), {}))
    return PythonOracle(VISITS, records, timed)


def problems_of(records: Sequence[InputRecord], *outputs: Rows, done: int = 0) -> str:
    """Of one history, or of two, the second of which goes on after so many records."""
    before = frozenset(one.id for one in records[:done])
    histories = [OracleHistory(before if index else frozenset(), output) for index, output in enumerate(outputs)]
    return "; ".join(oracle_of(records).check(histories))


@pytest.mark.parametrize("seed", range(4))
def test_what_the_step_writes_is_right_and_complete(seed: int) -> None:
    records = records_of(seed)
    output = Streamed().read(records)
    assert min(len(output[topic][0]) for topic in VISITS.topics) >= 8
    assert problems_of(records, output) == ""
    oracle = oracle_of(records)
    named = {
        topic: {VISITS.name_of(topic, one) for one in rows[0]} for topic, rows in output.items() if topic != DEAD_TOPIC
    }
    named[DEAD_TOPIC] = {row["id"] for row in output[DEAD_TOPIC][0]}
    assert oracle.is_complete(frozenset(), named, named)
    for topic, names in named.items():
        last = [name for name in names if topic != DEAD_TOPIC or name != "far"][-1]
        assert not oracle.is_complete(frozenset(), {**named, topic: names - {last}}, named), topic
    assert oracle.count([OracleHistory(frozenset(), output)])["timers of Python steps that fail"] == 8


def test_what_follows_a_restored_savepoint_is_right() -> None:
    """What came out after the savepoint comes again, and numbers go on with those of the savepoint."""
    records, done = records_of(1), 90
    step = Streamed()
    step.read(records[:done])
    restored = msgspec.msgpack.decode(msgspec.msgpack.encode([step.numbers, step.times, step.failing]))
    before = step.read(records[done : done + 20])
    again = Streamed()
    again.numbers, again.failing = Counter(restored[0]), restored[2]
    again.times.update(restored[1])
    again.highest = {place: max(one.event_ms for one in records[:done] if one.place == place) for place in PLACES}
    after = again.read(records[done:])
    assert problems_of(records, before, after, done=done) == ""
    assert "came again" in problems_of(records, before, before, done=done)
    del after[SILENT][0][0]
    assert "missing" in problems_of(records, before, after, done=done)


def _drop(topic: str, index: int) -> Callable[[Rows], None]:
    def change(output: Rows) -> None:
        del output[topic][0][index]

    return change


def _double(topic: str, index: int) -> Callable[[Rows], None]:
    def change(output: Rows) -> None:
        output[topic][0].append(output[topic][0][index])

    return change


def _replace(topic: str, index: int, **values: Any) -> Callable[[Rows], None]:
    def change(output: Rows) -> None:
        one = output[topic][0][index]
        row = {**(one if topic == DEAD_TOPIC else one.row), **values}
        output[topic][0][index] = row if topic == DEAD_TOPIC else msgspec.structs.replace(one, row=row)

    return change


def _swap(topic: str) -> Callable[[Rows], None]:
    """Swaps the first two rows of a key."""

    def change(output: Rows) -> None:
        rows = output[topic][0]
        other = next(index for index, one in enumerate(rows) if index and one.key == rows[0].key)
        rows[0], rows[other] = rows[other], rows[0]

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_drop(NUMBERS, 50), "numbers: 1 rows are missing"),
        (_drop(AGAIN, 50), "again: 1 rows are missing"),
        (_drop(SILENT, 5), "silent: 1 rows are missing"),
        (_drop(DEAD_TOPIC, 5), "dead: 1 rows are missing"),
        (_double(NUMBERS, 50), "more than once"),
        (_double(AGAIN, 50), "more than once"),
        (_double(SILENT, 5), "more than once"),
        (_double(DEAD_TOPIC, 5), "more than once"),
        (_replace(NUMBERS, 20, number=99), "comes after number"),
        (_replace(NUMBERS, 20, sku="s9"), "another key"),
        (_replace(SILENT, 3, records=99), "was expected"),
        (_replace(LATE_TOPIC, 0, id=1), "are not late"),
        (_replace(LATE_TOPIC, 0, id=3), "although the step fails"),
        (_replace(DEAD_TOPIC, 3, id=1), "without a cause"),
        (_replace(DEAD_TOPIC, 3, id="s9"), "no key whose timer fails"),
        (_swap(NUMBERS), "comes after number"),
        (_swap(AGAIN), "comes after a later record"),
        (_swap(SILENT), "comes after one of"),
    ],
)
def test_every_kind_of_wrong_output_is_seen(change: Callable[[Rows], None], told: str) -> None:
    records = records_of(2)
    output = Streamed().read(records)
    change(output)
    assert told in problems_of(records, output)


def test_a_silence_that_no_watermark_has_reached_is_seen() -> None:
    records = records_of(1)
    output = Streamed().read(records)
    output[SILENT][0].append(Content(b"far", {"sku": "far", "last_ms": FAR, "records": 2}))
    assert "no watermark" in problems_of(records, output)


def test_batches_number_what_does_not_fail_and_keep_the_headers_of_their_records() -> None:
    shape = PythonBatches()
    records = records_of(1, 60)
    numbers: Counter[str] = Counter()
    output: Rows = {NUMBERS: [[]], DEAD_TOPIC: [[]]}
    for one in records:
        if shape.fails(one):
            output[DEAD_TOPIC][0].append({"id": one.id})
            continue
        numbers[one.sku] += 1
        row = {"id": one.id, "sku": one.sku, "number": numbers[one.sku]}
        output[NUMBERS][0].append(Content(one.sku.encode(), row, tuple(shape.dress(one, 0).headers)))
    oracle = PythonOracle(shape, records, None)
    assert oracle.check([OracleHistory(frozenset(), output)]) == []
    first, second = output[NUMBERS][0][:2]
    output[NUMBERS][0][0] = msgspec.structs.replace(first, headers=second.headers)
    assert "headers of another" in oracle.check([OracleHistory(frozenset(), output)])[0]
