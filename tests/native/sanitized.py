"""Runs C with sanitizers: decodes damaged records and lines, looks for headers in them, and adds rows to totals.

    LD_PRELOAD=libasan.so PYTHONMALLOC=malloc python -m tests.native.sanitized LIBRARY [--records 20000] [--seed 1]

They end the process. Each record is in a block of exactly its size, so a byte that is read outside of it is found.
"""

from __future__ import annotations

import argparse
import ctypes
import random
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import polars as pl

from tests.formats.any_json import JsonTexts, damaged
from tests.formats.any_msgpack import MsgpackRecords
from tests.formats.any_msgpack import damaged as damaged_msgpack
from tests.formats.any_rows import draw_text
from tests.formats.avro.any_avro import PREFIX, encode, text_of
from tests.formats.avro.ordinary import ORDINARY, READ, ordinary, raw_of
from tests.formats.avro.ordinary import damaged as damaged_avro
from tests.formats.debezium_avro.any_changes import draw_event, draw_table
from tests.formats.delimited.any_delimited import COLUMNS as LINE_COLUMNS
from tests.formats.delimited.any_delimited import DIALECTS, draw_lines, line_decoder
from tests.formats.schemas_of_json import FLAT, NESTED
from tests.native.any_records import ExactRecords, draw_records
from tests.native.any_totals import damage, draw_totals
from tests.native.keyed_state import live_as_state
from tests.native.lent_exactly import LentExactly
from tests.native.record_bytes import Messages, Written, draw_record, write_record
from tests.native.sanitized_rows import hash_keys, number_partitions
from tests.native.values import NativeValues
from tests.support import clients
from tests.support.records import Listed, listed
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import DataType
from tidegate.formats import schema_decoder
from tidegate.formats.kinds.avro.columns import record_columns
from tidegate.formats.kinds.avro.decoder import CertainReader
from tidegate.formats.kinds.avro.resolution import fit_columns
from tidegate.formats.kinds.avro.schema import parse_schema
from tidegate.formats.kinds.debezium.avro_decoder import change_decoder
from tidegate.formats.schemas import FormatOptions, KnownSchemas
from tidegate.kafka.producing import NativeProducing
from tidegate.native.arrow import ArrowFunctions
from tidegate.native.json import MSGPACK, JsonWriter, RecordDecoder
from tidegate.native.library import Library
from tidegate.native.librdkafka import Librdkafka, find_librdkafka
from tidegate.native.records import Arrangement
from tidegate.native.running import NativeTotals

BASES, ROWS = 20, 400
COLUMNS = (*FLAT, *NESTED[:-1])


def draw_values(rnd: random.Random) -> list[bytes | None]:
    """Some records, as they are, damaged, and cut off."""
    texts = JsonTexts(rnd, rnd.choice((0, 0.02, 0.2)), spaced=rnd.random() < 0.5, strangers=rnd.random() < 0.7)
    columns = rnd.choice((FLAT, FLAT, NESTED, COLUMNS))
    bases = [texts.record(rnd.sample(columns, rnd.randrange(1, len(columns) + 1))) for _ in range(BASES)]
    values: list[bytes | None] = [None, b"", *bases]
    while len(values) < ROWS:
        value = rnd.choice(bases)
        values.append(value[: rnd.randrange(len(value) + 1)] if rnd.random() < 0.3 else damaged(rnd, value))
    return values


def decode_avro(library: ctypes.CDLL, rnd: random.Random) -> None:
    """Records as they are, and damaged ones."""
    writer = parse_schema(text_of(ORDINARY))
    columns = tuple(record_columns(writer).items())
    read = [one for one in columns if one[0] in READ and rnd.random() < rnd.choice((0.3, 1))]
    reader = fit_columns(writer, [one for one in columns if one[0] in READ])
    decoder = CertainReader(Loaded(library), writer, reader, read, PREFIX)  # type: ignore[arg-type]  # as much as it needs
    bases = [encode(raw_of(ORDINARY), ordinary(rnd)) for _ in range(BASES)]
    there = NativeValues([*bases, None, b"", *(damaged_avro(rnd, rnd.choice(bases)) for _ in range(ROWS // 4))])
    rows = decoder.decode(there.addresses, there.lengths, len(there))
    assert BASES <= rows.frame.height < len(there)
    assert pl.concat([rows.frame, rows.frame]).height == 2 * rows.frame.height


def decode_changes(library: ctypes.CDLL, rnd: random.Random) -> None:
    """Events of a table of any types as they are, and damaged ones."""
    table, declared = draw_table(rnd, 1)
    columns = tuple((name, derive_type(kind)) for name, kind in declared.items())
    decoder = change_decoder(columns, columns, FormatOptions(row_kinds=True), KnownSchemas({1: table.text}))
    bases = [table.event_in_avro(draw_event(rnd, table)) for _ in range(BASES)]
    with patch.object(schema_decoder, "loaded", lambda: Loaded(library)):
        decoder.decode_values(bases)
    assert decoder._most is not None and decoder._most.certain is not None
    there = NativeValues([*bases, None, b"", *(damaged_avro(rnd, rnd.choice(bases)) for _ in range(ROWS // 4))])
    rows = decoder._most.certain.decode(there.addresses, there.lengths, len(there))
    assert pl.concat([rows.frame, rows.frame]).height == 2 * rows.frame.height


def decode_msgpack(library: ctypes.CDLL, rnd: random.Random) -> None:
    """Records as they are, and damaged ones."""
    columns = rnd.choice((FLAT, NESTED, COLUMNS))
    records = MsgpackRecords(rnd, rnd.choice((0, 0.02, 0.2)))
    bases = [records.record(columns) for _ in range(BASES)]
    wanted = {name for name, _ in columns if rnd.random() < rnd.choice((0.3, 1))}
    there = NativeValues([*bases, None, b"", *(damaged_msgpack(rnd, rnd.choice(bases)) for _ in range(ROWS // 4))])
    record = DataType("struct", fields=columns)
    decoder = RecordDecoder(library, record, wanted, strict=rnd.random() < 0.3, needs_field=True, syntax=MSGPACK)
    rows = decoder.decode(there.addresses, there.lengths, len(there))
    assert pl.concat([rows.frame, rows.frame]).height == 2 * rows.frame.height


def decode_lines(library: ctypes.CDLL, rnd: random.Random) -> None:
    """Delimited lines, most of which are odd or damaged."""
    declared, dialect = rnd.sample(LINE_COLUMNS, rnd.randrange(1, 5)), rnd.choice(DIALECTS)
    decoder = line_decoder(library, declared, {name for name, _ in declared if rnd.random() < 0.7}, dialect)
    there = NativeValues(draw_lines(rnd, dialect, declared, ROWS // 2))
    rows = decoder.decode(there.addresses, there.lengths, len(there))
    assert pl.concat([rows.frame, rows.frame]).height == 2 * rows.frame.height


class Loaded(NamedTuple):
    """See Library."""

    free: ctypes.CDLL


def draw_damaged(rnd: random.Random) -> Written:
    """A record as the client accepts it: its length is right, and its headers were not looked at."""
    key, value, headers = draw_record(rnd)
    one = write_record(
        key, value, headers, rnd.choice((0, 64, 10**9)), rnd.choice((0, 64)), rest=rnd.randbytes(rnd.choice((0, 0, 3)))
    )
    tail = bytearray(one.data[one.headers :])
    for _ in range(rnd.choice((0, 1, 2))):
        tail[rnd.choice((0, 1, -1, rnd.randrange(len(tail)))) % len(tail)] = rnd.choice((0, 1, 2, 0x7F, 0x80, 0xFF))
    return Written(one.data[: one.headers] + bytes(tail), one.key, one.value, one.headers)


def hand_over(library: Library, rnd: random.Random) -> None:
    """Records of any parts to a producer without brokers, from a row on; then all are given up."""
    producer = clients.producer({"bootstrap.servers": "127.0.0.1:1", "message.max.bytes": 100_000})
    lib = find_librdkafka()
    assert isinstance(lib, Librdkafka), lib
    way = NativeProducing(library, lib, lib.handle_of(producer))
    records = draw_records(rnd, ROWS)
    count, partitions = len(records), rnd.choice((0, 1, 5, 1000))
    end = rnd.randrange(1, count)
    assert way.produce("t", records, 0, end, partitions) == end
    assert way.produce("t", records, end, count, partitions) == count
    exact = ExactRecords(rnd, listed(records))
    assert library.free.tg_records_bytes(ctypes.byref(exact.columns), count) == records.size_bytes
    arrangement = Arrangement(library, exact.columns, count, lib.address["msg_partitioner_murmur2"], partitions)
    assert way.hand_over("t", exact.columns, arrangement, 0, count).taken == count
    producer.purge()
    while len(producer):
        producer.poll(0.01)
    assert way.take_undelivered()[0] == 2 * count
    del producer
    way.close()


def add_to_totals(library: ctypes.CDLL, rnd: random.Random) -> None:
    """Rows and totals in blocks of their size, also some that do not belong together."""
    for _ in range(8):
        drawn = draw_totals(rnd)
        totals = NativeTotals(library, drawn.totals, LentExactly)
        results, fields, left = totals.run(drawn.numbers, drawn.keys, drawn.added)
        assert sum(map(len, left)) <= sum(column.null_count() for column in results)
        assert all(pl.concat([column, column]).len() == 2 * drawn.keys for column in fields)
        totals.last_rows(drawn.numbers, drawn.keys)
        try:
            wrong = damage(rnd, drawn)
            totals.run(wrong.numbers, wrong.keys, wrong.added)
        except ValueError:
            continue
        raise AssertionError("columns that do not belong together were taken")


def write_json(library: ctypes.CDLL, rnd: random.Random) -> None:
    """Columns of which every text is a block of its own, and doubles of any bits."""
    texts = [rnd.choice((None, draw_text(rnd).encode())) for _ in range(ROWS)]
    moments = [rnd.choice((None, rnd.randrange(-(2**63), 2**63) >> rnd.choice((0, 8, 40)))) for _ in range(ROWS)]
    numbers = [rnd.choice((None, rnd.randrange(-(2**31), 2**31) >> rnd.choice((0, 8, 40)))) for _ in range(ROWS)]
    columns = ExactRecords(rnd, Listed(texts, texts, moments, None, numbers))
    kinds = ("string", "string", rnd.choice(("timestamp", "bigint", "double")), rnd.choice(("date", "int")))
    writer = JsonWriter(library, [(b'{"%d":' % place, kind) for place, kind in enumerate(kinds)])
    at = columns.columns
    written = writer.write_at([at.values, at.keys, at.timestamps_ms, at.partitions], ROWS)
    assert written is None or len(written) == ROWS


def main() -> None:
    """See the module. Prints how many records were decoded and how many left over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    library, rnd, decoded = ctypes.CDLL(given.library), random.Random(given.seed), 0
    arrow, record = ArrowFunctions(library), DataType("struct", fields=COLUMNS)
    for _ in range(0, given.records, ROWS):
        there = NativeValues(draw_values(rnd))
        wanted = {name for name, _ in COLUMNS if rnd.random() < rnd.choice((0.3, 1))}
        decoder = RecordDecoder(library, record, wanted, strict=rnd.random() < 0.3, needs_field=rnd.random() < 0.5)
        rows = decoder.decode(there.addresses, there.lengths, len(there))
        copies = arrow.view_column("v", there.addresses, there.lengths, len(there), rnd.choice((1_000_000, 2**31 - 1)))
        assert copies.len() == len(there)
        assert pl.concat([rows.frame, rows.frame]).height == 2 * rows.frame.height
        decoded += rows.frame.height
        decode_avro(library, rnd)
        decode_changes(library, rnd)
        if rnd.random() < 0.3:
            decode_msgpack(library, rnd)
        decode_lines(library, rnd)
        add_to_totals(library, rnd)
        write_json(library, rnd)
        messages = Messages([draw_damaged(rnd) for _ in range(ROWS // 4)])
        messages.headers(library)
        messages.record_bytes(library)
    for _ in range(10):
        hand_over(Library(Path(given.library)), rnd)
        live_as_state(Library(Path(given.library)), rnd)
    for _ in range(20):
        number_partitions(Library(Path(given.library)), rnd)
        hash_keys(Library(Path(given.library)), rnd)
    print(f"seed {given.seed}: {decoded} of {given.records} records decoded, no report")


if __name__ == "__main__":
    main()
