"""A broker that leads, coordinates or controls hangs for longer and shorter than its session, then continues.

A longer one wakes up as the leader that it was, while others lead by now.
"""

from __future__ import annotations

from tests.night.story import Night, Result
from tests.support.broker_cluster import BrokerCluster
from tests.support.rig import Rig
from tidegate.ids import TopicPartition

SESSION_S = 9.0
"""Of the cluster's brokers."""


def run(night: Night) -> Result:
    """See the module."""
    with (
        BrokerCluster(night.place / "cluster") as cluster,
        Rig(cluster, night.place / "rig", seed=night.seed, rate=500) as rig,
    ):
        daemon = rig.running()
        for length in ("frozen within the session", "frozen beyond the session", "leadership moved"):
            night.least(length)
        for number in night.rounds(2):
            beyond = number % 2 == 1
            place = TopicPartition(
                night.dice.choice([rig.topic["paid"], rig.topic["totals"], "__transaction_state"]), 0
            )
            node = cluster.controller() if number % 3 == 0 else cluster.leader(place)
            led = cluster.leader(place)
            cluster.brokers[node].pause()
            try:
                night.pause(*((SESSION_S * 1.5, SESSION_S * 4) if beyond else (1.0, SESSION_S / 2)))
                if beyond:
                    night.count("leadership moved", led == node and cluster.leader(place) != node)
            finally:
                cluster.brokers[node].resume()
            night.count(f"frozen {'beyond' if beyond else 'within'} the session")
            with night.recovery():
                daemon.wait_checkpoints(2)
                cluster.wait_in_sync()
                daemon.wait_checkpoints(2)
        return night.finish(rig, daemon)
