"""Known bugs of tables, lookups and joins, planted as those of `planted.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import polars as pl
import pytest

from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.kinds.join.running.side import Kept, Side
from tidegate.operators.latest_rows import LATEST
from tidegate.operators.latest_rows.runtime import LatestRows
from tidegate.state.base import Share
from tidegate.state.memory import MemoryState
from tidegate.state.order import Row
from tidegate.state.snapshot import Value

Patch = pytest.MonkeyPatch


def gate_is_open_from_the_start(patch: Patch) -> None:
    """So is one that counts an input as caught up before its rows are there."""
    patch.setattr("tidegate.coordinator.gating.derive_gates", lambda plan: ())


def tombstone_of_a_table_ignored(patch: Patch) -> None:
    real = LatestRows.apply

    def apply(self: LatestRows, batch: pl.DataFrame, *arguments: Any) -> Any:
        return real(self, batch.filter(~pl.col(DELETED)), *arguments)

    patch.setattr(LatestRows, "apply", apply)


def table_missing_from_the_snapshot(patch: Patch) -> None:
    real = MemoryState.restore

    def restore(self: MemoryState[Any], files: Iterable[bytes], share: Share) -> None:
        real(self, () if self.declaration.name == LATEST else files, share)

    patch.setattr(MemoryState, "restore", restore)


def matched_flag_missing_from_the_snapshot(patch: Patch) -> None:
    """Which rows have matched is only in memory."""
    note, take = Side.note_matched, Side.take_unmatched
    matched_of: WeakKeyDictionary[Side, set[Kept]] = WeakKeyDictionary()

    def note_matched(self: Side, found: Mapping[Row, Value], matched: Mapping[Row, set[int]]) -> None:
        if not self.flagged:
            note(self, found, matched)
            return
        known = matched_of.setdefault(self, set())
        for entry, indexes in matched.items():
            known |= {found[entry][0][index] for index in indexes}

    def take_unmatched(self: Side, watermark_ms: int, limit: int) -> tuple[list[Row], list[Kept]]:
        taken, rows = take(self, watermark_ms, limit)
        known = matched_of.get(self, set())
        return taken, [row for row in rows if row not in known]

    patch.setattr(Side, "note_matched", note_matched)
    patch.setattr(Side, "take_unmatched", take_unmatched)


def rows_of_a_join_removed_one_bucket_early(patch: Patch) -> None:
    real = Side.remove

    def remove(self: Side, watermark_ms: int, limit: int) -> bool:
        return real(self, watermark_ms + self._bucket_ms, limit)

    patch.setattr(Side, "remove", remove)
