"""Which transactions, and whose records, were counted as committed: those of each once, whoever commits it.

Most are committed with the checkpoint that decides them. Where an attempt ends before that is known, its end commits
them, or the next recovery does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.committable import Committable
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import Attempt, ProducerId

ENDED_MAX: Final = 10_000
"""Ended transactions that are remembered: more than are asked for again, which are those of the newest checkpoint."""


class CommitAccount:
    """Of one daemon. What it returns are records per sink that were not counted before."""

    def __init__(self) -> None:
        self.records = 0
        """All that were counted."""
        self._first: Attempt | None = None
        self._counted: set[ProducerId] = set()
        """Those that the newest checkpoint lists, and what was committed after it."""
        self._ended: dict[ProducerId, None] = {}
        """In the order of their end."""

    def begin(self, attempt: Attempt) -> None:
        """An attempt of this daemon. What those before the first decided may have been committed, and counted, by
        another daemon: Kafka's answer is the same.
        """
        if self._first is None:
            self._first = attempt

    def completed(self, checkpoint: CompletedCheckpoint) -> dict[str, int]:
        """All that it lists is committed.

        It also lists transactions that the last one decided and nobody saw end yet (not counted again), and those of a
        checkpoint that was given up after its sinks had prepared (counted: no entry has decided them so far).
        """
        # What an older attempt prepared was decided in its time or settled by the recovery.
        found = self._count(each for each in checkpoint.committables if each.attempt == checkpoint.attempt)
        self._counted = {each.producer for each in checkpoint.committables}
        return found

    def ended(self, committables: Iterable[Committable]) -> dict[str, int]:
        """They are committed, and no attempt runs."""
        first = self._first
        return self._count(each for each in committables if first is not None and each.attempt >= first)

    def end(self, committables: Iterable[Committable]) -> int:
        """How many of these, which Kafka says are committed, were not counted before.

        It says so as often as it is asked: by the attempt, by its end, by the next recovery.
        """
        new = [each.producer for each in committables if each.producer not in self._ended]
        self._ended.update(dict.fromkeys(new))
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return len(new)

    def _count(self, committables: Iterable[Committable]) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in committables:
            if each.producer not in self._counted:
                self._counted.add(each.producer)
                found[each.sink] = found.get(each.sink, 0) + each.records
                self.records += each.records
        return found
