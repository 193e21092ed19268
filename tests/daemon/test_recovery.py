"""What a recovery writes to Kafka, of a pipeline that reads something else now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec
import pytest

from tests.support.loopback import Loopback, plan_of, play
from tests.support.loopback_kafka import LoopKafka
from tests.task.fakes import Row
from tidegate.committable import Committable, WrittenRange
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.daemon.restore_point import StartOptions
from tidegate.ids import OperatorName, ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, TransactionGone
from tidegate.kafka.facts import EndAnswer, Marker
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.sinks.committer import Committer
from tidegate.sinks.outcome import CommitOutcome

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
        return ["shop.out.0.1-j.0"]

    old = Loopback(plan_of("stateless"), ROWS)
    play(old, read_and_save)
    monkeypatch.setattr(LoopKafka, "fence_leftovers", fence)
    new = Loopback(plan_of("stateless", exactly_once=False), ROWS, before=old)
    play(new, read_and_stop)
    assert [what[:4] for what in fenced] == [("shop", (), 2, old.journal.state.journal)]
    assert ("are not aborted: not authorized; grant WRITE" in caplog.text) == refused
    labels = {"pipeline": "shop", "result": "aborted"}
    aborted = new._services.metrics.registry.get_sample_value("tidegate_transactions_total", labels)
    assert aborted == (0 if refused else 1)


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
    given_up = CommandLineDirectives(drop=(OperatorName("orders"),))
    new = Loopback(reading("fresh"), ROWS, before=old, options=StartOptions(command_line=given_up))
    play(new, read_and_stop)
    assert mirrored == {"fresh"}
    assert len(new.kafka.output) == 24


class Forgetful:
    """Answers a committer: of the transactions of these producers nothing is left."""

    def __init__(self) -> None:
        self.gone: set[int] = set()

    def end_transactions(self, committables: Sequence[Committable], timeout_s: float) -> list[EndAnswer]:
        return [EndAnswer.UNKNOWN_PRODUCER if one.producer_id in self.gone else EndAnswer.ENDED for one in committables]

    def outcome(self, _written: WrittenRange, _producer: ProducerId, timeout_s: float) -> Marker:
        return Marker.GONE

    def describe(self, _transactional_id: TransactionalId, timeout_s: float) -> None:
        return None


def test_the_word_for_what_is_gone_of_one_checkpoint_is_none_for_what_is_gone_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A supervisor repeats the option at every start: it was taken for a word about whatever was gone then."""
    client = Forgetful()

    async def commit(kafka: LoopKafka, permit: CommitPermit) -> list[CommitOutcome]:
        return Committer(cast("Any", client), accept_gone=kafka.accept_gone).commit(permit)

    async def one_more(world: Loopback) -> None:
        world.kafka.history[0] += ROWS[0]
        await read_and_save(world)

    monkeypatch.setattr(LoopKafka, "commit", commit)
    old = Loopback(plan_of("stateless"), ROWS)
    play(old, one_more)
    client.gone |= {one.producer_id for one in old.completed[-1].committables}
    first = old.completed[-1].id
    refused = play_refused(Loopback(plan_of("stateless"), ROWS, before=old))
    assert f"start with --accept-gone {first}, " in refused.message

    accepting = StartOptions(accept_gone=first)
    second = Loopback(plan_of("stateless"), ROWS, before=old, options=accepting)
    play(second, one_more)
    assert f"counted as committed, as --accept-gone {first} says" in caplog.text
    assert "changes nothing" not in caplog.text
    assert second.kafka.accept_gone is None
    newest = second.completed[-1]
    client.gone |= {one.producer_id for one in newest.committables}
    refused = play_refused(Loopback(plan_of("stateless"), ROWS, before=second, options=accepting))
    assert f"start with --accept-gone {newest.id}, " in refused.message
    assert f"--accept-gone {first} has no effect: the newest checkpoint is {newest.id}" in caplog.text


def play_refused(world: Loopback) -> TransactionGone:
    async def never(_world: Loopback) -> None:
        raise AssertionError("it has started")

    with pytest.raises(AssertionError, match="the daemon has ended"):
        play(world, never)
    assert isinstance(world.error, TransactionGone)
    assert world.kafka.accept_gone is None
    return world.error
