"""A whole daemon whose input was removed by retention while it was away."""

from __future__ import annotations

import logging

import msgspec
import pytest

from tests.support.loopback import Loopback, plan_of, play
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import ON_LOST_CONTINUE, SourceOperator
from tidegate.plan.graph import Plan

ROWS = {partition: [(0, number) for number in range(40)] for partition in range(2)}
PART = TopicPartition("orders", 1)


def going_on() -> Plan:
    plan = plan_of("stateless")
    vertices = []
    for vertex in plan.vertices:
        nodes = [
            msgspec.structs.replace(
                node, operator=msgspec.structs.replace(node.operator, on_lost_input=ON_LOST_CONTINUE)
            )
            if isinstance(node.operator, SourceOperator)
            else node
            for node in vertex.nodes
        ]
        vertices.append(msgspec.structs.replace(vertex, nodes=tuple(nodes)))
    return msgspec.structs.replace(plan, vertices=tuple(vertices))


def test_a_source_goes_on_after_what_is_lost_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    def skipped(world: Loopback) -> float | None:
        labels = {"pipeline": "shop", "step": "orders"}
        return world._services.metrics.registry.get_sample_value("tidegate_lost_input_records_total", labels)

    async def scene(world: Loopback) -> None:
        world.turn()
        await world.checkpoint()
        (before,) = [
            dict(one.next_offsets)[PART] for one in world.completed[-1].positions if PART in dict(one.next_offsets)
        ]
        world.kafka.removed = {1: before + 5}
        with caplog.at_level(logging.ERROR, "tidegate.daemon.start_offsets"):
            await world.kill(0)
            newest = world._services.journal.state.newest_checkpoint
            assert newest is not None
            assert [(one.partition, one.from_offset, one.to_offset) for one in newest.lost] == [
                (PART, before, before + 5)
            ]
            await world.kill(0)
        assert skipped(world) == 5
        (line,) = [record.getMessage() for record in caplog.records]
        assert (
            f"source {OperatorName('orders')}: orders[1]: offsets {before} up to and not including {before + 5}" in line
        )
        await world.drain()
        await world.stop()
        assert len(world.kafka.output) == 75

    play(Loopback(going_on(), ROWS), scene)
