"""Both readers and the encoder mean the same by the same bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from tests.depth import DEPTH
from tests.formats.avro.any_avro import Refused, batches, decoder_of, evolutions, reference, text_of
from tests.formats.avro.readers import READERS, reading_by
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.schemas import FormatOptions


def rows_of(schema: Any, messages: list[bytes]) -> list[list[Any] | None]:
    made: list[list[Any] | None] = []
    for message in messages:
        try:
            made.append(reference(schema, message))
        except Refused:
            made.append(None)
    return made


def decode(schema: Any, messages: list[bytes]) -> Decoded:
    decoded = decoder_of(schema).decode_values(messages)
    assert isinstance(decoded, Decoded)
    return decoded


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=20 * DEPTH, deadline=None, print_blob=True)
@given(batches())
def test_every_record_is_what_fastavro_reads(reader: str, batch: tuple[dict[str, Any], list[bytes]]) -> None:
    schema, messages = batch
    expected = rows_of(schema, messages)
    with reading_by(reader):
        decoded = decode(schema, messages)
    assert [failure.row for failure in decoded.failures] == [row for row, one in enumerate(expected) if one is None]
    assert [list(row) for row in decoded.frame.rows()] == [one for one in expected if one is not None]


@pytest.mark.slow
@settings(max_examples=20 * DEPTH, deadline=None, print_blob=True)
@given(batches())
def test_what_is_decoded_is_encoded_to_the_bytes_that_it_had(batch: tuple[dict[str, Any], list[bytes]]) -> None:
    schema, messages = batch
    decoded = decode(schema, messages)
    bad = {failure.row for failure in decoded.failures}
    text = text_of(schema)
    columns = tuple(FORMAT.schema_columns(text).items())
    encoded = FORMAT.encoder(columns, FormatOptions(text)).encode(decoded.frame)
    assert not encoded.failures
    again = decode(schema, encoded.columns["value"].to_list())
    assert not again.failures
    assert again.frame.equals(decoded.frame)
    if "nanos" not in text.text and "uuid" not in text.text:
        assert encoded.columns["value"].to_list() == [one for row, one in enumerate(messages) if row not in bad]


@pytest.mark.slow
@pytest.mark.parametrize("by", READERS)
@settings(max_examples=25 * DEPTH, deadline=None, print_blob=True)
@given(evolutions())
def test_a_reader_with_another_schema_reads_what_fastavro_reads(
    by: str,
    drawn: tuple[dict[str, Any], dict[str, Any], list[bytes]],
) -> None:
    schema, reader, messages = drawn
    expected: list[list[Any] | None] = []
    for message in messages:
        try:
            expected.append(reference(schema, message, reader))
        except Refused:
            expected.append(None)
    with reading_by(by):
        decoded = decoder_of(schema, reader).decode_values(messages)
    assert isinstance(decoded, Decoded)
    assert [failure.row for failure in decoded.failures] == [row for row, one in enumerate(expected) if one is None]
    assert [list(row) for row in decoded.frame.rows()] == [one for one in expected if one is not None]
