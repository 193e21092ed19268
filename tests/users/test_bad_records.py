"""Records that nobody expected: the pipeline stops with their place, or leaves them out and counts them."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemon_process import DaemonProcess
from tests.users.user import User, log_lines, numbers
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

GOOD = [b'{"id": 1, "n": 1}', b'{"id": 2, "n": 2}']


def order(number: int, **fields: Any) -> bytes:
    return json.dumps({"id": number, "n": 2, **fields}).encode()


def moment(seconds: float) -> str:
    """A moment as many seconds from now."""
    return (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds)).isoformat()


BAD: list[tuple[str, bytes | None]] = [
    ("MALFORMED_JSON", b'{"id": 9, "n": '),
    ("EMPTY_VALUE", b""),
    ("NULL_VALUE", None),
    ("WRONG_TYPE", b'{"id": "nine", "n": 1}'),
    ("WRONG_TYPE", b'{"id": 9, "n": "' + b"x" * 10_000_000 + b'"}'),
    ("WRONG_TYPE", order(9, unread="a declared column that no step reads (X19)")),
    ("OUT_OF_RANGE", b'{"id": 9, "n": 3000000000}'),
    ("NOT_UTF8", b'{"id": 9, "n": 1, "s": "\xff\xfe"}'),
    ("DIVIDE_BY_ZERO", order(9, n=0)),
    ("ARITHMETIC_OVERFLOW", order(9, n=2_000_000_000)),
    ("CAST_INVALID_INPUT", order(9, t="seven")),
    ("RESULT_TOO_LARGE", order(9, s="x" * 50_000)),  # X15: 10,000 times that, and three times that
    ("RECORD_TOO_LARGE", order(9, s="x" * 50)),  # X12: 1.5 MB
    ("TIMESTAMP_OUT_OF_RANGE", order(9, at=moment(1e6))),  # X11
    ("TIMESTAMP_NOT_STORABLE", order(9, at="1969-12-31T23:59:59Z")),
]
"""Orders of each kind that is counted."""
LARGE = [order(9, s="x" * 500)] * 40
"""X15: 40 records that become 15 MB each, which is less than a value may have, but all of them together are 600 MB."""
PEAK_MB_MAX = 600


def of_all_kinds(user: User) -> tuple[str, str, str, str]:
    """Orders with text, time and arithmetic, and raw words whose text is the key of a compacted topic.

    Topics: orders, kept, words, last.
    """
    orders, _ = user.numbers(bad_records="skip", until="never")
    words, last = user.topic("words"), user.topic("last", config={"cleanup.policy": "compact"})
    kept = user.topic("kept", config={"retention.ms": "-1", "message.timestamp.after.max.ms": "600000"})
    user.allow_values(orders, 20_000_000)
    sources, sinks = user.document["sources"], user.document["sinks"]
    schema = {"id": "bigint", "n": "int", "s": "string", "t": "string", "at": "timestamp", "unread": "int"}
    sources["numbers"]["schema"] = schema
    sources["words"] = {"topic": words, "format": "raw", "bad_records": "skip"}
    columns = {"id": "id", "m": "10 div n", "o": "n + 2000000000", "t": "cast(t as int)", "at": "at"}
    user.document["steps"] = [
        {"name": "shown", "from": "numbers", "select": {**columns, "s": "repeat(repeat(s, 10000), 3)"}},
        {"name": "loud", "from": "words", "select": {"word": "upper(value)", "place": "offset"}},
    ]
    sinks["shown_out"] |= {"topic": kept, "timestamp": "at"}
    sinks["loud_out"] = {"from": "loud", "topic": last, "key": "word"}
    return orders, kept, words, last


def counts(daemon: DaemonProcess) -> dict[str, float]:
    metric = re.compile(r'tidegate_bad_records_total\{.*reason="([^"]+)",.*step="([^"]+)".*\} (\S+)')
    found = metric.findall(daemon.http("/metrics")[1])
    return {f"{step} {kind}": float(count) for kind, step, count in found}


def peak_mb(pid: int) -> int:
    """The most memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def test_skipped_records_are_counted_by_kind_and_all_others_are_exact(user: User) -> None:
    """X11, X12, X13, X15 and X19 in one daemon's life."""
    orders, kept, words, last = of_all_kinds(user)
    expected = []
    for number, (_, value) in enumerate(BAD):
        user.produce(orders, [value, order(number, t="7", at=moment(-60))])
        expected.append({"id": number, "m": 5, "o": 2_000_000_002, "t": 7, "s": None})
    user.produce(orders, [*LARGE, order(99)])
    user.produce_pairs(words, [(None, b"good"), (None, b"\xff\xfe"), (None, None), (None, b"fine")])
    daemon = user.start().wait_running()
    wait_until(lambda: len(user.rows(kept)) > len(BAD) and len(user.rows(last)) > 1, "all good records are out")
    (slot,) = daemon.slots()
    found = counts(daemon)
    steps = dict.fromkeys(("DIVIDE_BY_ZERO", "ARITHMETIC_OVERFLOW", "CAST_INVALID_INPUT", "RESULT_TOO_LARGE"), "shown")
    sinks = dict.fromkeys(("RECORD_TOO_LARGE", "TIMESTAMP_OUT_OF_RANGE", "TIMESTAMP_NOT_STORABLE"), "shown_out")
    wanted: dict[str, float] = {}
    for kind, _ in BAD:
        place = f"{(steps | sinks).get(kind, 'numbers')} {kind}"
        wanted[place] = wanted.get(place, 0) + 1
    wanted["shown_out RECORD_TOO_LARGE"] += len(LARGE)
    assert found == wanted | {"loud CAST_INVALID_INPUT": 1.0, "loud_out NO_KEY": 1.0}
    assert peak_mb(slot) < PEAK_MB_MAX
    assert daemon.terminate() == 0
    assert [{name: row[name] for name in expected[0]} for row in user.rows(kept)][:-1] == expected
    assert [(row["word"], row["place"]) for row in user.rows(last)] == [("GOOD", 0), ("FINE", 3)]
    assert "Traceback" not in daemon.text()
    assert len(daemon.text()) < 200_000, "a value of 10 MB is reported without itself"
    skipped = [line["message"] for line in log_lines(daemon.text()) if "skipped" in line["message"]]
    for place in (f"sink shown_out: record of {orders}, partition 0, offset 24: RECORD_TOO_LARGE", "offset 0: MALF"):
        assert any(place in message for message in skipped), skipped


@pytest.mark.parametrize(
    ("place", "kind", "bad"),
    [
        ("source numbers", "MALFORMED_JSON", BAD[0][1]),
        ("sink shown_out", "RECORD_TOO_LARGE", order(9, s="x" * 5_000)),
    ],
)
def test_a_bad_record_stops_the_pipeline_with_its_place_and_nothing_is_lost_afterwards(
    user: User, place: str, kind: str, bad: bytes
) -> None:
    """One that fails in a step: tests/users/test_owning.py, X01."""
    source, _ = user.numbers()
    small = user.topic("small", config={"max.message.bytes": "2000"})
    user.document["sources"]["numbers"]["schema"]["s"] = "string"
    user.document["steps"][0]["select"]["s"] = "s"
    user.document["sinks"]["shown_out"]["topic"] = small
    user.produce(source, [*numbers((1, 1), (2, 2)), bad, *numbers((3, 3))])
    user.run().says(4, place, source, "offset 2", kind, "bad_records: skip", "nothing was lost")
    if kind == "RECORD_TOO_LARGE":
        user.document["sources"]["numbers"]["bad_records"] = "skip"
        user.run().says(0, kind)
        assert [row["id"] for row in user.rows(small)] == [1, 2, 3]
