"""The Kafka clusters of a world, and which of them has each topic of the pipeline.

Everything else in the simulation calls a topic by the name that the shape gives it. Its name in Kafka may be another
one, so that both clusters have topics of the same name: `Clusters.at` translates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tidegate.coordinator.recovery import merge_positions
from tidegate.ids import MAIN_CLUSTER, ClusterName, SourceTopic, TopicPartition
from tidegate.simulation.faults import FaultPlan
from tidegate.simulation.kernel import VirtualProcess
from tidegate.simulation.model_broker.broker import ModelBroker
from tidegate.simulation.port import BrokerOutages, BrokerPort

if TYPE_CHECKING:
    import random

    from tidegate.coordinator.types import SourcePositions
    from tidegate.simulation.shapes.shape import Shape

FAR: Final = ClusterName("far")
"""The second cluster."""
ADDRESSES: Final[Mapping[ClusterName, str]] = {MAIN_CLUSTER: "model:9092", FAR: "far:9092"}
SAME_NAMES: Final = ("orders", "out")
"""Names that topics of both clusters have."""


class Location(msgspec.Struct, frozen=True):
    """Where a topic of the shape is."""

    topic: str
    """Its name in the shape."""
    cluster: ClusterName
    name: str
    """Its name in the cluster."""


def draw_locations(draw: random.Random, shape: Shape) -> tuple[Location, ...]:
    """Draws the cluster of each source, sink and of dead letters; at least one of them is in each cluster.

    As many topics as possible have the same name in both clusters.
    """
    groups = [*((name,) for name in shape.inputs), *derive_output_groups(shape)]
    while True:
        clusters = [draw.choice((MAIN_CLUSTER, FAR)) for _ in groups]
        if len(set(clusters)) > 1:
            break
    locations: list[Location] = []
    wanted = draw.sample(SAME_NAMES, len(SAME_NAMES))
    for group, cluster in zip(groups, clusters, strict=True):
        for topic in group:
            taken = {one.name for one in locations if one.cluster == cluster}
            names = [] if not _may_be_renamed(shape, group) else SAME_NAMES if topic in shape.inputs else wanted
            name = next((one for one in names if one not in taken), topic)
            locations.append(Location(topic, cluster, name))
    return tuple(locations)


def derive_output_groups(shape: Shape) -> list[tuple[str, ...]]:
    """Returns the topics that one sink, or dead letters, write to."""
    of_sinks = [
        (sink["topic"],) if isinstance(sink["topic"], str) else tuple(sink["topic"]["allow"])
        for sink in shape.sinks.values()
    ]
    known = {topic for group in of_sinks for topic in group}
    return [*of_sinks, *((topic,) for topic in shape.topics if topic not in known)]


def _may_be_renamed(shape: Shape, group: Sequence[str]) -> bool:
    """Returns whether no pattern or expression of the file names the topics."""
    return "pattern" not in shape.source if group[0] in shape.inputs else len(group) == 1


def place_in_file(document: dict[str, Any], locations: Sequence[Location]) -> dict[str, Any]:
    """Returns the pipeline file with the clusters and the names of topics in them."""
    if not locations:
        return document
    by_topic = {one.topic: one for one in locations}

    def place(section: Mapping[str, Any], topic: str) -> dict[str, Any]:
        one = by_topic[topic]
        cluster = {} if one.cluster == MAIN_CLUSTER else {"cluster": one.cluster}
        named = {"topic": one.name} if isinstance(section.get("topic"), str) else {}
        return {**section, **named, **cluster}

    def topic_of(sink: Mapping[str, Any]) -> str:
        return str(sink["topic"] if isinstance(sink["topic"], str) else sink["topic"]["allow"][0])

    document = {
        **document,
        "clusters": {FAR: {"bootstrap.servers": ADDRESSES[FAR]}},
        "sources": {name: place(source, name) for name, source in document["sources"].items()},
        "sinks": {name: place(sink, topic_of(sink)) for name, sink in document["sinks"].items()},
    }
    if "dead_letters" in document:
        document["dead_letters"] = place(document["dead_letters"], document["dead_letters"]["topic"])
    return document


class Clusters:
    """The clusters of one world. Each has a model broker, and outages of its own."""

    def __init__(self, locations: Sequence[Location], first_input: str, metadata_lag_ms: int, pace: float) -> None:
        self._locations = {one.topic: one for one in locations}
        self._first_input = first_input
        names = sorted({one.cluster for one in locations} | {MAIN_CLUSTER}, key=[MAIN_CLUSTER, FAR].index)
        self.outages = {name: BrokerOutages(pace) for name in names}
        self._brokers = {name: ModelBroker("model" if name == MAIN_CLUSTER else str(name)) for name in names}
        self._real: dict[ClusterName, ModelBroker] = {}
        """Clusters while another one answers at their address."""
        for broker in self._brokers.values():
            broker.placement.lag_ms = metadata_lag_ms

    @property
    def names(self) -> list[ClusterName]:
        """All clusters, the main one first."""
        return list(self._brokers)

    @property
    def brokers(self) -> list[ModelBroker]:
        """The brokers of all clusters."""
        return [self._real.get(name, broker) for name, broker in self._brokers.items()]

    @property
    def replaced(self) -> bool:
        """True while another cluster answers at the address of one."""
        return bool(self._real)

    def broker(self, cluster: ClusterName) -> ModelBroker:
        """Returns the broker of a cluster."""
        return self._real.get(cluster, self._brokers[cluster])

    def are_reachable(self, now_s: float) -> bool:
        """Returns whether no cluster has an outage."""
        return all(outages.is_over(now_s) for outages in self.outages.values())

    def cluster_of(self, topic: str) -> ClusterName:
        """Returns the cluster of a topic of the shape. New topics of a pattern are where the first input is."""
        location = self._locations.get(topic) or self._locations.get(self._first_input)
        return MAIN_CLUSTER if location is None else location.cluster

    def at(self, place: TopicPartition) -> tuple[ModelBroker, TopicPartition]:
        """Returns where a partition of the shape is, and what it is called there."""
        location = self._locations.get(place.topic)
        there = place if location is None else TopicPartition(location.name, place.partition)
        return self.broker(self.cluster_of(place.topic)), there

    def end_offset(self, place: TopicPartition) -> int:
        """Returns the offset after the last batch of a partition of the shape."""
        broker, there = self.at(place)
        return broker.end_offset(there)

    def create_topic(self, topic: str, partitions: int) -> None:
        """Creates a topic of the shape."""
        broker, there = self.at(TopicPartition(topic, 0))
        broker.create_topic(there.topic, partitions)

    def name_place(self, source: str, there: TopicPartition) -> TopicPartition:
        """Returns the partition of the shape that a source reads; inverse of `at`."""
        location = self._locations.get(source)
        return (
            TopicPartition(source, there.partition) if location is not None and location.name == there.topic else there
        )

    def find_input(self, wanted: SourceTopic) -> str:
        """Returns the name in the shape of a topic."""
        found = (one.topic for one in self._locations.values() if (one.cluster, one.name) == wanted)
        return next(found, wanted.topic)

    def merge_offsets(self, positions: tuple[SourcePositions, ...]) -> dict[TopicPartition, int]:
        """Returns the next offsets of all sources by the partitions of the shape."""
        return {
            self.name_place(source, place): offset
            for source, (offsets, _) in merge_positions(positions).items()
            for place, offset in offsets.items()
        }

    def group_texts(self, group: str) -> Iterator[str]:
        """Yields what is stored with the offsets of a group in any cluster."""
        for broker in self.brokers:
            yield from (text for _, text in broker.group_offsets(group).values())

    def replace(self, cluster: ClusterName) -> None:
        """Puts another cluster with the same topics behind the address of a cluster."""
        self._real[cluster] = real = self._brokers[cluster]
        other = self._brokers[cluster] = ModelBroker("other")
        for name, facts in real.topics(real.topic_names()).items():
            other.create_topic(name, facts.partitions)

    def put_back(self) -> None:
        """Puts the clusters back that were replaced."""
        self._brokers.update(self._real)
        self._real.clear()

    def answering(self, config: Mapping[str, Any]) -> ClusterName:
        """Returns the cluster with whose address a client connects."""
        address = config["bootstrap.servers"]
        return next(name for name in self._brokers if ADDRESSES[name] == address)

    def open_ports(self, process: VirtualProcess, faults: FaultPlan) -> ClusterLinks:
        """Opens the connections of one process. Returns what finds the one for the properties of a client."""
        links = {
            name: ClusterLink(self._brokers[name], BrokerPort(process, faults, self.outages[name], _salt(name)))
            for name in self._brokers
        }
        return lambda config: links[self.answering(config)]

    def clear_outages(self) -> None:
        """Ends everything that is wrong with a cluster."""
        for outages in self.outages.values():
            outages.clear()
        for broker in self.brokers:
            broker.marker_delay_ms = 0


class ClusterLink(msgspec.Struct, frozen=True):
    """The connection of a process to a cluster."""

    broker: ModelBroker
    port: BrokerPort


ClusterLinks = Callable[[Mapping[str, Any]], ClusterLink]
"""Returns the connection for the properties of a client."""


def _salt(cluster: ClusterName) -> str:
    return "" if cluster == MAIN_CLUSTER else f"/{cluster}"
