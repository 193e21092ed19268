"""Three development brokers that form one cluster; every partition has three replicas and needs two in sync.

Each broker is also a controller. A test kills, stops and restarts brokers one by one and queries their roles.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import kafka
from confluent_kafka.admin import AdminClient
from kafka.admin import ConfigResource, ConfigResourceType

from tests.support import clients
from tests.waiting import wait_until
from tidegate.dev.broker import DevelopmentBroker
from tidegate.dev.broker.server import create_topics, make_cluster_id, reserve_ports
from tidegate.ids import TopicPartition
from tidegate.kafka.channel import connect, open_client_channel
from tidegate.kafka.requests import topic_settings_request

SIZE: Final = 3
_COPIES: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "3",
    "broker.session.timeout.ms": "9000",  # a broker that a busy machine suspends for 3 s keeps its leaderships
}
START_S: Final = 180.0
ADMIN_S: Final = 30.0


class BrokerCluster:
    """Brokers 1 to 3; the context manager starts and kills them together."""

    def __init__(self, directory: Path, properties: Mapping[str, str] | None = None) -> None:
        cluster_id = make_cluster_id()
        self.brokers = {
            node: DevelopmentBroker(directory / f"broker-{node}", cluster_id=cluster_id) for node in range(1, SIZE + 1)
        }
        controllers = reserve_ports(SIZE)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(self.brokers, controllers, strict=True))
        for (node, broker), port in zip(self.brokers.items(), controllers, strict=True):
            broker.properties |= {
                **_COPIES,
                "node.id": str(node),
                "controller.quorum.voters": voters,
                "listeners": f"PLAINTEXT://{broker.bootstrap},CONTROLLER://127.0.0.1:{port}",
                **(properties or {}),
            }

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> Self:
        """Starts all brokers at once, because a single one has no majority."""
        with ThreadPoolExecutor(SIZE) as threads:
            list(threads.map(lambda broker: broker.start(START_S), self.brokers.values()))
        return self

    def kill(self) -> None:
        """Kills all brokers."""
        for broker in self.brokers.values():
            broker.kill()

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def create_topics(self, topics: Mapping[str, int], config: Mapping[str, str] | None = None) -> None:
        """Creates topics with the given numbers of partitions and waits for their leaders."""
        create_topics(self.bootstrap, topics, config)

    # -- roles -------------------------------------------------------------------------------------------------------

    def leaders(self, topic: str) -> set[int]:
        """Returns the brokers that lead a partition of a topic;
        those of `__transaction_state` coordinate transactions.
        """
        partitions = self._admin().list_topics(topic, timeout=ADMIN_S).topics[topic].partitions
        return {partition.leader for partition in partitions.values()}

    def in_sync(self, topic: str) -> int:
        """Returns the lowest number of in-sync replicas among the partitions of a topic."""
        partitions = self._admin().list_topics(topic, timeout=ADMIN_S).topics[topic].partitions
        return min(len(partition.isrs) for partition in partitions.values())

    def controller(self) -> int:
        """Returns the active controller."""
        client = connect({"bootstrap.servers": self.bootstrap}, ADMIN_S)
        try:
            return int(client.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"])
        finally:
            client.close()

    def move_leader(self, partition: TopicPartition, node: int) -> None:
        """Moves the leadership of a partition to another broker, as an operator would. No connection breaks."""
        client = connect({"bootstrap.servers": self.bootstrap}, ADMIN_S)
        place = kafka.TopicPartition(partition.topic, partition.partition)
        try:
            client.alter_partition_reassignments({place: [node, *sorted(self.brokers.keys() - {node})]})
            wait_until(lambda: not client.list_partition_reassignments([place]), "the copies are in their new order")
            client.elect_leaders(0, {place.topic: [place.partition]})  # to the first replica of the new order
        finally:
            client.close()
        wait_until(lambda: self.leader(partition) == node, f"broker {node} leads {partition}")

    def configure(self, topic: str, setting: str, value: str) -> None:
        """Changes a setting of a topic and waits until every broker knows it."""
        client = connect({"bootstrap.servers": self.bootstrap}, ADMIN_S)
        channel = open_client_channel({"bootstrap.servers": self.bootstrap}, ADMIN_S)
        request = topic_settings_request(topic, [setting])

        def is_known(node: int) -> bool:
            (answer,) = channel.send([(request, node)], ADMIN_S)
            return bool(answer.results[0].configs[0].value == value)

        try:
            client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {setting: value})])
            for node in self.brokers:
                wait_until(partial(is_known, node), f"broker {node} knows {setting}={value} of {topic}")
        finally:
            channel.close()
            client.close()

    def roll(self) -> None:
        """Restarts all brokers one by one: each hands over its leaderships and returns in sync."""
        for node, broker in self.brokers.items():
            broker.stop(START_S)
            self.bring_back(node)

    def bring_back(self, *nodes: int) -> None:
        """Starts stopped brokers together and waits until they are in sync."""
        with ThreadPoolExecutor(SIZE) as threads:
            list(threads.map(lambda node: self.brokers[node].start(START_S), nodes))
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        """Waits until every replica of every partition is in sync."""
        for topic in self._admin().list_topics(timeout=ADMIN_S).topics:
            wait_until(partial(self._is_in_sync, topic), f"all brokers have all of {topic}")

    def _is_in_sync(self, topic: str) -> bool:
        return self.in_sync(topic) == SIZE

    def leader(self, partition: TopicPartition) -> int:
        """Returns the leader of a partition."""
        known = self._admin().list_topics(partition.topic, timeout=ADMIN_S).topics[partition.topic].partitions
        return int(known[partition.partition].leader)

    def _admin(self) -> AdminClient:
        return clients.admin({"bootstrap.servers": self.bootstrap})
