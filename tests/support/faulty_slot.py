"""`tidegate run` whose slots kill themselves: `python -m tests.support.faulty_slot NTH|own-disk FILE`.

The slots of the first attempt die at the first of POINTS, those of the second at the second, and so on; those after the
last point survive. A slot dies at its NTH passage. A line `fault: POINT` in the log proves that it happened. The hooks
reach the slot's process with its bootstrap: unpickling it there installs them.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.slot.control_link import SlotBootstrap
from tidegate.spark.host import SparkHost, SparkJob

POINTS = (
    "before-upload",  # the state of a checkpoint is captured, nothing of it is written
    "after-upload",  # it is durable, but not reported
    "before-flush",  # the barrier has passed, records of the transaction are still in the client
    "after-flush",  # all are at the broker, nothing is counted
    "after-proof",  # prepared, not acknowledged
    "after-ack",  # acknowledged
    "after-completed",  # the checkpoint was completed, its ids are free again
)
OWN_DISK = "own-disk"
"""Given instead of NTH: no slot dies, but each has a directory of its own under the same name."""


class FaultyBootstrap(SlotBootstrap, frozen=True):
    """A bootstrap that becomes a plain one when it is unpickled, and installs the fault there."""

    fault: str = "1"

    def __reduce__(self) -> tuple[Callable[..., SlotBootstrap], tuple[Any, ...]]:
        plain = {name: getattr(self, name) for name in SlotBootstrap.__struct_fields__}
        return arrive, (plain, self.fault)


def arrive(fields: dict[str, Any], fault: str) -> SlotBootstrap:
    """Installs the fault in the slot's process before anything else runs there."""
    bootstrap = SlotBootstrap(**fields)
    if fault == OWN_DISK:
        _give_own_disk()
    elif bootstrap.attempt <= len(POINTS):
        _install(POINTS[bootstrap.attempt - 1], int(fault))
    return bootstrap


def _give_own_disk() -> None:
    """Redirects the directory's name to another directory, as on an executor that has not mounted the volume."""
    from tidegate.storage import local

    directory_of = local.directory_of

    def elsewhere(url: str) -> Path:
        place = directory_of(url)
        return place.with_name(f"{place.name}-of-this-executor")

    local.directory_of = elsewhere


def _install(point: str, nth: int) -> None:
    from tidegate.kafka.transactions import TransactionClient
    from tidegate.kafka.writer import TransactionWriter
    from tidegate.storage.local import LocalStorage
    from tidegate.storage.names import STATE_PREFIX
    from tidegate.task.loop import SlotLoop

    passages = [nth]

    def pass_by(here: str, *, counts: bool = True) -> None:
        if here != point or not counts:
            return
        passages[0] -= 1
        if not passages[0]:
            print(f"fault: {point}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)

    def around(owner: type, name: str, before: str, after: str, counts: Callable[..., bool] = lambda *_: True) -> None:
        call = getattr(owner, name)

        @functools.wraps(call)
        def wrapped(*args: Any, **named: Any) -> Any:
            pass_by(before, counts=counts(*args))
            result = call(*args, **named)
            pass_by(after, counts=counts(*args))
            return result

        setattr(owner, name, wrapped)

    around(
        LocalStorage, "put", "before-upload", "after-upload", lambda _storage, name, *_: name.startswith(STATE_PREFIX)
    )
    around(TransactionWriter, "flush", "before-flush", "after-flush", lambda writer, *_: writer.produced > 0)
    around(TransactionClient, "prepared_view", "", "after-proof")
    around(SlotLoop, "_acknowledge", "", "after-ack", lambda _loop, _subtask, pending: pending.done)
    around(SlotLoop, "on_completed", "", "after-completed")


def main() -> int:
    """Runs the pipeline with the faults; returns the daemon's exit code."""
    fault, file = sys.argv[1:]
    from tidegate.cli.run import run_pipeline

    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    job = SparkHost.job

    def faulty_job(self: SparkHost, bootstrap: SlotBootstrap, *args: Any) -> SparkJob:
        fields = {name: getattr(bootstrap, name) for name in SlotBootstrap.__struct_fields__}
        return job(self, FaultyBootstrap(**fields, fault=fault), *args)

    SparkHost.job = faulty_job  # type: ignore[method-assign, assignment]  # that is the purpose
    return run_pipeline(Path(file))


if __name__ == "__main__":
    from tests.support.faulty_slot import main as run  # by module name: slots import this class, not __main__'s

    sys.exit(run())
