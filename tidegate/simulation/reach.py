"""The situations that schedules reach: counted where they occur, printed as a table, and compared with a minimum.

A simulation that never reaches a situation proves nothing about it, without anyone noticing. A run of many seeds
therefore fails if a situation was reached less often than stated here.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import CheckpointId, OperatorName, SlotIndex, StateName
from tidegate.storage.names import checkpoint_of_state

PER: Final = 1000
"""Number of seeds that the floors refer to."""
ENOUGH_SEEDS: Final = 200
"""A run with fewer seeds reports what it has reached but is not held to the floors."""
CHANCE: Final = 2.0
"""Tolerance below a floor, in standard deviations."""

FLOORS: Final[Mapping[str, int]] = {
    "acks: discarded": 25,
    "acks: duplicate": 10,
    "acks: late": 2,
    "acks: stale": 7,
    "acks: unknown": 25,
    "cancellations: an aligner at rest": 2,
    "cancellations: an alternating handler that has done with it": 15,
    "cancellations: an alternating handler that has seen nothing of it": 1,
    "changes of tables": 300,
    "checkpoints given up: declined": 95,
    "checkpoints given up: expired": 65,
    "checkpoints given up: journal_failed": 15,
    "checkpoints given up: subsumed": 20,
    "checkpoints given up: trigger_failed": 180,
    "checkpoints with increments": 3580,
    "checkpoints with increments of two layers and more": 935,
    "checkpoints with rows in flight": 1905,
    "checkpoints with transactions in two clusters": 320,
    "continued from a savepoint with a new directory": 4,
    "credits granted": 13270,
    "credits granted to a sender that waits": 2410,
    "daemons started while a cluster is away": 60,
    "daemons started with other names of steps": 100,
    "declines: snapshot_failed": 160,
    "declines: subsumed": 30,
    "fault: away-before daemon.broker": 8,
    "fault: broker-down": 105,
    "fault: broker-frozen": 25,
    "fault: broker-slow": 5,
    "fault: clock brokers ahead": 30,
    "fault: clock brokers back": 20,
    "fault: clock brokers week": 25,
    "fault: clock daemon ahead": 8,
    "fault: clock daemon back": 8,
    "fault: clock slot ahead": 3,
    "fault: clock slot back": 5,
    "fault: cluster-replaced": 3,
    "fault: coordinator-away loading": 40,
    "fault: coordinator-away moved": 50,
    "fault: crash-after daemon.broker": 35,
    "fault: crash-after daemon.storage": 20,
    "fault: crash-after slot.broker": 50,
    "fault: crash-after slot.storage": 10,
    "fault: crash-before daemon.broker": 75,
    "fault: crash-before daemon.storage": 15,
    "fault: crash-before slot.broker": 30,
    "fault: crash-before slot.storage": 7,
    "fault: cut slot": 10,
    "fault: damage journal": 10,
    "fault: damage state": 15,
    "fault: double slot.ack": 10,
    "fault: double slot.frame": 8,
    "fault: double slot.order": 10,
    "fault: doubled": 25,
    "fault: forget slot.broker": 65,
    "fault: freeze daemon": 70,
    "fault: freeze slot": 30,
    "fault: go-back": 20,
    "fault: hurry": 35,
    "fault: hurry grace": 35,
    "fault: kill daemon": 115,
    "fault: kill slot": 35,
    "fault: leader-away": 95,
    "fault: lose slot.ack": 15,
    "fault: lose slot.frame": 8,
    "fault: lose slot.order": 75,
    "fault: lose-after daemon.broker": 15,
    "fault: lose-after daemon.storage": 40,
    "fault: lose-after slot.broker": 45,
    "fault: lose-after slot.storage": 25,
    "fault: lose-before daemon.broker": 20,
    "fault: lose-before daemon.storage": 40,
    "fault: lose-before slot.broker": 35,
    "fault: lose-before slot.storage": 20,
    "fault: marker-delay": 100,
    "fault: partition daemon": 20,
    "fault: partition slot": 25,
    "fault: power-cut": 35,
    "fault: refuse slot.broker": 40,
    "fault: replace": 80,
    "fault: rescale": 40,
    "fault: retention": 11,
    "fault: savepoint": 70,
    "fault: slots-cut-off": 15,
    "fault: slow daemon.broker": 25,
    "fault: slow daemon.storage": 30,
    "fault: slow slot.ack": 35,
    "fault: slow slot.broker": 60,
    "fault: slow slot.order": 45,
    "fault: slow slot.storage": 20,
    "fault: stale slot.ack": 35,
    "fault: stop": 75,
    "fault: storage-down": 95,
    "fault: taken": 10,
    "fault: time-out": 20,
    "fault: unknown slot.ack": 25,
    "fault: unshared slot": 55,
    "fault: volume-lost": 40,
    "faults of the second cluster": 100,
    "gone back": 15,
    "gone back in front of committed work": 8,
    "late rows of Python steps": 170,
    "late rows of joins": 800,
    "loads after a lull": 150,
    "lookups that failed": 80,
    "lookups that found a row": 800,
    "lookups that found none": 200,
    "missing markers written: abort": 10,
    "missing markers written: commit": 5,
    "pairs across a restart": 60,
    "pairs across a restart with another parallelism": 4,
    "partitions added while running": 55,
    "partitions that are idle": 390,
    "records of joins: either": 800,
    "records of windows: counted": 15000,
    "records of windows: either": 10000,
    "records of windows: late": 3500,
    "records that retention removed before they were read": 150,
    "refused with a copy of the directory": 2,
    "refused without its directory: journal-lost": 10,
    "refused without its directory: ownership-conflict": 20,
    "refused: a cluster behind the address of another one": 5,
    "refused: a slot with another directory": 6,
    "releases with totals that are added": 15,
    "releases with totals that are reset": 20,
    "restores": 1375,
    "restores with increments": 345,
    "restores with increments of two layers and more": 115,
    "restores with open windows": 290,
    "restores with open windows at another parallelism": 20,
    "restores with rows in flight": 60,
    "restores with watermarks": 280,
    "rows of Python steps": 4300,
    "rows of Python steps by clock timers": 1900,
    "rows of Python steps by event-time timers": 750,
    "rows of Python steps that fail": 1000,
    "rows of joins": 1000,
    "rows of tables deleted": 60,
    "rows that wait for the watermark": 1300,
    "schedules with 5 checkpoints after the last fault": 330,
    "schedules with 5 checkpoints before the first fault": 225,
    "schedules: best": 5,
    "schedules: calls": 5,
    "schedules: dedup": 5,
    "schedules: expiring": 5,
    "schedules: join-anti": 3,
    "schedules: join-full": 3,
    "schedules: join-inner": 3,
    "schedules: join-left": 3,
    "schedules: join-right": 3,
    "schedules: join-semi": 3,
    "schedules: last": 5,
    "schedules: letters": 5,
    "schedules: lookup": 3,
    "schedules: lookup-at-once": 3,
    "schedules: lookup-drop": 3,
    "schedules: lookup-fail": 3,
    "schedules: lookup-wait": 3,
    "schedules: lost-input": 5,
    "schedules: new-topics": 5,
    "schedules: python-batches": 10,
    "schedules: python-visits": 10,
    "schedules: quiet": 3,
    "schedules: spread": 5,
    "schedules: table": 3,
    "schedules: two clusters": 80,
    "schedules: window-join": 3,
    "schedules: windows by the clock": 5,
    "schedules: windows of a time zone": 5,
    "schedules: windows with early results": 5,
    "slots restored with rows of joins": 70,
    "slots restored with rows of tables": 60,
    "slots restored with rows that wait": 40,
    "slots restored with timers of keys": 12,
    "slots that crash with rows of joins": 25,
    "slots that crash with rows of tables": 18,
    "slots that crash with rows that wait": 15,
    "slots that crash with sources on hold": 14,
    "slots that crash with timers of keys": 6,
    "sources put on hold": 180,
    "sources that read on": 110,
    "started again a week later": 80,
    "started again with emptied outputs": 95,
    "subtasks that replay rows in flight": 120,
    "timers of Python steps that fail": 60,
    "timers of Python steps that fire after a rescale": 4,
    "timers of Python steps that fire after a restore": 70,
    "tombstones of tables": 400,
    "topics grown": 120,
    "topics that a pattern finds made while it runs": 12,
    "transactions: lost": 7,
    "transactions: salvaged": 80,
    "two clusters: checkpoints": 3300,
    "two clusters: gone back": 1,
    "two clusters: restores": 280,
    "two clusters: transactions: salvaged": 6,
    "unmatched rows after a restart": 120,
    "unmatched rows after a restart with another parallelism": 6,
    "windows closed after a restore": 2000,
    "windows that replay rows in flight": 50,
}
"""Situation -> minimum count in PER seeds, a third of what was measured."""


OF_TWO_CLUSTERS: Final = (
    "checkpoints",
    "gone back",
    "missing markers written: commit",
    "restores",
    "transactions: salvaged",
)
"""Situations that schedules with two clusters must also reach."""


class ReachTable:
    """The counts of one schedule."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def note(self, what: str, times: int = 1) -> None:
        """Counts a situation."""
        if times:
            self.counts[what] += times


def count_in_two_clusters(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns the counts of a schedule with two clusters, with those again that it must reach itself."""
    again = {f"two clusters: {what}": counts[what] for what in OF_TWO_CLUSTERS if counts.get(what)}
    return {**counts, "schedules: two clusters": 1, **again}


def note_cut(reach: ReachTable, event: Literal["checkpoints", "restores"], checkpoint: CompletedCheckpoint) -> None:
    """Counts a checkpoint that is committed or with which an attempt begins."""
    reach.note(event)
    if checkpoint.inflight_bytes:
        reach.note(f"{event} with rows in flight")
    layers = count_increments(checkpoint)
    if layers:
        reach.note(f"{event} with increments")
    if layers > 1:
        reach.note(f"{event} with increments of two layers and more")


def count_increments(checkpoint: CompletedCheckpoint) -> int:
    """Returns the largest number of increments on a full snapshot, of one state in one subtask."""
    layers: dict[tuple[OperatorName, StateName, SlotIndex], set[CheckpointId | None]] = defaultdict(set)
    for handle in checkpoint.states:
        if handle.increment:
            layers[handle.operator, handle.state, handle.subtask].add(checkpoint_of_state(handle.path))
    return max(map(len, layers.values()), default=0)


class ReachRow(msgspec.Struct, frozen=True):
    """One line of the table."""

    what: str
    reached: int
    seeds: int
    floor: int
    """Minimum count in PER seeds; 0 means it is only counted."""

    @property
    def missed(self) -> bool:
        """True if the count is below the floor by more than chance explains."""
        expected = self.floor * self.seeds / PER
        return self.seeds >= ENOUGH_SEEDS and self.reached < expected - CHANCE * math.sqrt(expected)

    def __str__(self) -> str:
        per = PER * self.reached / max(1, self.seeds)
        return f"{self.what:<60} {self.reached:>8} {per:>10.1f} {self.floor or '':>6}{' MISSED' if self.missed else ''}"


HEADING: Final = f"{'what':<60} {'reached':>8} {f'per {PER:,}':>10} {'floor':>6}"


def derive_rows(reached: Mapping[str, int], seeds: int) -> list[ReachRow]:
    """Returns a row for everything that has a floor or was reached, in alphabetical order."""
    return [ReachRow(what, reached.get(what, 0), seeds, FLOORS.get(what, 0)) for what in sorted({*FLOORS, *reached})]
