"""What schedules reach: counted where it happens, told as a table, and held to a floor.

A simulation that never gets to a place proves nothing about it, and nobody notices: so a run of many seeds fails when
something was reached more rarely than stated here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import CheckpointId, OperatorName, SlotIndex
from tidegate.storage.names import checkpoint_of_state

PER: Final = 1000
"""Floors are for so many seeds."""
ENOUGH_SEEDS: Final = 200
"""Below so many a run says what it has reached and holds nobody to it."""

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
    per: float
    """Per PER seeds."""
    floor: int | None

    def missed(self, seeds: int) -> bool:
        """Whether it was reached too rarely; never in a run of few seeds."""
        return self.floor is not None and seeds >= ENOUGH_SEEDS and self.per < self.floor

    def __str__(self) -> str:
        floor = "" if self.floor is None else str(self.floor)
        return f"{self.what:<52} {self.reached:>9} {self.per:>11.1f} {floor:>7}"


HEADING: Final = f"{'reached':<52} {'times':>9} {f'per {PER}':>11} {'floor':>7}"


def derive_rows(reached: Mapping[str, int], seeds: int) -> Iterator[Row]:
    """All that has a floor or was reached, in alphabetical order."""
    for what in sorted(FLOORS.keys() | reached.keys()):
        times = reached.get(what, 0)
        yield Row(what, times, PER * times / max(1, seeds), FLOORS.get(what))


def find_missed(reached: Mapping[str, int], seeds: int) -> list[Row]:
    """What was reached more rarely than its floor says."""
    return [row for row in derive_rows(reached, seeds) if row.missed(seeds)]
