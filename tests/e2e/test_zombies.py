"""Processes that are frozen, given up, and wake up: they stop by themselves and nothing of theirs becomes visible.

A frozen executor: tests/e2e/test_kills.py.
"""

from __future__ import annotations

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import find_descendants, frozen, is_alive
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_F03_C10_a_frozen_slot_is_replaced_and_a_daemon_behind_a_takeover_stops_with_exit_code_5(
    make_rig: RigMaker,
) -> None:
    """The slot of a daemon, what slots are forked from, then the daemon of a slot, is frozen; what wakes up ends, and
    decides nothing.

    In between, a daemon is started while another one runs.
    """
    rig = make_rig(seed=31, heartbeat_timeout="4s")
    first = rig.running()
    freeze_a_slot(first)
    freeze_what_slots_are_forked_from(first)

    second = rig.daemon().start().wait_running()
    check_superseded(first, second)
    second.wait_committed()

    slots = second.slots()
    assert slots
    with frozen([second.pid]):
        wait_until(lambda: not any(map(is_alive, slots)), "the slots of the frozen daemon end by their lease")
        third = rig.daemon().start().wait_running()
        third.wait_committed()
    check_superseded(second, third)
    rig.finish(third)


def freeze_a_slot(daemon: DaemonProcess) -> None:
    """It is noticed and replaced, and ends when it wakes up."""
    attempt = daemon.attempt
    slot = daemon.slots()[0]
    with frozen([slot]):
        lost = daemon.wait_for(rf"process {slot} .* was lost: no heartbeat for (\d+\.\d) s")
        assert float(lost.group(1)) >= 4.0
        daemon.wait_attempt(attempt)
    wait_until(lambda: not is_alive(slot), "the slot ends when it wakes up")


def freeze_what_slots_are_forked_from(daemon: DaemonProcess) -> None:
    """It is killed and replaced, for nothing else would end: Spark waits for it without a limit."""
    attempt = daemon.attempt
    (server,) = {process.parent for process in find_descendants(daemon.pid) if process.pid in daemon.slots()}
    with frozen([server]):
        daemon.wait_for(rf"attempt failed .* process {server}, from which slots are forked, has been frozen")
        daemon.wait_for(rf"process {server}, from which slots are forked, was frozen .* it is killed")
        daemon.wait_attempt(attempt)
    assert not is_alive(server)


def check_superseded(old: DaemonProcess, new: DaemonProcess) -> None:
    """The newer one takes over."""
    assert old.wait() == 5, old.text()[-3000:]
    assert f"superseded by process {new.pid}" in old.text()
    assert "Traceback" not in old.text()
