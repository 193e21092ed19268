"""Golden messages of Protocol Buffers: read, read as the library reads what is left of them, and written again."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tests.formats.protobuf.test_fuzz import comparable, reference, row_of
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.protobuf import FORMAT
from tidegate.formats.kinds.protobuf.schema import find_message
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText

HERE: Final = Path(__file__).with_name("protobuf")
FILES: Final[Mapping[str, FileDescriptorProto]] = {
    one.name: one for one in FileDescriptorSet.FromString((HERE / "unittest.pb").read_bytes()).file
}
ALL_TYPES, PACKED, UNPACKED = (f"protobuf_unittest.Test{name}Types" for name in ("All", "Packed", "Unpacked"))
GOLDEN: Final = {
    "golden_message_oneof_implemented": ALL_TYPES,
    "golden_packed_fields_message": PACKED,
}


STEP: Final = 5


def text_of(file: FileDescriptorProto, message: str = "", number: int = 0) -> SchemaText:
    """As the registry gives it."""
    references = tuple((name, text_of(FILES[name])) for name in file.dependency)
    text = base64.b64encode(file.SerializeToString()).decode()
    return SchemaText(SchemaKind.PROTOBUF, text, references, number, message=message)


def schema_of(message: str) -> SchemaText:
    return text_of(FILES["google/protobuf/unittest.proto"], message, 7)


def framed(message: str, body: bytes) -> bytes:
    """With the id 7 and the place of the message in its file; all that are used here are at the top."""
    (place,) = find_message(schema_of(message)).place
    varint = bytes([2 * place]) if 2 * place < 128 else bytes([(2 * place) & 127 | 128, 2 * place >> 7])
    return b"\0\0\0\0\x07" + (b"\0" if place == 0 else b"\x02" + varint) + body


def decode(message: str, bodies: list[bytes]) -> Decoded:
    """Rows of records that say they are of this message."""
    schema = schema_of(message)
    columns = tuple(FORMAT.schema_columns(schema).items())
    decoder: Any = FORMAT.decoder(columns, columns, FormatOptions(schema), KnownSchemas({7: schema_of("")}))
    found = decoder.decode_values([framed(message, body) for body in bodies])
    assert isinstance(found, Decoded)
    return found


def read(name: str) -> bytes:
    return (HERE / name).read_bytes()


@pytest.mark.parametrize("name", ["golden_message_oneof_implemented"])
def test_a_golden_message_is_what_its_text_says(name: str) -> None:
    expected = text_format.Parse((HERE / f"{name}.txt").read_text(), find_message(schema_of(ALL_TYPES)).made())
    found = decode(ALL_TYPES, [read(name)])
    assert list(found.failures) == []
    assert found.frame.to_dicts() == [row_of(expected)]
    assert found.frame["repeated_uint64"].to_list() == [[Decimal(204), Decimal(304)]]


@pytest.mark.parametrize("target", [PACKED, UNPACKED])
def test_packed_fields_are_read_whether_the_schema_packs_them_or_not(target: str) -> None:
    """Field numbers are the same in both."""
    found = decode(target, [read("golden_packed_fields_message")])
    assert list(found.failures) == []
    (row,) = found.frame.to_dicts()
    assert row["packed_int32" if target == PACKED else "unpacked_int32"] == [601, 701]
    assert list(row.values())[-1] == ["FOREIGN_BAR", "FOREIGN_BAZ"]


@pytest.mark.slow
@pytest.mark.parametrize("name", GOLDEN)
def test_what_is_left_of_a_golden_message_is_read_as_the_library_reads_it(name: str) -> None:
    """Cut, with a changed bit, and twice, which adds to lists and replaces single values."""
    whole, made = read(name), find_message(schema_of(GOLDEN[name])).made
    bodies = [whole[:end] for end in range(0, len(whole), STEP)]
    bodies += [whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :] for at in range(0, len(whole), STEP)]
    bodies.append(whole + whole)
    found = decode(GOLDEN[name], bodies)
    expected = [reference(made, body) for body in bodies]
    assert [one.row for one in found.failures] == [row for row, one in enumerate(expected) if one is None]
    assert 0 < len(found.failures) < len(bodies)
    assert comparable(found.frame.to_dicts()) == comparable([one for one in expected if one is not None])


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_message_is_written_again(name: str) -> None:
    schema, message = schema_of(GOLDEN[name]), GOLDEN[name]
    found = decode(message, [read(name)])
    columns = tuple(FORMAT.schema_columns(schema).items())
    encoded = FORMAT.encoder(columns, FormatOptions(schema)).encode(found.frame)
    assert list(encoded.failures) == []
    (value,) = encoded.columns["value"].to_list()
    assert value == framed(message, read(name))
