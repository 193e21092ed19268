"""Two clusters of a simulated world: where topics are, and faults that concern one of them."""

from __future__ import annotations

from functools import partial

import msgspec
import pytest

from tidegate.coordinator.types import SourcePositions
from tidegate.ids import MAIN_CLUSTER, OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.simulation.campaign import ONLY
from tidegate.simulation.cluster_faults import spread_faults
from tidegate.simulation.clusters import ADDRESSES, FAR, Clusters, Location, draw_locations
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.faults import Fault, FaultPlan
from tidegate.simulation.kernel import Kernel, Trace, generator
from tidegate.simulation.model_broker.log import Record
from tidegate.simulation.port import LinkLost, LinkSilent
from tidegate.simulation.shapes.registry import SHAPES
from tidegate.simulation.workload import plan_of

LOCATIONS = (
    Location("orders", MAIN_CLUSTER, "orders"),
    Location("returns", FAR, "orders"),
    Location("paid", MAIN_CLUSTER, "out"),
    Location("sums", FAR, "out"),
)


@pytest.fixture
def clusters() -> Clusters:
    made = Clusters(LOCATIONS, "orders", 0, 1.0)
    for one in LOCATIONS:
        made.create_topic(one.topic, 2)
    return made


@pytest.mark.parametrize("name", ["stateless", "halves", "letters", "union", "lookup-fail", "new-topics", "windows"])
def test_every_shape_is_spread_over_both_clusters_and_makes_a_plan(name: str) -> None:
    shape = SHAPES[name]
    timing = next(
        (found for found in (draw_schedule(seed).workload.windows for seed in range(1, 40)) if found is not None), None
    )
    locations = draw_locations(generator(7, f"clusters of {name}"), shape)
    assert {one.cluster for one in locations} == {MAIN_CLUSTER, FAR}
    assert len({(one.cluster, one.name) for one in locations}) == len(locations)
    assert {one.topic for one in locations} == {*shape.inputs, *shape.topics}
    plan = plan_of(name, 2, True, False, timing=timing if shape.windowed else None, locations=locations)
    by_topic = {one.topic: one for one in locations}
    assert {source.name: source.cluster for source in plan.operators(SourceOperator)} == {
        name: by_topic[name].cluster for name in shape.inputs
    }
    assert {(sink.cluster, topic) for sink in plan.operators(SinkOperator) for topic in sink.topics} == {
        (by_topic[topic].cluster, by_topic[topic].name) for topic in shape.topics
    }


def test_topics_of_the_same_name_are_kept_apart(clusters: Clusters) -> None:
    for number, topic in enumerate(("orders", "returns"), 1):
        broker, there = clusters.at(TopicPartition(topic, 0))
        assert there == TopicPartition("orders", 0)
        for _ in range(number):
            broker.produce(0, there, [Record(b"", b"{}", 0)])
    assert [clusters.end_offset(TopicPartition(topic, 0)) for topic in ("orders", "returns")] == [1, 2]
    positions = tuple(
        SourcePositions(OperatorName(source), ((TopicPartition("orders", 0), offset),))
        for source, offset in (("orders", 1), ("returns", 2))
    )
    assert clusters.merge_offsets(positions) == {TopicPartition("orders", 0): 1, TopicPartition("returns", 0): 2}


def test_a_cluster_that_is_away_frozen_or_cut_off_leaves_the_other_one_well(clusters: Clusters) -> None:
    kernel = Kernel("1", Trace())
    process = kernel.process("daemon", "daemon-1")
    links = clusters.open_ports(process, FaultPlan(()))
    near, far = (links({"bootstrap.servers": ADDRESSES[name]}).port for name in (MAIN_CLUSTER, FAR))
    outages = clusters.outages[FAR]
    answers: list[tuple[str, str, bool]] = []

    def ask() -> None:
        for name in ("away", "frozen", "slow"):
            setattr(outages, name, kernel.now + 9.0)
            here = near.call("ask", partial(str, name), 1.0)
            began = kernel.now
            try:
                there = far.call("ask", partial(str, name), 1.0)
            except LinkSilent:
                there = "silent"
            except LinkLost:
                there = "lost"
            answers.append((here, there, kernel.now - began > 0.1))
            outages.clear()

    kernel.spawn(process, "asks", ask)
    kernel.run(20.0)
    kernel.close()
    assert answers == [("away", "lost", True), ("frozen", "silent", True), ("slow", "slow", True)]
    assert clusters.are_reachable(kernel.now)


def test_another_cluster_answers_at_the_address_until_the_right_one_is_back(clusters: Clusters) -> None:
    kernel = Kernel("1", Trace())
    real = clusters.broker(FAR)

    def connected(name: str) -> str:
        links = clusters.open_ports(kernel.process("daemon", name), FaultPlan(()))
        return links({"bootstrap.servers": ADDRESSES[FAR]}).broker.cluster_id

    clusters.replace(FAR)
    assert connected("one") == "other"
    assert clusters.broker(FAR) is real, "the oracle reads the right one"
    clusters.put_back()
    assert connected("two") == "far"
    kernel.close()


def test_faults_of_brokers_concern_either_cluster_and_others_stay_as_they_are() -> None:
    workload = draw_schedule(1).workload
    planned = (
        Fault(kind="broker-down", at_s=1.0, seconds=1.0),
        Fault(kind="partition", at_s=1.0, target="daemon/broker", seconds=1.0),
        Fault(kind="clock", at_s=1.0, target="brokers week"),
        Fault(kind="kill", at_s=1.0, target="slot 0"),
    )
    drawn = [spread_faults(seed, workload, planned, 5.0) for seed in range(40)]
    for index in range(3):
        assert {faults[index].cluster for faults in drawn} == {MAIN_CLUSTER, FAR}
    assert all(faults[3] == planned[3] and len(faults) > 4 for faults in drawn)
    kinds = {fault.kind for faults in drawn for fault in faults[4:]}
    assert kinds >= {"broker-down", "broker-frozen", "broker-slow", "slots-cut-off", "partition", "cluster-replaced"}


def test_a_campaign_may_be_limited_to_two_clusters() -> None:
    workload = draw_schedule(1).workload
    both = msgspec.structs.replace(workload, locations=LOCATIONS)
    assert (ONLY["clusters"](msgspec.structs.replace(workload, locations=())), ONLY["clusters"](both)) == (False, True)
