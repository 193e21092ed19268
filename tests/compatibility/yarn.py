"""`python -m tests.compatibility.yarn`: executors are containers of a real YARN, and two of them are killed.

Prints one line of JSON; the exit code is 1 where the story has problems. It runs with the versions that the lock pins.
"""

from __future__ import annotations

import secrets
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec
import pyspark

from tests.night.story import Night, Result
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.support.yarn import Yarn
from tests.tidy.tree import ROOT
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

EXECUTORS: Final = 2
KILLS: Final = 2
ORDERS_PER_S: Final = 100.0


def run(night: Night) -> Result:
    """See the module."""
    spark = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.instances": str(EXECUTORS),
        "spark.executor.memory": "512m",
        "spark.yarn.am.memory": "512m",
        "spark.yarn.jars": f"local:{pyspark.__path__[0]}/jars/*",
        "spark.yarn.stagingDir": f"file:{night.place}/staging",
        "spark.pyspark.python": sys.executable,
        "spark.executorEnv.PYTHONPATH": str(ROOT),
    }
    place, rate = night.place / "rig", ORDERS_PER_S
    broker = DevelopmentBroker(night.place / "broker")
    with broker.start(), Yarn(night.place / "yarn") as yarn:
        with Rig(broker, place, seed=night.seed, rate=rate, master="yarn", spark=spark) as rig:
            rig.environ["HADOOP_CONF_DIR"] = str(yarn.configuration)
            daemon = rig.running()
            night.least("executor killed", KILLS)
            for _ in range(KILLS):
                wait_until(lambda: len(yarn.executors()) == EXECUTORS, "all executors are there")
                night.pause(0.2, 1.5)
                attempt = daemon.attempt
                with night.recovery():
                    night.count("executor killed", kill(night.dice.choice(yarn.executors())))
                    daemon.wait_attempt(attempt)
            return night.finish(rig, daemon)


def main() -> int:
    """See the module."""
    place = Path(tempfile.mkdtemp(prefix="tidegate-yarn-"))
    result = run(Night("yarn", secrets.randbelow(1 << 31), 0.0, place))
    sys.stdout.write(msgspec.json.encode(result).decode() + "\n")
    if result.problems:
        print(f"kept: {place}", file=sys.stderr)
    else:
        shutil.rmtree(place, ignore_errors=True)
    return len(result.problems) != 0


if __name__ == "__main__":
    sys.exit(main())
