"""What schedules reach: counted where it happens, told as a table, and held to a floor.

A simulation that never gets to a place proves nothing about it, and nobody notices: so a run of many seeds fails when
something was reached more rarely than stated here.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import CheckpointId, OperatorName, SlotIndex
from tidegate.storage.names import checkpoint_of_state

PER: Final = 1000
"""Floors are for so many seeds."""
ENOUGH_SEEDS: Final = 200
"""A run of fewer says what it has reached and holds nobody to it."""
CHANCE: Final = 2.0
"""Standard deviations."""

FLOORS: Final[Mapping[str, int]] = {}
"""What -> how often at least in PER seeds."""


class Reach:
    """Of one schedule."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, what: str, times: int = 1) -> None:
        """It has happened."""
        if times:
            self.counts[what] += times


def note_checkpoint(reach: Reach, checkpoint: CompletedCheckpoint) -> None:
    """It is committed."""
    reach.note("checkpoints")
    if checkpoint.inflight_bytes:
        reach.note("checkpoints with rows in flight")
    layers = count_increments(checkpoint)
    if layers:
        reach.note("checkpoints with increments")
    if layers > 1:
        reach.note("checkpoints with increments of two layers and more")


def note_restore(reach: Reach, checkpoint: CompletedCheckpoint) -> None:
    """An attempt begins with it."""
    reach.note("restores")
    if checkpoint.inflight_bytes:
        reach.note("restores with rows in flight")
    layers = count_increments(checkpoint)
    if layers:
        reach.note("restores of increments")
    if layers > 1:
        reach.note("restores of increments of two layers and more")


def count_increments(checkpoint: CompletedCheckpoint) -> int:
    """The largest number of increments on a full snapshot, of one operator in one subtask."""
    layers: dict[tuple[OperatorName, SlotIndex], set[CheckpointId | None]] = defaultdict(set)
    for handle in checkpoint.states:
        if handle.increment:
            layers[handle.operator, handle.subtask].add(checkpoint_of_state(handle.path))
    return max(map(len, layers.values()), default=0)


class Row(msgspec.Struct, frozen=True):
    """One line of the table."""

    what: str
    reached: int
    seeds: int
    floor: int
    """At least so often in PER seeds; 0: it is only counted."""

    @property
    def missed(self) -> bool:
        """Whether it was reached more rarely than its floor says, by more than chance makes of a small number."""
        expected = self.floor * self.seeds / PER
        return self.seeds >= ENOUGH_SEEDS and self.reached < expected - CHANCE * math.sqrt(expected)

    def __str__(self) -> str:
        per = PER * self.reached / max(1, self.seeds)
        return f"{self.what:<60} {self.reached:>8} {per:>10.1f} {self.floor or '':>6}{' MISSED' if self.missed else ''}"


HEADING: Final = f"{'what':<60} {'reached':>8} {f'per {PER:,}':>10} {'floor':>6}"


def derive_rows(reached: Mapping[str, int], seeds: int) -> list[Row]:
    """All that has a floor or was reached, in alphabetical order."""
    return [Row(what, reached.get(what, 0), seeds, FLOORS.get(what, 0)) for what in sorted({*FLOORS, *reached})]
