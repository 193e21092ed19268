"""`tidegate run` that kills itself at one exact point: `python -m tests.support.faulty_daemon POINT NTH FILE`.

The hooks wrap the journal and the commits from outside; the product has none. `NTH` counts passages of the point.
Appends and commits count only if each listed transaction is new: on a slow machine an entry also lists transactions of
the previous one that the broker is still committing. A line `fault: POINT` on stderr proves that the fault happened.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.committable import Committable
from tidegate.coordinator.ledger import Key, key_of
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.ids import CheckpointId
from tidegate.journal.journal import Journal
from tidegate.kafka.transactions import TransactionClient

POINTS = (
    "before-append",  # everything is prepared, nothing is decided
    "after-append",  # decided, but nothing is committed
    "half-committed",  # some of the transactions are committed
    "after-commit",  # committed, but the next journal entry does not exist
    "after-takeover",  # in a recovery: the journal is taken over, its listed transactions are not ended yet
    "lost",  # no death: the broker is made to abort what was just decided, and the daemon continues
)


class Fault:
    """Kills the process at the n-th passage of its point."""

    def __init__(self, point: str, nth: int) -> None:
        self.point = point
        self.step = threading.Lock()
        """Held during a commit and an append, so that no entry appears after the one whose commit is hit."""
        self._left = nth
        self._newest: set[Key] = set()
        self._listed: set[Key] = set()
        self._not_counting: set[CheckpointId] = set()

    def pass_by(self, point: str) -> bool:
        """Counts a passage; returns whether it is the chosen one."""
        if point != self.point:
            return False
        self._left -= 1
        return self._left == 0

    def entered(self, checkpoint: CompletedCheckpoint) -> bool:
        """Returns whether the append of this entry, and with it its commit, counts.

        For `before-append` the test examines the transactions of the entry that is the newest then, so it must have
        some.
        """
        before, self._newest = self._newest, {key_of(one) for one in checkpoint.committables}
        counts = bool(self._newest) and not self._newest & self._listed
        if self.point == "before-append":
            counts = counts and bool(before)
        self._listed |= self._newest
        if not counts:
            self._not_counting.add(checkpoint.id)
        return counts

    def committed(self, checkpoint: CheckpointId) -> bool:
        """Returns whether this commit counts: only the first one of an entry, which an earlier daemon may have
        appended.
        """
        counts = checkpoint not in self._not_counting
        self._not_counting.add(checkpoint)
        return counts

    def die(self) -> None:
        """Ends the process as `kill -9` does."""
        print(f"fault: {self.point}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()


def install(fault: Fault) -> None:
    """Wraps the calls around the points."""
    _wrap(Journal, "append_checkpoint", lambda call: _around_append(fault, call))
    _wrap(Journal, "take_over", lambda call: _around_takeover(fault, call))
    _wrap(KafkaClusters, "commit", lambda call: _around_commit(fault, call))


def _wrap(owner: type, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _around_takeover(fault: Fault, take_over: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(take_over)
    def wrapped(*args: Any, **named: Any) -> Any:
        result = take_over(*args, **named)
        if fault.pass_by("after-takeover"):
            fault.die()
        return result

    return wrapped


def _around_append(fault: Fault, append: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(append)
    def wrapped(self: Journal, checkpoint: CompletedCheckpoint) -> Any:
        counts = fault.entered(checkpoint)
        with fault.step:
            if counts and fault.pass_by("before-append"):
                fault.die()
            result = append(self, checkpoint)
            if counts and fault.pass_by("after-append"):
                fault.die()
        return result

    return wrapped


def _around_commit(fault: Fault, commit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(commit)
    async def wrapped(self: KafkaClusters, permit: CommitPermit) -> Any:
        def client_of(one: Committable) -> TransactionClient:
            client = self.clusters[one.cluster]._commit_client
            assert client is not None
            return client

        counts = fault.committed(permit.checkpoint)
        with fault.step:
            if counts and len(permit.committables) > 1 and fault.pass_by("half-committed"):
                for one in permit.committables[: len(permit.committables) // 2]:
                    client_of(one).end_transactions([one])
                fault.die()
            if counts and fault.pass_by("lost"):
                for one in permit.committables:
                    client_of(one).fence(one.transactional_id)
                print(f"fault: {fault.point}", file=sys.stderr, flush=True)
            outcomes = await commit(self, permit)
            if counts and fault.pass_by("after-commit"):
                fault.die()
            return outcomes

    return wrapped


def main() -> int:
    """Runs the pipeline with the fault; returns the daemon's exit code if the fault did not happen."""
    point, nth, file = sys.argv[1:]
    assert point in POINTS, point
    from tidegate.cli.run import run_pipeline

    install(Fault(point, int(nth)))
    return run_pipeline(Path(file))


if __name__ == "__main__":
    sys.exit(main())
