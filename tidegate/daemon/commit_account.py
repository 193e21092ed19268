"""Counts committed transactions and their records, each one once, even if several components commit it.

Most are committed with the checkpoint that decides them. If an attempt ends before that is known, the transaction
release at its end commits them, or the next recovery does.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tidegate.committable import Committable
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.ids import Attempt

ENDED_MAX: Final = 10_000
"""Limit of remembered ended transactions: more than those of the newest checkpoint, which may be asked for again."""


class CommitAccount:
    """The account of one daemon. Its methods return the records per sink that were not counted before."""

    def __init__(self) -> None:
        self.records = 0
        """The total of all counted records."""
        self._first: Attempt | None = None
        self._counted: set[Key] = set()
        """The transactions that the newest checkpoint lists, and those committed after it."""
        self._ended: dict[Key, None] = {}
        """In the order in which they ended."""

    def begin(self, attempt: Attempt) -> None:
        """Begins an attempt of this daemon.

        Transactions that were decided before the first attempt may have been committed, and counted, by another daemon:
        Kafka gives the same answer.
        """
        if self._first is None:
            self._first = attempt

    def completed(self, checkpoint: CompletedCheckpoint) -> dict[str, int]:
        """Counts a checkpoint whose transactions are all committed.

        The checkpoint also lists transactions that the previous one decided and whose end was not seen yet; they are
        not counted again. Transactions of a checkpoint that was given up after its sinks had prepared are counted,
        because no earlier entry has decided them.
        """
        # Transactions of an older attempt were decided during that attempt or resolved by the recovery.
        found = self._count(each for each in checkpoint.committables if each.attempt == checkpoint.attempt)
        self._counted = {key_of(each) for each in checkpoint.committables}
        return found

    def ended(self, committables: Iterable[Committable]) -> dict[str, int]:
        """Counts transactions that were committed while no attempt runs."""
        first = self._first
        return self._count(each for each in committables if first is not None and each.attempt >= first)

    def end(self, committables: Iterable[Committable]) -> int:
        """Returns how many of these committed transactions were not counted before.

        Kafka reports them as committed each time it is asked: by the attempt, by the release at its end, by the next
        recovery.
        """
        new = [key for key in map(key_of, committables) if key not in self._ended]
        self._ended.update(dict.fromkeys(new))
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        return len(new)

    def _count(self, committables: Iterable[Committable]) -> dict[str, int]:
        found: dict[str, int] = {}
        for each in committables:
            if key_of(each) not in self._counted:
                self._counted.add(key_of(each))
                found[each.sink] = found.get(each.sink, 0) + each.records
                self.records += each.records
        return found
