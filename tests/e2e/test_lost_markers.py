"""Kafka loses markers in a crash: the daemon finds the committed transactions that nobody would end, and ends them."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.conftest import BrokerMaker
from tests.e2e.conftest import RigMaker
from tests.support.lost_markers import lose_markers
from tests.support.rig import PARTITIONS, Rig
from tests.waiting import wait_until
from tidegate.ids import TopicPartition
from tidegate.sinks.facts import CoordinatorState, TransactionListing
from tidegate.sinks.transactions import TransactionClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def lose_all(rig: Rig) -> None:
    """Crash the broker; the newest marker of every partition of both outputs is gone when it is back."""
    wait_until(lambda: not _ending(rig), "every coordinator has noted that all markers are written")
    newest = _newest(rig)
    rig.broker.kill()
    outputs = (rig.topic["paid"], rig.topic["totals"])
    partitions = [TopicPartition(topic, index) for topic in outputs for index in range(PARTITIONS)]
    lost = lose_markers(rig.broker, partitions, newest)
    assert lost > 0, "the planned fault did not happen: no partition ended with a marker"
    print(f"{lost} markers are lost")
    rig.broker.start()


def _ending(rig: Rig) -> list[TransactionListing]:
    """Transactions whose markers would be written behind the crash."""
    with closing(TransactionClient({"bootstrap.servers": rig.broker.bootstrap})) as client:
        listed = client.list_transactions(f"{rig.pipeline.name}.")
    return [one for one in listed if one.state in (CoordinatorState.PREPARE_COMMIT, CoordinatorState.PREPARE_ABORT)]


def _newest(rig: Rig) -> set[tuple[int, int]]:
    """Producer ids and epochs of committed transactions whose ids were not used again: only theirs a crash can lose."""
    with closing(TransactionClient({"bootstrap.servers": rig.broker.bootstrap})) as client:
        told = [client.describe(one.transactional_id) for one in client.list_transactions(f"{rig.pipeline.name}.")]
    complete = CoordinatorState.COMPLETE_COMMIT
    return {(one.producer_id, one.producer_epoch) for one in told if one is not None and one.state is complete}


def test_F01_markers_that_a_crash_of_the_broker_loses_are_written_while_the_pipeline_runs(
    make_rig: RigMaker, own_broker: BrokerMaker
) -> None:
    """The ids of the transactions are used again, too: only after their markers are there."""
    rig = make_rig(broker=own_broker(), seed=81)
    daemon = rig.running()
    rig.pause()
    lose_all(rig)
    rig.writer.resume()
    daemon.wait_for("commit marker was missing in .* The marker is written now")
    rig.finish(daemon)
