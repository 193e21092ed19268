"""The tables of every kind of step with state are what the slots restore from the same files."""

from __future__ import annotations

import json
from typing import Any

from tests.golden.bench import FILES, plain
from tidegate.formats.columns import plain_values
from tidegate.state.declaration import StateShape
from tidegate.tables.files import StateFiles, list_states, read_files
from tidegate.tables.source import StateSnapshot, open_snapshot
from tidegate.tables.table import StateTable, read_frames

EXPECTED = json.loads((FILES / "expected.json").read_text(encoding="utf-8"))["state"]


def content(snapshot: StateSnapshot, files: StateFiles) -> list[Any]:
    """As `expected.json` has it; columns of the engine at the end are left out."""
    shape = files.shape
    table = StateTable(shape, raw=True)
    keys, values = len(shape.keys), len(shape.values)
    entries: list[Any] = []
    for frame in read_frames(snapshot, files, table):
        for row in zip(*(plain_values(frame[name]) for name in frame.columns), strict=True):
            held = plain((*row[keys : keys + values], *_end(shape, row)))
            if files.keyed:
                entries.append([plain(row[:keys]) if keys > 1 else plain(row[0]), held])
            elif held not in entries:
                entries.append(held)
    return sorted(entries, key=json.dumps)


def _end(shape: StateShape, row: tuple[Any, ...]) -> list[int | None]:
    """When the entry expires, in ms."""
    if not shape.expires:
        return []
    return [None if row[-2] is None else row[-2] // 1000]


def test_every_state_of_every_kind_of_step() -> None:
    snapshot = open_snapshot(str(FILES / "checkpoints"), None, {})
    seen = set()
    for state in list_states(snapshot):
        files = read_files(snapshot, state)
        assert content(snapshot, files) == EXPECTED[state.operator][state.state], state
        seen.add((state.operator, state.state))
    empty = {(step, name) for step, states in EXPECTED.items() for name, held in states.items() if not held}
    assert seen | empty == {(step, name) for step, states in EXPECTED.items() for name in states}
    assert len(seen) > 25
