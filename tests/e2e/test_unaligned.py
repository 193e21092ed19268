"""Unaligned checkpoints on Spark and a real broker: a slow sink, rows in flight, kills; the output stays exact."""

from __future__ import annotations

import re

import pytest

from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.processes import kill
from tests.support.rig import Rig
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SLOW_SINK = {"queue.buffering.max.messages": "100", "linger.ms": "50"}
"""About 2,000 records a second and subtask: the client takes no more until it has sent, every 50 ms, what it has."""
ORDERS = 40_000
IN_FLIGHT = r"checkpoint \d+ completed .*of it rows in flight"
RESTORED = r"[1-9]\d* rows in flight towards totals restored"


def loaded(rig: Rig) -> Rig:
    """All orders are written before anything runs: the sink is behind from the start."""
    rig.writer.start()
    wait_until(lambda: len(rig.writer.orders) >= ORDERS, "the orders are written")
    rig.writer.stop()
    rig.outputs.start()
    return rig


def wait_another(daemon: DaemonProcess, pattern: str, seen: int) -> None:
    """Until the log has one more match than the `seen` ones."""

    def found() -> bool:
        daemon.assert_alive()
        return len(re.findall(pattern, daemon.text())) > seen

    wait_until(found, f"another {pattern!r}")


def count(daemon: DaemonProcess, pattern: str) -> int:
    return len(re.findall(pattern, daemon.text()))


@pytest.mark.parametrize(("unaligned", "kills"), [("always", 2), ("after 100ms", 1)])
def test_B50_a_killed_worker_restores_rows_in_flight_exactly_and_in_order(
    make_rig: RigMaker, unaligned: str, kills: int
) -> None:
    rig = loaded(make_rig(seed=91, rate=20_000.0, unaligned=unaligned, totals_kafka=SLOW_SINK))
    daemon = rig.daemon().start().wait_running()
    for _ in range(kills):
        wait_another(daemon, IN_FLIGHT, count(daemon, IN_FLIGHT))
        restored = count(daemon, RESTORED)
        assert kill(daemon.slots()[0])
        wait_another(daemon, RESTORED, restored)
    rig.finish(daemon)


def test_B50_rows_in_flight_move_with_their_keys_to_another_number_of_slots(make_rig: RigMaker) -> None:
    """The daemon is killed with rows in flight; the next one has three slots, its sink is fast, and it aligns."""
    rig = loaded(make_rig(seed=92, rate=20_000.0, unaligned="always", totals_kafka=SLOW_SINK))
    first = rig.daemon().start().wait_running()
    first.wait_for(IN_FLIGHT)
    first.kill()
    second = rig.daemon(parallelism=3, master="local[3]", totals_kafka={}, unaligned="never").start().wait_running()
    second.wait_for(RESTORED)
    rig.finish(second)
