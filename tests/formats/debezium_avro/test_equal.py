"""Events in Avro are what the same events in JSON are: frames and failing rows of generated tables, in both."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import pytest
from polars.testing import assert_frame_equal

from tests.depth import DEPTH
from tests.formats.avro.readers import READERS, reading_by
from tests.formats.batches import messages_of
from tests.formats.debezium_avro.any_changes import Table, draw_event, draw_table
from tests.formats.memory_batches import InMemory, Loaded
from tidegate.config.fields.columns import derive_type
from tidegate.formats import schema_decoder
from tidegate.formats.contract import Columns, Decoded, Messages
from tidegate.formats.kinds.debezium.avro_decoder import change_decoder
from tidegate.formats.registry import FORMATS
from tidegate.formats.schema_decoder import SchemaReader
from tidegate.formats.schemas import FormatOptions, KnownSchemas

AVRO, JSON = FORMATS["debezium-avro"], FORMATS["debezium"]


@pytest.fixture(autouse=True, scope="module")
def library() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_decoder, "loaded", Loaded)
        yield


def columns_of(declared: Mapping[str, str]) -> Columns:
    return tuple(AVRO.read_columns({name: derive_type(kind) for name, kind in declared.items()}).items())


def decoded(
    tables: Sequence[Table],
    columns: Columns,
    output: Columns,
    values: Sequence[bytes | None],
    *,
    kinds: bool,
    reader: str,
) -> Decoded:
    known = KnownSchemas({one.id: one.text for one in tables})
    made = change_decoder(columns, output, FormatOptions(row_kinds=kinds), known)
    with reading_by(reader):
        found = made.decode(messages_of(values))
    assert isinstance(found, Decoded)
    for one in made._written.values():
        assert not isinstance(one, SchemaReader) or (one.certain is not None) is (reader == "C")
    assert found.frame.height + len(found.failures) == len(values)
    return found


def decoded_in_place(
    tables: Sequence[Table], columns: Columns, output: Columns, values: Sequence[bytes], *, kinds: bool
) -> Decoded:
    """By C, as far as it goes: with one table that is all good events."""
    known = KnownSchemas({one.id: one.text for one in tables})
    made = change_decoder(columns, output, FormatOptions(row_kinds=kinds), known)
    made.decode(messages_of(values))
    messages = InMemory(values)
    found = made.decode(cast("Messages", messages))
    assert isinstance(found, Decoded)
    assert not messages.asked or len(tables) > 1
    return found


def draw_output(draw: random.Random, columns: Columns) -> Columns:
    return columns if draw.random() < 0.6 else draw.sample(list(columns), draw.randrange(len(columns) + 1))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12 * DEPTH))
def test_the_same_events_in_both_encodings(seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    first, declared = draw_table(draw, 1)
    tables = [first]
    while draw.random() < 0.4:
        tables.append(draw_table(draw, len(tables) + 1, tables[-1])[0])
    columns = columns_of(declared)
    output = draw_output(draw, columns)
    events = [(table := draw.choice(tables), draw_event(draw, table)) for _ in range(draw.choice([5, 60, 200]))]
    in_json = [table.event_in_json(event, list(declared)) for table, event in events]
    in_avro = [table.event_in_avro(event) for table, event in events]
    for kinds in (False, True):
        expected = JSON.decoder(columns, output, FormatOptions(row_kinds=kinds), KnownSchemas()).decode(
            messages_of(in_json)
        )
        assert isinstance(expected, Decoded)
        in_c, by_fastavro = (
            decoded(tables, columns, output, in_avro, kinds=kinds, reader=reader) for reader in READERS
        )
        for found in (in_c, by_fastavro):
            assert [(one.row, one.kind) for one in found.failures] == [
                (one.row, one.kind) for one in expected.failures
            ], (declared, found.failures, expected.failures)
            assert_frame_equal(found.frame, expected.frame)
        again = decoded_in_place(tables, columns, output, in_avro, kinds=kinds)
        assert (again.frame.equals(in_c.frame), list(again.failures)) == (True, list(in_c.failures))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12 * DEPTH))
def test_spoilt_bytes_are_read_alike_on_both_ways(seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    table, declared = draw_table(draw, 1)
    columns = columns_of(declared)
    values = [table.event_in_avro(draw_event(draw, table)) for _ in range(120)]
    for place in draw.sample(range(120), draw.choice([1, 5, 60])):
        values[place] = spoilt(draw, values[place])
    fast = decoded([table], columns, columns, values, kinds=True, reader="C")
    slow = decoded([table], columns, columns, values, kinds=True, reader="fastavro")
    assert [(one.row, one.kind, one.message) for one in fast.failures] == [
        (one.row, one.kind, one.message) for one in slow.failures
    ]
    assert_frame_equal(fast.frame, slow.frame)
    again = decoded_in_place([table], columns, columns, values, kinds=True)
    assert (again.frame.equals(slow.frame), list(again.failures)) == (True, list(slow.failures))


def spoilt(draw: random.Random, value: bytes) -> bytes:
    match draw.randrange(4):
        case 0:
            return value[: draw.randrange(5, len(value))]
        case 1:
            return value + draw.randbytes(draw.randrange(1, 4))
        case 2:
            place = draw.randrange(5, len(value))
            return value[:place] + draw.randbytes(1) + value[place + 1 :]
    start = draw.randrange(5, len(value))
    return value[:start] + draw.randbytes(draw.randrange(1, 20)) + value[start:]
