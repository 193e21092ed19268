"""Unions of several types: of which of them a value is, and what it means there."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest

from tests.formats.avro.any_avro import PREFIX, decoder_of, encode, record_of, text_of
from tests.formats.avro.test_decoder import COLOURS, DECIMAL, POINT, decoded, failures
from tidegate.formats.kinds.avro import FORMAT
from tidegate.formats.kinds.avro.decoder import AvroDecoder
from tidegate.formats.schemas import FormatOptions, KnownSchemas


def test_a_union_is_a_struct_of_which_one_field_is_set() -> None:
    schema = record_of(("u", ["null", "string", POINT, {"type": "array", "items": "int"}, COLOURS, "double"]))
    values = [None, "a", {"x": 1, "y": 2}, [1], ("Colour", "RED"), 0.5]
    found = decoded(decoder_of(schema), [encode(schema, {"u": value}) for value in values])
    kinds = ["member0", "member1", "member2", "member3", "member4"]
    expected = ["a", {"x": 1, "y": 2}, [1], "RED", 0.5]
    assert [row[0] for row in found.frame.rows()] == [
        None,
        *(
            {name: value if place == index else None for place, name in enumerate(kinds)}
            for index, value in enumerate(expected)
        ),
    ]


SYMBOL = {"type": "enum", "name": "Symbol", "symbols": ["A", "B"]}
PAIR = {"type": "fixed", "name": "Pair", "size": 2}
NUMBERS = {"type": "map", "values": "int"}
ONE, TWO = (
    {
        "type": "record",
        "name": name,
        "fields": [{"name": one, "type": ["null", "int"], "default": None} for one in fields],
    }
    for name, fields in (("One", "x"), ("Two", "xy"))
)


@pytest.mark.parametrize(
    ("written", "read", "value", "member", "expected"),
    [
        (["null", ONE, NUMBERS], None, {"x": 1, "y": 2}, 1, [{"key": "x", "value": 1}, {"key": "y", "value": 2}]),
        (["null", NUMBERS, ONE], None, ("One", {"x": 1}), 1, {"x": 1}),
        ([SYMBOL, "string"], None, "text", 1, "text"),
        (["string", SYMBOL], None, ("Symbol", "B"), 1, "B"),
        ([PAIR, "bytes"], None, b"abc", 1, b"abc"),
        (TWO, ["string", ONE, TWO], {"x": 1, "y": 2}, 2, {"x": 1, "y": 2}),
        (["null", TWO], ["string", ONE, TWO], {"x": 1, "y": 2}, 2, {"x": 1, "y": 2}),
        (NUMBERS, ["string", ONE, NUMBERS], {"x": 1}, 2, [{"key": "x", "value": 1}]),
        (SYMBOL, ["string", SYMBOL], "A", 1, "A"),
        (["int", "string"], ["string", "double"], 4, 1, 4.0),
        ("int", ["string", "double"], 4, 1, 4.0),
    ],
)  # fmt: skip
def test_a_value_of_a_union_is_of_the_member_that_was_written(
    written: Any, read: Any, value: Any, member: int, expected: Any
) -> None:
    writer, reader = record_of(("u", written)), record_of(("u", written if read is None else read))
    found = decoded(decoder_of(writer, reader), [encode(writer, {"u": value})])
    assert failures(found) == []
    (row,) = found.frame["u"].to_list()
    assert {name: one for name, one in row.items() if one is not None} == {f"member{member}": expected}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ((("a", ONE), ("u", ["string", "One", TWO])), (("u", ["string", ONE, TWO]),)),
        ((("u", ["string", ONE, TWO]), ("a", "One")), (("a", ONE), ("u", ["string", "One", TWO]))),
        ((("u", ["string", ONE, TWO]),), (("u", ["string", ONE, TWO]), ("w", ["string", "One"], "new"))),
    ],
)
def test_a_type_in_a_union_may_be_described_elsewhere(written: Any, read: Any) -> None:
    """As it is where only some of a writer's fields are read."""
    writer = record_of(*written)
    found = decoded(decoder_of(writer, record_of(*read)), [encode(writer, {"a": {"x": 0}, "u": ("One", {"x": 1})})])
    assert failures(found) == []
    assert found.frame["u"].to_list() == [{"member0": None, "member1": {"x": 1}, "member2": None}]
    if "w" in found.frame.columns:
        assert found.frame["w"].to_list() == [{"member0": "new", "member1": None}]


BITS = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
HALF = {"type": "record", "name": "Half", "fields": [{"name": "x", "type": "double"}]}


@pytest.mark.parametrize(
    ("kind", "default", "member", "expected"),
    [
        (["double", "string"], 0, 0, 0.0),
        (["double", "long"], 0, 0, 0.0),
        (["string", "double"], 10**40, 1, 1e40),
        (["null", "string", "float"], 3, 1, 3.0),
        (["long", "double"], 0, 0, 0),
        (["long", "null", "double"], 0.5, 1, 0.5),
        (["bytes", "string"], "\u0001", 0, b"\1"),
        (["bytes", "string"], "\u0400", 1, "\u0400"),
        (["string", "bytes"], "\u0001", 0, "\u0001"),
        (["bytes", "long"], "\u0000", 0, b"\0"),
        ([BITS, "string"], "\u0001", 0, Decimal("0.01")),
        ([PAIR, "string"], "a", 1, "a"),
        ([SYMBOL, "string"], "C", 1, "C"),
        ([HALF, NUMBERS], {"y": 1}, 1, [{"key": "y", "value": 1}]),
        ([NUMBERS, HALF], {"x": 1.5}, 1, {"x": 1.5}),
        ([{"type": "array", "items": "double"}, "string"], [0], 0, [0.0]),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_a_default_is_of_the_first_member_that_it_is_a_value_of(
    kind: list[Any], default: Any, member: int, expected: Any, inside: bool, wanted: bool
) -> None:
    lacks, has = record_of(("id", "long")), record_of(("id", "long"), ("u", kind, default))
    writer, reader = (record_of(("id", "long"), ("r", {**one, "name": "I"})) if inside else one for one in (lacks, has))
    columns = tuple(FORMAT.schema_columns(text_of(reader)).items())
    output = columns if wanted else columns[:1]
    known = KnownSchemas({7: text_of(writer)})
    decoder = AvroDecoder(columns, output, FormatOptions(text_of(reader)), known)
    found = decoded(decoder, [encode(writer, {"id": 1, "r": {"id": 2}} if inside else {"id": 1})] * 2)
    assert (failures(found), found.frame["id"].to_list()) == ([], [1, 1])
    if wanted:
        rows = (found.frame["r"].struct.field("u") if inside else found.frame["u"]).to_list()
        made = {f"member{place}": None for place, _ in enumerate(one for one in kind if one != "null")}
        assert rows == [{**made, f"member{member}": expected}] * 2
        assert type(rows[0][f"member{member}"]) is type(expected)


def test_records_of_one_name_in_two_namespaces_are_two_members() -> None:
    ours, theirs = (
        {"type": "record", "name": f"{space}.One", "fields": [{"name": name, "type": kind}]}
        for space, name, kind in (("ours", "p", "int"), ("theirs", "q", "string"))
    )
    writer = record_of(("u", ["null", ours, theirs]))
    values = [("ours.One", {"p": 1}), ("theirs.One", {"q": "z"})]
    for reader in (writer, record_of(("u", ["null", theirs, ours]))):
        found = decoded(decoder_of(writer, reader), [encode(writer, {"u": value}) for value in values])
        assert failures(found) == []
        (own, other) = found.frame["u"].to_list()
        assert {"p": 1} in own.values()
        assert {"q": "z"} in other.values()


def test_an_alias_in_another_namespace_is_none_and_other_members_are_read() -> None:
    old, new = (
        {"type": "record", "name": name, "fields": [{"name": "x", "type": "int"}], **more}
        for name, more in (("theirs.Old", {}), ("ours.New", {"aliases": ["ours.Old"]}))
    )
    writer = record_of(("u", ["string", old]))
    decoder = decoder_of(writer, record_of(("u", ["string", new])))
    found = decoded(decoder, [encode(writer, {"u": value}) for value in ("a", {"x": 1})])
    assert [(one.row, one.kind) for one in found.failures] == [(1, "INCOMPATIBLE_SCHEMA")]
    assert found.frame["u"].to_list() == [{"member0": "a", "member1": None}]


def test_a_value_that_no_member_of_the_readers_is_for_is_bad_alone() -> None:
    writer, reader = record_of(("u", ["string", ONE, "long"])), record_of(("u", ["string", ONE]))
    found = decoded(decoder_of(writer, reader), [encode(writer, {"u": value}) for value in ("a", 5, ("One", {"x": 1}))])
    assert [(one.row, one.kind) for one in found.failures] == [(1, "INCOMPATIBLE_SCHEMA")]
    assert found.frame.height == 2


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))
MOMENT = dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC)


def _at(name: str, kind: Any, **more: Any) -> Any:
    return {"type": "record", "name": name, "fields": [{"name": "at", "type": kind}], **more}


@pytest.mark.parametrize(
    ("written", "read", "value", "expected"),
    [
        (["null", "string", MILLIS], ["null", "string", MICROS], MOMENT, {"member0": None, "member1": MOMENT}),
        (MILLIS, ["null", "string", MICROS], MOMENT, {"member0": None, "member1": MOMENT}),
        (["null", "string", MILLIS], MICROS, MOMENT, MOMENT),
        (["string", _at("A", MILLIS)], ["string", _at("A", MICROS)], {"at": MOMENT},
         {"member0": None, "member1": {"at": MOMENT}}),
        (["string", _at("A", MILLIS)], ["string", _at("B", MICROS, aliases=["A"])], {"at": MOMENT},
         {"member0": None, "member1": {"at": MOMENT}}),
    ],
)  # fmt: skip
def test_a_moment_in_a_union_has_the_unit_that_it_was_written_with(
    written: Any, read: Any, value: Any, expected: Any
) -> None:
    writer = record_of(("u", written))
    found = decoded(decoder_of(writer, record_of(("u", read))), [encode(writer, {"u": value})])
    assert (found.frame["u"].to_list(), failures(found)) == ([expected], [])


def test_a_decimal_in_a_union_has_the_scale_that_it_was_written_with() -> None:
    writer, reader = (record_of(("u", ["string", {**DECIMAL, "scale": scale}])) for scale in (2, 3))
    found = decoded(decoder_of(writer, reader), [encode(writer, {"u": Decimal("1.25")})])
    assert failures(found) == [(0, f"INCOMPATIBLE_SCHEMA: schema 7 cannot be read: at `u`: {SCALES}")]


FOUR, EIGHT = ({"type": "fixed", "name": "F", "size": size} for size in (4, 8))
FINER = {**DECIMAL, "scale": 3}
MORE = {**ONE, "fields": [*ONE["fields"], {"name": "gone", "type": "int"}]}
LACKS = "the writer does not have the field, and the reader has no default for it"
SCALES = "the writer's scale is 2, the reader's 3"


@pytest.mark.parametrize(
    ("written", "read", "message"),
    [
        (["null", "string", DECIMAL], ["null", "string", FINER], f"`u`: {SCALES}"),
        (["null", "string", ONE], ["null", "string", MORE], f"`u.gone`: {LACKS}"),
        (["null", "string", FOUR], ["string", EIGHT, "null"], "`u`: the writer's type has 4 bytes, the reader's 8"),
        (["null", DECIMAL], ["null", FINER], f"`u`: {SCALES}"),
        (["null", ONE], [MORE, "null"], f"`u.gone`: {LACKS}"),
        (["null", "string"], ["null", "int"], "`u`: the writer's type is string, the reader's int"),
        (["null", "string", DECIMAL], ["null", FINER], f"`u`: {SCALES}"),
        (["null", DECIMAL], FINER, f"`u`: {SCALES}"),
    ],
)  # fmt: skip
def test_a_schema_with_a_type_that_cannot_be_read_is_refused(written: Any, read: Any, message: str) -> None:
    """Whether or not a record has a value of that type, as by the registry's rules of compatibility."""
    writer = record_of(("u", written))
    found = decoded(decoder_of(writer, record_of(("u", read))), [encode(writer, {"u": None})])
    assert failures(found) == [(0, f"INCOMPATIBLE_SCHEMA: schema 7 cannot be read: at {message}")]


@pytest.mark.parametrize("kind", [SYMBOL, ["null", "string"], ["null", "string", "long"]])
def test_a_number_that_no_symbol_and_no_type_has_is_called_that(kind: Any) -> None:
    schema = record_of(("u", kind))
    message = "an enum or a union has an index beyond its symbols or types; it was written with another schema"
    expected = [(0, f"MALFORMED_AVRO: {message}, or truncated")]
    assert failures(decoded(decoder_of(schema), [PREFIX + b"\x0a\x00"])) == expected
