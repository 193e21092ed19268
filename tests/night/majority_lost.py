"""Two of three brokers die or hang: nothing can be acknowledged until one is back. Nothing is lost meanwhile."""

from __future__ import annotations

from tests.night.story import Night, Result
from tests.support.broker_cluster import BrokerCluster
from tests.support.rig import Rig


def run(night: Night) -> Result:
    """See the module."""
    with (
        BrokerCluster(night.place / "cluster") as cluster,
        Rig(cluster, night.place / "rig", seed=night.seed, rate=300) as rig,
    ):
        daemon = rig.running()
        night.least("majority killed")
        night.least("majority frozen")
        for number in night.rounds(2):
            kills = number % 2 == 1
            victims = night.dice.sample(sorted(cluster.brokers), 2)
            for node in victims:
                (cluster.brokers[node].kill if kills else cluster.brokers[node].pause)()
            before = rig.outputs.count(rig.topic["totals"])
            try:
                night.count("seconds without a majority", night.pause(3.0, 30.0))
                gained = rig.outputs.count(rig.topic["totals"]) - before
                night.count("orders seen without a majority", gained)
            finally:
                for node in [] if kills else victims:
                    cluster.brokers[node].resume()
            night.count(f"majority {'killed' if kills else 'frozen'}")
            with night.recovery():
                if kills:
                    cluster.bring_back(*victims)
                cluster.wait_in_sync()
                daemon.wait_checkpoints(2)
                night.wait_more(rig)
        return night.finish(rig, daemon)
