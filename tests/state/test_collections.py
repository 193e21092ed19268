"""Lists and maps per key, on every backend."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.state.driving import ALL, Backend, Files, declare, encoded
from tidegate.datatypes import STRING
from tidegate.state.collections import KeyedList, KeyedMap, declare_keyed_list, declare_keyed_map
from tidegate.state.declaration import StateField

BACKENDS = ("memory", pytest.param("rocksdb", marks=pytest.mark.slow))


ANN, NAN, BOB = ("ann", "x"), ("nan", "x"), ("bob", "x")
"""Keys of two columns; those of the first two are in one key group."""


@pytest.mark.parametrize("name", BACKENDS)
def test_a_map_per_key(name: str, tmp_path: Path) -> None:
    backend = Backend(name, tmp_path)
    state = backend(declaration=declare_keyed_map(declare(2), StateField("city", STRING)))
    held = KeyedMap(state)
    for key, city, number in ((ANN, "rome", 1), (ANN, "oslo", 2), (NAN, "bern", 3), (ANN, "rome", 4)):
        held.put(key, city, (number,))
    assert held.get(ANN, "rome") == (4,)
    assert held.get(ANN, "bern") is None
    ann, bob, nan = held.items([ANN, BOB, NAN])
    assert (ann, bob, nan) == ([("oslo", (2,)), ("rome", (4,))], [], [("bern", (3,))])
    held.delete(ANN, "oslo")
    held.clear([NAN, BOB])
    assert list(held.items([ANN, NAN])) == [[("rome", (4,))], []]
    assert len(state) == 1
    backend.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_list_per_key(name: str, tmp_path: Path) -> None:
    backend = Backend(name, tmp_path)
    state = backend(declaration=declare_keyed_list(declare(2)))
    held = KeyedList(state)
    held.append_many([ANN, NAN, ANN], [(1,), (2,), (-1,)])
    held.append_many([ANN, BOB], [(4,), (5,)])
    assert list(held.values([ANN, NAN, BOB, ("cid", "x")])) == [[(1,), (-1,), (4,)], [(2,)], [(5,)], []]
    held.clear([ANN])
    held.append_many([ANN], [(6,)])
    assert list(held.values([ANN, NAN])) == [[(6,)], [(2,)]]
    with pytest.raises(ValueError, match="shorter"):
        held.append_many([ANN, NAN], [(7,)])
    backend.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_F28_an_increment_holds_what_was_appended_and_not_the_list(name: str, tmp_path: Path) -> None:
    backend, files = Backend(name, tmp_path), Files()
    declaration = declare_keyed_list(declare())
    state = backend(declaration=declaration)
    KeyedList(state).append_many([("a",)] * 500, [(number,) for number in range(500)])
    files.complete(state, 1)
    KeyedList(state).append_many([("a",)], [(500,)])
    files.complete(state, 2)
    assert files.written[2] < files.written[1] / 5
    restored = backend(declaration=declaration)
    restored.restore(files.of(2), ALL)
    assert [list(KeyedList(one).values([("a",)])) for one in (restored, state)] == [
        [[(number,) for number in range(501)]]
    ] * 2
    assert encoded(restored) == encoded(state)
    backend.close()


def test_collections_of_a_key_stay_in_the_key_group_of_the_key() -> None:
    declared = declare_keyed_map(declare(2), StateField("city", STRING))
    assert declared.shape.suffix == 1
    assert declared.shape == msgspec.structs.replace(
        declare(2).shape, keys=(*declare(2).shape.keys, StateField("city", STRING)), suffix=1
    )
