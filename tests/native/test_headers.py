"""Headers are read in place where a record lies as format 2 writes it, and asked for everywhere else."""

from __future__ import annotations

import random

import pytest

from tests.native.compiled import compiled_library
from tests.native.record_bytes import OTHER, Header, Messages, Written, draw_record, number, write_record

SEED = 20_261_127
HEADERS: list[Header] = [(b"trace", b"1"), (b"trace", None), ("ä".encode(), b""), (b"", b"nameless")]
ASKED = [[OTHER]]
SURE = 300
"""So many bytes of headers are always found after the smallest of values."""


def read(*records: Written) -> tuple[list[list[Header]], int]:
    messages = Messages(records)
    found = messages.headers(compiled_library())
    return found, messages.asked


def test_any_record_with_a_value() -> None:
    print(f"seed {SEED}")
    rnd = random.Random(SEED)
    drawn = [draw_record(rnd) for _ in range(2000)]
    deltas = [(rnd.choice((0, 1, -1, 63, -64, 64, 10**6, 2**40)), rnd.choice((0, 63, 64, 2**31 - 1))) for _ in drawn]
    records = [write_record(*one, *delta) for one, delta in zip(drawn, deltas, strict=True)]
    found, _ = read(*records)
    for record, (key, value, headers), mine in zip(records, drawn, found, strict=True):
        in_place = bool(value) and key != b""
        doubtful = in_place and len(record.data) - record.headers > SURE
        assert mine == headers or (mine == [OTHER] and (doubtful or not in_place))
    assert sum(mine == [OTHER] for mine in found) < len(found) // 2
    sizes = (len(key or b"") + len(value or b"") for key, value, _ in drawn)
    parts = (part for headers in found for header in headers for part in header)
    assert Messages(records).record_bytes(compiled_library()) == sum(sizes) + sum(map(len, filter(None, parts)))


@pytest.mark.parametrize("size", [1, 31, 32, 63, 64, 127, 128, 8191, 8192, 2**20])
def test_lengths_at_their_limits(size: int) -> None:
    assert read(write_record(b"k" * size, b"v", HEADERS)) == ([HEADERS], 0)
    assert read(write_record(None, b"v" * size, HEADERS)) == ([HEADERS], 0)


def test_the_length_of_a_record_may_look_like_a_smaller_one() -> None:
    """Where headers are large and the value is small: they are asked for, or right."""
    sizes = range(0, 20_000, 37)
    all_asked = 0
    for size in sizes:
        headers: list[Header] = [(b"large", b"x" * size)]
        found, asked = read(write_record(None, b"v", headers))
        assert found == (ASKED if asked else [headers]), size
        assert not asked or size > SURE, size
        all_asked += asked
    assert 0 < all_asked < len(sizes)


@pytest.mark.parametrize(
    "record",
    [
        write_record(b"k", None, HEADERS),
        write_record(b"k", b"", HEADERS),
        write_record(b"", b"v", HEADERS),
        write_record(b"k", b"v", [(b"cut\0off", b"1")]),
    ],
    ids=["tombstone", "empty value", "empty key", "zero in a name"],
)
def test_what_is_asked_for(record: Written) -> None:
    assert read(record) == (ASKED, 1)
    messages = Messages([record])
    own = sum(part[1] for part in (record.key, record.value) if part is not None)
    assert messages.record_bytes(compiled_library()) == own + len(OTHER[0]) + len(OTHER[1] or b"")
    assert messages.asked == 1


BROKEN = {
    "more headers than there are": number(2) + number(1) + b"n" + number(1) + b"v",
    "headers of a negative number": number(-1),
    "more than there can be": number(100_001),
    "a name beyond the end": number(1) + number(50) + b"n" + number(0),
    "a name of negative length": number(1) + number(-1) + number(0),
    "a value beyond the end": number(1) + number(1) + b"n" + number(50),
    "a value of length -2": number(1) + number(1) + b"n" + number(-2),
    "a number without end": b"\x80",
    "a length without end": number(1) + b"\xff" * 11,
}


@pytest.mark.parametrize("after", BROKEN.values(), ids=BROKEN)
def test_headers_that_are_none(after: bytes) -> None:
    good = write_record(b"k", b"v", [])
    front = good.data[: good.headers]
    data = number(len(front) - 1 + len(after)) + front[1:] + after
    assert len(number(len(front) - 1 + len(after))) == 1
    record = Written(data, good.key, good.value, good.headers)
    assert read(record) == (ASKED, 1)


@pytest.mark.parametrize("key", [None, b"key"])
@pytest.mark.parametrize("size", [0, 1, 63, 64, 200, 40_000, 10**6])
def test_a_record_of_an_older_format(size: int, key: bytes | None) -> None:
    """Offset, size, CRC, format, attributes, time, then both lengths in four bytes."""
    front = bytes(8 + 4 + 4 + 1 + 1 + 8) + (-1 if key is None else len(key)).to_bytes(4, "big", signed=True)
    value_at = len(front) + len(key or b"") + 4
    data = front + (key or b"") + size.to_bytes(4, "big") + b"v" * size + b"\x02\x02nn"
    record = Written(data, None if key is None else (len(front), len(key)), (value_at, size), 0)
    assert read(record) == (ASKED, 1)
