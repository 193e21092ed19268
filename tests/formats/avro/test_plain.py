"""Values as people write them in tests, in schemas with unions of several types."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.avro.any_avro import record_of, text_of
from tests.formats.typed_values import TYPES, values_of
from tidegate.datatypes import BOOLEAN, INT, STRING, DataType
from tidegate.formats.columns import make_column
from tidegate.formats.contract import Decoded, FormatRefusal
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.kinds.avro.columns import derive_type, schema_text
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.kinds.avro.encoder import AvroEncoder
from tidegate.formats.kinds.avro.plain import PlainEncoder
from tidegate.formats.kinds.avro.schema import AvroField, AvroType, parse_schema
from tidegate.formats.schemas import FormatOptions, KnownSchemas, SchemaKind, SchemaText, known_schemas

POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
UNION = ["null", "string", POINT, {"type": "map", "values": "int"}, NANOS, PRICE, {"type": "array", "items": "float"}]


def options_of(kind: Any) -> FormatOptions:
    return FormatOptions(text_of(record_of(("u", kind), ("n", ["int", "null"]))))


@pytest.mark.parametrize(
    ("kind", "member", "value"),
    [
        (UNION, "member0", "é"),
        (UNION, "member1", {"x": -1}),
        (UNION, "member2", {"x": 1, "y": 2}),
        (UNION, "member3", "1969-12-31T23:59:59.999999Z"),
        (UNION, "member4", Decimal("-1.25")),
        (UNION, "member5", [0.5, -2.0]),
        (["string", {"type": "enum", "name": "E", "symbols": ["A", "B"]}], "member1", "B"),
        (["boolean", {"type": "fixed", "name": "F", "size": 2}], "member1", "AAE="),
        (["boolean", {"type": "fixed", "name": "F", "size": 2}], "member0", True),
        (["int", "long"], "member1", 5),
        (["float", "null", "double"], "member0", Decimal("0.5")),
    ],
)
def test_the_member_that_is_set_is_written(kind: Any, member: str, value: Any) -> None:
    options = options_of(kind)
    found = FORMAT.to_plain(FORMAT.from_plain({"u": {member: value}, "n": 7}, options), options)
    assert {name: one for name, one in found["u"].items() if one is not None} == {member: value}
    assert found["n"] == 7


def test_null_has_no_member() -> None:
    options = options_of(UNION)
    found = FORMAT.to_plain(FORMAT.from_plain({"u": None}, options), options)
    assert found == {"u": None, "n": None}


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({}, "`u`: 0 members of the union are set"),
        ({"member0": "a", "member1": {"x": 1}}, "`u`: 2 members of the union are set"),
        ({"member1": {}}, "`u`: `x`: a NULL where the schema has int, which is not nullable"),
        ({"member3": "9999-01-01T00:00:00Z"}, "`u`: too far from 1970 for nanoseconds"),
        ({"member0": 5}, "WRONG_TYPE"),
    ],
)
def test_what_is_no_value_of_the_union_is_refused(value: Any, reason: str) -> None:
    with pytest.raises(FormatRefusal, match=reason):
        FORMAT.from_plain({"u": value}, options_of(UNION))


def _writable(kind: DataType) -> bool:
    try:
        FORMAT.derive_schema({"v": kind}, "t")
    except FormatRefusal:
        return False
    return True


@given(TYPES.filter(_writable).flatmap(lambda kind: st.tuples(st.just(kind), values_of(kind))))
def test_all_else_is_written_as_sinks_write_it(table: tuple[DataType, Any]) -> None:
    kind, value = table
    options = FormatOptions(FORMAT.derive_schema({"v": kind}, "t"))
    assert options.schema is not None
    frame = pl.DataFrame([make_column("v", kind, [value])])
    sink = AvroEncoder((("v", kind),), options).encode(frame)
    plain = PlainEncoder(parse_schema(options.schema), b"\0\0\0\0\0").encode(frame)
    assert not sink.failures
    assert plain.columns.rows() == sink.columns.rows()


@st.composite
def unions(draw: st.DrawFn) -> tuple[list[tuple[AvroType, DataType]], int, Any]:
    """Types of a union, the place of one of them, and a value of it."""
    kinds = [kind for kind in draw(st.lists(TYPES, max_size=4)) if _writable(kind)]
    kinds.insert(draw(st.integers(0, len(kinds))), DataType("struct", fields=(("x", INT), ("y", STRING))))
    kinds.insert(draw(st.integers(0, len(kinds))), BOOLEAN)
    found: dict[str, tuple[AvroType, DataType]] = {}
    for index, kind in enumerate(kinds):
        one = derive_type(kind, f"R{index}")
        found.setdefault(one.name or one.kind, (one, kind))
    types = list(found.values())
    place = draw(st.integers(0, len(types) - 1))
    value = draw(values_of(types[place][1]))
    if value is None:
        place = next(index for index, (_, kind) in enumerate(types) if kind == BOOLEAN)
        value = draw(st.booleans())
    return types, place, value


@pytest.mark.slow
@given(unions())
def test_any_member_is_read_as_the_one_that_was_written(
    drawn: tuple[list[tuple[AvroType, DataType]], int, Any],
) -> None:
    types, place, value = drawn
    union = AvroType("union", branches=tuple(one for one, _ in types))
    record = AvroType("record", "T", fields=(AvroField("u", union),))
    options = FormatOptions(SchemaText(SchemaKind.AVRO, schema_text(record), id=7))
    columns = tuple(FORMAT.schema_columns(SchemaText(SchemaKind.AVRO, schema_text(record))).items())
    row = tuple(value if index == place else None for index in range(len(types)))
    frame = pl.DataFrame([make_column("u", columns[0][1], [row])])
    encoded = PlainEncoder(record, b"\0\0\0\0\7").encode(frame)
    found = AvroDecoder(columns, columns, options, known_schemas(options)).decode_values(list(encoded.columns["value"]))
    assert isinstance(found, Decoded)
    assert (list(encoded.failures), list(found.failures)) == ([], [])
    assert found.frame.equals(frame)


@pytest.mark.slow
@given(unions(), st.randoms(use_true_random=False))
def test_a_reader_finds_the_member_wherever_the_writer_has_it(
    drawn: tuple[list[tuple[AvroType, DataType]], int, Any], draw: random.Random
) -> None:
    types, place, value = drawn
    others = [one for index, (one, _) in enumerate(types) if index != place and draw.random() < 0.5]
    branches = draw.sample([types[place][0], *others], 1 + len(others))
    one = branches[0] if len(branches) == 1 and draw.random() < 0.5 else AvroType("union", branches=tuple(branches))
    written = AvroType("record", "T", fields=(AvroField("u", one),))
    read = AvroType(
        "record", "T", fields=(AvroField("u", AvroType("union", branches=tuple(each for each, _ in types))),)
    )
    writer, reader = (SchemaText(SchemaKind.AVRO, schema_text(each), id=7) for each in (written, read))
    given_as = value if len(branches) == 1 else tuple(value if each == types[place][0] else None for each in branches)
    frame = pl.DataFrame([make_column("u", FORMAT.schema_columns(writer)["u"], [given_as])])
    values = list(PlainEncoder(written, b"\0\0\0\0\7").encode(frame).columns["value"])
    columns = tuple(FORMAT.schema_columns(reader).items())
    found = AvroDecoder(columns, columns, FormatOptions(reader), KnownSchemas({7: writer})).decode_values(values)
    assert isinstance(found, Decoded)
    assert list(found.failures) == []
    row = tuple(value if index == place else None for index in range(len(types)))
    assert found.frame.equals(pl.DataFrame([make_column("u", columns[0][1], [row])]))
