"""Known bugs of tables, lookups and joins, planted as those of `planted.py`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import polars as pl
import pytest

from tidegate.coordinator.gating import Gating
from tidegate.ids import SlotIndex, VertexId
from tidegate.operators.builtin.kafka_source import DELETED
from tidegate.operators.kinds.join.running.side import Kept, Pair, Side
from tidegate.operators.latest_rows import LATEST
from tidegate.operators.latest_rows.runtime import LatestRows
from tidegate.plan.gates import Gate
from tidegate.state.base import Share
from tidegate.state.memory import MemoryState
from tidegate.state.order import Row
from tidegate.state.time_ordered import TimeOrdered
from tidegate.task.elements import TimeControl
from tidegate.task.valve import Inputs

Patch = pytest.MonkeyPatch


def gate_opens_when_one_slot_has_caught_up(patch: Patch) -> None:
    real = Gating.on_caught_up

    def on_caught_up(self: Gating, vertex: VertexId, port: int, slot: SlotIndex) -> tuple[Gate, ...]:
        waiting = [*{slot}.union(*self._closed.values())]
        return tuple(gate for each in waiting for gate in real(self, vertex, port, each))

    patch.setattr(Gating, "on_caught_up", on_caught_up)


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


def idle_input_passed_without_a_question(patch: Patch) -> None:
    """ADR 52 across inputs: a watermark of one passes another one that was idle when it arrived."""
    real = Inputs.__init__

    def init(self: Inputs, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        across = self._across
        if across is None:
            return
        raised = across._raise

        def raise_(time_ms: int) -> list[TimeControl]:
            for channel in across._channels:
                channel.sure_ms = max(channel.sure_ms, time_ms)
            return raised(time_ms)

        across._raise = raise_  # type: ignore[method-assign]  # only for this valve

    patch.setattr(Inputs, "__init__", init)


def matched_rows_missing_from_the_snapshot(patch: Patch) -> None:
    """Which rows have matched is only in memory."""
    real, take = Side.match, Side.take_unmatched
    matched_of: WeakKeyDictionary[Side, set[Kept]] = WeakKeyDictionary()

    def match(self: Side, pairs: Sequence[Pair]) -> list[Kept]:
        known = matched_of.setdefault(self, set())
        with pytest.MonkeyPatch.context() as inside:
            inside.setattr(TimeOrdered, "put_many", lambda self, keys, values: None)
            inside.setattr(TimeOrdered, "delete_many", lambda self, keys: None)
            taken = [row for row in real(self, pairs) if row not in known]
        known.update(taken)
        return taken

    def take_unmatched(self: Side, watermark_ms: int, limit: int) -> tuple[list[Row], list[Kept]]:
        taken, rows = take(self, watermark_ms, limit)
        known = matched_of.get(self, set())
        return taken, [row for row in rows if row not in known]

    patch.setattr(Side, "match", match)
    patch.setattr(Side, "take_unmatched", take_unmatched)


def rows_of_a_join_removed_one_bucket_early(patch: Patch) -> None:
    real = Side.remove

    def remove(self: Side, watermark_ms: int, limit: int) -> bool:
        return real(self, watermark_ms + self._bucket_ms, limit)

    patch.setattr(Side, "remove", remove)
