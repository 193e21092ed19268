"""One checkpoint with output in two clusters, on two real brokers: both have a topic of the same name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Final, cast

import confluent_kafka as ck
import msgspec
import pytest
from typing_extensions import override

from tests.sinks.driving import Cluster
from tests.support import clients
from tests.support.broker_life import LONG_MS, Case, Daemon, Transactions
from tests.waiting import wait_until
from tidegate.committable import Committable
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.recovery import RestoreRefused
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.ownership import Ownership
from tidegate.daemon.preflight import DuplicateCluster
from tidegate.daemon.recovery import recover
from tidegate.daemon.services import Services
from tidegate.datatypes import BINARY
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics
from tidegate.formats.dead_letters import GONE
from tidegate.formats.dead_letters.frames import RawRecord
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import MAIN_CLUSTER, CheckpointId, ClusterName, OperatorName, TopicPartition, VertexId
from tidegate.journal.journal import Journal
from tidegate.kafka.facts import CoordinatorState
from tidegate.operators.async_queue import PendingCall
from tidegate.operators.builtin.dead_letters import Origin
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.graph import Node, Plan, Vertex
from tidegate.sources.read_back import RecordReader
from tidegate.storage.local import LocalStorage

US, EAST = ClusterName("us"), ClusterName("east")
SOURCE, HERE, THERE = OperatorName("in"), OperatorName("here"), OperatorName("there")
COLUMNS: Final = (("value", BINARY),)
NUMBERS: Final = range(20)


class OneTopic(Case, frozen=True):
    """Every sink writes the topic of the pipeline's name."""

    @override
    def topic(self, sink: str) -> str:
        return self.pipeline


class Shop:
    """A pipeline with a source and a sink in one cluster, and a sink in another one."""

    def __init__(self, name: str, directory: Path, clusters: Mapping[ClusterName, str]) -> None:
        self.name = name
        self.addresses = clusters
        self._storage = LocalStorage(str(directory))

    @contextmanager
    def daemon(self, number: int, away: ClusterName, *, source: ClusterName = MAIN_CLUSTER) -> Iterator[OneDaemon]:
        """One that has its sink `there` in cluster `away`."""
        journal = Journal(self._storage, Writer(f"{number:012x}", "host", number), retained=1, id_reserve=5)
        with ThreadPoolExecutor(1, "journal") as thread:
            edges = {
                name: KafkaEdge({"bootstrap.servers": address}, name=name) for name, address in self.addresses.items()
            }
            services = Services(
                storage=self._storage,
                journal=journal,
                journal_thread=thread,
                kafka=KafkaClusters(edges),
                metrics=PipelineMetrics(self.name, "0"),
            )
            yield OneDaemon(self, services, self._plan(away, source))

    def _plan(self, away: ClusterName, source: ClusterName) -> Plan:
        def kafka(name: ClusterName) -> dict[str, str]:
            return {"bootstrap.servers": self.addresses[name]}

        policy = BadRecordPolicy.FAIL
        reads = SourceOperator(
            SOURCE,
            (f"{self.name}-in",),
            "raw",
            COLUMNS,
            COLUMNS,
            "earliest",
            "never",
            policy,
            kafka(source),
            cluster=source,
        )
        writes = [
            SinkOperator(sink, self.name, "raw", COLUMNS, None, None, policy, kafka(name), cluster=name)
            for sink, name in ((HERE, MAIN_CLUSTER), (THERE, away))
        ]
        nodes = (Node(reads, (1, 2), ()), *(Node(sink, (), ()) for sink in writes))
        return Plan(self.name, 1, 128, True, (Vertex(VertexId("in"), nodes),), ())


class OneDaemon:
    """The parts of a daemon that recover, and the transactions of its slots."""

    def __init__(self, shop: Shop, services: Services, plan: Plan) -> None:
        self._shop = shop
        self._services = services
        self._plan = plan
        self.journal = services.journal
        self._alive: list[Transactions] = []

    def recover(self) -> None:
        async def serve() -> None:
            await self._services.kafka.open()
            try:
                await recover(self._plan, self._services, Ownership(self._plan.pipeline, self._services), LONG_MS)
            finally:
                await self._services.kafka.close()

        asyncio.run(serve())

    def prepare(self, sink: OperatorName, cluster: ClusterName, checkpoint: int, slot: int = 0) -> Committable:
        case = OneTopic(self._shop.name, self._shop.addresses[cluster], Path())
        slots = Transactions(case, cast("Daemon", SimpleNamespace(journal=self.journal)))
        prepared = slots.prepare(sink, NUMBERS, checkpoint=checkpoint, slot=slot, timeout_ms=LONG_MS)
        slots._client.close()
        self._alive.append(slots)
        return msgspec.structs.replace(prepared, cluster=cluster)

    def decide(self, *committables: Committable) -> None:
        """Appends a checkpoint, after which the daemon is killed."""
        state = self.journal.state
        assert state.newest_checkpoint is not None
        at = ((TopicPartition(f"{self._shop.name}-in", 0), 7),)
        self.journal.append_checkpoint(
            CompletedCheckpoint(
                CheckpointId(state.newest_checkpoint.id + 1),
                state.attempt,
                1,
                2,
                (SourcePositions(SOURCE, at),),
                (),
                committables,
            )
        )


@pytest.fixture
def clusters(
    broker_tv1: DevelopmentBroker, broker_tv2: DevelopmentBroker, unique_name: Callable[[str], str]
) -> Iterator[tuple[Cluster, Cluster]]:
    made = [Cluster(broker.bootstrap, unique_name) for broker in (broker_tv1, broker_tv2)]
    try:
        yield made[0], made[1]
    finally:
        for one in made:
            one.close()


@pytest.mark.slow
def test_a_decided_checkpoint_is_completed_in_both_clusters_and_each_in_its_own(
    clusters: tuple[Cluster, Cluster], unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    """The daemon is killed behind its decision, then the output in one cluster times out, and that one is renamed.

    What was lost is written again in the cluster whose log has it; nothing of it appears in the other one's topic.
    """
    here, there = clusters
    name = unique_name("shop")
    source = f"{name}-in"
    for one in clusters:
        create_topics(one.bootstrap, {name: 2, source: 1})
    shop = Shop(name, tmp_path, {MAIN_CLUSTER: here.bootstrap, US: there.bootstrap})
    with shop.daemon(1, US) as first:
        first.recover()
        assert first.journal.state.newest_checkpoint is not None
        number = first.journal.state.newest_checkpoint.id + 1
        listed = first.prepare(HERE, MAIN_CLUSTER, number), first.prepare(THERE, US, number)
        first.prepare(HERE, MAIN_CLUSTER, number + 1, slot=1)  # of no checkpoint
        first.prepare(THERE, US, number + 1, slot=1)
        first.decide(*listed)
    there.client.fence(listed[1].transactional_id)  # as its coordinator does when the time is over
    shop.addresses = {MAIN_CLUSTER: here.bootstrap, EAST: there.bootstrap}
    with shop.daemon(2, EAST) as second:
        second.recover()
        assert second.journal.state.committables == ()
    for one in clusters:
        assert sorted(one.values(name)) == list(NUMBERS)
        assert not [each for each in one.client.list_transactions(f"{name}.") if each.state is CoordinatorState.ONGOING]
    assert here.client.mirrored_texts(name).keys() == {TopicPartition(source, 0)}
    assert there.client.mirrored_texts(name) == {}, "no source is there"

    shop.addresses = {MAIN_CLUSTER: here.bootstrap, US: here.bootstrap}
    with shop.daemon(3, US) as third, pytest.raises(DuplicateCluster, match="`kafka` and `us` are one Kafka cluster"):
        third.recover()
    shop.addresses = {MAIN_CLUSTER: there.bootstrap, US: here.bootstrap}
    with (
        shop.daemon(4, US) as third,
        pytest.raises(RestoreRefused, match="source in: the checkpoint has its positions"),
    ):
        third.recover()


@pytest.mark.slow
def test_failed_records_are_read_back_from_their_own_cluster(
    clusters: tuple[Cluster, Cluster], unique_name: Callable[[str], str]
) -> None:
    """Both have a record at the same place of a topic of the same name; one has lost it already."""
    topic = unique_name("orders")
    names = (MAIN_CLUSTER, US)
    for name, one in zip(names, clusters, strict=True):
        create_topics(one.bootstrap, {topic: 1})
        producer = clients.producer({"bootstrap.servers": one.bootstrap})
        for number in range(3):
            producer.produce(topic, value=f"{name} {number}".encode(), partition=0)
        producer.flush(30)
    clients.delete_records(clusters[1].bootstrap, [ck.TopicPartition(topic, 0, 1)])
    origins = [
        Origin((topic,), {"bootstrap.servers": one.bootstrap}, cluster=name)
        for name, one in zip(names, clusters, strict=True)
    ]
    reader = RecordReader(origins, "letters", lambda: None)
    asked = [(name, topic, 0, offset) for offset in range(3) for name in names]
    done: list[PendingCall] = []

    def answered() -> bool:
        done.extend(reader.take())
        return len(done) == len(asked)

    try:
        reader.submit([(PendingCall(None, row), one) for row, one in enumerate(asked)])
        wait_until(answered, "all are answered")
    finally:
        reader.close()
    found = [one.answer.value if isinstance(one.answer, RawRecord) else one.answer for one in done]
    assert found == [b"kafka 0", GONE, b"kafka 1", b"us 1", b"kafka 2", b"us 2"]
