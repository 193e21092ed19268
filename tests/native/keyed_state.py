"""Lives of states in columns, with damaged files, for the sanitizers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

from tests.state.any_entries import GROUPS, STEP, damage, draw_declaration, draw_entries, groups_of, write_entries
from tidegate.ids import CheckpointId
from tidegate.native.library import Library
from tidegate.state.base import Share
from tidegate.state.columns import ColumnState
from tidegate.state.errors import StateUnreadable

STEPS = 20


def live_as_state(library: Library, rnd: random.Random) -> None:
    """A state that changes while its snapshots are encoded, and others that restore them, damaged or not."""
    declaration = draw_declaration(rnd)

    def opened() -> ColumnState[str]:
        return ColumnState(STEP, declaration, groups_of, library=library)

    state, pending = opened(), list[Callable[[], Iterable[bytes]]]()
    single = len(declaration.shape.keys) == 1
    for number in range(1, STEPS):
        entries = draw_entries(rnd, declaration, rnd.choice((1, 10, 200)))
        keys = [key[0] for key in entries] if single else list(entries)
        state.put_many(keys, [value for value in entries.values() if value is not None])
        exists, values = state.get_columns(state.number_keys([column[::2] for column in _columns(state, keys)]))
        assert exists.all()
        assert [len(column) for column in values] == [len(exists)] * len(values)
        state.delete_many(rnd.sample(keys, len(keys) // 3))
        capture = state.capture(CheckpointId(number), full=rnd.random() < 0.2)
        if capture.encode is not None:
            pending.append(capture.encode)
            state.stored(CheckpointId(number), [str(number)])
        if rnd.random() < 0.7:
            state.completed(CheckpointId(number))
        if rnd.random() < 0.5 and pending:
            for data in pending.pop(rnd.randrange(len(pending)))():
                _restore(opened(), rnd, data)
    if rnd.random() < 0.5:
        state.close()
    for encode in pending:
        list(encode())
    assert len(list(state.keys())) == len(state)
    _restore(opened(), rnd, write_entries(declaration, draw_entries(rnd, declaration, 100)))


def _columns(state: ColumnState[str], keys: list[Any]) -> list[Any]:
    return list(state._number(keys).found.columns)


def _restore(state: ColumnState[str], rnd: random.Random, data: bytes) -> None:
    for file in (data, damage(rnd, data), damage(rnd, data)):
        try:
            state.restore([file], Share(range(rnd.randrange(GROUPS), GROUPS)))
        except StateUnreadable:
            continue
        assert len(list(state.keys())) == len(state)
