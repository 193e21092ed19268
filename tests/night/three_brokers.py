"""Three brokers under load, restarted in order and killed one by one: no marker is written by us.

A hanging transaction resolver next to the daemon looks all the time, as in `make rolling`.
"""

from __future__ import annotations

from tests.night.story import Night, Result
from tests.support.broker_cluster import BrokerCluster
from tests.support.daemon_process import DaemonProcess
from tests.support.looks import Looks
from tests.support.rig import Rig


def run(night: Night) -> Result:
    """See the module."""
    with (
        BrokerCluster(night.place / "cluster") as cluster,
        Rig(cluster, night.place / "rig", seed=night.seed, rate=500) as rig,
    ):
        daemon = rig.running()
        looks = Looks(cluster.bootstrap, rig.pipeline.name, [rig.topic["paid"], rig.topic["totals"]])
        looks.start()
        night.least("brokers restarted", 3)
        night.least("brokers killed", 3)
        night.least("looks")
        try:
            for _ in night.rounds():
                _round(night, cluster, daemon)
        finally:
            looks.stop()
        night.count("looks", looks.count)
        night.count("looks put off", looks.waits)
        for wrong in looks.wrong:
            night.problem(f"a look next to the daemon: {wrong}")
        return night.finish(rig, daemon)


def _round(night: Night, cluster: BrokerCluster, daemon: DaemonProcess) -> None:
    with night.recovery():
        cluster.roll()
        daemon.wait_checkpoints(2)
    night.count("brokers restarted", len(cluster.brokers))
    for node in night.dice.sample(sorted(cluster.brokers), len(cluster.brokers)):
        night.pause(0.1, 2.0)
        cluster.brokers[node].kill()
        night.count("brokers killed")
        with night.recovery():
            daemon.wait_checkpoints(2)
        cluster.bring_back(node)
        daemon.wait_checkpoints(2)
