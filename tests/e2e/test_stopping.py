"""SIGTERM at any time: a final checkpoint when there is something to save, always an end within the grace."""

from __future__ import annotations

import re
import signal

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.support.processes import find_descendants, frozen, is_alive
from tests.support.rig import completed_checkpoints, restored_checkpoint
from tests.waiting import wait_until

WRITTEN = re.compile(r"tidegate_records_out_total\{.*\} [1-9]")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_F12_sigterm_under_load_takes_a_final_checkpoint_and_the_next_daemon_goes_on_exactly_there(
    make_rig: RigMaker,
) -> None:
    rig = make_rig(seed=61)
    first = rig.running()
    assert first.terminate() == 0
    last = completed_checkpoints(first.text())[-1]
    second = rig.daemon().start().wait_running()
    assert restored_checkpoint(second.text()) == last
    assert "aborted" not in first.text() + second.text(), "the final checkpoint left something open"
    rig.finish(second)


def test_a_second_signal_ends_at_once_and_the_next_daemon_is_exact(make_rig: RigMaker) -> None:
    """The slots are frozen, so that the final checkpoint cannot complete before the second signal."""
    rig = make_rig(seed=62, heartbeat_timeout="5m", shutdown_grace="5m")  # nothing but the signal can end it
    first = rig.running()
    below = [process.pid for process in find_descendants(first.pid)]
    with frozen(first.slots()):
        assert first.process is not None
        first.process.send_signal(signal.SIGTERM)
        first.wait_for("SIGTERM: final checkpoint, then the end")
        first.process.send_signal(signal.SIGTERM)
        assert first.wait() == 128 + signal.SIGTERM
    assert "second signal: ending without a final checkpoint" in first.text()
    wait_until(lambda: not any(map(is_alive, below)), "nothing of the daemon is left")
    rig.assert_clean()
    second = rig.daemon(heartbeat_timeout="10s", shutdown_grace="30s").start().wait_running()
    rig.finish(second)


def test_sigterm_while_starting_ends_with_0_and_leaves_nothing(make_rig: RigMaker) -> None:
    rig = make_rig(seed=63)
    daemon = rig.daemon().start()
    wait_until(lambda: any("java" in one.command for one in find_descendants(daemon.pid)), "Spark is starting")
    assert daemon.terminate() == 0, daemon.text()[-3000:]
    assert "is running" not in daemon.text()
    assert "Traceback" not in daemon.text()
    rig.assert_clean()


def test_sigterm_while_the_broker_is_down_ends_within_the_grace_with_exit_code_6(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    broker = own_broker()
    rig = make_rig(broker=broker, seed=64, shutdown_grace="3s")
    rig.writer.start()
    rig.outputs.start()
    first = rig.daemon(interval="5m").start().wait_running()
    wait_until(lambda: WRITTEN.search(first.http("/metrics")[1]) is not None, "a transaction is open")
    broker.kill()
    assert first.terminate() == 6, first.text()[-3000:]
    assert "Traceback" not in first.text()
    rig.assert_clean()
    assert "within 3 s (runtime.shutdown_grace)" in first.text() or "after the grace of 3 s" in first.text()
    broker.start()
    rig.finish(rig.daemon().start().wait_running())
