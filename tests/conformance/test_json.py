"""JSONTestSuite and the decoder of JSON: each text as a value, as a field that nobody declares, and as a column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pytest

from tests.formats.memory_batches import Compared
from tidegate.config.fields.columns import derive_type
from tidegate.datatypes import BIGINT, STRING, map_of
from tidegate.formats.contract import Columns, Decoded
from tidegate.formats.kinds.json import FORMAT
from tidegate.formats.kinds.json.inference import derive_schema
from tidegate.formats.plain import parse_json
from tidegate.formats.schemas import NO_OPTIONS, FormatOptions, KnownSchemas, UnknownFields

LINES: Final = Path(__file__).with_name("json").joinpath("cases.jsonl").read_text().splitlines()
TEXTS: Final = {name: text * (times[0] if times else 1) for name, text, *times in map(json.loads, LINES)}
KINDS: Final = (
    "boolean", "bigint", "double", "decimal(38,10)", "string", "binary", "date", "timestamp", "timestamp_ntz",
    "array<bigint>", "array<double>", "array<decimal(38,10)>", "array<boolean>", "array<string>", "array<binary>",
    "array<array<string>>", "map<string,string>", "map<string,bigint>", "struct<a: string>", "struct<a: bigint>",
)  # fmt: skip
OK: Final = ("ok", BIGINT)
REST: Final = ("rest", map_of(STRING, STRING))
KEEP: Final = FormatOptions(unknown_fields=UnknownFields.KEEP, rest="rest")

SURROGATE: Final = "a half of a surrogate pair is no character, and no UTF-8 text can hold it"
NO_DOUBLE: Final = "no double is as large, and infinity is no number of JSON"
EITHER: Final[dict[str, tuple[bool, bool, str]]] = {
    "i_number_double_huge_neg_exp": (True, True, "the nearest double is zero"),
    "i_number_real_underflow": (True, True, "the nearest double is zero"),
    "i_number_huge_exp": (True, False, NO_DOUBLE),
    "i_number_neg_int_huge_exp": (True, False, NO_DOUBLE),
    "i_number_pos_double_huge_exp": (True, False, NO_DOUBLE),
    "i_number_real_neg_overflow": (True, False, NO_DOUBLE),
    "i_number_real_pos_overflow": (True, False, NO_DOUBLE),
    "i_number_too_big_neg_int": (True, True, "as a double, not as a bigint"),
    "i_number_too_big_pos_int": (True, True, "as a double, not as a bigint"),
    "i_number_very_big_negative_int": (True, True, "as a double, not as a bigint"),
    "i_object_key_lone_2nd_surrogate": (False, False, SURROGATE),
    "i_string_1st_surrogate_but_2nd_missing": (False, False, SURROGATE),
    "i_string_1st_valid_surrogate_2nd_invalid": (False, False, SURROGATE),
    "i_string_incomplete_surrogate_and_escape_valid": (False, False, SURROGATE),
    "i_string_incomplete_surrogate_pair": (False, False, SURROGATE),
    "i_string_incomplete_surrogates_escape_valid": (False, False, SURROGATE),
    "i_string_invalid_lonely_surrogate": (False, False, SURROGATE),
    "i_string_invalid_surrogate": (False, False, SURROGATE),
    "i_string_inverted_surrogates_U+1D11E": (False, False, SURROGATE),
    "i_string_lone_second_surrogate": (False, False, SURROGATE),
    "i_structure_500_nested_arrays": (True, False, "no declared type is as deep"),
    "i_structure_UTF-8_BOM_empty_object": (False, False, "a byte order mark is no part of a text"),
}
"""Where the suite allows both: whether a text is taken where no column is declared for it, and as a column of one of
`KINDS`; and why."""
WITHOUT_TYPE: Final = {
    "y_array_heterogeneous": "its elements have no type in common",
    "y_object_empty": "a struct has fields",
    "y_object_empty_key": "a field has a name",
    "y_object_escaped_null_in_key": "no name in a pipeline file has a control character",
}
"""What must be taken, and is, but not as a column."""


def decode(values: list[bytes], columns: Columns, options: FormatOptions = NO_OPTIONS) -> Decoded:
    decoder: Any = FORMAT.decoder(columns, columns, options, KnownSchemas())
    found = decoder.decode_values(values)
    assert isinstance(found, Decoded)
    assert found.frame.height + len(found.failures) == len(values)
    return found


def good_rows(values: list[bytes], columns: Columns, options: FormatOptions = NO_OPTIONS) -> set[int]:
    return set(range(len(values))) - {one.row for one in decode(values, columns, options).failures}


def bare(text: str) -> bytes:
    return text.encode()


def wrapped(text: str) -> bytes:
    return b'{"ok":1,"v":%b}' % text.encode()


def names_of(letter: str) -> list[str]:
    return [name for name in TEXTS if name.startswith(letter)]


def test_the_suite_is_there() -> None:
    assert {letter: len(names_of(letter)) for letter in "yni"} == {"y": 95, "n": 176, "i": 22}


@pytest.mark.parametrize("put", [bare, wrapped])
@pytest.mark.parametrize(
    ("columns", "options"),
    [
        ((OK,), NO_OPTIONS),
        ((OK, REST), KEEP),
        ((OK, ("v", STRING)), FormatOptions(unknown_fields=UnknownFields.FAIL)),
        *(((OK, ("v", derive_type(kind))), NO_OPTIONS) for kind in KINDS),
    ],
)
def test_what_must_be_refused_is_a_bad_record(
    put: Callable[[str], bytes], columns: Columns, options: FormatOptions
) -> None:
    names = names_of("n")
    assert [names[row] for row in good_rows([put(TEXTS[name]) for name in names], columns, options)] == []


def test_what_must_be_taken_is_taken_where_nobody_has_declared_it() -> None:
    names = names_of("y")
    values = [wrapped(TEXTS[name]) for name in names]
    assert good_rows(values, (OK,)) == set(range(len(names)))
    kept = decode(values, (OK, REST), KEEP)
    assert {names[one.row]: one.message for one in kept.failures} == {}
    texts = [TEXTS[name] for name in names]
    assert list(map(kept_value, kept.frame["rest"], texts)) == list(map(parsed, texts))


def parsed(text: str) -> Any:
    return json.loads(text)


def kept_value(entries: Iterable[dict[str, str | None]], text: str) -> Any:
    """Of a string there is its text, of everything else its JSON."""
    (entry,) = entries
    assert entry["key"] == "v"
    kept = entry["value"]
    if kept is None or text.strip().startswith('"'):
        return kept
    return json.loads(kept)


@pytest.mark.parametrize("name", names_of("y"))
def test_what_must_be_taken_has_its_value_in_a_column(name: str) -> None:
    value, expected = wrapped(TEXTS[name]), parsed(TEXTS[name])
    kinds = {column.name: column.type for column in derive_schema([value]).columns}
    if "v" not in kinds:
        assert name in WITHOUT_TYPE
        return
    assert name not in WITHOUT_TYPE
    found = decode([value], tuple(kinds.items()))
    assert [one.message for one in found.failures] == []
    assert found.frame["v"].to_list() == [expected]
    if isinstance(expected, list) and any(isinstance(one, float) for one in expected):
        exact = decode([value], (("v", derive_type("array<decimal(38,10)>")),))
        numbers = parse_json(TEXTS[name])
        assert exact.failures or exact.frame["v"].to_list() == [[Decimal(one) for one in numbers]]


@pytest.mark.parametrize("name", EITHER)
def test_what_may_be_either_is_what_is_written_here(name: str) -> None:
    value = wrapped(TEXTS[name])
    skipped, typed, _ = EITHER[name]
    assert bool(good_rows([value], (OK,))) is skipped
    assert bool(good_rows([value], (OK, REST), KEEP)) is skipped
    found = [kind for kind in KINDS if good_rows([value], (OK, ("v", derive_type(kind))))]
    assert bool(found) is typed, found


def test_everything_that_may_be_either_is_written_here() -> None:
    assert set(EITHER) == set(names_of("i"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, None])
def test_decoded_in_c_each_text_is_the_same(kind: str | None) -> None:
    """Whole, as a column of a type, and as a field that nobody declares."""
    columns = [OK] if kind is None else [OK, ("v", derive_type(kind))]
    values = [*map(bare, TEXTS.values()), *map(wrapped, TEXTS.values())]
    assert Compared(columns).check(values).certain > 0
