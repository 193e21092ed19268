"""The broker is away for a while: what a retry can cure needs no new attempt, and nothing is lost or doubled."""

from __future__ import annotations

import threading

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

OUTAGE_S = 20.0


def test_F02_a_broker_that_is_away_for_20_s_is_waited_for_without_a_new_attempt(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    broker = own_broker()
    rig = make_rig(broker=broker, seed=71)
    daemon = rig.running()
    broker.kill()
    threading.Event().wait(OUTAGE_S)  # the length of the outage is what is tested
    broker.start()
    daemon.wait_checkpoints(2, 120)
    rig.outputs.wait_more(rig.topic["totals"])
    assert daemon.attempt == 1, [line for line in daemon.text().splitlines() if "attempt failed" in line]
    rig.finish(daemon)
