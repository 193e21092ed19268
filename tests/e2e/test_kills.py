"""Kills at seeded moments under load, on separate executors: nothing is lost, doubled or out of order."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.chaos import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

KILLS = 8
SEED = 20


def test_F03_kills_of_worker_executor_daemon_and_broker_leave_the_output_exact(tmp_path: Path) -> None:
    with Scenario(tmp_path, SEED, rate=1500.0) as scenario:
        scenario.run_kills(KILLS)
        outcome = scenario.finish()
    print(outcome.line())
    assert outcome.kills == {"worker": 2, "executor": 2, "daemon": 2, "broker": 2}
    assert outcome.orders > 0
    assert outcome.exact, msgspec.to_builtins(outcome)
    causes = [one.cause for one in outcome.recoveries if one.kind in {"worker", "executor"}]
    assert all(causes)
    assert not [cause for cause in causes if "no heartbeat" in cause], "a killed slot is noticed by its connection"
