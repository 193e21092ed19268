"""The keys of a state in memory, in order: whatever is added and removed, a scan finds what a sorted list has."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.state.sorted_keys import SortedKeys

COLUMN = st.none() | st.integers(0, 5)
KEYS = st.tuples(COLUMN, COLUMN)


def mark(row: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in row]


@pytest.mark.parametrize(
    ("limit", "backwards", "expected"),
    [(None, False, "234"), (None, True, "432"), (2, False, "23"), (2, True, "43"), (9, False, "234"), (0, True, "")],
)
def test_keys_between_others_are_found_by_their_prefix(limit: int | None, backwards: bool, expected: str) -> None:
    keys = SortedKeys(single=False)
    keys.add([5] * 6, [("c", "6"), ("a", "1"), ("b", "4"), ("b", "3"), ("a", "0"), ("b", "2")])
    keys.remove([5], [("a", "0")])
    found = keys.between(5, ("b",), limit=limit, backwards=backwards)
    assert "".join(key[1] for key in found) == expected
    assert "".join(key[1] for key in keys.between(5)) == "12346"
    assert keys.between(6, ("b",), limit=limit, backwards=backwards) == []


@given(st.lists(st.tuples(st.booleans(), st.lists(KEYS, max_size=6), KEYS), max_size=12), st.booleans())
def test_it_holds_what_a_sorted_list_would(steps: list[tuple[bool, list[Any], Any]], large: bool) -> None:
    held: set[Any] = {(100 + number, 1) for number in range(1200 if large else 0)}
    keys = SortedKeys(single=False)
    keys.add([1] * len(held), held)
    for adds, rows, looked_up in steps:
        part = [row for row in dict.fromkeys(rows) if (row in held) is not adds]
        (keys.add if adds else keys.remove)([1] * len(part), part)
        held = held | set(part) if adds else held - set(part)
        in_order = sorted(held, key=mark)
        if looked_up[0] == 3:  # else what is new waits
            continue
        assert keys.between(1, looked_up[:1]) == [row for row in in_order if row[0] == looked_up[0]]
        assert keys.between(1, start=looked_up) == [row for row in in_order if mark(row) >= mark(looked_up)]
        assert keys.between(1) == in_order


@pytest.mark.parametrize("removed", [range(700), range(300, 900), range(0, 1000, 3), range(0, 1000, 90), range(1000)])
def test_many_are_removed_at_once_and_few(removed: range) -> None:
    keys = SortedKeys(single=True)
    keys.add([7] * 1000, range(1000))
    keys.remove([7] * len(removed), removed)
    assert keys.between(7) == [number for number in range(1000) if number not in removed]


@pytest.mark.parametrize("null", ["never", "at first", "later"])
def test_many_keys_are_in_order_from_both_ends_whatever_comes_between_them(null: str) -> None:
    rows = [(number // 300, number) for number in range(3000)]
    rounds: list[list[Any]] = [rows[at::7][::-1] for at in range(7)]
    if null != "never":
        rounds.insert(0 if null == "at first" else 5, [(3, None), (None, 5), (None, None)])
    keys, held = SortedKeys(single=False), list[Any]()
    for added in rounds:
        keys.add([1] * len(added), added)
        held = sorted([*held, *added], key=mark)
        assert keys.between(1) == held
        assert keys.between(1, backwards=True) == held[::-1]
        for first in {*range(10), *(row[0] for row in held if row[0] is None)}:
            expected = [row for row in held if row[0] == first]
            assert keys.between(1, (first,)) == expected
            assert keys.between(1, (first,), backwards=True) == expected[::-1]
            assert keys.between(1, (first,), limit=5, backwards=True) == expected[::-1][:5]
            after = [row for row in held if mark(row) >= mark((first, 1000))]
            assert keys.between(1, start=(first, 1000)) == after


def test_keys_find_their_places_after_many_were_removed() -> None:
    keys = SortedKeys(single=True)
    keys.add([1] * 600, range(600))
    keys.remove([1] * 256, range(256))
    keys.add([1] * 10, range(1000, 1010))
    keys.add([1] * 10, range(10))
    assert keys.between(1) == [*range(10), *range(256, 600), *range(1000, 1010)]
    assert keys.between(1, start=(1005,)) == [*range(1005, 1010)]


def test_single_keys_may_be_null() -> None:
    keys = SortedKeys(single=True)
    keys.add([1, 1], ["b", "a"])
    assert keys.between(1, start=(None,)) == ["a", "b"]
    keys.add([1], [None])
    assert keys.between(1) == [None, "a", "b"]
    assert keys.between(1, start=("b",)) == ["b"]
    keys.remove([1], [None])
    assert keys.between(1) == ["a", "b"]
