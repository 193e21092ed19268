"""JSON-Schema-Test-Suite and the columns of JSON Schemas: what is read as a column takes the values that are valid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tidegate.datatypes import DataType
from tidegate.formats.contract import Decoded, FormatRefusal
from tidegate.formats.failures import FailureKind
from tidegate.formats.kinds.json_schema import FORMAT
from tidegate.formats.schemas import FormatOptions, IdPlace, KnownSchemas, SchemaKind, SchemaText

LINES: Final = Path(__file__).with_name("json_schema").joinpath("cases.jsonl").read_text().splitlines()
GROUPS: Final[list[Any]] = [json.loads(line) for line in LINES]

NO_DEFAULT: Final = "the default keyword does not do anything if the property is missing"
UNCLE: Final = "property is evaluated in an uncle schema to unevaluatedProperties"
DEVIATIONS: Final[dict[tuple[str, bool], tuple[str, ...]]] = {
    ("every column may be NULL", True): (
        "type: boolean type matches booleans: null is not a boolean",
        "type: integer type matches integers: null is not an integer",
        "type: number type matches numbers: null is not a number",
        "type: string type matches strings: null is not a string",
    ),
    ("only types are checked, no values", True): (
        "const: nul characters in strings: do not match string lacking nul",
        f"default: {NO_DEFAULT}: an explicit property value is checked against maximum (failing)",
        "enum: enum with escaped characters: another string is invalid",
        "enum: enums in properties: wrong bar value",
        "enum: enums in properties: wrong foo value",
        "enum: nul characters in strings: do not match string lacking nul",
    ),
    ("what is missing is NULL, required or not", True): (
        "enum: enums in properties: missing all properties is invalid",
        "enum: enums in properties: missing required property is invalid",
    ),
    ("unknown fields are skipped", True): (
        f"unevaluatedProperties: {UNCLE}: uncle keyword evaluation is not significant",
        "unevaluatedProperties: unevaluatedProperties with $ref: with unevaluated properties",
        "unevaluatedProperties: unevaluatedProperties with adjacent properties: with unevaluated properties",
        (
            "unevaluatedProperties: nested unevaluatedProperties, outer true, inner false, properties inside: "
            "with nested unevaluated properties"
        ),
    ),
    ("`properties` are those of a struct, also without `type`", False): (
        "properties: object properties validation: ignores arrays",
        "properties: object properties validation: ignores other non-objects",
        "properties: properties whose names are Javascript object property names: ignores arrays",
        "properties: properties whose names are Javascript object property names: ignores other non-objects",
    ),
    ("an integer is a bigint, whose numbers have bounds", False): (
        "bignum: integer: a bignum is an integer",
        "bignum: integer: a negative bignum is an integer",
    ),
    ("an integer has no fraction, as in the format json", False): (
        "type: integer type matches integers: a float with zero fractional part is an integer",
    ),
}
"""Tests that end otherwise than in the suite: why, whether the value is taken, and which."""


def text_of(schema: Any, *references: tuple[str, SchemaText]) -> SchemaText:
    return SchemaText(SchemaKind.JSON, json.dumps(schema), references)


def column_of(schema: Any) -> DataType | None:
    """Of a property that has this schema; None where that is no column."""
    record = {"type": "object", "properties": {"v": {"$ref": "case"}}}
    try:
        return FORMAT.schema_columns(text_of(record, ("case", text_of(schema))))["v"]
    except FormatRefusal:
        return None


def takes(kind: DataType, values: list[Any]) -> list[bool]:
    columns = (("v", kind),)
    decoder: Any = FORMAT.decoder(columns, columns, FormatOptions(ids=IdPlace.NONE), KnownSchemas())
    found = decoder.decode_values([json.dumps({"v": value}).encode() for value in values])
    assert isinstance(found, Decoded)
    bad = {one.row for one in found.failures}
    return [row not in bad for row in range(len(values))]


def find_deviations() -> set[tuple[str, bool]]:
    """Tests that end otherwise than the suite says, and whether the value is taken."""
    found = set()
    for file, group, _, schema, tests in GROUPS:
        kind = column_of(schema)
        if kind is None:
            continue
        for (name, _, valid), taken in zip(tests, takes(kind, [value for _, value, _ in tests]), strict=True):
            if taken is not valid:
                found.add((f"{file}: {group}: {name}", taken))
    return found


def test_values_are_taken_and_refused_as_the_suite_has_it() -> None:
    written = {(name, taken) for (_, taken), names in DEVIATIONS.items() for name in names}
    found = find_deviations()
    assert found - written == set(), "not written down"
    assert written - found == set(), "not true any more"


def test_what_is_no_column_is_refused_and_what_is_one_is_not() -> None:
    read = [(file, group) for file, group, _, schema, _ in GROUPS if column_of(schema) is not None]
    assert len(GROUPS) == 575
    assert len(read) == 57, read


def test_a_schema_of_objects_is_that_of_a_record() -> None:
    """The groups whose schemas are of objects, each as the schema of a whole record."""
    for file, group, _, schema, tests in GROUPS:
        try:
            columns = tuple(FORMAT.schema_columns(text_of(schema)).items())
        except FormatRefusal:
            continue
        decoder: Any = FORMAT.decoder(columns, columns, FormatOptions(ids=IdPlace.NONE), KnownSchemas())
        for name, value, valid in tests:
            found = decoder.decode_values([json.dumps(value).encode()])
            if valid and isinstance(value, dict):
                foreign = bool(value) and not value.keys() & dict(columns).keys()
                kinds = [failure.kind for failure in found.failures]
                assert kinds == [FailureKind.NO_DECLARED_FIELD] * foreign, (file, group, name)
            if not isinstance(value, dict):
                assert found.failures, (file, group, name)
