"""Avro decoded in C: never another value or another failure than fastavro's, and ordinary data wholly in C."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.formats.avro.any_avro import (
    PREFIX,
    batches,
    decoder_of,
    encode,
    evolutions,
    oddly_defaulted,
    record_of,
    text_of,
)
from tests.formats.avro.ordinary import ORDINARY, READ, damaged, ordinary, raw_of
from tests.formats.avro.readers import reading_by
from tests.formats.memory_batches import InMemory, Loaded, is_same
from tests.formats.schemas_of_json import array_of
from tests.native.values import NativeValues
from tidegate.datatypes import BIGINT, DOUBLE, STRING
from tidegate.formats import schema_decoder
from tidegate.formats.contract import Decoded, ValueMemory, WaitingForSchema
from tidegate.formats.in_memory import MemoryDecoder
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.schema_decoder import SchemaReader
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaText

OTHER = b"\0\0\0\0\x08"


@pytest.fixture(autouse=True, scope="module")
def library() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_decoder, "loaded", Loaded)
        yield


def check(made: AvroDecoder, messages: Sequence[bytes | None]) -> tuple[int, int, int] | None:
    """How many are decoded in C, how many are left over and good, and how many are bad. None: none is read in C."""
    careful = copy(made)
    careful._written = {}
    with reading_by("fastavro"):
        expected = careful.decode_values(messages)
    assert isinstance(expected, Decoded)
    made.decode_values(messages)
    written = next((one for one in made._written.values() if isinstance(one, SchemaReader)), None)
    if written is None or written.certain is None:
        return None
    there = NativeValues(messages)
    memory = ValueMemory(there.addresses, there.lengths, len(messages))
    found = MemoryDecoder(written.certain, careful.decode_values).decode(memory)
    assert isinstance(found, Decoded)
    assert is_same(found.frame, expected.frame)
    assert found.failures == expected.failures
    objects = made.decode_values(messages)
    assert isinstance(objects, Decoded)
    assert is_same(objects.frame, expected.frame)
    assert objects.failures == expected.failures
    left = written.certain.decode(*memory).left
    bad = len(expected.failures)
    return len(messages) - len(left), len(left) - bad, bad


@pytest.mark.slow
@settings(max_examples=30 * DEPTH, deadline=None, print_blob=True)
@given(batches(), st.integers(0, 2**32))
def test_any_record_has_the_same_fate(batch: tuple[dict[str, Any], list[bytes]], seed: int) -> None:
    """Good, odd and damaged ones together."""
    schema, messages = batch
    rnd = random.Random(seed)
    given = [damaged(rnd, one) if rnd.random() < 0.4 else one for one in messages]
    check(decoder_of(schema), [*messages[:1], *given, None, b"", b"\0"])


@pytest.mark.slow
@settings(max_examples=30 * DEPTH, deadline=None, print_blob=True)
@given(evolutions(), st.integers(0, 2**32))
def test_any_record_has_the_same_fate_with_a_schema_of_the_readers(
    drawn: tuple[dict[str, Any], dict[str, Any], list[bytes]], seed: int
) -> None:
    schema, reader, messages = drawn
    rnd = random.Random(seed)
    check(decoder_of(schema, reader), [*messages, *(damaged(rnd, one) for one in messages)])


def columns_read() -> list[tuple[str, Any]]:
    columns = FORMAT.schema_columns(text_of(ORDINARY))
    return [(name, columns[name]) for name in READ]


@pytest.mark.slow
def test_ordinary_records_are_decoded_in_c_all_of_them() -> None:
    """Every type at its limits, a union of several that nobody reads: else the tests compare fastavro with itself."""
    rnd = random.Random(1)
    messages = [encode(raw_of(ORDINARY), ordinary(rnd)) for _ in range(300)]
    assert check(decoder_of(ORDINARY, declared=columns_read()), messages) == (300, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_some_columns_are_read_and_all_that_are_declared_are_checked(share: float) -> None:
    rnd = random.Random(2)
    declared = columns_read()
    known = KnownSchemas({7: text_of(ORDINARY)})
    messages: list[bytes | None] = []
    for _ in range(300):
        record = ordinary(rnd)
        if rnd.random() < 0.2:
            record["day"] = 2_932_897
        messages.append(encode(raw_of(ORDINARY), record))
    read = [one for one in declared if rnd.random() < share]
    found = check(AvroDecoder(declared, read, FormatOptions(), known), messages)
    assert found is not None
    certain, left, bad = found
    assert (certain + bad, left) == (300, 0)
    assert bad > 30


WIDER = record_of(("i", "int"), ("l", "long"), ("f", "float"), ("s", "string"))
WIDER_COLUMNS = [("i", BIGINT), ("l", DOUBLE), ("f", DOUBLE), ("missing", STRING), ("s", STRING)]


def test_wider_types_and_fields_that_were_not_written() -> None:
    rows = [{"i": -1, "l": 2**53 + 1, "f": 0.1, "s": "x"}, {"i": 2**31 - 1, "l": -(2**63), "f": -0.0, "s": ""}]
    assert check(decoder_of(WIDER, declared=WIDER_COLUMNS), [encode(WIDER, row) for row in rows]) == (2, 0, 0)


def test_a_default_of_the_writers_may_be_anything() -> None:
    for writer, message in oddly_defaulted():
        assert check(decoder_of(writer, declared=[("id", BIGINT)]), [message] * 2) == (2, 0, 0)


@pytest.mark.parametrize(
    ("kind", "default"),
    [(["double", "string"], 0), (["bytes", "long"], "\0"), (["double", "long"], 0), (["null", "int", "string"], None)],
    ids=str,
)
def test_a_default_of_a_union_of_several_types_is_a_constant(kind: list[str], default: Any) -> None:
    writer, reader = record_of(("id", "long")), record_of(("id", "long"), ("u", kind, default))
    assert check(decoder_of(writer, reader), [encode(writer, {"id": row}) for row in range(60)]) == (60, 0, 0)


LONGS = {
    "more than an int": b"\x80\x80\x80\x80\x20",
    "ten bytes": b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "more than a long": b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02",
    "eleven bytes": b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    "longer than it need be": b"\x82\x80\x00",
    "without end": b"\x80",
}


@pytest.mark.parametrize("number", LONGS.values(), ids=LONGS)
@pytest.mark.parametrize("kind", ["int", "long", {"type": "enum", "name": "E", "symbols": ["A", "B"]}])
def test_odd_numbers(kind: Any, number: bytes) -> None:
    schema = record_of(("v", kind), ("after", "string"))
    good = PREFIX + b"\0" + b"\2x"
    check(decoder_of(schema), [good, PREFIX + number + b"\2x"])
    passed_over = decoder_of(schema, declared=[("after", STRING)])
    check(passed_over, [good, PREFIX + number + b"\2x"])


BLOCKS = {
    "with its size": b"\1\2\6\0",
    "of two and one": b"\4\2\4\2\6\0",
    "more than there is": b"\xfe\xff\xff\xff\x0f\2",
    "without end": b"\2\2",
    "of none": b"\0",
}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
@pytest.mark.parametrize("name", ["v", "w"])
def test_odd_lists(name: str, block: bytes) -> None:
    schema = record_of((name, {"type": "array", "items": "long"}))
    check(decoder_of(schema, declared=[("v", array_of(BIGINT))]), [PREFIX + b"\0", PREFIX + block])


def waiting_decoder() -> AvroDecoder:
    """Of records with the ids 7 and 8."""
    other = record_of(("i", "long"), ("s", ["null", "string"]))
    known = KnownSchemas({7: text_of(WIDER), 8: text_of(other, 8)})
    columns = [("i", BIGINT), ("s", STRING)]
    return AvroDecoder(columns, columns, FormatOptions(), known)


def of_eight(number: int) -> bytes:
    other = record_of(("i", "long"), ("s", ["null", "string"]))
    return OTHER + encode(other, {"i": number, "s": None}).removeprefix(PREFIX)


def of_seven(number: int) -> bytes:
    return encode(WIDER, {"i": number, "l": 0, "f": 0.0, "s": "seven"})


def decode(made: AvroDecoder, messages: InMemory) -> Decoded:
    found = made.decode(messages)  # type: ignore[arg-type]  # it has what is asked for
    assert isinstance(found, Decoded)
    return found


def test_a_decoder_reads_in_place_what_most_records_of_the_last_batch_were() -> None:
    made = waiting_decoder()
    first = InMemory([of_seven(number) for number in range(10)])
    assert decode(made, first).frame["i"].to_list() == [*range(10)]
    assert first.asked == 1, "nothing was known of the first batch"
    mixed = InMemory([of_seven(1), of_eight(2), None, of_seven(3), b"?", of_eight(4), of_seven(5), of_seven(6)])
    found = decode(made, mixed)
    assert found.frame["i"].to_list() == [1, 2, 3, 4, 5, 6]
    assert [one.row for one in found.failures] == [2, 4]
    assert mixed.asked == 0
    changed = InMemory([of_eight(number) for number in range(10)])
    assert decode(made, changed).frame["i"].to_list() == [*range(10)]
    assert made._most is made._written[OTHER], "the writers have a new schema"


def test_records_wait_for_a_schema_whatever_else_is_in_their_batch() -> None:
    made = waiting_decoder()
    decode(made, InMemory([of_seven(1)]))

    class Asking(KnownSchemas):
        def get(self, schema_id: int | str, /) -> SchemaText | None:
            return None

    made._schemas = Asking()
    found = made.decode(InMemory([of_seven(1), b"\0\0\0\0\x09abc", of_seven(2)]))  # type: ignore[arg-type]  # as above
    assert isinstance(found, WaitingForSchema)
    assert decode(made, InMemory([of_seven(1)])).frame["i"].to_list() == [1]
