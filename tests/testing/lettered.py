"""Histories of records that fail and what a pipeline with dead letters makes of them, through the slots' own code."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tests.testing.pipelines import load
from tidegate.formats.dead_letters.letter import DeadLetter, read_dead_letter
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness
from tidegate.testing.parts import VirtualClock, WrittenRecord

PIPELINE = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
parallelism: 2
dead_letters: {topic: orders-dead}
sources:
  orders:
    topics: [orders, more]
    schema: {id: bigint, n: int, customer: string, at: timestamp}
    bad_records: dead-letter
steps:
  - {name: wanted, from: orders, where: n < 1000 or n is null}
  - {name: shares, from: wanted, select: {id: id, share: 100 div n, customer: customer, at: at}}
  - {name: named, from: shares, async: "tests.testing.test_dead_letters:name_of", output: {name: string}, retries: 0}
  - {name: sums, from: wanted, key: customer, aggregate: {total: sum(n)}}
sinks:
  out: {from: named, topic: out, key: customer, timestamp: at}
  totals: {from: sums, topic: totals, key: customer}
tests:
"""
PARTS = [TopicPartition(topic, partition) for topic in ("orders", "more") for partition in range(2)]
BEGIN_MS = 1_767_225_600_000

Record = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Key, value, headers."""


def order(number: int, **fields: object) -> bytes:
    return json.dumps(
        {"id": number, "n": 2, "customer": f"c{number % 5}", "at": "2026-01-01T00:00:00Z", **fields}
    ).encode()


def dead_letter_of(record: WrittenRecord) -> DeadLetter:
    found = read_dead_letter(0, 0, None, record.key, record.value, record.headers)
    assert found is not None
    return found


def play(
    history: dict[TopicPartition, list[Record]], pipeline: str = PIPELINE, *, lives: int = 0, seed: int = 0
) -> tuple[dict[OperatorName, list[WrittenRecord]], int]:
    """What all sinks have written, over lives that end without a word after their checkpoint; and how many rows the
    last life has filtered.
    """
    _, plan = load("", pipeline.removesuffix("tests:\n"))
    chance = random.Random(seed)
    log, clock = Log({part: len(records) for part, records in history.items()}), VirtualClock(BEGIN_MS)
    for part, records in history.items():
        for key, value, headers in records:
            log.append(part, key, value, BEGIN_MS, headers)
    written: dict[OperatorName, list[WrittenRecord]] = {}
    snapshot, filtered = None, 0
    for life in range(lives + 1):
        harness = Harness(plan, log, clock, lambda _: None, snapshot)
        try:
            for _ in range(chance.randint(0, 12) if life < lives else 0):
                harness.turn()
            if life == lives:
                harness.settle()
            snapshot = harness.snapshot()
            for name, new in snapshot.written.items():
                written.setdefault(name, []).extend(new)
            if life < lives:
                harness.turn()  # lost with the life
            filtered = sum(slot.reporter.report().operators[OperatorName("wanted")].filtered for slot in harness._slots)
        finally:
            harness.close()
    return written, filtered


def record_at(history: dict[TopicPartition, list[Record]], letter: DeadLetter) -> Record:
    assert letter.source_partition is not None
    assert letter.source_offset is not None
    return history[TopicPartition(letter.topic, letter.source_partition)][letter.source_offset]


def fuzzed(seed: int, records: int) -> Iterable[bytes]:
    """Orders in which bytes were changed, left out, doubled or cut."""
    chance = random.Random(seed)
    for number in range(records):
        n, at = (
            chance.choice((0, 1, 5, 2000, None, "1", 1.5)),
            chance.choice(("2026-01-01T00:00:00Z", "1960-01-01T00:00:00Z", 5)),
        )
        data = bytearray(order(number, n=n, at=at))
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            place = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data[place] = chance.randrange(256)
                case 1:
                    del data[place]
                case 2:
                    data.insert(place, data[place])
                case _:
                    del data[place:]
                    data += b"{"
        yield bytes(data)


FILTERED: Final = "filtered"


def check_fuzzed(seed: int, records: int) -> Counter[str]:
    """in = out + dead + filtered, and every letter has the bytes of its record. How many came to which end."""
    pipeline = (
        PIPELINE.replace("from: named", "from: shares")
        .replace("  - {name: sums, from: wanted, key: customer, aggregate: {total: sum(n)}}\n", "")
        .replace("  totals: {from: sums, topic: totals, key: customer}\n", "")
    )
    pipeline = "\n".join(line for line in pipeline.splitlines() if "async" not in line) + "\n"
    history: dict[TopicPartition, list[Record]] = {part: [] for part in PARTS}
    for index, value in enumerate(fuzzed(seed, records)):
        history[PARTS[index % len(PARTS)]].append((None, value, ()))
    written, filtered = play(history, pipeline)
    found = [dead_letter_of(record) for record in written[DEAD_LETTERS]]
    out = len(written[OperatorName("out")])
    assert out + len(found) + filtered == records, f"seed {seed}: {out} + {len(found)} + {filtered}"
    assert len({one.place for one in found}) == len(found), f"seed {seed}: a record has two letters"
    assert all(record_at(history, one) == (one.key, one.value, one.headers) for one in found), f"seed {seed}"
    return Counter({**Counter(one.kind for one in found), FILTERED: filtered, "out": out})
