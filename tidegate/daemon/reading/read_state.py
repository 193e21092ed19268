"""The process that looks up a key in the state: `python -m tidegate.daemon.reading.read_state`."""

from __future__ import annotations

import os
from typing import Final

import msgspec

from tidegate.daemon.reading.answering import answer_request
from tidegate.storage.base import StorageOptions
from tidegate.storage.open import Opener

ROWS_MAX: Final = 100
ROWS_BYTES_MAX: Final = 1 << 20


class LookupRequest(msgspec.Struct, frozen=True):
    """Which rows of the newest checkpoint are wanted."""

    directory: str
    options: StorageOptions
    step: str
    state: str | None
    keys: dict[str, str]
    """Values of key columns, as text."""


class FoundRows(msgspec.Struct, frozen=True):
    """The rows that have the key, as JSON objects."""

    checkpoint: int
    completed_at_ms: int
    state: str
    rows: list[str]
    is_cut: bool
    """True if there are more rows than are returned."""


def look_up(request: LookupRequest) -> FoundRows:
    """Reads the rows. Raises StateUnknown, QueryRefused, and what reading a snapshot raises."""
    from tidegate.tables.files import choose_state, read_shape
    from tidegate.tables.query import Query
    from tidegate.tables.source import open_snapshot
    from tidegate.tables.table import StateTable

    snapshot = open_snapshot(request.directory, None, os.environ, Opener(request.directory, request.options))
    chosen = choose_state(snapshot, request.step, request.state)
    shape = read_shape(snapshot, chosen)
    table = StateTable(shape)
    query = Query(shape, table, request.keys, None)
    rows: list[str] = []
    size, is_cut = 0, False
    for frame in query.read(snapshot, chosen):
        for line in table.render_json(frame.head(ROWS_MAX + 1)):
            size += len(line)
            is_cut = size > ROWS_BYTES_MAX or len(rows) == ROWS_MAX
            if is_cut:
                break
            rows.append(line)
        if is_cut:
            break
    checkpoint = snapshot.checkpoint
    return FoundRows(checkpoint.id, checkpoint.completed_at_ms, chosen.state, rows, is_cut)


if __name__ == "__main__":
    answer_request(LookupRequest, look_up)
