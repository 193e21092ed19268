"""Files of Avro as the records of a source."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pytest

from tests.formats.avro.any_avro import decoder_of, encode, record_of, text_of
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions

SCHEMA = record_of(("id", "long"), ("name", ["null", "string"], None))


def file_of(schema: Any, records: list[Any], codec: str = "deflate") -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records, codec=codec)
    return stream.getvalue()


def values_in(data: bytes, schema: Any = SCHEMA) -> list[bytes] | None:
    found = FORMAT.file_values(io.BufferedReader(io.BytesIO(data)), FormatOptions(text_of(schema)))
    return None if found is None else list(found)


def test_records_are_those_of_a_topic() -> None:
    other = record_of(("more", "int"), ("id", "int"), name="Other")
    records = [{"id": one, "more": 0} for one in range(3)]
    found = values_in(file_of(other, records))
    assert found == [encode(SCHEMA, {"id": one, "name": None}) for one in range(3)]
    assert decoder_of(SCHEMA).decode_values(found).frame.rows() == [(one, None) for one in range(3)]  # type: ignore[union-attr]  # not waiting


def test_what_is_no_file_of_avro_is_read_as_lines() -> None:
    assert values_in(b'{"id": 1}\n') is None
    assert values_in(b"") is None
    assert FORMAT.file_values(io.BytesIO(b"Obj\1"), NO_OPTIONS) is None


@pytest.mark.parametrize("size", [4, 60, -20, -3])
def test_a_file_that_is_cut_is_reported(size: int) -> None:
    data = file_of(SCHEMA, [{"id": one, "name": "x" * 50} for one in range(3)], codec="null")
    with pytest.raises(ValueError, match="it is no whole Avro file"):
        values_in(data[:size])


def test_a_record_that_does_not_fit_is_reported() -> None:
    data = file_of(record_of(("id", "string")), [{"id": "a"}])
    with pytest.raises(ValueError, match="record 1 of the file does not fit the source's schema"):
        values_in(data)


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz"])
def test_a_compressed_block_that_is_damaged_is_reported(codec: str) -> None:
    data = bytearray(file_of(SCHEMA, [{"id": one, "name": "x" * 50} for one in range(3)], codec))
    data[-24:-18] = b"\xff" * 6
    with pytest.raises(ValueError, match="it is no whole Avro file"):
        values_in(bytes(data))
