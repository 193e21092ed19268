"""The broker is away for a while: what a retry can cure needs no new attempt, and nothing is lost or doubled."""

from __future__ import annotations

import re
import threading
import time

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OUTAGE_S = 20.0


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
    threading.Event().wait(killed + OUTAGE_S - time.monotonic())  # the length of the outage is what is tested
    broker.start()
    daemon.wait_checkpoints(2, 120)
    daemon.wait_for(f"the brokers at {broker.bootstrap} answer again", 15)  # the watch looks once a second
    told = [line for line in daemon.text().splitlines() if '"level":"warning"' in line.replace(" ", "")]
    assert sum("no broker answers at" in line for line in told) == 1
    assert sum(f"the brokers at {broker.bootstrap} answer again" in line for line in told) == 1
    assert len(told) < 10, told
    wait_until(lambda: daemon.status()["brokers_away_seconds"] == 0, "the status says that brokers answer")
    rig.outputs.wait_more(rig.topic["totals"])
    assert daemon.attempt == 1, [line for line in daemon.text().splitlines() if "attempt failed" in line]
    rig.finish(daemon)
