"""`python -m tests.rolling --rounds 3`: restart the three brokers of a loaded pipeline in order, again and again.

Each broker hands over what it leads before it ends (controlled shutdown). Nothing is lost, doubled or out of order, all
in one attempt, and no marker is written but by the coordinators (X08): neither by the daemon, which looks seldom, nor
by a mender next to it that looks all the time.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
from pathlib import Path

from tests.support.broker_cluster import BrokerCluster
from tests.support.looks import Looks
from tests.support.rig import Rig

MARKERS = re.compile(r"tidegate_missing_markers_written_total\{.*\} [^0]")
ALARM = re.compile(r"are blocked at offset|attempt failed")


def main() -> int:
    """Exit code 0 when it was so."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=float, default=1000.0)
    options = parser.parse_args()
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    print(f"rolling restarts: {options.rounds} rounds, seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tidegate-rolling-") as name:
        directory = Path(name)
        with (
            BrokerCluster(directory / "cluster", {"broker.session.timeout.ms": "3000"}) as cluster,
            Rig(cluster, directory, seed=options.seed, rate=options.rate) as rig,
        ):
            failures = _play(rig, cluster, options.rounds)
    for failure in failures:
        print(failure[:600])
    return len(failures) != 0


def _play(rig: Rig, cluster: BrokerCluster, rounds: int) -> list[str]:
    daemon = rig.running()
    looks = Looks(cluster.bootstrap, rig.pipeline.name, [rig.topic["paid"], rig.topic["totals"]])
    looks.start()
    try:
        for number in range(1, rounds + 1):
            cluster.roll()
            daemon.wait_checkpoints(2)
            print(f"round {number}: attempt {daemon.attempt}, {looks.count} looks, {looks.waits} put off", flush=True)
    finally:
        looks.stop()
    failures = [*looks.wrong, *(line for line in daemon.text().splitlines() if ALARM.search(line))]
    if MARKERS.search(daemon.http("/metrics")[1]):
        failures.append("the daemon has written markers")
    if not looks.count:
        failures.append("nobody has looked")
    rig.finish(daemon)
    return failures


if __name__ == "__main__":
    sys.exit(main())
