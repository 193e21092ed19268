"""Frozen moments of entries: each stays as it was, whatever is set and deleted afterwards, however many there are."""

from __future__ import annotations

import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidegate.state.memory import FOLDED_AT_ONCE, LAYERS_MANY, Layers, Moment

KEYS = st.integers(0, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(KEYS, max_size=6)),
        st.tuples(st.just("delete"), st.lists(KEYS, max_size=6)),
        st.tuples(st.just("freeze"), st.just([])),
        st.tuples(st.just("settle"), st.lists(KEYS, min_size=1, max_size=1)),
        st.tuples(st.just("drop"), st.lists(KEYS, min_size=1, max_size=1)),
    ),
    max_size=40,
)


@given(STEPS)
def test_F23_entries_are_those_of_a_dict_and_moments_stay_as_they_were(steps: list[tuple[str, list[int]]]) -> None:
    held, model = Layers(), dict[int, tuple[Any, ...]]()
    moments: list[tuple[Moment, dict[int, tuple[Any, ...]]]] = []
    for number, (what, keys) in enumerate(steps):
        if what == "put":
            values = [(number, place) for place in range(len(keys))]
            held.put(keys, values)
            model |= dict(zip(keys, values, strict=True))
        elif what == "delete":
            assert sorted(held.delete(keys)) == sorted(key for key in set(keys) if key in model)
            model = {key: value for key, value in model.items() if key not in keys}
        elif what == "freeze":
            moments.append((held.freeze(), dict(model)))
        elif what == "settle" and moments:
            moments[keys[0] % len(moments)][0].settle()
        elif moments:
            del moments[keys[0] % len(moments)]
        assert len(held) == len(model)
        assert sorted(held.keys()) == sorted(model)
        assert held.get_many(range(10)) == [model.get(key) for key in range(10)]
        for moment, then in moments:
            assert dict(moment.items()) == then
            assert moment.get_many(range(10)) == [then.get(key) for key in range(10)]


def test_what_changed_meanwhile_is_folded_in_parts_once_the_moment_is_dropped() -> None:
    held, many = Layers(), range(3 * FOLDED_AT_ONCE)
    held.put(many, [(0,)] * len(many))
    moment = held.freeze()
    held.put(many, [(1,)] * len(many))
    held.delete(many[:10])
    assert depth(held) == 2
    assert moment.get_many(many) == [(0,)] * len(many)
    del moment
    depths = []
    for number in range(4):
        held.put([-1], [(number,)])
        depths.append(depth(held))
    assert depths == [2, 2, 2, 1]
    assert held.get_many([*many, -1]) == [*[None] * 10, *[(1,)] * (len(many) - 10), (3,)]


def test_a_key_that_came_and_went_while_a_moment_was_held_leaves_nothing() -> None:
    held = Layers()
    held.put([1], [(1,)])
    moment = held.freeze()
    held.put([2], [(2,)])
    held.delete([2])
    del moment
    held.put([3], [(3,)])
    assert depth(held) == 1
    assert held.keys() == [1, 3]


def test_F23_an_older_moment_stays_as_it_was_when_a_newer_one_is_dropped() -> None:
    held = Layers()
    held.put([1], [(1,)])
    older = held.freeze()
    held.put([1], [(2,)])
    newer = held.freeze()
    assert newer.get_many([1]) == [(2,)]
    del newer
    held.put([1], [(3,)])
    assert older.get_many([1]) == [(1,)]


def test_a_moment_of_entries_that_have_not_changed_adds_no_layer() -> None:
    held, moments = Layers(), []
    for number in range(2):
        held.put([number], [(number,)])
        moments += [held.freeze(), held.freeze(), held.freeze()]
    assert depth(held) == 3


def test_there_are_never_many_layers_where_moments_are_read_one_after_the_other() -> None:
    held, moments = Layers(), []
    for number in range(5 * LAYERS_MANY):
        held.put([number], [(number,)])
        held.delete([number - 2])
        moments.append(held.freeze())
        moments[-1].settle()
        assert depth(held) <= LAYERS_MANY + 1
    for number, moment in enumerate(moments):
        assert dict(moment.items()) == {key: (key,) for key in range(max(0, number - 1), number + 1)}


def test_F23_no_entry_is_copied_when_a_moment_is_frozen_however_many_there_are_and_however_many_layers() -> None:
    held, moments = Layers(), []
    held.put(range(10), [(0,)] * 10)
    for number in range(3 * LAYERS_MANY):
        held.put([number], [(number,)])
        before = [*held._layers]
        moments.append(held.freeze())
        assert all(one is other for one, other in zip(before, held._layers, strict=False))
        assert not held._layers[-1]
    assert held.get_many(range(12)) == [(number,) for number in range(12)]


def test_what_is_put_together_is_of_no_use_once_the_layers_are_others() -> None:
    held = Layers()
    moments = []
    for number in range(LAYERS_MANY):
        held.put([number], [(number,)])
        moments.append(held.freeze())
    held.put([LAYERS_MANY], [(LAYERS_MANY,)])
    moments.append(held.freeze())
    moments[-1].settle()
    moments[-2].settle()
    held.put([0], [(9,)])
    moments.append(held.freeze())
    assert dict(moments[-1].items()) == {0: (9,)} | {number: (number,) for number in range(1, LAYERS_MANY + 1)}


def test_layers_that_a_reader_has_put_together_are_one_and_later_ones_stay() -> None:
    held, moments = Layers(), []
    for number in range(LAYERS_MANY + 2):
        held.put([number], [(number,)])
        moments.append(held.freeze())
    assert depth(held) == LAYERS_MANY + 3
    moments[LAYERS_MANY - 1].settle()
    for number in range(LAYERS_MANY + 2, LAYERS_MANY + 4):
        held.put([number], [(number,)])
        moments.append(held.freeze())
    assert depth(held) == 7  # the lowest, one of what was put together, one of each change since, and a new one
    moments[LAYERS_MANY].settle()  # no more layers than there are now, but others
    held.put([0], [(0,)])
    assert held.get_many(range(LAYERS_MANY + 4)) == [(number,) for number in range(LAYERS_MANY + 4)]


def test_F23_a_moment_is_read_on_another_thread_while_entries_change() -> None:
    held, many = Layers(), range(50_000)
    held.put(many, [(key,) for key in many])
    read: list[dict[int, tuple[Any, ...]]] = []
    reader = threading.Thread(target=lambda moment: read.append(dict(moment.items())), args=[held.freeze()])
    reader.start()
    number = 0
    while not read:
        held.put([number, -number], [(-1,)] * 2)
        held.delete([number + 1])
        number += 3
    reader.join()
    assert read == [{key: (key,) for key in many}]


def depth(held: Layers) -> int:
    return len(held._layers)  # nothing else shows it
