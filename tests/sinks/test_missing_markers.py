"""Markers that a real broker has lost: found, and written where the coordinator says how the transaction ended.

One broker for all: everything is prepared, then it crashes and the markers at the ends of the partitions are gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.daemon.small_pipeline import pipeline
from tests.sinks.driving import Cluster, DrivenSink, permit, read_committed, rows
from tests.sinks.leaping import LeapingClock
from tests.support import clients
from tests.support.lost_markers import lose_markers
from tests.support.secured_broker import Right, SecuredBroker
from tests.waiting import PATIENCE_S, wait_until
from tidegate.checks.cluster import read_cluster
from tidegate.checks.details import read_details
from tidegate.committable import Committable
from tidegate.ids import MAIN_CLUSTER, CheckpointId, TopicPartition, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, TransactionLost
from tidegate.kafka.facts import CoordinatorState, EndAnswer, OpenBrokerTransaction
from tidegate.kafka.transactions import TransactionClient
from tidegate.plan.build import build_plan
from tidegate.sinks.committer import Committer
from tidegate.sinks.hanging_resolver import HangingTransactionResolver
from tidegate.sinks.hanging_transactions import RIPE_S, HangingVerdict, ResolveReport
from tidegate.sinks.outcome import CommitOutcome

pytestmark = pytest.mark.slow

COUNT = 100
USER, PASSWORD = "shop", "secret"
TOPICS = ("committed", "aborted", "fenced", "not allowed", "joined", "reused", "foreign", "stays")


class Case(NamedTuple):
    """A topic with a transaction in it, by the sink that wrote it."""

    topic: str
    sink: DrivenSink
    one: Committable


class Stage(NamedTuple):
    """The broker after its crash."""

    broker: SecuredBroker
    cluster: Cluster
    cases: dict[str, Case]

    def resolve(self, name: str, pipeline: str | None = None) -> ResolveReport:
        """Two looks at one topic; the second one, of which nothing happens at the first."""
        clock = LeapingClock()
        resolver = HangingTransactionResolver(self.cluster.client, pipeline or self.cluster.pipeline, clock)
        first = resolver.resolve([self.cases[name].topic])
        assert not first.resolved
        assert not first.left
        clock.sleep(RIPE_S)
        second = resolver.resolve([self.cases[name].topic])
        assert {each.one for each in first.waiting} == {*second.resolved, *(each.one for each in second.left)}
        return second

    def opened(self, name: str) -> list[OpenBrokerTransaction]:
        """What is open in the case's topic."""
        return self.cluster.client.open_transactions([part.partition for part in self.cases[name].one.written])

    def seen(self, name: str) -> list[int]:
        """What a read-committed reader sees."""
        stable = self.cluster.client.stable_offsets([part.partition for part in self.cases[name].one.written])
        return sorted(
            number for numbers in read_committed(self.cluster.bootstrap, stable).values() for number in numbers
        )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    broker = SecuredBroker(tmp_path_factory.mktemp("lost-markers"), {USER: PASSWORD}).start()
    cluster = Cluster(broker.bootstrap, lambda name: f"{name}-{uuid.uuid4().hex[:8]}")
    try:
        cases = {name: _prepare(cluster, subtask) for subtask, name in enumerate(TOPICS)}
        for name, case in cases.items():
            commit = name != "aborted"
            if name == "fenced":
                assert cluster.client.fence(case.one.transactional_id).epoch == case.one.producer.epoch + 2
            elif name != "stays":
                assert cluster.client.end_transaction(case.one, commit=commit) is EndAnswer.ENDED
        parts = [part.partition for name, case in cases.items() if name != "stays" for part in case.one.written]
        wait_until(lambda: _complete(cluster, cases), "every coordinator has noted that all markers are written")
        broker.kill()
        assert lose_markers(broker, parts) == len(parts)
        broker.start()
        ids = {case.one.transactional_id for case in cases.values()}
        wait_until(lambda: ids <= _listed(cluster), "the coordinator has loaded what it knows")
        yield Stage(broker, cluster, cases)
    finally:
        cluster.close()
        broker.kill()


def _listed(cluster: Cluster) -> set[TransactionalId]:
    return {one.transactional_id for one in cluster.client.list_transactions(cluster.pipeline)}


def _complete(cluster: Cluster, cases: dict[str, Case]) -> bool:
    """Else it would write them again after the crash."""
    told = [cluster.client.describe(case.one.transactional_id) for name, case in cases.items() if name != "stays"]
    return {one.state for one in told if one is not None} == {
        CoordinatorState.COMPLETE_COMMIT,
        CoordinatorState.COMPLETE_ABORT,
        CoordinatorState.EMPTY,
    }


def _prepare(cluster: Cluster, subtask: int) -> Case:
    topic = cluster.topic(2)
    sink = cluster.sink(topic, subtask=subtask, timeout_ms=600_000)
    sink.write(rows(range(COUNT)))
    one = sink.prepared(1).committables[0]
    assert len(one.written) == 2
    sink.turn_until(lambda: sink.sink._producers._opening == 0, "the producers that it opens ahead are there")
    return Case(topic, sink, one)


def test_F01_a_lost_commit_marker_is_written_and_every_record_is_seen_once(stage: Stage) -> None:
    case = stage.cases["committed"]
    assert stage.cluster.committer.commit(permit([case.one])) == [CommitOutcome.ENDED_NOW], (
        "the coordinator says all is well"
    )
    assert stage.seen("committed") == []
    report = stage.resolve("committed")
    assert [(each.verdict, each.opened.partition) for each in report.resolved] == [
        (HangingVerdict.COMMIT, part.partition) for part in case.one.written
    ]
    assert not report.left
    assert stage.seen("committed") == list(range(COUNT))
    assert stage.resolve("committed") == ResolveReport(frozenset())


def test_X20_a_lost_abort_marker_is_waited_for_until_it_is_written(stage: Stage) -> None:
    ending = Committer(stage.cluster.client, clock=LeapingClock())
    one = stage.cases["aborted"].one
    assert ending.commit(permit([one])) == [CommitOutcome.STILL_OPEN]
    report = stage.resolve("aborted")
    assert [each.verdict for each in report.resolved] == [HangingVerdict.ABORT] * 2
    assert not stage.opened("aborted")
    with pytest.raises(TransactionLost):
        ending.commit(permit([one]))
    assert stage.seen("aborted") == []


def test_a_lost_abort_marker_of_a_fenced_transaction_is_written(stage: Stage) -> None:
    assert [each.verdict for each in stage.resolve("fenced").resolved] == [HangingVerdict.ABORT] * 2
    assert not stage.opened("fenced")
    assert stage.seen("fenced") == []


def test_a_marker_that_may_not_be_written_is_told_with_the_reason_and_written_once_it_may(stage: Stage) -> None:
    topic, pipeline = stage.cases["not allowed"].topic, stage.cluster.pipeline
    rights = [Right("TOPIC", topic, "READ"), Right("TRANSACTIONAL_ID", pipeline, "DESCRIBE", prefixed=True)]
    stage.broker.grant(USER, rights)
    login = {
        "bootstrap.servers": stage.broker.secured,
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(stage.broker.authority.file),
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    client = TransactionClient(login)
    try:
        clock = LeapingClock()
        resolver = HangingTransactionResolver(client, pipeline, clock)
        assert len(resolver.resolve([topic]).waiting) == 2
        clock.sleep(RIPE_S)
        report = resolver.resolve([topic])
        assert [each.one.verdict for each in report.left] == [HangingVerdict.COMMIT] * 2
        assert all("not authorized (ClusterAuthorizationFailedError (31))" in each.why for each in report.left)
        assert all(each.forbidden for each in report.left)
        assert stage.seen("not allowed") == []
        stage.broker.grant(USER, [Right("BROKER", "kafka-cluster", "CLUSTER_ACTION")])
        wait_until(lambda: not resolver.resolve([topic]).left, "the right has arrived")
    finally:
        client.close()
    assert stage.seen("not allowed") == list(range(COUNT))


def test_another_pipelines_transaction_is_told_and_left_alone(stage: Stage) -> None:
    report = stage.resolve("foreign", pipeline="somebody-else")
    assert [each.one.verdict for each in report.left] == [HangingVerdict.FOREIGN] * 2
    assert not report.resolved
    assert len(stage.opened("foreign")) == 2


def test_doctor_finds_what_hangs_and_leaves_it_alone(stage: Stage) -> None:
    topics = {"source": "__consumer_offsets", "sink": stage.cases["foreign"].topic}
    loaded = pipeline(servers=stage.broker.bootstrap, **topics)
    plan = build_plan(loaded)
    cluster = read_cluster(loaded, plan, MAIN_CLUSTER, PATIENCE_S)
    facts = read_details(loaded, plan, cluster, PATIENCE_S, LeapingClock())
    assert [each.verdict for each in facts.hanging] == [HangingVerdict.FOREIGN] * 2, (
        "it is of another pipeline than `check`"
    )
    assert {each.producer_id for each in facts.others} == {stage.cases["foreign"].one.producer.id}
    assert len(stage.opened("foreign")) == 2


def test_an_open_transaction_is_no_hanging_one(stage: Stage) -> None:
    client = stage.cluster.client
    opened = stage.opened("stays")
    assert len(opened) == 2
    clock = LeapingClock()
    resolver = HangingTransactionResolver(client, stage.cluster.pipeline, clock)
    for _ in range(2):
        assert resolver.resolve([stage.cases["stays"].topic]) == ResolveReport(frozenset(opened))
        clock.sleep(RIPE_S)
    assert client.end_transaction(stage.cases["stays"].one) is EndAnswer.ENDED


def test_a_marker_of_an_older_epoch_cannot_hurt_the_next_transaction(stage: Stage) -> None:
    """And the other way round: without its marker a committed transaction shares the end of the next one of its id."""
    case = stage.cases["joined"]
    before = {one.partition: one for one in stage.opened("joined")}
    producer = clients.producer(
        {"bootstrap.servers": stage.cluster.bootstrap, "transactional.id": case.one.transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(case.topic, b"1000", partition=0)
    assert producer.flush(60) == 0
    joined = next(one for one in stage.opened("joined") if one.partition.partition == 0)
    old = before[TopicPartition(case.topic, 0)]
    assert (joined.start_offset, joined.producer.epoch) == (old.start_offset, old.producer.epoch + 1)
    with pytest.raises(BrokerUnavailable, match="InvalidProducerEpoch"):
        stage.cluster.client.write_marker(old, old.producer.epoch, True)
    assert HangingVerdict.COMMIT not in {each.verdict for each in stage.resolve("joined").resolved}, (
        "its coordinator has forgotten"
    )
    producer.abort_transaction(60)
    wait_until(lambda: len(stage.opened("joined")) == 1, "the abort marker is written")
    stable = stage.cluster.client.stable_offsets([old.partition])
    assert read_committed(stage.cluster.bootstrap, stable) == {}, "committed records are gone: that is why ids wait"


def test_an_id_is_used_again_only_when_its_last_transaction_is_ended_in_its_partitions(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.sinks.producers.ENDED_TIMEOUT_S", 600.0)  # the test mends only later
    case, driven = stage.cases["reused"], stage.cases["reused"].sink
    used: list[Committable] = []
    released = case.one
    for checkpoint in range(2, 9):  # twice through all the other ids of the pool
        driven.sink.completed(CheckpointId(checkpoint), frozenset({released.transactional_id}))
        driven.write(rows([1000 + checkpoint]))
        released = driven.prepared(checkpoint).committables[0]
        assert stage.cluster.client.end_transaction(released) is EndAnswer.ENDED
        used.append(released)
    assert {one.transactional_id for one in used} < {
        f"{case.one.transactional_id[:-1]}{index}" for index in range(1, 4)
    }
    assert [each.verdict for each in stage.resolve("reused").resolved] == [HangingVerdict.COMMIT] * 2
    while released.transactional_id != case.one.transactional_id:
        checkpoint += 1
        assert checkpoint < 20, "the id is never used again"
        driven.sink.completed(CheckpointId(checkpoint), frozenset({released.transactional_id}))
        driven.write(rows([1000 + checkpoint]))
        released = driven.prepared(checkpoint).committables[0]
        assert stage.cluster.client.end_transaction(released) is EndAnswer.ENDED
    assert released.producer.epoch == case.one.producer_epoch + 1
    wait_until(lambda: not stage.opened("reused"), "everything is ended")
    driven.sink.close()  # with the producers that it has opened here
    assert stage.seen("reused") == [*range(COUNT), *range(1002, 1001 + checkpoint)]
