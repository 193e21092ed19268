"""MessagePack written in C: the same bytes as msgspec's, whatever the rows are and wherever they lie."""

from __future__ import annotations

import random

import polars as pl
import pytest

from tests.depth import DEPTH
from tests.formats.any_msgpack import MsgpackRecords
from tests.formats.schemas_of_json import FLAT, NESTED
from tests.native.compiled import compiled_library
from tidegate.datatypes import BIGINT, TIMESTAMP, DataType, map_of
from tidegate.formats.contract import Columns
from tidegate.formats.kinds.msgpack.reader import MsgpackDecoder
from tidegate.formats.kinds.msgpack.writer import RowWriter, ready_columns, written_type
from tidegate.formats.schemas import NO_OPTIONS
from tidegate.native.msgpack import RowEncoder


def compare(columns: Columns, frame: pl.DataFrame) -> list[bytes]:
    ready = frame.select(ready_columns(columns))
    expected = RowWriter(columns).write(ready).to_list()
    found = RowEncoder(compiled_library(), written_type(columns)).encode(ready)
    assert (found.name, found.dtype) == ("value", pl.Binary())
    assert found.to_list() == expected
    return list(found)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DEPTH))
@pytest.mark.parametrize("columns", [FLAT, NESTED], ids=["flat", "nested"])
def test_rows_are_written_as_msgspec_writes_them(columns: Columns, seed: int) -> None:
    print(f"seed {seed}")
    records = MsgpackRecords(random.Random(seed))
    read = MsgpackDecoder(columns, columns, NO_OPTIONS).decode_values([records.record(columns) for _ in range(100)])
    compare(columns, read.frame)
    compare(columns, read.frame[7:50])
    compare(columns, pl.concat([read.frame[60:61], read.frame[5:20]], rechunk=False))
    compare(columns, read.frame.clear())


@pytest.mark.parametrize("count", [0, 1, 15, 16, 31, 32, 255, 256, 65535, 65536])
def test_lengths_are_written_in_the_shortest_way(count: int) -> None:
    longs, texts = DataType("array", element=BIGINT), DataType("string")
    columns = (("s", texts), ("b", DataType("binary")), ("a", longs), ("m", map_of(BIGINT, texts)))
    frame = pl.DataFrame(
        {
            "s": ["x" * count],
            "b": [b"x" * count],
            "a": [list(range(count))],
            "m": [[{"key": 5, "value": "v"}] * min(count, 1)],
        }
    )
    compare(columns, frame)


def test_integers_and_times_are_written_in_the_shortest_way() -> None:
    edges = [0, 2**7, 2**8, 2**15, 2**16, 2**31, 2**32, 2**63 - 1, -32, -33, -(2**63)]
    values = sorted({one + step for one in edges for step in (-1, 0, 1) if -(2**63) <= one + step < 2**63})
    compare((("v", BIGINT),), pl.DataFrame({"v": [*values, None]}))
    seconds = [0, 1, -1, 2**32 - 1, 2**32, 2**34 - 1, 2**34, -62135596800, 253402300799]
    micros = [one * 1_000_000 + part for one in seconds for part in (0, 1, 999_999)]
    column = pl.Series("v", micros, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    compare((("v", TIMESTAMP),), pl.DataFrame([column]))


def test_many_fields_have_their_number_in_two_bytes() -> None:
    columns = tuple((f"column_{place}" * (place % 5 + 1), BIGINT) for place in range(300))
    (value,) = compare(columns, pl.DataFrame({name: [place] for place, (name, _) in enumerate(columns)}))
    assert value.startswith(b"\xde\x01\x2c")
