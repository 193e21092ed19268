"""Other parallelism between runs, and the at-least-once mode: what is promised for each, with crashes."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.processes import kill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_F20_at_least_once_loses_nothing_when_a_worker_is_killed(make_rig: RigMaker) -> None:
    rig = make_rig(seed=82, mode="at-least-once")
    daemon = rig.running()
    attempt = daemon.attempt
    assert kill(daemon.slots()[0])
    daemon.wait_attempt(attempt)
    rig.wait_output()
    assert daemon.terminate() == 0, daemon.text()[-3000:]
    for verdict in rig.verdicts():
        assert verdict.expected > 0
        assert verdict.lost == 0, verdict.examples
