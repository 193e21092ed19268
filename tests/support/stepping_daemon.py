"""`tidegate run` with an adjustable wall clock: `python -m tests.support.stepping_daemon STEP FILE`.

The file STEP contains the number of seconds by which `time.time` differs from the real time in the daemon and in its
slots (`set_step`). Monotonic clocks are not affected. The slots receive it with their bootstrap, as in `faulty_slot`.
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

from tidegate.slot.control_link import SlotBootstrap
from tidegate.spark.host import SparkHost, SparkJob

_STEP: Final = struct.Struct("<d")


def set_step(file: Path, seconds: float) -> None:
    """Sets the wall clock of every process that has installed the file."""
    with file.open("r+b" if file.exists() else "w+b") as out:
        out.write(_STEP.pack(seconds))


class SteppingBootstrap(SlotBootstrap, frozen=True):
    """A bootstrap that becomes a plain one when it is unpickled, and installs the clock there."""

    step: str = ""

    def __reduce__(self) -> tuple[Callable[..., SlotBootstrap], tuple[Any, ...]]:
        plain = {name: getattr(self, name) for name in SlotBootstrap.__struct_fields__}
        return arrive, (plain, self.step)


def arrive(fields: dict[str, Any], step: str) -> SlotBootstrap:
    """Installs the clock in the slot's process before anything else runs there."""
    install(Path(step))
    return SlotBootstrap(**fields)


def install(file: Path) -> None:
    """Makes this process use the adjusted clock from now on."""
    with file.open("rb") as source:
        shared = mmap.mmap(source.fileno(), _STEP.size, access=mmap.ACCESS_READ)
    wall, wall_ns = time.time, time.time_ns

    def step() -> float:
        return float(_STEP.unpack_from(shared)[0])

    time.time = lambda: wall() + step()
    time.time_ns = lambda: wall_ns() + int(step() * 1e9)


def main() -> int:
    """Runs the pipeline; returns the daemon's exit code."""
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
    from tests.support.stepping_daemon import main as run  # by module name: slots import this class, not __main__'s

    sys.exit(run())
