"""A cluster of three brokers, of which one dies: what leads, coordinates and controls moves, and nothing is lost."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.broker_cluster import BrokerCluster
from tests.waiting import wait_until
from tidegate.checks.pipeline_file import plan_file
from tidegate.cli.doctor import find_problems

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path / "cluster") as made:
        yield made


def test_F02_the_death_of_a_leader_coordinator_and_controller_is_waited_for_without_a_new_attempt(
    make_rig: RigMaker, cluster: BrokerCluster, tmp_path: Path
) -> None:
    """Before it: X21, what the cluster's acknowledgements are worth, as long as one topic is set carelessly."""
    rig = make_rig(broker=cluster, seed=72, rate=500)
    path = rig.pipeline.write(tmp_path / "pipeline.yaml")
    for copies in ("1", "2"):
        cluster.configure(rig.topic["paid"], "min.insync.replicas", copies)
        problems, code = find_problems(*plan_file(path, os.environ))
        assert code == 0
        told = [str(problem) for problem in problems if "can be lost" in problem.message]
        assert len(told) == (copies == "1"), told
        assert all(f"--entity-name {rig.topic['paid']} --add-config min.insync.replicas=2" in text for text in told)
    daemon = rig.running()
    assert "can be lost" not in daemon.text()
    node = cluster.controller()
    assert node in cluster.leaders(rig.topic["paid"]), "a planned fault did not happen"
    assert node in cluster.leaders("__transaction_state"), "a planned fault did not happen"
    victim = cluster.brokers[node]
    victim.kill()
    rig.outputs.wait_more(rig.topic["totals"], 1000)
    daemon.wait_checkpoints(2)
    victim.start()
    wait_until(lambda: cluster.in_sync("__transaction_state") == len(cluster.brokers), "all copies are in sync")
    daemon.wait_checkpoints(2)
    rig.finish(daemon)
    assert daemon.attempt == 1, "\n".join(line for line in daemon.text().splitlines() if "attempt failed" in line)
