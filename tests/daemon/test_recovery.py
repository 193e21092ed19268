"""What a recovery writes to Kafka, of a pipeline that reads something else now."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from tests.support.loopback import Loopback, plan_of, play
from tests.support.loopback_kafka import LoopKafka
from tests.task.fakes import Row
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.upgrade import Spoken
from tidegate.daemon.choosing import StartOptions
from tidegate.ids import OperatorName, TopicPartition
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan

ROWS: dict[int, list[Row]] = {partition: [(number % 3, number) for number in range(6)] for partition in range(2)}


def reading(topic: str) -> Plan:
    """The pipeline `stateless` of the loopback with another source."""
    document = {
        "version": 1,
        "name": "shop",
        "kafka": {"bootstrap.servers": "model:9092"},
        "parallelism": 2,
        "checkpoints": {"directory": "file:///model"},
        "sources": {topic: {"topic": topic, "format": "json", "schema": {"k": "bigint", "n": "bigint"}}},
        "steps": [{"name": "positive", "from": topic, "where": "n >= 0"}],
        "sinks": {"out": {"from": "positive", "topic": "out", "format": "json"}},
    }
    return build_plan(parse_pipeline(msgspec.json.encode(document).decode(), "recovery", {}))


async def read_and_save(world: Loopback) -> None:
    await world.drain()
    await world.checkpoint()


async def read_and_stop(world: Loopback) -> None:
    await world.drain()
    await world.stop()


@pytest.mark.parametrize("refused", [False, True])
def test_what_is_left_of_an_exactly_once_run_is_aborted_in_at_least_once_mode_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, refused: bool
) -> None:
    """Readers of committed records were blocked until the time limit. Who may not end transactions need not."""
    fenced: list[tuple[object, ...]] = []

    async def fence(_kafka: LoopKafka, *what: object) -> list[str]:
        fenced.append(what)
        if refused:
            raise KafkaRefused("not authorized; grant WRITE")
        return []

    old = Loopback(plan_of("stateless"), ROWS)
    play(old, read_and_save)
    monkeypatch.setattr(LoopKafka, "fence_leftovers", fence)
    new = Loopback(plan_of("stateless", exactly_once=False), ROWS, before=old)
    play(new, read_and_stop)
    assert fenced == [("shop", (), 2, old.journal.state.journal)]
    assert ("is not aborted: not authorized; grant WRITE" in caplog.text) == refused


def test_a_start_that_gives_a_source_up_does_not_need_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka takes no offset of a topic that is gone: each start ended at the positions of the old checkpoint."""
    mirrored: set[str] = set()

    async def mirror(kafka: LoopKafka, _group: str, offsets: Mapping[TopicPartition, int], _text: str) -> None:
        unknown = [part for part in offsets if part.topic not in kafka._topics]
        if unknown:
            raise BrokerUnavailable(f"mirroring positions: unknown topic or partition: {unknown[0]}")
        mirrored.update(part.topic for part in offsets)

    monkeypatch.setattr(LoopKafka, "mirror_offsets", mirror)

    async def first(world: Loopback) -> None:
        await read_and_save(world)
        await world.stop()

    old = Loopback(plan_of("stateless"), ROWS)
    play(old, first)
    assert mirrored == {"orders"}
    del old.kafka._topics["orders"]
    old.kafka._topics["fresh"] = 2
    mirrored.clear()
    given_up = Spoken(drop=(OperatorName("orders"),))
    new = Loopback(reading("fresh"), ROWS, before=old, options=StartOptions(spoken=given_up))
    play(new, read_and_stop)
    assert mirrored == {"fresh"}
    assert len(new.kafka.output) == 24
