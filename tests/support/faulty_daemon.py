"""`tidegate run` that kills itself at one exact point: `python -m tests.support.faulty_daemon POINT NTH FILE`.

The hooks wrap the journal and the commits from outside; the product has none. `NTH` counts passages of the point. A
line `fault: POINT` on stderr proves that it happened.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import wait_until
from tidegate.coordinator.journal import Journal
from tidegate.coordinator.permit import CommitPermit
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.sinks.facts import CoordinatorState
from tidegate.sinks.transactions import TransactionClient

POINTS = (
    "before-append",  # everything is prepared, nothing is decided
    "after-append",  # decided, nothing is committed
    "half-committed",  # some of the transactions are committed
    "after-commit",  # committed, and the next journal entry does not exist
    "next-open",  # decided, not committed, and the sinks write the next transactions already
    "after-takeover",  # of a recovery: the journal is ours, its listed transactions are not ended yet
    "before-salvage",  # of a recovery: lost records are prepared again, nothing is decided
    "after-salvage",  # the salvage is decided and not committed
    "lost",  # no death: the broker is made to abort what was just decided, and the daemon goes on
)


class Fault:
    """Dies at the n-th passage of its point."""

    def __init__(self, point: str, nth: int) -> None:
        self.point = point
        self._left = nth

    def pass_by(self, point: str) -> bool:
        """Whether this passage is the one."""
        if point != self.point:
            return False
        self._left -= 1
        return self._left == 0

    def die(self) -> None:
        """As by `kill -9`."""
        print(f"fault: {self.point}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
        signal.pause()


def install(fault: Fault) -> None:
    """Wrap what the points lie between."""
    _wrap(Journal, "append_checkpoint", lambda call: _around(fault, call, "before-append", "after-append"))
    _wrap(Journal, "take_over", lambda call: _around(fault, call, "", "after-takeover"))
    _wrap(Journal, "append_salvaged", lambda call: _around(fault, call, "before-salvage", "after-salvage"))
    commit = KafkaEdge.commit

    @functools.wraps(commit)
    async def commit_and_die(self: KafkaEdge, permit: CommitPermit) -> Any:
        if len(permit.committables) > 1 and fault.pass_by("half-committed"):
            client = self._commit_client
            assert client is not None
            client.end_transactions(permit.committables[: len(permit.committables) // 2])
            fault.die()
        if permit.committables and fault.pass_by("lost"):
            assert self._commit_client is not None
            for one in permit.committables:
                self._commit_client.fence(one.transactional_id)
            print(f"fault: {fault.point}", file=sys.stderr, flush=True)
        if permit.committables and fault.pass_by("next-open"):
            assert self._commit_client is not None
            _wait_next_open(self._commit_client, permit)
            fault.die()
        outcomes = await commit(self, permit)
        if permit.committables and fault.pass_by("after-commit"):
            fault.die()
        return outcomes

    KafkaEdge.commit = commit_and_die  # type: ignore[method-assign]  # that is the purpose


def _wrap(owner: type, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    setattr(owner, name, wrapper(getattr(owner, name)))


def _around(fault: Fault, call: Callable[..., Any], before: str, after: str) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapped(*args: Any, **named: Any) -> Any:
        with_records = not args[1:] or getattr(args[1], "committables", True)
        if with_records and fault.pass_by(before):
            fault.die()
        result = call(*args, **named)
        if with_records and fault.pass_by(after):
            fault.die()
        return result

    return wrapped


def _wait_next_open(client: TransactionClient, permit: CommitPermit) -> None:
    """Until every sink that has a transaction in the permit has the next one open, too."""
    listed = {one.transactional_id for one in permit.committables}
    subtasks = {name.rsplit(".", 1)[0] for name in listed}

    def all_open() -> bool:
        found = client.list_transactions(next(iter(listed)).split(".", 1)[0] + ".")
        open_now = {one.transactional_id for one in found if one.state is CoordinatorState.ONGOING} - listed
        return subtasks <= {name.rsplit(".", 1)[0] for name in open_now}

    wait_until(all_open, "the next transaction of every sink is open", 60)


def main() -> int:
    """Run the pipeline with the fault; exit code of the daemon when the fault did not happen."""
    point, nth, file = sys.argv[1:]
    assert point in POINTS, point
    from tidegate.daemon.run import run_pipeline

    install(Fault(point, int(nth)))
    return run_pipeline(Path(file))


if __name__ == "__main__":
    sys.exit(main())
