"""Gates through whole attempts: real daemon, slots, channels and state; the topics are lists (ADR 73).

Guaranteed: each attempt opens its gate once, and no row of the stream finds an older table than its topic held when the
attempt started.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

import polars as pl
import pytest

from tests.support.loopback import Loopback, play
from tests.support.loopback_kafka import BATCH_ROWS, LoopKafka
from tests.task.fakes import Row
from tests.task.restarts import PartitionedSource
from tidegate.config.load import parse_pipeline
from tidegate.daemon.control_server import SlotLost
from tidegate.errors import PipelineStopped
from tidegate.ids import OperatorName
from tidegate.kafka.facts import TopicFacts
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.runtime import Out
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan

KEYS = 8
TABLE = "customers"


class TopicSource(PartitionedSource):
    """As PartitionedSource, with the partitions of rows; it declares when it has caught up with the start."""

    def __init__(
        self, spec: SourceOperator, slot: int, rows: dict[int, list[Row]], positions: dict[int, int], ends: int
    ) -> None:
        super().__init__(spec.name, slot, rows, positions, BATCH_ROWS)
        self._ends = {partition: min(len(held), ends) for partition, held in rows.items()}
        self._owes = spec.planned.catches_up

    def take(self, rows_max: int) -> pl.DataFrame | None:
        before = dict(self._next)
        frame = super().take(rows_max)
        read = [partition for partition in before if self._next[partition] > before[partition]]
        return None if frame is None else frame.with_columns(__tidegate_partition=pl.lit(read[0]))

    def poll(self, rows_max: int, out: Out) -> bool:
        moved = super().poll(rows_max, out)
        if self._owes and all(self._next[partition] >= end for partition, end in self._ends.items()):
            self._owes = False
            out.caught_up()
            return True
        return moved


class Topics(LoopKafka):
    """Several topics: rows by topic and partition. A row of a table is a key and its version."""

    def __init__(self, plan: Plan, topics: dict[str, list[list[Row]]]) -> None:
        super().__init__(plan, {})
        self.topics = topics
        self.begin = dict.fromkeys(range(max(map(len, topics.values()))), 0)
        self.recreated: dict[str, int] = {}
        """By topic how often it was recreated."""
        self._topics.update({topic: len(parts) for topic, parts in topics.items()})

    async def topic_facts(self, topics: Collection[str]) -> dict[str, TopicFacts]:
        return {
            topic: TopicFacts(f"{one.topic_id}{self.recreated.get(topic, '')}", one.partitions)
            for topic, one in (await super().topic_facts(topics)).items()
        }

    def open_source(
        self, spec: SourceOperator, slot: int, partitions: Sequence[int], offsets: dict[int, int]
    ) -> PartitionedSource:
        rows = {partition: self.topics[spec.name][partition] for partition in partitions}
        return TopicSource(spec, slot, rows, offsets, 1 << 30)

    def write(self, topic: str, rows: Sequence[Row]) -> None:
        """Each key has a partition."""
        parts = self.topics[topic]
        for key, number in rows:
            parts[key % len(parts)].append((key, number))


PIPELINE = """\
version: 1
name: shop
kafka: {{bootstrap.servers: "model:9092"}}
parallelism: {parallelism}
checkpoints: {{directory: file:///model}}
sources:
  orders: {{topic: orders, schema: {{k: bigint, n: bigint}}}}
  customers: {{topic: customers, schema: {{k: bigint, n: bigint}}}}
steps:
  - {{name: customer, from: customers, table: {{key: k}}}}
  - {{name: enriched, from: orders, lookup: customer, on: {{k: k}}, add: {{version: customer.n}}}}
  - {{name: shown, from: enriched, select: {{k: n, n: "coalesce(version, -1)"}}}}
sinks:
  out: {{from: shown, topic: out}}
"""


CHAIN = (
    PIPELINE.replace("steps:", "  regions: {{topic: regions, schema: {{k: bigint, n: bigint}}}}\nsteps:")
    .replace(
        "  - {{name: customer, from: customers,",
        "  - {{name: region, from: regions, table: {{key: k}}}}\n"
        "  - {{name: located, from: customers, lookup: region, on: {{k: k}}, add: {{r: region.n}}}}\n"
        "  - {{name: customer, from: located,",
    )
    .replace("customer.n", "'coalesce(customer.r, -2)'")
)
"""The table of customers is made of rows that find a region, whose table comes first."""


def plan_of(parallelism: int = 2, text: str = PIPELINE) -> Plan:
    return build_plan(parse_pipeline(text.format(parallelism=parallelism), "shop.yaml", {}))


def world_of(table: int, orders: int = 20, parallelism: int = 2) -> tuple[Loopback, Topics]:
    """A table whose keys have so many versions each, and so many orders."""
    plan = plan_of(parallelism)
    topics = Topics(plan, {"orders": [[], []], TABLE: [[], []]})
    topics.write(TABLE, [(key, version) for version in range(table) for key in range(KEYS)])
    topics.write("orders", [(number % KEYS, number) for number in range(orders)])
    return Loopback(plan, {}, kafka=topics), topics


def held(world: Loopback, source: str = "orders") -> str:
    """Why a source is on hold, as the status says."""
    holds = world._services.metrics._slots.holds.holds
    return holds[OperatorName(source)].why if source in holds else ""


def versions(world: Loopback) -> list[int]:
    """What the orders found, in the order of the orders."""
    output = sorted(world.kafka.output)
    assert len(dict(output)) == len(output), "each order once"
    return [version for _, version in output]


async def finish(world: Loopback, orders: int = 20) -> list[int]:
    await world.until(lambda: not held(world), "the gate opens")
    await world.drain()
    await world.stop()
    found = versions(world)
    assert len(found) == orders
    return found


def openings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("`customer` of `enriched` has caught up after" in one for one in caplog.messages)


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def test_gates_in_a_chain_open_one_after_the_other(caplog: pytest.LogCaptureFixture) -> None:
    plan = plan_of(2, CHAIN)
    topics = Topics(plan, {"orders": [[], []], TABLE: [[], []], "regions": [[], []]})
    for version in range(10):
        for topic in (TABLE, "regions"):
            topics.write(topic, [(key, version) for key in range(KEYS)])
    topics.write("orders", [(number % KEYS, number) for number in range(20)])

    async def scene(world: Loopback) -> None:
        assert held(world, TABLE) == "until `region` of `located` has caught up (0 of 2 slots)"
        await world.until(lambda: not held(world, TABLE), "the first gate opens")
        assert held(world).startswith("until `customer` of `enriched` has caught up")
        assert await finish(world) == [9] * 20
        assert [one.partition(" has caught up after")[0] for one in caplog.messages if "up after" in one] == [
            "`region` of `located`",
            "`customer` of `enriched`",
        ]

    play(Loopback(plan, {}, kafka=topics), scene)


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_every_row_of_the_stream_finds_the_whole_table(parallelism: int, caplog: pytest.LogCaptureFixture) -> None:
    """Three slots: one has no partition of the table and none of the stream (flink#22847)."""

    async def scene(world: Loopback) -> None:
        assert held(world) == f"until `customer` of `enriched` has caught up (0 of {parallelism} slots)"
        assert await finish(world) == [9] * 20
        assert openings(caplog) == 1

    play(world_of(10, parallelism=parallelism)[0], scene)


def test_an_empty_table_holds_nobody_up() -> None:
    async def scene(world: Loopback) -> None:
        assert await finish(world) == [-1] * 20

    play(world_of(0)[0], scene)


def test_a_table_that_is_written_faster_than_it_is_read_opens_its_gate(caplog: pytest.LogCaptureFixture) -> None:
    world, topics = world_of(10)

    async def scene(world: Loopback) -> None:
        version = 10
        while held(world):
            topics.write(TABLE, [(key, version) for key in range(KEYS)])
            version += 1
            await world.until(lambda: True, "a turn")
            world.turn()
        assert version < 1000
        found = await finish(world)
        assert min(found) >= 9, "nothing older than at the start"
        assert openings(caplog) == 1

    play(world, scene)


@pytest.mark.slow
def test_a_gate_is_there_again_after_a_failure_and_the_table_is_not_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A gate that is lost at a failover never opens (amoro#304); one that starts over never ends."""
    world, topics = world_of(100)

    async def scene(world: Loopback) -> None:
        for _ in range(30):
            world.turn()
        done = await world.checkpoint()
        assert held(world), "checkpoints complete behind a closed gate"
        read = dict(world.completed[-1].positions[0].next_offsets)
        assert 0 < sum(read.values()) < 100 * KEYS
        topics.write(TABLE, [(key, 100) for key in range(KEYS)])
        await world.kill(1)
        assert held(world)
        sources = [one for slot in range(2) for one in world.slot(slot).deployment.sources if one.name == TABLE]
        assert sum(sum(one._next.values()) for one in sources) >= sum(read.values())
        assert await finish(world) == [100] * 20, "at least what the topic held when this attempt started"
        assert openings(caplog) == 1, "that of the first attempt never did"
        assert done.checkpoint < world.completed[-1].id

    play(world, scene)


def test_a_failure_after_the_gate_has_opened_closes_it_until_the_table_is_as_new_as_its_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, topics = world_of(10)

    async def scene(world: Loopback) -> None:
        await world.until(lambda: not held(world), "the gate opens")
        await world.checkpoint()
        topics.write(TABLE, [(key, 10) for key in range(KEYS)])
        topics.write("orders", [(number % KEYS, number) for number in range(20, 40)])
        before = len(world.kafka.output)
        await world.kill(0)
        assert held(world)
        found = await finish(world, 40)
        assert found[20:] == [10] * 20
        assert before < 40
        assert openings(caplog) == 2, "once an attempt"

    play(world, scene)


def test_a_table_topic_that_was_recreated_is_refused_and_no_row_finds_the_shorter_table() -> None:
    world, topics = world_of(100)

    async def scene(world: Loopback) -> None:
        for _ in range(30):
            world.turn()
        await world.checkpoint()
        topics.topics[TABLE] = [[], []]
        topics.recreated[TABLE] = 1
        seat = world.seats[0]
        seat.end()
        world.listener.lost(SlotLost("it was killed"))
        refused = await world.failure()
        assert isinstance(refused, PipelineStopped)
        assert TABLE in str(refused)
        assert world.kafka.output == []

    play(world, scene)


@pytest.mark.slow
def test_the_bootstrap_goes_on_at_another_parallelism(caplog: pytest.LogCaptureFixture) -> None:
    world, _ = world_of(100)

    async def first(world: Loopback) -> None:
        for _ in range(30):
            world.turn()
        await world.checkpoint()
        assert held(world)

    play(world, first)
    again = Loopback(plan_of(3), {}, before=world)

    async def second(world: Loopback) -> None:
        assert held(world).endswith("(0 of 3 slots)")
        assert await finish(world) == [99] * 20
        assert openings(caplog) == 1

    play(again, second)
