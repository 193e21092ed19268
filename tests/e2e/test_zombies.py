"""Processes that are frozen, given up, and wake up: they stop by themselves and nothing of theirs becomes visible."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.processes import find_descendants, frozen, is_alive
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_C10_a_frozen_daemon_that_wakes_up_behind_a_takeover_stops_with_exit_code_5(make_rig: RigMaker) -> None:
    """Its slots die by their lease; the newer daemon goes on from the newest checkpoint; the zombie decides nothing."""
    rig = make_rig(seed=31, heartbeat_timeout="4s")
    old = rig.running()
    slots = old.slots()
    assert slots
    with frozen([old.pid]):
        wait_until(lambda: not any(map(is_alive, slots)), "the slots of the frozen daemon end by their lease")
        new = rig.daemon().start().wait_running()
        new.wait_committed()
    assert old.wait() == 5, old.text()[-3000:]
    assert f"superseded by process {new.pid}" in old.text()
    assert "Traceback" not in old.text()
    rig.finish(new)


def test_C10_of_two_daemons_the_newer_takes_over_and_the_older_stops_with_exit_code_5(make_rig: RigMaker) -> None:
    rig = make_rig(seed=32)
    old = rig.running()
    new = rig.daemon().start().wait_running()
    assert old.wait() == 5, old.text()[-3000:]
    assert f"superseded by process {new.pid}" in old.text()
    assert "Traceback" not in old.text()
    new.wait_committed()
    rig.finish(new)


def test_F03_a_frozen_slot_is_noticed_and_replaced_and_ends_when_it_wakes_up(make_rig: RigMaker) -> None:
    rig = make_rig(seed=33, heartbeat_timeout="4s")
    daemon = rig.running()
    attempt = daemon.attempt
    slot = daemon.slots()[0]
    with frozen([slot]):
        lost = daemon.wait_for(rf"process {slot} .* was lost: no heartbeat for (\d+\.\d) s")
        assert 4.0 <= float(lost.group(1)) < 10.0
        daemon.wait_attempt(attempt)
    wait_until(lambda: not is_alive(slot), "the slot ends when it wakes up")
    rig.finish(daemon)


def test_F03_a_frozen_executor_does_not_stop_its_slots_for_ever(make_rig: RigMaker) -> None:
    """Spark gives the executor up; the attempt ends, another executor takes over, and the old one ends in the end."""
    spark = {
        "spark.executor.heartbeatInterval": "1s",
        "spark.network.timeoutInterval": "1s",
        "spark.network.timeout": "10s",
    }
    rig = make_rig(seed=34, master="local-cluster[2,1,512]", heartbeat_timeout="4s", spark=spark)
    daemon = rig.running()
    attempt = daemon.attempt
    executor = daemon.executors()[0]
    below = [process.pid for process in find_descendants(executor)]
    with frozen([executor]):
        daemon.wait_attempt(attempt)
    wait_until(lambda: not any(map(is_alive, [executor, *below])), "the frozen executor and its slots end")
    rig.finish(daemon)
