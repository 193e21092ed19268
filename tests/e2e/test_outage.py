"""The broker is away or hangs for a while: what a retry can cure needs no new attempt, nothing is lost or doubled."""

from __future__ import annotations

import re
import threading
import time

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.support.daemon_process import DaemonProcess
from tests.support.rig import Rig
from tests.waiting import wait_until
from tidegate.daemon.broker import DevelopmentBroker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OUTAGE_S = 20.0
HANG_S = 12.0
"""Longer than a request may take."""


def test_F02_a_broker_that_is_away_for_20_s_is_waited_for_without_a_new_attempt(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    broker = own_broker()
    rig = make_rig(broker=broker, seed=71)
    daemon = rig.running()
    broker.kill()
    killed = time.monotonic()
    daemon.wait_for("no broker answers at", 6)  # said soon, and seen from outside
    assert daemon.status()["brokers_away_seconds"] > 0  # type: ignore[operator]  # a number
    assert re.search(r"tidegate_brokers_away_seconds\{.*\} [1-9]", daemon.http("/metrics")[1])
    wait_out(killed + OUTAGE_S)
    broker.start()
    told = warnings_behind_an_outage(daemon, broker)
    assert sum("no broker answers at" in line for line in told) == 1, "of one cause, so it is not told again"
    assert len(told) < 10, told
    finish_in_the_first_attempt(rig, daemon)


def test_F02_a_broker_that_hangs_is_told_and_waited_for_without_a_new_attempt(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    """Its connections stay open and nothing answers: clients notice by their timeouts only."""
    broker = own_broker()
    rig = make_rig(broker=broker, seed=73)
    daemon = rig.running()
    broker.pause()
    paused = time.monotonic()
    daemon.wait_for("no broker answers at", 10)
    wait_out(paused + HANG_S)
    broker.resume()
    warnings_behind_an_outage(daemon, broker)
    finish_in_the_first_attempt(rig, daemon)


def wait_out(until: float) -> None:
    """The length of an outage is what is tested."""
    threading.Event().wait(until - time.monotonic())


def warnings_behind_an_outage(daemon: DaemonProcess, broker: DevelopmentBroker) -> list[str]:
    """All warnings so far, among them one of the outage and one of its end."""
    daemon.wait_checkpoints(2, 120)
    daemon.wait_for(f"the brokers at {broker.bootstrap} answer again", 15)  # the watch looks once a second
    told = [line for line in daemon.text().splitlines() if '"level":"warning"' in line.replace(" ", "")]
    assert sum(" no broker answers at" not in line and "no broker answers at" in line for line in told) == 1
    assert sum(f"the brokers at {broker.bootstrap} answer again" in line for line in told) == 1
    wait_until(lambda: daemon.status()["brokers_away_seconds"] == 0, "the status says that brokers answer")
    return told


def finish_in_the_first_attempt(rig: Rig, daemon: DaemonProcess) -> None:
    """Output goes on; then the end, and everything exact."""
    rig.outputs.wait_more(rig.topic["totals"])
    assert daemon.attempt == 1, [line for line in daemon.text().splitlines() if "attempt failed" in line]
    rig.finish(daemon)
