"""Scenarios: what a source's reader hands over, and what it reports of ends, gaps and partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from tests.simulation.broker.scenario import Value, scenario
from tests.simulation.broker.scripted_port import Fate
from tests.simulation.broker.stages import Stage
from tidegate.coordinator.types import SourcePositions
from tidegate.errors import TidegateError
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import OperatorName, TopicPartition
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.runtime import ROWS_MAX
from tidegate.sources.reader import ConsumerThread

SOURCE = OperatorName("in")


class Driven(msgspec.Struct):
    """A reader and what it has handed over."""

    stage: Stage
    reader: ConsumerThread
    numbers: dict[int, list[int]] = msgspec.field(default_factory=dict)
    ends: dict[int, int] = msgspec.field(default_factory=dict)
    caught_up: list[tuple[int, int]] = msgspec.field(default_factory=list)

    def take(self) -> None:
        """What is there."""
        while (pending := self.reader.take(ROWS_MAX)) is not None:
            records = pending.records
            for partition, value in zip(records.partitions, records.values, strict=True):
                assert value is not None
                self.numbers.setdefault(partition, []).append(int(value))
            self.ends.update({part.partition: offset for part, offset in pending.ends.items()})
            self.caught_up += [(part.partition, asked.offset) for part, asked in pending.caught_up.items()]

    def until_end(self, ends: Mapping[int, int]) -> None:
        """Until these ends are reported."""

        def reached() -> bool:
            self.take()
            return self.ends == ends

        self.stage.until(reached, f"ends {ends}")

    def until_caught_up(self, ends: list[tuple[int, int]]) -> None:
        """Until partitions are known to stay at these ends, one after the other."""

        def known() -> bool:
            self.take()
            return self.caught_up == ends

        self.stage.until(known, f"caught up {ends}")


def _read(
    stage: Stage,
    topic: str,
    run: Callable[[Driven], Value],
    at: Mapping[int, int],
    partitions: Sequence[int] = (0,),
    until: str = "never",
    ends: Mapping[int, int] | None = None,
) -> Value:
    parts = [TopicPartition(topic, number) for number in partitions]
    positions = SourcePositions(
        SOURCE,
        tuple((TopicPartition(topic, number), offset) for number, offset in at.items()),
        tuple((TopicPartition(topic, number), offset) for number, offset in (ends or {}).items()),
    )
    operator = SourceOperator(
        SOURCE, (topic,), "raw", (), (), "earliest", until, BadRecordPolicy.FAIL, dict(stage.kafka)
    )
    reader = ConsumerThread(operator, parts, positions, f"{stage.prefix}-reader", lambda: None, stage.source_tools)
    reader.start()
    try:
        return run(Driven(stage, reader))
    finally:
        reader.close(10.0)


@scenario((list(range(100)), [*range(100), 5], {0: 107}))
def a_reader_sees_what_is_committed_and_where_it_ends(stage: Stage) -> Value:
    topic = stage.topic()
    stage.client.end_transaction(stage.prepared("a", topic, range(100)))
    stage.client.end_transaction(stage.prepared("b", topic, [777]), commit=False)
    stage.settled(topic)
    stage.prepared("c", topic, [888])

    def run(driven: Driven) -> Value:
        driven.until_end({0: 103})
        first = list(driven.numbers[0])
        stage.client.fence(stage.tid("c"))
        stage.client.end_transaction(stage.prepared("d", topic, [5]))
        driven.until_end({0: 107})
        return first, driven.numbers[0], driven.ends

    return _read(stage, topic, run, {0: 0})


@scenario((list(range(90, 100)), {0: 90}))
def a_reader_goes_on_where_it_was(stage: Stage) -> Value:
    topic = stage.topic()
    stage.client.end_transaction(stage.prepared("a", topic, range(100)))
    stage.settled(topic)

    def run(driven: Driven) -> Value:
        driven.until_end({0: 101})
        positions = driven.reader.wait_initial(1.0)
        return driven.numbers[0], {part.partition: at for part, at in positions.next_offsets.items()}

    return _read(stage, topic, run, {0: 90})


@scenario(({0: 4, 1: 0}, {0: 6}, {0: [4, 5], 1: [7]}))
def a_bounded_reader_knows_its_ends_and_where_new_partitions_begin(stage: Stage) -> Value:
    """A partition that no checkpoint knows is read from its first record, and its end is that place."""
    topic = stage.topic(2)
    writer = stage.plain_writer(topic)
    stage.write(writer, range(6), key=_key_of(stage, topic, 0))
    stage.write(writer, [7], key=_key_of(stage, topic, 1))

    def run(driven: Driven) -> Value:
        positions = driven.reader.wait_initial(60.0)
        driven.until_end({0: 6, 1: 1})
        nexts = {part.partition: at for part, at in positions.next_offsets.items()}
        ends = {part.partition: at for part, at in (positions.end_offsets or {}).items() if part.partition == 0}
        return nexts, ends, driven.numbers

    return _read(stage, topic, run, {0: 4}, (0, 1), "latest", {0: 6})


def _key_of(stage: Stage, topic: str, partition: int) -> bytes:
    """A key of a partition, found in another topic of the same size."""
    probe = stage.topic(len(stage.parts(topic)))
    writer = stage.plain_writer(probe)
    for number in range(20):
        stage.write(writer, [number], key=b"k%d" % number)
        if number in stage.visible(probe).get(partition, []):
            return b"k%d" % number
    raise AssertionError(f"no key of partition {partition}")


def _failing(stage: Stage, topic: str, at: int) -> Value:
    """Code and facts of what ends the reader."""

    def run(driven: Driven) -> Value:
        try:
            stage.until(lambda: (driven.take(), False)[1], "an error")  # type: ignore[func-returns-value]  # two steps in one line
        except TidegateError as error:
            told = {name: error.fields.get(name) for name in ("offset", "log_start", "log_end")}
            return error.code, told, driven.numbers
        raise AssertionError("no error")

    return _read(stage, topic, run, {0: at})


@scenario(("source-failed", {"offset": 3, "log_start": 5, "log_end": 11}, {}))
def a_reader_stops_where_records_are_gone(stage: Stage) -> Value:
    topic = stage.topic()
    (part,) = stage.parts(topic)
    stage.client.end_transaction(stage.prepared("a", topic, range(10)))
    stage.settled(topic)
    stage.delete_records(part, 5)
    return _failing(stage, topic, 3)


@scenario(("source-failed", {"offset": 99, "log_start": 0, "log_end": 11}, {}))
def a_reader_stops_after_the_end_of_the_log(stage: Stage) -> Value:
    topic = stage.topic()
    stage.client.end_transaction(stage.prepared("a", topic, range(10)))
    stage.settled(topic)
    return _failing(stage, topic, 99)


@scenario(([1, 2, 3, 9], [(0, 6)]))
def a_partition_is_caught_up_when_its_open_transaction_has_ended(stage: Stage) -> Value:
    topic = stage.topic()
    stage.client.end_transaction(stage.prepared("a", topic, [1, 2, 3]))
    stage.settled(topic)
    part = TopicPartition(topic, 0)
    transaction = stage.prepared("c", topic, [9])

    def run(driven: Driven) -> Value:
        driven.until_end({0: 4})
        driven.reader.watch({part: 4})
        stage.client.end_transaction(transaction)
        driven.until_end({0: 6})
        driven.reader.watch({part: 6})
        driven.until_caught_up([(0, 6)])
        return driven.numbers[0], driven.caught_up

    return _read(stage, topic, run, {0: 0})


@scenario(({0: [1], 1: [2, 3, 4, 5]}, {0: 2, 1: 4}))
def partitions_are_added_and_paused_while_it_reads(stage: Stage) -> Value:
    """A pause takes effect with the reader's next round."""
    topic = stage.topic(2)
    keys = [_key_of(stage, topic, number) for number in (0, 1)]
    writer = stage.plain_writer(topic)
    stage.write(writer, [1], key=keys[0])

    def run(driven: Driven) -> Value:
        driven.until_end({0: 1})
        stage.write(writer, [2], key=keys[1])
        driven.reader.add([TopicPartition(topic, 1)])
        driven.until_end({0: 1, 1: 1})
        driven.reader.pause([TopicPartition(topic, 0)])
        for number in (3, 4):
            stage.write(writer, [number], key=keys[1])
            driven.until_end({0: 1, 1: number - 1})
        stage.write(writer, [9], key=keys[0])
        stage.write(writer, [5], key=keys[1])
        driven.until_end({0: 1, 1: 4})
        return driven.numbers, {part.partition: stage.offsets(part)[2] for part in stage.parts(topic)}

    return _read(stage, topic, run, {0: 0})


@scenario((list(range(300)), True))
def fetches_are_lost_on_the_way(stage: Stage) -> Value:
    topic = stage.topic()
    writer = stage.plain_writer(topic)
    stage.write(writer, range(100))
    before = stage.hurt
    fates = [Fate.LOSE_REQUEST, Fate.ARRIVE, Fate.LOSE_ANSWER, Fate.ARRIVE, Fate.LOSE_ANSWER]

    def run(driven: Driven) -> Value:
        driven.until_end({0: 100})
        stage.hurt_requests("fetch", fates)
        stage.write(writer, range(100, 200))
        driven.until_end({0: 200})
        stage.until(lambda: stage.hurt - before == 3, "three fetches are hurt")
        stage.hurt_requests("fetch", [])
        stage.write(writer, range(200, 300))
        driven.until_end({0: 300})
        return driven.numbers[0], stage.hurt > before

    return _read(stage, topic, run, {0: 0})
