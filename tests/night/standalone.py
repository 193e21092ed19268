"""Executors on a standalone Spark cluster are killed under load, one at a time and all at once."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.night.story import Night, Result
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.support.standalone_spark import StandaloneSpark
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker

WORKERS = 2
SPARK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def run(night: Night) -> Result:
    """See the module."""
    broker = DevelopmentBroker(night.place / "broker")
    with broker.start(), StandaloneSpark(night.place / "spark", workers=WORKERS) as spark:
        with Rig(broker, night.place / "rig", seed=night.seed, rate=500, master=spark.master, spark=SPARK) as rig:
            daemon = rig.running()
            night.least("executors killed", 3)
            night.least("all at once")
            for number in night.rounds(2):
                together = number % 2 == 0
                night.pause(0.1, 3.0)
                attempt = daemon.attempt
                wait_until(lambda: len(spark.executors()) == WORKERS, "all executors are there")
                victims = spark.executors() if together else [night.dice.choice(spark.executors())]
                with night.recovery():
                    killed = sum(map(kill, victims))
                    daemon.wait_attempt(attempt)
                night.count("executors killed", killed)
                night.count("all at once", together)
            result = night.finish(rig, daemon)
            looked = subprocess.run(
                [sys.executable, "-m", "tidegate", "doctor", "--spark", "--format", "json", daemon.pipeline],
                capture_output=True,
                text=True,
                check=False,
            )
            (executors,) = [one for one in json.loads(looked.stdout)["findings"] if one["check"] == "executors"]
            assert executors["severity"] == "ok", executors
            return result
