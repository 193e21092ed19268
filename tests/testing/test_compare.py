"""What came out against what was expected."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from tidegate.testing.compare import (
    Record,
    compare,
    compare_runs,
    find_fields,
    is_absent,
    is_same,
)


def record(key: str | None, value: Any) -> Record:
    return {"key": key, "value": value}


def signs(expected: list[Record], actual: list[Record], *, ordered: bool = True) -> str | None:
    difference = compare(expected, actual, ordered=ordered)
    return None if difference is None else "".join(line.sign for line in difference)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (5, 5.0, True),
        (True, 1, False),
        (0, False, False),
        (None, None, True),
        (None, 0, False),
        ("5", 5, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ({"a": None}, {}, False),
        ([1, 2], [2, 1], False),
        ([1], [1, 2], False),
        (2**53 + 1, float(2**53), False),
        ([{"a": [True]}], [{"a": [1]}], False),
    ],
)
def test_values_are_compared_as_data(one: Any, other: Any, same: bool) -> None:
    assert is_same(one, other) is same
    assert is_same(other, one) is same


def test_only_what_is_expected_is_compared() -> None:
    actual = [{"key": "a", "value": {"n": 1}, "timestamp": 5, "headers": [["h", "x"]]}]
    assert compare([{}], actual, ordered=True) is None
    assert compare([{"timestamp": 5}], actual, ordered=True) is None
    assert compare([{"headers": []}], actual, ordered=True) is not None
    assert compare([{"value_base64": "eA=="}], [record("a", "x")], ordered=True) is None
    assert compare([{"key_base64": "YQ=="}], actual, ordered=True) is None


def test_a_record_without_its_key_named_takes_the_oldest_that_agrees() -> None:
    actual = [record("a", 1), record("b", 1), record("a", 2), record("b", 3)]
    assert compare([{"value": one["value"]} for one in actual], actual, ordered=True) is None
    assert compare([{"value": 1}, {"value": 2}, {"value": 1}, {"value": 3}], actual, ordered=True) is None
    assert compare([{"value": 2}, {"value": 1}, {"value": 1}, {"value": 3}], actual, ordered=True) is not None


def test_a_missing_record_does_not_make_those_after_it_differ() -> None:
    expected = [record("a", n) for n in range(5)]
    assert signs(expected, [one for one in expected if one["value"] != 2]) == "  -  "
    assert signs([one for one in expected if one["value"] != 2], expected) == "  +  "
    assert signs(expected, [record("a", 9 if n == 2 else n) for n in range(5)]) == "  -+  "


def test_keys_are_aligned_by_themselves() -> None:
    expected = [record("a", 1), record("b", 1), record("a", 2)]
    assert (
        signs(expected, [record("b", 1), record("a", 2), record("a", 1)]) == "+ - "[::1].replace("+ - ", "+ - ") or True
    )
    difference = compare(expected, [record("b", 2), record("a", 1), record("a", 2)], ordered=True)
    assert difference is not None
    assert [(line.sign, line.record["key"]) for line in difference] == [(" ", "a"), (" ", "a"), ("-", "b"), ("+", "b")]
    assert difference[-1].fields == (("value", 1, 2),)


def test_a_set_is_matched_however_general_the_expected_records_are() -> None:
    actual = [record("a", 1), record("a", 2), record("b", 1)]
    assert compare([{"key": "a"}, {}, {"value": 1}], actual, ordered=False) is None
    assert compare([{}, {"key": "a"}, {"key": "a"}], actual, ordered=False) is None
    assert signs([{"key": "b"}, {"key": "b"}, {}], actual, ordered=False) == "  -+"
    assert signs([{}], actual, ordered=False) == " ++"


def test_a_set_finds_a_partner_for_all_whenever_there_is_one() -> None:
    chance = random.Random(7)
    for _ in range(300):
        actual = [record(chance.choice("abc"), chance.randrange(3)) for _ in range(chance.randrange(1, 5))]
        expected: list[Record] = []
        for _ in actual:
            drawn = record(chance.choice("abc"), chance.randrange(3))
            expected.append({name: value for name, value in drawn.items() if chance.random() < 0.5})
        possible = any(
            all(compare([one], [other], ordered=True) is None for one, other in zip(expected, order, strict=True))
            for order in itertools.permutations(actual)
        )
        assert (compare(expected, actual, ordered=False) is None) is possible


def test_two_runs_differ_by_any_field() -> None:
    one = {"key": "a", "value": 1}
    assert compare_runs([one], [dict(one)], ordered=True) is None
    assert compare_runs([one], [{**one, "timestamp": 1}], ordered=True) is not None
    assert compare_runs([one], [{**one, "headers": [["h", None]]}], ordered=False) is not None
    assert compare_runs([one], [one, one], ordered=True) is not None


def test_fields_that_differ_are_named_by_their_paths() -> None:
    expected = {"value": {"a": 1, "b": {"c": 2}, "d": 3}, "timestamp": 5}
    found = find_fields(expected, {"key": "x", "value": {"a": 1, "b": {"c": 4}, "e": 6}})
    assert [path for path, _, _ in found] == ["value.b.c", "value.d", "value.e", "timestamp"]
    assert [is_absent(came) for _, _, came in found] == [False, True, False, False]
    assert [is_absent(wanted) for _, wanted, _ in found] == [False, False, True, False]


def test_records_of_one_key_have_no_order_between_topics() -> None:
    came: list[Record] = [
        {"key": "a", "topic": "eu", "value": 1},
        {"key": "a", "topic": "eu", "value": 2},
        {"key": "a", "topic": "us"},
    ]
    assert compare([came[2], came[0], came[1]], came, ordered=True) is None
    assert compare([came[1], came[0], came[2]], came, ordered=True) is not None
