"""Kills at seeded moments under load, on separate executors: nothing is lost, doubled or out of order."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.chaos import KINDS, Scenario
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import find_descendants, frozen, is_alive
from tests.support.rest_answers import read_all
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

SEED = 20
QUICK_TO_GIVE_UP = {
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeoutInterval": "1s",
    "spark.network.timeout": "10s",
}


def test_F03_kills_of_worker_executor_daemon_and_broker_and_a_frozen_executor_leave_the_output_exact(
    tmp_path: Path,
) -> None:
    """`make chaos` kills more often. One sink writes two topics."""
    with Scenario(tmp_path, SEED, rate=500.0, interval="1s", spark=QUICK_TO_GIVE_UP, halves=True) as scenario:
        scenario.run_kills(len(KINDS))
        freeze_an_executor(scenario.daemon)
        look_at_rest(scenario.daemon)
        outcome = scenario.finish()
    print(outcome.line())
    assert outcome.kills == dict.fromkeys(KINDS, 1)
    assert outcome.orders > 0
    assert [one.expected > 0 for one in outcome.halves] == [True, True]
    assert outcome.exact, msgspec.to_builtins(outcome)
    causes = [one.cause for one in outcome.recoveries if one.kind in {"worker", "executor"}]
    assert all(causes)
    assert not [cause for cause in causes if "no heartbeat" in cause], "a killed slot is noticed by its connection"


def look_at_rest(daemon: DaemonProcess) -> None:
    """Every resource of a daemon that has just recovered is as it is described, and the events have the restart."""
    found = read_all(daemon)
    assert {"status", "plan", "config", "checkpoints", "history", "events", "partitions", "state"} <= found.keys()
    kinds = [one["kind"] for one in found["events"]["events"]]
    assert "restarted" in kinds[kinds.index("running") :], kinds
    assert found["history"]["at_ms"]
    assert found["failures"]


def freeze_an_executor(daemon: DaemonProcess) -> None:
    """Spark gives the executor up; the attempt ends, another executor takes over, and the old one ends in the end."""
    attempt = daemon.attempt
    executor = daemon.executors()[0]
    below = [process.pid for process in find_descendants(executor)]
    with frozen([executor]):
        daemon.wait_attempt(attempt)
    wait_until(lambda: not any(map(is_alive, [executor, *below])), "the frozen executor and its slots end")
