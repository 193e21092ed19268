"""Decoding in C gives its memory back, also of records that it leaves over halfway. Equality: `tests/formats`."""

from __future__ import annotations

import random
import resource
import threading

import pytest

from tests.formats.any_json import JsonTexts
from tests.formats.schemas_of_json import FLAT, NESTED, array_of
from tests.native.compiled import compiled_library
from tests.native.values import NativeValues
from tidegate.datatypes import BIGINT, INT, STRING, DataType, map_of
from tidegate.native.json import RecordDecoder, is_supported

COLUMNS = (*FLAT, *NESTED[:-1])
RECORD = DataType("struct", fields=COLUMNS)


@pytest.mark.slow
def test_memory_is_given_back() -> None:
    texts = JsonTexts(random.Random(1), 0.02)
    values: list[bytes | None] = [texts.record(COLUMNS) for _ in range(100)]
    there = NativeValues([*values, *([b'{"s":"%s"}' % (b"x" * 10_000)] * 20)])
    decoder = RecordDecoder(compiled_library(), RECORD, dict(COLUMNS), strict=False)
    before = 0
    for turn in range(2000):
        rows = decoder.decode(there.addresses, there.lengths, len(there))
        assert rows.left
        assert rows.frame.height > 20
        if turn == 200:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000, "1 GB were made"


def test_rows_outlive_their_batch_and_may_be_dropped_by_another_thread() -> None:
    there = NativeValues([b'{"s":"%s","longs":[%d]}' % (b"y" * 100, row) for row in range(5)])
    decoder = RecordDecoder(compiled_library(), RECORD, ["s", "longs"], strict=False)
    frames = [decoder.decode(there.addresses, there.lengths, len(there)).frame]
    column, del_there = frames[0]["longs"], there
    del there, del_there
    dropping = threading.Thread(target=frames.clear)
    dropping.start()
    dropping.join()
    assert column.to_list() == [[0], [1], [2], [3], [4]]


def test_a_frame_takes_the_room_of_its_values() -> None:
    """What a task counts against its limits is Polars' estimate: of each column alone."""
    names = [f"s{number}" for number in range(20)]
    value = ",".join(f'"{name}":"{"z" * 50}"' for name in names)
    there = NativeValues([b"{%s}" % value.encode()] * 1000)
    record = DataType("struct", fields=tuple((name, STRING) for name in names))
    rows = RecordDecoder(compiled_library(), record, names, strict=False).decode(there.addresses, there.lengths, 1000)
    assert rows.frame.estimated_size() < 20 * 1000 * (16 + 50 + 1)


@pytest.mark.parametrize("name", ['a"', "a\\", "a\n", "\0"])
def test_a_name_that_json_would_escape_is_not_supported(name: str) -> None:
    assert not is_supported(DataType("struct", fields=((name, INT),)))


def test_types_of_which_one_part_is_not_supported_are_not() -> None:
    assert not is_supported(array_of(map_of(BIGINT, STRING)))
    assert is_supported(RECORD)
