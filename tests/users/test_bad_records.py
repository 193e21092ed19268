"""Records that nobody expected: the pipeline stops with their place, or leaves them out and counts them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.users.user import User, log_lines, numbers
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

BIG = b'{"id": 9, "n": "' + b"x" * 10_000_000 + b'"}'
BAD = {
    "MALFORMED_JSON": b'{"id": 9, "n": ',
    "EMPTY_VALUE": b"",
    "NULL_VALUE": None,
    "WRONG_TYPE": b'{"id": "nine", "n": 1}',
    "OUT_OF_RANGE": b'{"id": 9, "n": 3000000000}',
    "NOT_UTF8": b'{"id": 9, "n": 1, "s": "\xff\xfe"}',
    "DIVIDE_BY_ZERO": b'{"id": 9, "n": 0}',
}
"""A record of each kind that is counted."""


@pytest.mark.parametrize("kind", ["MALFORMED_JSON", "NULL_VALUE", "DIVIDE_BY_ZERO"])
def test_a_bad_record_stops_the_pipeline_with_its_place_and_nothing_is_lost_afterwards(user: User, kind: str) -> None:
    source, out = user.numbers()
    user.produce(source, [*numbers((1, 1), (2, 2)), BAD[kind], *numbers((3, 3))])
    user.run().says(4, source, "offset 2", kind, "bad_records: skip", "nothing was lost")
    user.document["sources"]["numbers"]["bad_records"] = "skip"
    user.run().says(0, kind)
    assert user.rows(out) == [{"id": 1, "m": 10}, {"id": 2, "m": 5}, {"id": 3, "m": 3}]


def test_skipped_records_are_counted_by_kind_and_all_others_are_exact(user: User) -> None:
    source, out = user.numbers(bad_records="skip", until="never")
    user.document["sources"]["numbers"]["schema"]["s"] = "string"
    user.document["steps"][0]["select"]["s"] = "coalesce(s, 'none')"
    expected = []
    for number, value in enumerate([*BAD.values(), *BAD.values()]):
        user.produce(source, [value, *numbers((number, 2))])
        expected.append({"id": number, "m": 5, "s": "none"})
    daemon = user.start().wait_running()
    wait_until(lambda: len(user.rows(out)) >= len(expected), "all good records are out")
    metric = re.compile(r'tidegate_bad_records_total\{.*reason="([^"]+)".*\} (\S+)')

    def counts() -> dict[str, float]:
        return {kind: float(count) for kind, count in metric.findall(daemon.http("/metrics")[1])}

    wait_until(lambda: sum(counts().values()) >= 2 * len(BAD), "all bad ones are counted")
    assert counts() == dict.fromkeys(BAD, 2.0)
    assert daemon.terminate() == 0
    assert user.rows(out) == expected
    assert "Traceback" not in daemon.text()
    skipped = [line["message"] for line in log_lines(daemon.text()) if "skipped" in line["message"]]
    assert any(source in message and "offset 0" in message for message in skipped), skipped


def test_a_value_of_10_mb_is_read_and_told_without_itself(user: User) -> None:
    source, out = user.numbers()
    user.allow_values(source, 20_000_000)
    user.produce(source, [*numbers((1, 1)), BIG, *numbers((2, 2))])
    ended = user.run()
    ended.says(4, source, "offset 1", "WRONG_TYPE")
    assert len(ended.text) < 100_000
    user.document["sources"]["numbers"]["bad_records"] = "skip"
    user.run().says(0)
    assert user.rows(out) == [{"id": 1, "m": 10}, {"id": 2, "m": 5}]


def test_an_overflow_and_a_bad_cast_fail_their_records_only(user: User) -> None:
    source, out = user.numbers(bad_records="skip")
    user.document["sources"]["numbers"]["schema"] = {"id": "bigint", "n": "int", "s": "string"}
    user.document["steps"][0]["select"] = {"id": "id", "sum": "n + 2000000000", "c": "cast(s as int)"}
    rows = [(1, 5, "7"), (2, 2_000_000_000, "7"), (3, 5, "seven"), (4, 6, "8")]
    user.produce(source, [json.dumps({"id": i, "n": n, "s": s}).encode() for i, n, s in rows])
    ended = user.run()
    ended.says(0, "ARITHMETIC_OVERFLOW", "CAST_INVALID_INPUT", "offset 1", "offset 2")
    assert [row["id"] for row in user.rows(out)] == [1, 4]


def test_a_record_that_is_larger_than_the_sink_topic_takes_stops_with_the_sink(user: User) -> None:
    source, _ = user.numbers()
    small = user.topic("small", config={"max.message.bytes": "2000"})
    user.document["sources"]["numbers"]["schema"] = {"id": "bigint", "s": "string"}
    user.document["steps"][0]["select"] = {"id": "id", "s": "s"}
    user.document["sinks"]["shown_out"]["topic"] = small
    user.produce(source, [b'{"id": 1, "s": "a"}', json.dumps({"id": 2, "s": "x" * 5000}).encode()])
    remedy = "was committed. Change the topic's or the sink's settings, or the record"
    user.run().says(4, "shown_out", small, "refuses a record", "Message size too large", remedy)
    assert user.rows(small) == []


def stamped(user: User, **source: Any) -> tuple[str, str]:
    """A pipeline that takes the records' timestamps from a column, and four records: two that no topic can hold."""
    origin, _ = user.numbers(**source)
    kept = user.topic("kept", config={"retention.ms": "-1"})
    user.document["sources"]["numbers"]["schema"] = {"id": "bigint", "at": "timestamp"}
    user.document["steps"][0]["select"] = {"id": "id", "at": "at"}
    user.document["sinks"]["shown_out"] |= {"topic": kept, "timestamp": "at"}
    rows = [(1, "1970-01-01T00:00:00.001Z"), (2, "1970-01-01T00:00:00Z"), (3, None), (4, "1969-12-31T23:59:59Z")]
    user.produce(origin, [json.dumps({"id": i, "at": at}).encode() for i, at in rows])
    return kept, origin


def test_a_timestamp_that_kafka_cannot_store_stops_the_pipeline_with_the_place_of_the_record(user: User) -> None:
    kept, origin = stamped(user)
    user.run().says(4, "sink shown_out: record of " + origin, "offset 1", "TIMESTAMP_NOT_STORABLE", "nothing was lost")
    assert user.rows(kept) == []


def test_skipped_timestamps_are_counted_and_the_others_are_written(user: User) -> None:
    kept, _ = stamped(user, bad_records="skip")
    user.run().says(0, "offset 1: TIMESTAMP_NOT_STORABLE", "offset 3: TIMESTAMP_NOT_STORABLE")
    assert [row["id"] for row in user.rows(kept)] == [1, 3]
