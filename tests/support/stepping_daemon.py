"""`tidegate run` where somebody sets the wall clock: `python -m tests.support.stepping_daemon STEP FILE`.

The file STEP holds by how many seconds `time.time` differs from the truth, in the daemon and in its slots (`set_step`);
monotonic clocks do not. The slots learn it with their bootstrap, as in `faulty_slot`.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tidegate.slot.bootstrap import SlotBootstrap
from tidegate.spark.host import SparkHost, SparkJob

_STEP: Final = struct.Struct("<d")


def set_step(file: Path, seconds: float) -> None:
    """Set the wall clock of everybody who has the file."""
    with file.open("r+b" if file.exists() else "w+b") as out:
        out.write(_STEP.pack(seconds))


class SteppingBootstrap(SlotBootstrap, frozen=True):
    """Becomes a plain one where it arrives, and sets the clock there."""

    step: str = ""

    def __reduce__(self) -> tuple[Callable[..., SlotBootstrap], tuple[Any, ...]]:
        plain = {name: getattr(self, name) for name in SlotBootstrap.__struct_fields__}
        return arrive, (plain, self.step)


def arrive(fields: dict[str, Any], step: str) -> SlotBootstrap:
    """In the slot's process, before anything of it runs."""
    install(Path(step))
    return SlotBootstrap(**fields)


def install(file: Path) -> None:
    """From now on this process shows the set clock."""
    with file.open("rb") as source:
        shared = mmap.mmap(source.fileno(), _STEP.size, access=mmap.ACCESS_READ)
    wall, wall_ns = time.time, time.time_ns

    def step() -> float:
        return float(_STEP.unpack_from(shared)[0])

    time.time = lambda: wall() + step()
    time.time_ns = lambda: wall_ns() + int(step() * 1e9)


def main() -> int:
    """Run the pipeline; exit code of the daemon."""
    step, file = sys.argv[1:]
    install(Path(step))
    from tidegate.cli.run import run_pipeline

    root = str(Path(__file__).resolve().parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    job = SparkHost.job

    def stepping_job(self: SparkHost, bootstrap: SlotBootstrap, *args: Any) -> SparkJob:
        fields = {name: getattr(bootstrap, name) for name in SlotBootstrap.__struct_fields__}
        return job(self, SteppingBootstrap(**fields, step=step), *args)

    SparkHost.job = stepping_job  # type: ignore[method-assign, assignment]  # that is the purpose
    return run_pipeline(Path(file))


if __name__ == "__main__":
    from tests.support.stepping_daemon import main as run  # by its name: the slots import this class, not __main__'s

    sys.exit(run())
