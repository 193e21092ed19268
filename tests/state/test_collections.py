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


@pytest.mark.parametrize("name", BACKENDS)
def test_a_map_per_key(name: str, tmp_path: Path) -> None:
    backend = Backend(name, tmp_path)
    state = backend(declaration=declare_keyed_map(declare(), StateField("city", STRING)))
    held = KeyedMap(state)
    for key, city, number in (("ann", "rome", 1), ("ann", "oslo", 2), ("anna", "bern", 3), ("ann", "rome", 4)):
        held.put((key,), city, (number,))
    assert held.get(("ann",), "rome") == (4,)
    assert held.get(("ann",), "bern") is None
    ann, nobody, anna = held.items([("ann",), ("nobody",), ("anna",)])
    assert (ann, nobody, anna) == ([("oslo", (2,)), ("rome", (4,))], [], [("bern", (3,))])
    held.delete(("ann",), "oslo")
    held.clear([("anna",), ("nobody",)])
    assert list(held.items([("ann",), ("anna",)])) == [[("rome", (4,))], []]
    assert len(state) == 1
    backend.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_list_per_key(name: str, tmp_path: Path) -> None:
    backend = Backend(name, tmp_path)
    state = backend(declaration=declare_keyed_list(declare()))
    held = KeyedList(state)
    held.append_many([("a",), ("b",), ("a",)], [(1,), (2,), (3,)])
    held.append_many([("a",), ("c",)], [(4,), (5,)])
    assert list(held.values([("a",), ("b",), ("c",), ("d",)])) == [[(1,), (3,), (4,)], [(2,)], [(5,)], []]
    held.clear([("a",)])
    held.append_many([("a",)], [(6,)])
    assert list(held.values([("a",)])) == [[(6,)]]
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
