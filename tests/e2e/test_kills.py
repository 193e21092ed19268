"""Kills at seeded moments under load, on separate executors: nothing is lost, doubled or out of order."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.support.chaos import Scenario

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KILLS = 12
SEED = 20
NOTICED_S = 8.0
"""A killed slot is noticed by its connection, before the heartbeat timeout of 10 s, however busy the machine is."""


def test_F03_twelve_kills_of_worker_executor_daemon_and_broker_leave_the_output_exact(tmp_path: Path) -> None:
    with Scenario(tmp_path, SEED, rate=1500.0) as scenario:
        scenario.run_kills(KILLS)
        outcome = scenario.finish()
    print(outcome.line())
    assert outcome.kills == {"worker": 3, "executor": 3, "daemon": 3, "broker": 3}
    assert outcome.orders > 0
    assert outcome.exact, msgspec.to_builtins(outcome)
    noticed = [one.phases["noticed"] for one in outcome.recoveries if one.kind in {"worker", "executor"}]
    assert max(noticed) < NOTICED_S, noticed
