"""Other parallelism between runs, and the at-least-once mode: what is promised for each, with crashes."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.processes import kill

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_C32_keyed_state_moves_with_its_key_groups_from_2_to_1_to_3_slots(make_rig: RigMaker) -> None:
    """Every change follows a crash or a final checkpoint; running totals go on exactly."""
    rig = make_rig(seed=81)
    first = rig.running()
    first.kill()
    second = rig.running(parallelism=1, master="local[1]")
    assert second.terminate() == 0
    rig.finish(rig.running(parallelism=3, master="local[3]"))


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


def test_F22_a_purely_parallel_pipeline_is_exact_in_at_least_once_mode_without_a_crash(make_rig: RigMaker) -> None:
    rig = make_rig(seed=83, mode="at-least-once", keyed=False)
    first = rig.running()
    assert first.terminate() == 0, first.text()[-3000:]
    rig.finish(rig.running())
