"""Replayed dead letters through the slots' own code: only the step that failed sees the row again, exactly once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.depth import DEPTH
from tests.testing.lettered import BEGIN_MS, PARTS, Record, dead_letter_of, order
from tests.testing.pipelines import load
from tidegate.coordinator.types import SourcePositions
from tidegate.formats.dead_letters.letter import DeadLetter, derive_retry_headers
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.builtin.retry import RETRY
from tidegate.plan.assignment import assign_partitions
from tidegate.plan.graph import Plan
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness, HarnessSnapshot
from tidegate.testing.parts import VirtualClock, WrittenRecord

PIPELINE = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
parallelism: 2
dead_letters: {topic: orders-dead, retry_topic: orders-retry, max_per_minute: unlimited}
sources:
  orders:
    topics: [orders, more]
    schema: {id: bigint, n: int, customer: string, at: timestamp, items: "array<string>"}
    bad_records: dead-letter
steps:
  - {name: wanted, from: orders, where: n < 1000}
  - {name: shares, from: wanted, select: {id: id, share: 100 div n, customer: customer, at: at}}
  - {name: named, from: shares, async: "tests.testing.test_retries:name_of", output: {name: string}, retries: 0}
  - {name: sums, from: wanted, key: customer, aggregate: {total: sum(n)}}
  - {name: odd, from: sums, select: {customer: customer, total: total, odd: 1 div (total % 5)}}
  - {name: each_item, from: orders, explode: {items: item}}
  - {name: prices, from: each_item, select: {id: id, price: cast(item as int)}}
sinks:
  out: {from: named, topic: out, key: customer, timestamp: at}
  totals: {from: sums, topic: totals, key: customer}
  odds: {from: odd, topic: odds, key: customer}
  prices_out: {from: prices, topic: prices}
  copy: {from: orders, topic: copy}
"""
FIXED = (
    PIPELINE.replace("100 div n", '"100 div greatest(n, 1)"')
    .replace("1 div (total % 5)", "0")
    .replace("cast(item as int)", '"coalesce(try_cast(item as int), -1)"')
    .replace("name_of", "any_name_of")
    .replace(", timestamp: at", "")
)
RETRIES = [TopicPartition("orders-retry", number) for number in range(3)]
AT = ("2026-01-01T00:00:00Z", "1969-01-01T00:00:00Z")
Written = dict[OperatorName, list[WrittenRecord]]


async def name_of(row: dict[str, object]) -> dict[str, object]:
    if row["id"] in (13, 14):
        raise ValueError("nobody has that one")
    return {"name": "somebody"}


async def any_name_of(row: dict[str, object]) -> dict[str, object]:
    return {"name": "anybody"}


class World:
    """A pipeline over several lives, on the same topics."""

    def __init__(self, history: Mapping[TopicPartition, Sequence[Record]], seed: int = 0) -> None:
        self.log = Log({**{part: len(records) for part, records in history.items()}, **dict.fromkeys(RETRIES, 0)})
        self.clock = VirtualClock(BEGIN_MS)
        self.chance = random.Random(seed)
        self.snapshot: HarnessSnapshot | None = None
        for part, records in history.items():
            for key, value, headers in records:
                self.log.append(part, key, value, BEGIN_MS, headers)

    def replay(self, letters: Sequence[DeadLetter]) -> None:
        """Writes letters to the retry topic, as the command does."""
        for number, letter in enumerate(letters):
            part = self.chance.choice(RETRIES)
            headers = derive_retry_headers(letter, f"orders-dead[0]@{number}")
            self.log.append(part, letter.key, letter.value, BEGIN_MS, tuple(headers))

    def play(self, pipeline: str, lives: int = 0) -> Written:
        """Runs until nothing moves. Lives end without a word at any turn, after a checkpoint at any other."""
        _, plan = load("", pipeline)
        written: Written = {}
        for life in range(lives + 1):
            self.snapshot = None if self.snapshot is None else rescale(self.snapshot, plan)
            harness = Harness(plan, self.log, self.clock, lambda _: None, self.snapshot)
            try:
                for _ in range(self.chance.randint(0, 12) if life < lives else 0):
                    harness.turn()
                if life == lives:
                    harness.settle()
                self.snapshot = harness.snapshot()
                for name, new in self.snapshot.written.items():
                    written.setdefault(name, []).extend(new)
                for _ in range(self.chance.randint(0, 6) if life < lives else 0):
                    harness.turn()  # lost with the life
            finally:
                harness.close()
        return written


def rescale(snapshot: HarnessSnapshot, plan: Plan) -> HarnessSnapshot:
    """The same checkpoint, for any parallelism."""
    acks = [ack for of in snapshot.acks for ack in of]
    offsets: dict[OperatorName, dict[TopicPartition, int]] = {}
    for ack in acks:
        for positions in ack.positions:
            offsets.setdefault(positions.source, {}).update(positions.next_offsets)
    shared = [msgspec.structs.replace(ack, positions=()) for ack in acks]
    slots = []
    for slot in range(plan.parallelism):
        placed = []
        for source in plan.operators(SourceOperator):
            mine = assign_partitions(sorted(offsets[source.name]), plan.parallelism)[slot]
            placed.append(SourcePositions(source.name, tuple((part, offsets[source.name][part]) for part in mine)))
        own = msgspec.structs.replace(shared[0], states=(), positions=tuple(placed))
        slots.append((own, *(shared if not slot else ())))
    empty: dict[OperatorName, frozenset[TopicPartition]] = {
        source.name: frozenset() for source in plan.operators(SourceOperator)
    }
    return HarnessSnapshot(tuple(slots), (empty,) * plan.parallelism, {}, snapshot.storage)


def values(written: Written, sink: str) -> list[Any]:
    return [json.loads(record.value or b"null") for record in written.get(OperatorName(sink), [])]


def letters_of(written: Written) -> list[DeadLetter]:
    return [dead_letter_of(record) for record in written.get(DEAD_LETTERS, [])]


def history_of(*records: bytes) -> dict[TopicPartition, list[Record]]:
    found: dict[TopicPartition, list[Record]] = {part: [] for part in PARTS}
    for number, value in enumerate(records):
        found[PARTS[number % len(PARTS)]].append((b"k", value, (("h", b"%d" % number),)))
    return found


def mixed(records: int, seed: int) -> dict[TopicPartition, list[Record]]:
    """Records of which about half fail somewhere."""
    chance = random.Random(seed)
    ids = [13, 14, *range(100, 100 + records)]
    return history_of(
        *(
            order(
                number,
                n=2 if number < 100 else chance.choice((0, 1, 2)),
                at="2026-01-01T00:00:00Z" if number < 100 else chance.choice(AT),
                items=[chance.choice(("1", "x")) for _ in range(chance.randint(0, 3))],
            )
            for number in ids
        )
    )


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_every_row_passes_its_step_once_however_often_the_pipeline_dies(seed: int) -> None:
    """With barriers that overtake, calls under way, lives that end at any turn, and another parallelism."""
    history = mixed(60, seed)
    world = World(history, seed)
    first = world.play(PIPELINE, lives=2)
    letters = letters_of(first)
    steps = Counter(one.step for one in letters)
    assert {"shares", "odd", "prices", "out", "named"} <= set(steps), steps
    world.replay(letters)
    again = world.play(FIXED.replace("parallelism: 2", f"parallelism: {1 + seed % 3}"), lives=4)
    assert not letters_of(again), letters_of(again)[:1]
    assert len(values(again, "out")) == steps["shares"] + steps["named"] + steps["out"]
    assert len(values(again, "odds")) == steps["odd"]
    assert len(values(again, "prices_out")) == steps["prices"]
    assert not values(again, "totals")
    assert not values(again, "copy")
    ids = Counter(one["id"] for written in (first, again) for one in values(written, "out"))
    assert ids == Counter(json.loads(value or b"")["id"] for records in history.values() for _, value, _ in records)


def test_a_row_that_fails_again_is_a_letter_about_its_original_record() -> None:
    world = World(history_of(order(7, n=0), order(13)))
    letters = letters_of(world.play(PIPELINE))
    assert {one.step: one.tries for one in letters} == {"shares": 0, "named": 0, "odd": 0}
    for tries in (1, 2):
        world.replay(letters)
        again = letters_of(world.play(PIPELINE, lives=3))
        assert sorted(map(about, again)) == sorted(map(about, letters))
        assert {one.tries for one in again} == {tries}
        for before, after in zip(*(sorted(some, key=about) for some in (letters, again)), strict=True):
            rows = [json.loads(one.row or "") for one in (before, after)]
            assert rows[1].items() <= rows[0].items(), "columns that the step does not need may be gone"
        letters = again


def about(letter: DeadLetter) -> tuple[Any, ...]:
    return letter.step, letter.kind, letter.place, letter.key, letter.value, letter.headers, letter.known


HEAD = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere, mode: MODE}
parallelism: 2
dead_letters: {topic: orders-dead, retry_topic: orders-retry}
sources:
  orders: {topic: orders, SOURCE bad_records: dead-letter}
"""
SCHEMA = "schema: {id: bigint, n: int, customer: string, at: timestamp},"
TIMED = SCHEMA + " event_time: at, watermark: {delay: 1h},"
SHAPES = {
    "a sink that passes headers on": (
        SCHEMA,
        """\
sinks:
  out: {from: orders, topic: out, key: customer, headers: {pass: all}, timestamp: at}
""",
        (", timestamp: at", ""),
    ),
    "a step in front of a window": (
        TIMED,
        """\
steps:
  - {name: halves, from: orders, select: {half: 10 div n}}
  - {name: sums, from: halves, key: half, window: {tumbling: 1h}, aggregate: {all: count(*)}}
sinks: {out: {from: sums, topic: out, key: half}}
""",
        ("10 div n", '"10 div greatest(n, 1)"'),
    ),
    "a step in Python with state by key": (
        SCHEMA,
        """\
steps:
  - name: visits
    from: orders
    key: customer
    python: tests.testing.retried_steps:Strict
    output: {customer: string, id: bigint}
sinks: {out: {from: visits, topic: out, key: customer}}
""",
        (":Strict", ":Lenient"),
    ),
    "a condition behind totals by key": (
        SCHEMA,
        """\
steps:
  - {name: sums, from: orders, key: id, aggregate: {total: sum(n)}}
  - {name: wanted, from: sums, where: 10 div total >= 0}
  - {name: more, from: wanted, key: total, aggregate: {ids: count(*)}}
sinks: {out: {from: more, topic: out, key: total}}
""",
        ("10 div total >= 0", "total >= 0"),
    ),
    "one side of a join": (
        TIMED,
        """\
steps:
  - {name: halves, from: orders, select: {id: id, half: 10 div n}}
  - name: pairs
    join: {o: orders, h: halves}
    on: {id: id}
    within: {before: 1h, after: 1h}
    select: {id: o.id, half: h.half}
sinks: {out: {from: pairs, topic: out, key: id}}
""",
        ("10 div n", '"10 div nullif(n, 0)"'),
    ),
    "a union and a route": (
        SCHEMA,
        """\
steps:
  - {name: kinds, from: orders, route: {odd: n % 2 = 1, rest: else}}
  - {name: both, from: [kinds.odd, kinds.rest]}
  - {name: shares, from: both, select: {id: id, share: 100 div n}}
sinks: {out: {from: shares, topic: out, key: id}}
""",
        ("100 div n", '"100 div greatest(n, 1)"'),
    ),
}


@pytest.mark.parametrize(
    ("shape", "mode"),
    [*((shape, "exactly-once") for shape in SHAPES), ("a condition behind totals by key", "at-least-once")],
)
def test_after_a_correction_and_a_replay_all_is_as_if_it_had_been_correct_from_the_beginning(
    shape: str, mode: str
) -> None:
    source, steps, (wrong, right) = SHAPES[shape]
    pipeline = HEAD.replace("MODE", mode).replace("SOURCE", source) + steps
    history: dict[TopicPartition, list[Record]] = {PARTS[0]: []}
    for number in range(9):
        year = 1969 if number == 4 and "timestamp: at" in steps else 2026
        value = order(number, n=number % 3, at=f"{year}-01-01T00:{number:02}:00Z")
        history[PARTS[0]].append((b"k", value, HEADERS))
    world = World(history, 1)
    first = world.play(pipeline)
    letters = letters_of(first)
    assert letters
    world.replay(letters)
    correct = pipeline.replace(wrong, right)
    again = world.play(correct, lives=2 if mode == "exactly-once" else 0)
    assert not letters_of(again)
    model = World(history)
    expected = results(model.play(correct))
    for one in (world, model):  # a day later, when windows are over
        one.log.append(PARTS[0], None, order(9, n=1, at="2026-01-02T00:00:00Z"), BEGIN_MS)
    assert results(first) + results(again) + results(world.play(correct)) == expected + results(model.play(correct))


HEADERS = (("h", b"1"), ("h", None))


def results(written: Written) -> Counter[object]:
    return Counter((one.key, one.value, tuple(one.headers or ())) for one in written.get(OperatorName("out"), []))


def test_a_row_that_does_not_fit_in_the_slot_is_a_letter_again_and_fits_when_the_step_is_as_before() -> None:
    """The step was changed after the replay: nothing is lost, and nothing stops."""
    world = World(history_of(order(7, n=0)))
    letters = [one for one in letters_of(world.play(PIPELINE)) if one.step == "shares"]
    world.replay(letters)
    world.log.append(RETRIES[0], b"k", b"v", BEGIN_MS, (("h", b"1"),))
    other = FIXED.replace("n: int", "n: bigint")
    found = {one.step: one for one in letters_of(world.play(other))}
    assert {one.kind for one in found.values()} == {"CANNOT_RETRY"}
    (again, foreign) = (found[step] for step in ("shares", RETRY))
    assert again.message == "the column `n` of `shares` is now bigint; in the row it is int"
    assert about(again)[:1] + about(again)[2:] == about(letters[0])[:1] + about(letters[0])[2:]
    assert (again.row, again.port, again.tries) == (letters[0].row, 0, 1)
    assert foreign.message == "is not a replayed dead letter of orders"
    assert (foreign.place, foreign.key, foreign.value) == (
        "orders-retry[0] offset 0",
        b"k",
        b"v",
    ) or foreign.value == b"v"
    world.replay([again])
    assert [one["id"] for one in values(world.play(FIXED), "out")] == [7]


def test_a_row_for_a_lookup_waits_until_its_table_is_loaded() -> None:
    """The table is long: the row would find nothing in it."""
    pipeline = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
dead_letters: {topic: orders-dead, retry_topic: orders-retry}
sources:
  orders: {topic: orders, schema: {id: bigint, n: int}, bad_records: dead-letter}
  names: {topic: more, schema: {id: bigint, name: string}, bad_records: dead-letter}
steps:
  - {name: name, from: names, table: {key: id}}
  - {name: halves, from: orders, select: {id: id, half: 10 div n}}
  - {name: named, from: halves, lookup: name, on: {id: id}, add: {name: name.name}}
sinks: {out: {from: named, topic: out, key: id}}
"""
    names = [(None, json.dumps({"id": number, "name": f"n{number}"}).encode(), ()) for number in range(500)]
    world = World({PARTS[0]: [(None, order(499, n=0), ())], PARTS[2]: names})
    letters = letters_of(world.play(pipeline))
    world.replay(letters)
    world.snapshot = None  # the table begins from nothing, as after `--reset`
    written = world.play(pipeline.replace("half: 10 div n", "half: n"))
    assert values(written, "out") == [{"id": 499, "half": 0, "name": "n499"}] * 2


LATE = (
    HEAD.replace("MODE", "exactly-once").replace("SOURCE", TIMED)
    + """\
steps:
  - {name: halves, from: orders, select: {half: 10 div n}}
  - {name: sums, from: halves, key: half, window: {tumbling: 1h}, aggregate: {all: count(*)}, late: late_rows}
sinks:
  out: {from: sums, topic: out, key: half}
  late_rows: {topic: late}
"""
)


def test_a_row_may_be_late_when_it_comes_back_and_is_then_handled_as_late() -> None:
    """Its window was over before the replay."""
    minute = order(1, n=0, at="2026-01-01T00:01:00Z")
    world = World({PARTS[0]: [(None, minute, ()), (None, order(2, n=1, at="2026-01-02T00:00:00Z"), ())]})
    (letter,) = letters_of(world.play(LATE))
    world.replay([letter])
    written = world.play(LATE.replace("10 div n", '"10 div greatest(n, 1)"'))
    assert not values(written, "out")
    (late,) = values(written, "late_rows")
    assert late["half"] == 10


def test_a_change_of_a_table_comes_back_with_its_kind() -> None:
    """What an update takes back is taken from the totals, not added to them."""
    pipeline = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
dead_letters: {topic: orders-dead, retry_topic: orders-retry}
sources:
  rows: {topic: orders, format: debezium, schema: {id: bigint, n: int}, bad_records: dead-letter}
steps:
  - {name: halves, from: rows, select: {id: id, half: 10 div n}}
  - {name: sums, from: halves, key: id, aggregate: {total: sum(half), all: count(*)}}
sinks: {out: {from: sums, topic: out}}
"""
    changes: list[Record] = [(b"k", change(*pair), ()) for pair in ((None, 5), (5, 0), (0, 2), (None, 1))]
    world = World({PARTS[0]: changes})
    first = world.play(pipeline)
    letters = letters_of(first)
    assert len(letters) == 2, "the row that an update adds, and the same row that the next one takes back"
    world.replay(letters)
    again = world.play(pipeline.replace("10 div n", '"10 div nullif(n, 0)"'))
    assert not letters_of(again)
    expected = World({PARTS[0]: changes}).play(pipeline.replace("10 div n", '"10 div nullif(n, 0)"'))
    last = [*values(first, "out"), *values(again, "out")][-1]  # the two rows cancel each other out
    assert last == values(expected, "out")[-1] == {"id": 1, "total": 15, "all": 2, "_deleted": False}


def change(before: int | None, after: int) -> bytes:
    rows = [None if n is None else {"id": 1, "n": n} for n in (before, after)]
    return json.dumps({"before": rows[0], "after": rows[1], "op": "c" if before is None else "u"}).encode()
