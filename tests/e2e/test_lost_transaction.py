"""A decided transaction that the broker timed out before anybody could commit it: told loudly, never swallowed."""

from __future__ import annotations

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.e2e.test_crash_points import crash, listed_states, loaded
from tests.waiting import wait_until
from tidegate.sinks.facts import CoordinatorState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_F01_a_transaction_that_timed_out_stops_the_next_start_with_sink_partitions_and_offsets(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    broker = own_broker(properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"})
    rig = loaded(
        make_rig(broker=broker, seed=51, transaction_timeout="8s", checkpoint_timeout="5s", restart_max="100ms")
    )
    crash(rig, "after-append", 2)
    wait_until(
        lambda: set(listed_states(rig)) == {CoordinatorState.COMPLETE_ABORT},
        "the broker has timed the transactions out",
        60,
    )
    daemon = rig.daemon().start()
    assert daemon.wait(150) == 4, daemon.text()[-3000:]
    log = daemon.text()
    assert "a transaction of a completed checkpoint was aborted by the broker" in log
    assert "sink paid_orders" in log or "sink sku_totals" in log
    assert f"{rig.pipeline.prefix}" in log
    assert "offsets " in log
    assert "timeout of 8 s" in log
    assert "Traceback" not in log
