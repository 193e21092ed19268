"""SIGTERM at any time: a final checkpoint when there is something to save, always an end within the grace.

While the broker is down: tests/e2e/test_outage.py.
"""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator
from tempfile import TemporaryDirectory

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.processes import find_descendants, frozen, is_alive
from tests.support.rig import read_journal, restored_checkpoint
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture
def service_manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """What systemd is for a daemon: a socket that gets its notifications."""
    with TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(f"{directory}/notify")
        one.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", f"{directory}/notify")
        yield one


def notified(manager: socket.socket) -> list[str]:
    """Everything that has arrived, line by line."""
    lines: list[str] = []
    while True:
        try:
            lines += manager.recv(4096).decode().splitlines()
        except BlockingIOError:
            return lines


def test_F12_the_next_daemon_goes_on_exactly_at_the_final_checkpoint_and_is_exact_behind_a_second_signal(
    make_rig: RigMaker, service_manager: socket.socket
) -> None:
    """The slots are frozen, so that the final checkpoint cannot complete before the second signal."""
    rig = make_rig(seed=61, heartbeat_timeout="5m", shutdown_grace="5m")  # nothing but the signal can end it
    first = rig.running()
    assert first.terminate() == 0
    heard = notified(service_manager)
    assert [line for line in heard if not line.startswith("STATUS=")] == ["READY=1", "STOPPING=1"]
    assert heard[-1] == "STATUS=finished"
    last = read_journal(rig.pipeline.directory).newest_checkpoint
    assert last is not None
    assert last.final
    assert re.search(rf"checkpoint {last.id} completed .*, final", first.text()) is not None
    rig.assert_clean()

    second = rig.running()
    assert restored_checkpoint(second.text()) == last.id
    assert "aborted" not in first.text() + second.text(), "the final checkpoint left something open"
    below = [process.pid for process in find_descendants(second.pid)]
    with frozen(second.slots()):
        assert second.process is not None
        second.process.send_signal(signal.SIGTERM)
        second.wait_for("SIGTERM: taking the final checkpoint, then exit")
        second.process.send_signal(signal.SIGTERM)
        assert second.wait() == 128 + signal.SIGTERM
    assert "second signal: ending without a final checkpoint" in second.text()
    wait_until(lambda: not any(map(is_alive, below)), "nothing of the daemon is left")
    rig.assert_clean()
    rig.finish(rig.daemon(heartbeat_timeout="10s", shutdown_grace="30s").start().wait_running())


def test_sigterm_while_starting_ends_with_0_and_leaves_nothing(make_rig: RigMaker) -> None:
    rig = make_rig(seed=63)
    daemon = rig.daemon().start()
    wait_until(lambda: any("java" in one.command for one in find_descendants(daemon.pid)), "Spark is starting")
    assert daemon.terminate() == 0, daemon.text()[-3000:]
    assert "is running" not in daemon.text()
    assert "Traceback" not in daemon.text()
    rig.assert_clean()
