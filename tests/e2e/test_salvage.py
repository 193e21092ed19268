"""Decided transactions that the broker aborted: their records are written again, exactly once and in order."""

from __future__ import annotations

import re

import confluent_kafka as ck
import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.e2e.test_crash_points import crash, listed_states, loaded
from tests.support import clients
from tests.support.rig import PARTITIONS, Rig
from tests.waiting import wait_until
from tidegate.kafka.facts import CoordinatorState

pytestmark = [pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(1800)]


def wait_aborted(rig: Rig) -> None:
    """Until the broker has timed out what the journal lists, but for what had been committed before."""
    ended = {CoordinatorState.COMPLETE_ABORT, CoordinatorState.COMPLETE_COMMIT}

    def aborted() -> bool:
        states = set(listed_states(rig))
        return CoordinatorState.COMPLETE_ABORT in states and states <= ended

    wait_until(aborted, "the broker has timed the listed transactions out")


def delete_outputs(rig: Rig) -> None:
    """All that both outputs have."""
    outputs = (rig.topic["paid"], rig.topic["totals"])
    everything = [ck.TopicPartition(topic, index, -1) for topic in outputs for index in range(PARTITIONS)]
    clients.delete_records(rig.broker.bootstrap, everything)


def test_F01_transactions_that_the_broker_aborted_are_salvaged_while_there_is_something_left_of_them(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    """Timed out while no daemon ran; lost while one runs; timed out, and gone from the log.

    The transactions time out in seconds, and the broker looks for that twice a second.
    """
    rig = make_rig(
        broker=own_broker(), seed=51, restart_max="100ms", transaction_timeout="12s", checkpoint_timeout="8s"
    )
    loaded(rig)
    crash(rig, "after-append", 3)
    wait_aborted(rig)

    daemon = rig.daemon("-m", "tests.support.faulty_daemon", "lost", "3", transaction_timeout="10m").start()
    daemon.wait_for("fault: lost")
    at_start = daemon.text().split("fault: lost", 1)[0]
    for words in (
        "a transaction of a completed checkpoint was aborted by the broker",
        "timeout of 12 s",
        "lost transactions: ",
        "records again",
    ):
        assert words in at_start
    daemon.wait_for(r"fault: lost[\s\S]*records again[\s\S]*is running")  # logged by a recovery only
    daemon.wait_committed()
    assert 'result="salvaged"' in daemon.http("/metrics")[1]
    rig.assert_exact_so_far()
    daemon.kill()

    crash(rig, "after-append", 2)
    wait_aborted(rig)
    delete_outputs(rig)
    told = rig.refused()
    assert "Kafka has no trace left of a transaction of a completed checkpoint" in told
    assert re.search(r"--accept-gone \d+, which counts", told)
    assert "sink paid_orders" in told or "sink sku_totals" in told
    assert "offsets " in told
