"""Dead letters through the slots' own code: what they hold, and that none is lost or doubled."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from tests.depth import DEPTH
from tests.testing.lettered import (
    BEGIN_MS,
    FILTERED,
    PARTS,
    PIPELINE,
    Record,
    check_fuzzed,
    dead_letter_of,
    order,
    play,
    record_at,
)
from tests.testing.pipelines import load, messages, run_one
from tidegate.formats import dead_letters as letters
from tidegate.formats.dead_letters.letter import derive_retry_headers
from tidegate.ids import MAIN_CLUSTER, ClusterName, OperatorName, SourceTopic, TopicPartition
from tidegate.operators.builtin.dead_letters import DEAD_LETTERS, DeadLetterOperator
from tidegate.task.bad_records import DeadLetterCount, TooManyDeadLetters
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness
from tidegate.testing.parts import VirtualClock


async def name_of(row: dict[str, object]) -> dict[str, object]:
    if row["id"] == 13:
        raise ValueError("nobody has that one")
    return {"name": "somebody"}


BAD: dict[str, Callable[[int], bytes | None]] = {
    "orders MALFORMED_JSON": lambda _: b"{",
    "orders NULL_VALUE": lambda _: None,
    "orders WRONG_TYPE": lambda number: order(number, n="two"),
    "shares DIVIDE_BY_ZERO": lambda number: order(number, n=0),
    "named CALL_FAILED": lambda _: order(13),
    "out TIMESTAMP_NOT_STORABLE": lambda number: order(number, at="1969-01-01T00:00:00Z"),
}
"""Records that fail, by step and kind."""


def mixed(records: int, seed: int, share: float) -> tuple[dict[TopicPartition, list[Record]], list[tuple[str, str]]]:
    """Records of which a share is bad, and the step and kind and the place of each of those."""
    chance = random.Random(seed)
    history: dict[TopicPartition, list[Record]] = {part: [] for part in PARTS}
    bad: list[tuple[str, str]] = []
    for number in range(100, 100 + records):
        part = chance.choice(PARTS)
        value: bytes | None = order(number)
        if chance.random() < share:
            place = chance.choice(list(BAD))
            value = BAD[place](number)
            bad.append((place, f"{part} offset {len(history[part])}"))
        history[part].append((b"k%d" % number, value, (("h", b"%d" % number), ("h", None), ("", b""))))
    return history, bad


@pytest.mark.parametrize("seed", range(3 * DEPTH))
def test_letters_are_exact_however_often_the_pipeline_dies(seed: int) -> None:
    """Bytes, order and count; with one record in four bad, barriers that overtake, and calls under way."""
    history, bad = mixed(300, seed, 0.25)
    written, _ = play(history, lives=6, seed=seed)
    found = [dead_letter_of(record) for record in written[DEAD_LETTERS]]
    assert sorted((f"{one.step} {one.kind}", one.place) for one in found) == sorted(bad)
    for one in found:
        assert (one.key, one.value, one.headers) == record_at(history, one)
        assert (one.known, one.timestamp_ms, one.pipeline) == (letters.ORIGINAL, BEGIN_MS, "orders")
    assert len(written[OperatorName("out")]) + len(found) == 300
    for step, part in {(one.step, (one.topic, one.source_partition)) for one in found}:
        places = [
            one.source_offset or 0 for one in found if (one.step, (one.topic, one.source_partition)) == (step, part)
        ]
        assert places == sorted(places), (step, part)


def test_rows_that_fail_in_a_step_are_in_their_letters_as_they_were_there() -> None:
    history: dict[TopicPartition, list[Record]] = {part: [] for part in PARTS}
    history[PARTS[0]] = [(None, BAD[place](7), ()) for place in BAD]
    written, _ = play(history)
    rows = {one.kind: one.row for one in map(dead_letter_of, written[DEAD_LETTERS])}
    assert json.loads(rows["DIVIDE_BY_ZERO"] or "") == {"id": 7, "n": 0, "customer": "c2", "at": "2026-01-01T00:00:00Z"}
    assert json.loads(rows["TIMESTAMP_NOT_STORABLE"] or "")["at"] == "1969-01-01T00:00:00Z"
    assert rows["MALFORMED_JSON"] is None


def test_a_result_of_several_records_that_fails_has_a_letter_without_bytes() -> None:
    windows = (
        "window: {tumbling: 1m}, aggregate: {least: min(n)}}\n  - {name: ratio, from: sums, select: {r: 1 div least}}"
    )
    pipeline = PIPELINE.replace("aggregate: {total: sum(n)}}", windows).replace(
        "from: sums, topic", "from: ratio, topic"
    )
    pipeline = pipeline.replace("key: customer}\ntests", "}\ntests").replace(
        "    bad_records", "    until: latest\n    bad_records"
    )
    history: dict[TopicPartition, list[Record]] = {part: [] for part in PARTS}
    history[PARTS[0]] = [(None, order(1, n=0), ())]
    written, _ = play(history, pipeline)
    (found,) = [one for one in map(dead_letter_of, written[DEAD_LETTERS]) if one.step == "ratio"]
    assert (found.known, found.value, found.source_offset) == (letters.NO_RECORD, None, None)
    assert json.loads(found.row or "")["window_end"] == "2026-01-01T00:01:00Z"


def test_letters_are_whole_where_a_topic_meets_those_of_a_pattern() -> None:
    pipeline = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
checkpoints: {directory: file:///nowhere}
dead_letters: {topic: dead}
sources:
  one: {topic: orders, schema: {id: bigint, s: string}, bad_records: dead-letter}
  many: {pattern: "more-.*", schema: {id: bigint, s: string}, bad_records: skip}
steps:
  - {name: wanted, from: [one, many], select: {id: id, n: cast(s as int)}}
sinks:
  out: {from: wanted, topic: out}
"""
    history: dict[TopicPartition, list[Record]] = {
        TopicPartition(topic, 0): [(b"k", json.dumps({"id": 1, "s": f"no number of {topic}"}).encode(), ())]
        for topic in ("orders", "more-1", "more-2")
    }
    written, _ = play(history, pipeline)
    found = [dead_letter_of(record) for record in written[DEAD_LETTERS]]
    assert sorted(one.place for one in found) == sorted(f"{part} offset 0" for part in history)
    assert all(record_at(history, one) == (one.key, one.value, one.headers) for one in found)


def test_every_fuzzed_record_comes_out_becomes_a_letter_or_is_filtered() -> None:
    fates = check_fuzzed(seed=12, records=20_000)
    assert {"MALFORMED_JSON", "NOT_UTF8", "WRONG_TYPE", "DIVIDE_BY_ZERO", "TIMESTAMP_NOT_STORABLE"} <= set(fates)
    assert fates[FILTERED] > 0


def test_too_many_in_a_minute_stop_the_slot_with_the_counts_and_none_of_them_is_written() -> None:
    _, plan = load("", PIPELINE.removesuffix("tests:\n"))
    log = Log(dict.fromkeys(PARTS, 20))
    for number in range(20):
        log.append(PARTS[0], None, BAD["orders WRONG_TYPE"](number), BEGIN_MS)
    harness = Harness(plan, log, VirtualClock(BEGIN_MS), lambda _: None)
    harness._slots[0].loop.letters = DeadLetterCount(19)
    try:
        with pytest.raises(TooManyDeadLetters, match="20 WRONG_TYPE in orders"):
            harness.settle()
        assert DEAD_LETTERS not in harness.written() or harness.written()[DEAD_LETTERS] == []
    finally:
        harness.close()


def test_the_limit_of_the_file_is_that_of_every_slot() -> None:
    _, plan = load("", PIPELINE.removesuffix("tests:\n").replace("orders-dead}", "orders-dead, max_per_minute: 7}"))
    (sink,) = plan.operators(DeadLetterOperator)
    assert sink.per_minute_max == 7


def test_a_case_counts_dead_letters_as_bad_records() -> None:
    result = run_one(
        "given: {orders: [{topic: orders, value: {id: 1, n: 0}}, {topic: more, value: {id: 2, n: 5}}]}, "
        "bad_records: {DIVIDE_BY_ZERO: 1}",
        PIPELINE,
    )
    assert result.passed, messages(result)


def test_a_letter_has_the_typed_row_and_no_secret_of_the_file() -> None:
    """The record itself is as it was."""
    login = "security.protocol: sasl_ssl, sasl.mechanism: PLAIN, sasl.username: me, sasl.password: opensesame"
    pipeline = PIPELINE.replace('"127.0.0.1:9092"', f'"127.0.0.1:9092", {login}')
    value = order(1, n=0, customer="says opensesame")
    written, _ = play({PARTS[0]: [(None, value, ())]}, pipeline)
    (letter,) = map(dead_letter_of, written[DEAD_LETTERS])
    assert (letter.step, letter.value, letter.row_masked) == ("shares", value, 1)
    assert json.loads(letter.row or "") == {"id": 1, "n": 0, "customer": "says ***", "at": "2026-01-01T00:00:00Z"}
    assert json.loads(letter.row_types or "") == {"id": "bigint", "n": "int", "customer": "string", "at": "timestamp"}


US = ClusterName("us")
TWO_CLUSTERS = """\
version: 1
name: orders
kafka: {bootstrap.servers: "127.0.0.1:9092"}
clusters: {us: {bootstrap.servers: "127.0.0.1:9093"}}
checkpoints: {directory: file:///nowhere}
parallelism: 2
dead_letters: {topic: dead, retry_topic: orders-retry}
sources:
  eu: {topic: orders, schema: {id: bigint, n: int}, metadata: {topic: topic}, bad_records: dead-letter}
  us: {topic: orders, cluster: us, schema: {id: bigint, n: int}, metadata: {topic: topic}, bad_records: dead-letter}
steps:
  - {name: shares, from: [eu, us], select: {id: id, share: 100 div n, topic: topic}}
  - {name: sums, from: shares, key: topic, aggregate: {total: count(*)}}
sinks:
  out: {from: shares, topic: out}
  totals: {from: sums, topic: totals, key: topic}
"""


def test_records_at_the_same_place_in_two_clusters_have_letters_of_their_own() -> None:
    """Half of them fail in a step, a third in their source; some rows of each cluster come back and fail again."""
    _, plan = load("", TWO_CLUSTERS)
    part, retried = TopicPartition("orders", 0), TopicPartition("orders-retry", 0)
    log = Log({part: 12, retried: 4}, others={US: {part: 12}})
    values = {
        cluster: [b"{" if number % 3 == 0 else order(number, n=number % 2, customer=cluster) for number in range(12)]
        for cluster in (MAIN_CLUSTER, US)
    }
    for cluster, records in values.items():
        for value in records:
            log.of(cluster).append(part, cluster.encode(), value, BEGIN_MS)
    harness = Harness(plan, log, VirtualClock(BEGIN_MS), lambda _: None)
    try:
        harness.settle()
        letters_of = [dead_letter_of(one) for one in harness.written()[DEAD_LETTERS]]
        failed = {(one.cluster, one.source_offset): one for one in letters_of}
        assert len(failed) == len(letters_of) == 2 * (4 + 4)
        for (cluster, offset), one in failed.items():
            assert (one.key, one.value) == (cluster.encode(), values[cluster][offset or 0])
            assert (one.topic, one.source_topic) == ("orders", SourceTopic(cluster, "orders"))
            assert (one.step, one.kind) == (("eu" if cluster == MAIN_CLUSTER else "us"), "MALFORMED_JSON") or (
                one.step == "shares" and json.loads(one.row or "")["topic"] == "orders"
            )
        again = [failed[cluster, offset] for cluster in values for offset in (2, 4)]
        for one in again:
            headers = tuple(derive_retry_headers(one, "dead[0]@0"))
            log.append(retried, one.key, one.value, BEGIN_MS, headers)
        harness.settle()
        repeated = [dead_letter_of(one) for one in harness.written()[DEAD_LETTERS]][len(letters_of) :]
        assert [(one.tries, one.place, one.key, one.value) for one in repeated] == [
            (1, one.place, one.key, one.value) for one in again
        ]
    finally:
        harness.close()


def test_a_case_gives_records_of_one_topic_to_the_source_in_its_cluster() -> None:
    given = "given: {eu: [{value: {id: 1, n: 1}}], us: [{value: {id: 2, n: 4}}, {value: {id: 3, n: 0}}]}"
    out = "[{value: {id: 1, share: 100, topic: orders}}, {value: {id: 2, share: 25, topic: orders}}]"
    expect = f"expect: {{out: {out}}}"
    result = run_one(f"{given}, {expect}, bad_records: 1", TWO_CLUSTERS + "tests:\n")
    assert result.passed, messages(result)
