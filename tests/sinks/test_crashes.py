"""What recovery finds after a crash, against real brokers of both transaction versions."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tests.sinks.driving import Cluster, permit, rows
from tests.support import clients
from tests.waiting import wait_until
from tidegate.committable import Committable
from tidegate.ids import Attempt, TransactionalId
from tidegate.kafka.errors import SinkFailed, TransactionGone, TransactionLost
from tidegate.kafka.facts import CoordinatorState, EndAnswer, Marker
from tidegate.kafka.transactions import TransactionClient
from tidegate.sinks.outcome import CommitOutcome

pytestmark = pytest.mark.slow

Starter = Callable[[Cluster, str, int, int], tuple["subprocess.Popen[str]", list[Committable]]]


@pytest.fixture
def start_writer() -> Iterator[Starter]:
    """Starts a writer process and waits until it has prepared; all are killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def start(
        cluster: Cluster, topic: str, count: int, following: int
    ) -> tuple[subprocess.Popen[str], list[Committable]]:
        command = [sys.executable, "-m", "tests.sinks.writer_process", cluster.bootstrap, topic, cluster.pipeline, "1"]
        process = subprocess.Popen(
            [*command, str(count), str(following)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout is not None
        return process, msgspec.json.decode(process.stdout.readline(), type=list[Committable])

    yield start
    for process in started:
        process.kill()
        process.communicate()


def kill(process: subprocess.Popen[str]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL


def test_writer_killed_between_prepare_and_commit_is_committed_from_outside(
    cluster: Cluster, start_writer: Starter
) -> None:
    topic = cluster.topic()
    process, committables = start_writer(cluster, topic, 300, 0)
    kill(process)
    assert cluster.values(topic, settled=False) == []
    assert cluster.committer.commit(permit(committables)) == [CommitOutcome.ENDED_NOW]
    assert cluster.values(topic) == list(range(300))


def test_next_transaction_open_at_the_crash_is_not_published(cluster: Cluster, start_writer: Starter) -> None:
    topic = cluster.topic()
    process, committables = start_writer(cluster, topic, 300, 200)
    kill(process)
    assert cluster.committer.commit(permit(committables)) == [CommitOutcome.ENDED_NOW]
    fenced = cluster.committer.fence_leftovers(cluster.pipeline, [], Attempt(2), "j")
    assert len(fenced) == 1
    assert fenced != [committables[0].transactional_id]
    assert cluster.values(topic) == list(range(300))


def test_committables_that_wait_are_not_fenced(cluster: Cluster, start_writer: Starter) -> None:
    topic = cluster.topic()
    process, committables = start_writer(cluster, topic, 100, 0)
    kill(process)
    keep = [committable.transactional_id for committable in committables]
    assert cluster.committer.fence_leftovers(cluster.pipeline, keep, Attempt(2), "j") == []
    assert cluster.committer.commit(permit(committables)) == [CommitOutcome.ENDED_NOW]


def test_open_transactions_of_this_attempt_and_of_other_pipelines_are_left_alone(cluster: Cluster) -> None:
    topic = cluster.topic()
    driven = cluster.sink(topic, attempt=5)
    driven.write(rows(range(10)))
    committables = driven.prepared(1).committables
    shorter = cluster.pipeline.rsplit(".", 1)[0]
    assert cluster.committer.fence_leftovers(cluster.pipeline, [], Attempt(5), "j") == []
    assert cluster.committer.fence_leftovers(shorter, [], Attempt(9), "j") == []
    assert cluster.client.describe(committables[0].transactional_id) is not None
    assert cluster.committer.commit(permit(committables)) == [CommitOutcome.ENDED_NOW]


def test_timed_out_transaction_is_lost_by_its_marker(cluster: Cluster) -> None:
    topic, committable, timeout_ms = cluster.prepare_short(100, 7)

    def aborted() -> bool:
        description = cluster.client.describe(committable.transactional_id)
        return description is not None and description.state is CoordinatorState.COMPLETE_ABORT

    wait_until(aborted, "the broker has timed the transaction out")
    with pytest.raises(TransactionLost) as lost:
        cluster.committer.commit(permit([committable]))
    text = lost.value.message
    assert "sink out, checkpoint 7" in text
    assert "100 records" in text
    assert f"{topic}[0] offsets 0.." in text
    assert f"timeout of {timeout_ms // 1000} s" in text
    assert cluster.values(topic) == []


def test_committed_transaction_that_looks_fenced_is_committed_by_its_marker(cluster: Cluster) -> None:
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(100)))
    (committable,) = driven.prepared(1).committables
    assert cluster.committer.commit(permit([committable])) == [CommitOutcome.ENDED_NOW]
    cluster.client.fence(committable.transactional_id)
    assert cluster.client.end_transaction(committable) is EndAnswer.FENCED
    assert cluster.committer.commit(permit([committable])) == [CommitOutcome.COMMITTED]
    assert cluster.values(topic) == list(range(100))


def test_fenced_transaction_is_lost_and_not_taken_for_committed(cluster: Cluster) -> None:
    topic = cluster.topic()
    driven = cluster.sink(topic)
    driven.write(rows(range(100)))
    (committable,) = driven.prepared(1).committables
    cluster.client.fence(committable.transactional_id)
    with pytest.raises(TransactionLost):
        cluster.committer.commit(permit([committable]))


def test_other_transactions_in_the_partition_do_not_decide(cluster: Cluster) -> None:
    """Markers of the transactions before and after ours, and of another producer in between."""
    topic = cluster.topic(1)
    first = cluster.sink(topic, subtask=0)
    second = cluster.sink(topic, subtask=1)
    first.write(rows(range(10)))
    (before,) = first.prepared(1).committables
    cluster.committer.commit(permit([before]))
    first.write(rows(range(10, 20)))
    (ours,) = first.prepared(2).committables
    second.write(rows(range(20, 30)))
    (other,) = second.prepared(2).committables
    cluster.committer.commit(permit([other]))
    assert cluster.client.outcome(ours.written[0], ours.producer) is Marker.OPEN
    cluster.client.fence(ours.transactional_id)
    wait_until(
        lambda: cluster.client.outcome(ours.written[0], ours.producer) is Marker.ABORT,
        "our abort marker",
    )
    assert cluster.values(topic) == [*range(10), *range(20, 30)]


def test_X02_deleted_records_leave_nothing_to_decide_by(cluster: Cluster) -> None:
    from confluent_kafka import TopicPartition as Position

    topic = cluster.topic(1)
    driven = cluster.sink(topic)
    driven.write(rows(range(10)))
    (committable,) = driven.prepared(1).committables
    cluster.committer.commit(permit([committable]))
    cluster.client.fence(committable.transactional_id)
    assert cluster.values(topic) == list(range(10))
    clients.delete_records(cluster.bootstrap, [Position(topic, 0, 11)])
    with pytest.raises(TransactionGone, match="no trace left"):
        cluster.committer.commit(permit([committable]))


def test_X02_a_deleted_topic_leaves_nothing_to_decide_by(cluster: Cluster) -> None:

    topic = cluster.topic(1)
    driven = cluster.sink(topic)
    driven.write(rows(range(10)))
    (committable,) = driven.prepared(1).committables
    cluster.client.fence(committable.transactional_id)
    clients.delete_topics(cluster.bootstrap, [topic])
    wait_until(lambda: not cluster.client.topics([topic]), "the broker has forgotten it", 60)
    with pytest.raises(TransactionGone, match="no trace left"):
        cluster.committer.commit(permit([committable]))


def test_zombie_transaction_on_its_own_old_id_is_fenced_by_the_janitor(cluster: Cluster) -> None:
    """A new attempt runs; the zombie opens a fresh transaction on an id of its own and would hold readers back."""
    topic = cluster.topic(1)
    zombie = cluster.sink(topic, attempt=1)
    zombie.write(rows(range(100)))
    zombie.written()
    committer = cluster.committer
    wait_until(
        lambda: len(committer.fence_leftovers(cluster.pipeline, [], Attempt(2), "j")) == 1, "the open one is fenced"
    )
    again = cluster.sink(topic, attempt=1)
    again.write(rows(range(100, 200)))
    (late,) = again.prepared(1).committables
    current = cluster.sink(topic, attempt=2)
    current.write(rows(range(200, 300)))
    (good,) = current.prepared(2).committables
    committer.commit(permit([good], 2))
    assert cluster.values(topic, settled=False) == []
    assert committer.fence_leftovers(cluster.pipeline, [], Attempt(2), "j") == [late.transactional_id]
    assert cluster.values(topic) == list(range(200, 300))
    with pytest.raises(SinkFailed):
        zombie.write(rows(range(300, 400)))
        zombie.prepared(3)


def test_unknown_id_is_answered_as_unknown(cluster: Cluster, client: TransactionClient) -> None:
    assert client.describe(TransactionalId(f"{cluster.pipeline}.never.0.1-j.0")) is None
