"""The story of a cell, in the cell's own environment: two slots on two executors, an exchange, totals, kills.

`python -m tests.compatibility.story PLACE BOOTSTRAP SEED` prints one line of JSON; its exit code is 1 where it has
problems. The broker runs outside, in the project's environment.
"""

from __future__ import annotations

import json
import logging
import platform
import signal
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from tests.night.story import Night, Result
from tests.support.processes import kill
from tests.support.rig import Rig
from tidegate.dev.broker.server import create_topics
from tidegate.spark.java import find_java, read_java_version

MASTER: Final = "local-cluster[2,1,1024]"
"""Real executors, which are processes of their own."""
ORDERS_PER_S: Final = 100.0
STORY_S: Final = 600
FAULTS: Final = ("slot killed", "executor killed")


class OutsideBroker:
    """A broker that somebody else runs."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """As DevelopmentBroker."""
        create_topics(self.bootstrap, topics)


def run(night: Night, bootstrap: str) -> Result:
    """See the module."""
    with Rig(OutsideBroker(bootstrap), night.place / "rig", seed=night.seed, rate=ORDERS_PER_S, master=MASTER) as rig:
        daemon = rig.running()
        for fault in FAULTS:
            night.least(fault)
            night.pause(0.2, 1.5)
            attempt = daemon.attempt
            with night.recovery():
                if fault == "slot killed":
                    night.count(fault, kill(night.dice.choice(sorted(daemon.slots()))))
                else:
                    night.count(fault, kill(night.dice.choice(daemon.executors())))
                daemon.wait_attempt(attempt)
        return night.finish(rig, daemon)


def _end(_number: int, _frame: FrameType | None) -> None:
    """Out of whatever the story waits for, so that its daemons are ended."""
    raise TimeoutError(f"not within {STORY_S} s")


def main() -> int:
    """See the module."""
    place, bootstrap, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    found = {"python": platform.python_version(), "spark": version("pyspark"), "java": read_java_version(find_java())}
    night = Night("compatibility", seed, 0.0, place)
    signal.signal(signal.SIGALRM, _end)
    signal.alarm(STORY_S)
    try:
        run(night, bootstrap)
    except Exception as error:  # noqa: BLE001 - a line of the table
        night.problem(f"{type(error).__name__}: {error}")
        night.close()
    sys.stdout.write(json.dumps({"ran": found, **msgspec.to_builtins(night.result)}) + "\n")
    return len(night.result.problems) != 0


if __name__ == "__main__":
    sys.exit(main())
