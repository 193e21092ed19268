"""Decided transactions that the broker aborted: their records are written again, exactly once and in order."""

from __future__ import annotations

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.e2e.test_crash_points import crash, listed_states, loaded
from tests.support.rig import PARTITIONS, Rig
from tests.waiting import wait_until
from tidegate.sinks.facts import CoordinatorState

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def short_lived(make_rig: RigMaker, own_broker: BrokerMaker, seed: int) -> Rig:
    """A rig whose transactions time out in seconds, and a broker that looks for that twice a second."""
    broker = own_broker()
    timeouts = {"transaction_timeout": "12s", "checkpoint_timeout": "8s"}
    rig = make_rig(broker=broker, seed=seed, rate=500, restart_max="100ms", **timeouts)
    return loaded(rig)


def wait_aborted(rig: Rig) -> None:
    """Until the broker has timed out what the journal lists, but for what had been committed before."""
    ended = {CoordinatorState.COMPLETE_ABORT, CoordinatorState.COMPLETE_COMMIT}

    def aborted() -> bool:
        states = set(listed_states(rig))
        return CoordinatorState.COMPLETE_ABORT in states and states <= ended

    wait_until(aborted, "the broker has timed the listed transactions out")


def test_F01_transactions_that_timed_out_while_no_daemon_ran_are_salvaged(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    rig = short_lived(make_rig, own_broker, 51)
    crash(rig, "after-append", 3)
    wait_aborted(rig)
    daemon = rig.daemon(transaction_timeout="10m").start().wait_running()
    log = daemon.text()
    assert "a transaction of a completed checkpoint was aborted by the broker" in log
    assert "timeout of 12 s" in log
    assert "lost transactions: " in log
    assert "records again" in log
    assert 'result="salvaged"' in daemon.http("/metrics")[1]
    rig.finish(daemon)


def test_F01_a_transaction_lost_while_running_is_salvaged_by_the_next_attempt(make_rig: RigMaker) -> None:
    rig = loaded(make_rig(seed=53, restart_max="100ms"))
    daemon = rig.daemon("-m", "tests.support.faulty_daemon", "lost", "3").start()
    daemon.wait_for("fault: lost")
    daemon.wait_for("records again")  # told by a recovery only
    daemon.wait_running().wait_committed()
    rig.finish(daemon)


def test_F01_lost_records_that_are_gone_from_the_log_stop_the_next_start(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    rig = short_lived(make_rig, own_broker, 54)
    crash(rig, "after-append", 2)
    wait_aborted(rig)
    admin = AdminClient({"bootstrap.servers": rig.broker.bootstrap})
    outputs = (rig.topic["paid"], rig.topic["totals"])
    everything = [ck.TopicPartition(topic, index, -1) for topic in outputs for index in range(PARTITIONS)]
    for future in admin.delete_records(everything).values():
        future.result(30)
    daemon = rig.daemon().start()
    assert daemon.wait() == 4, daemon.text()[-3000:]
    log = daemon.text()
    assert "nothing is left in Kafka of a transaction of a completed checkpoint" in log
    assert "--accept-gone" in log
    assert "sink paid_orders" in log or "sink sku_totals" in log
    assert "offsets " in log
    assert "Traceback" not in log
