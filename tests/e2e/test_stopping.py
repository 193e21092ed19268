"""SIGTERM at any time: a final checkpoint when there is something to save, always an end within the grace."""

from __future__ import annotations

import signal
import time

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.support.processes import find_descendants, is_alive, kill
from tests.support.rig import completed_checkpoints, restored_checkpoint
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_F12_sigterm_under_load_takes_a_final_checkpoint_and_the_next_daemon_goes_on_exactly_there(
    make_rig: RigMaker,
) -> None:
    rig = make_rig(seed=61)
    first = rig.running()
    assert first.terminate(60) == 0
    last = completed_checkpoints(first.text())[-1]
    second = rig.daemon().start().wait_running()
    assert restored_checkpoint(second.text()) == last
    assert "open transactions of older attempts" not in second.text(), "the final checkpoint left something open"
    rig.finish(second)


def test_a_second_signal_ends_at_once_and_the_next_daemon_is_exact(make_rig: RigMaker) -> None:
    """The slots are frozen, so that the final checkpoint cannot complete before the second signal."""
    rig = make_rig(seed=62)
    first = rig.running()
    slots = first.slots()
    below = [process.pid for process in find_descendants(first.pid)]
    for slot in slots:
        assert kill(slot, signal.SIGSTOP)
    try:
        assert first.process is not None
        first.process.send_signal(signal.SIGTERM)
        first.wait_for("SIGTERM: final checkpoint, then the end")
        started = time.monotonic()
        first.process.send_signal(signal.SIGTERM)
        assert first.wait(10) == 128 + signal.SIGTERM
        assert time.monotonic() - started < 3.0
    finally:
        for slot in slots:
            kill(slot, signal.SIGCONT)
    wait_until(lambda: not any(map(is_alive, below)), "nothing of the daemon is left", 30)
    second = rig.daemon().start().wait_running()
    rig.finish(second)


def test_sigterm_while_starting_ends_with_0_and_leaves_nothing(make_rig: RigMaker) -> None:
    daemon = make_rig(seed=63).daemon().start()
    wait_until(lambda: any("java" in one.command for one in find_descendants(daemon.pid)), "Spark is starting", 60)
    assert daemon.terminate(60) == 0, daemon.text()[-3000:]
    assert "is running" not in daemon.text()
    assert "Traceback" not in daemon.text()


def test_sigterm_while_the_broker_is_down_ends_within_the_grace_with_exit_code_6(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    broker = own_broker()
    rig = make_rig(broker=broker, seed=64, shutdown_grace="3s")
    first = rig.running()
    broker.kill()  # which may make Kafka lose the markers of commits that it has answered: ADR 15
    started = time.monotonic()
    code = first.terminate(60)
    seconds = time.monotonic() - started
    print(f"ended {seconds:.1f} s after SIGTERM, the grace is 3 s")
    assert code == 6, first.text()[-3000:]
    assert "Traceback" not in first.text()
    assert seconds < 20.0
    broker.start()
    rig.finish(rig.daemon().start().wait_running())
