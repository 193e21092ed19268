"""CPU time per row of the stages of windows behind an exchange, each alone in one process: no broker, no socket.

    python bench/stages.py [--rows 4096] [--batches 40] [--rounds 5] [--run 1000]

Orders of 190 bytes from four partitions, of which the source reads two, are counted and summed in tumbling windows of
ten seconds per `sku`, by two slots. `--run` is how many records of a partition follow each other. Prints the least of
the rounds in nanoseconds of CPU per row of each stage, and per row of the source.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import random
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

import polars as pl

from tests.native.record_bytes import Written, write_record
from tests.operators.driven import Collected
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition
from tidegate.native.library import Library, find_library
from tidegate.native.librdkafka import Librdkafka, Message, find_librdkafka
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.kinds.window import WindowOperator
from tidegate.operators.runtime import END_OF_TIME, LOWEST, OperatorRuntime
from tidegate.operators.spec import Slot
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.process.limits import collect_rarely
from tidegate.sources.kafka import KafkaSource, SourceBatch
from tidegate.sources.native_messages import Columns, Loans, NativeMessages, address_of, room_of
from tidegate.sources.positions import Positions
from tidegate.sources.reader import Pending
from tidegate.sources.watermarks import SourceWatermarks
from tidegate.state.backends import choose_backend
from tidegate.task.channels import InputChannel, LocalOutput, RemoteOutput
from tidegate.task.elements import Batch, Element, Watermark
from tidegate.task.outputs import EdgeOutput
from tidegate.task.wire import FrameReader, decode_element, write_frame

PIPELINE: Final = """
version: 1
name: stages
kafka: {bootstrap.servers: "localhost:1"}
parallelism: 2
checkpoints: {directory: "file:///tmp/stages", interval: 1s}
sources:
  orders:
    topic: orders
    format: json
    schema: {id: bigint, ts: bigint, customer: string, sku: string, qty: int, price: bigint, country: string,
      status: string, note: string}
    start: earliest
    event_time: ts
    watermark: {delay: 1ms, idle: caught-up}
steps:
  - {name: closed, from: orders, key: sku, window: {tumbling: 10s}, aggregate: {count: count(*), sum: sum(price)}}
sinks:
  result: {from: closed, topic: result, format: json, key: sku}
"""
PARTITIONS: Final = tuple(TopicPartition("orders", number) for number in range(2))
ORDERS_PER_S: Final = 10_000
"""Of event time."""
JITTER_MS: Final = 200
NO_LIMIT: Final = 1 << 62
T = TypeVar("T")


class Stage(NamedTuple):
    """What a stage has cost."""

    name: str
    cpu_ns: int
    rows: int


class Block(NamedTuple):
    """Records as librdkafka shows them. Everything that they point to is in `kept`."""

    records: NativeMessages
    kept: list[object]


def make_orders(batch: int, rows: int, run: int) -> list[tuple[int, int, bytes]]:
    """Returns partition, offset and value of the records of a batch: runs of one partition after the other."""
    rnd = random.Random(batch)
    made = []
    for row in range(rows):
        number = batch * rows + row
        sku = rnd.randrange(50) if rnd.random() < 0.1 else rnd.randrange(500)
        order = {
            "id": number,
            "ts": 1_767_225_600_000 + number * 1000 * 2 // ORDERS_PER_S - rnd.randrange(JITTER_MS + 1),
            "customer": f"c{rnd.randrange(10_000):07d}",
            "sku": f"s{sku:06d}",
            "qty": rnd.randrange(1, 10),
            "price": rnd.randrange(100, 20_000),
            "country": "DE",
            "status": rnd.choice(["paid", "open", "held"]),
            "note": "x" * rnd.randrange(56, 72),
        }
        made.append((row // run % len(PARTITIONS), number, json.dumps(order, separators=(",", ":")).encode()))
    return made


def make_block(library: Library, client: Librdkafka, orders: Sequence[tuple[int, int, bytes]]) -> Block:
    """Returns these records in memory that looks like librdkafka's."""
    written = [write_record(b"c0000000", value, ()) for _, _, value in orders]
    blocks = [ctypes.create_string_buffer(one.data, len(one.data)) for one in written]
    messages = [
        message_of(block, one, partition, offset)
        for block, one, (partition, offset, _) in zip(blocks, written, orders, strict=True)
    ]
    columns = Columns.of(len(messages))
    for row, message in enumerate(messages):
        columns.messages[row] = ctypes.addressof(message)
    others, counts = room_of("Q", len(messages)), room_of("q", 3)
    arrays = (others, columns.values, columns.lengths, columns.partitions, columns.offsets, columns.topics, counts)
    library.free.tg_scan(address_of(columns.messages), len(messages), *map(address_of, arrays))
    loans = Loans(library, cast("Any", OneTopic(client)))
    return Block(NativeMessages(loans, frozenset(), columns, counts[2]), [blocks, messages])


def message_of(block: ctypes.Array[ctypes.c_char], one: Written, partition: int, offset: int) -> Message:
    """Returns a message whose key and value are in the block."""
    at = ctypes.addressof(block)
    assert one.value is not None
    assert one.key is not None
    return Message(0, None, partition, at + one.value[0], one.value[1], at + one.key[0], one.key[1], offset, None)


def make_source(plan: Plan) -> tuple[KafkaSource, Positions]:
    """Returns a source without a client, and its positions."""
    [operator] = plan.operators(SourceOperator)
    source = KafkaSource(operator, (), SourcePositions(operator.name, ()), "stages", lambda: None)
    assert operator.timing is not None
    source.watermarks = SourceWatermarks(operator.timing, PARTITIONS, {}, bounded=False)
    return source, Positions(operator.name, dict.fromkeys(PARTITIONS, 0))


class OneTopic:
    """librdkafka for records that a test has made."""

    def __init__(self, client: Librdkafka) -> None:
        self.address = client.address

    def topic_name(self, _: int) -> bytes:
        """Returns the name of any topic."""
        return PARTITIONS[0].topic.encode()


class Clock:
    """CPU of the stages of one round."""

    def __init__(self) -> None:
        self.stages: dict[str, Stage] = {}

    def time(self, name: str, rows: int, work: Callable[[], T]) -> T:
        """Runs a part of a stage."""
        began = time.process_time_ns()
        done = work()
        spent = time.process_time_ns() - began
        before = self.stages.get(name, Stage(name, 0, 0))
        self.stages[name] = Stage(name, before.cpu_ns + spent, before.rows + rows)
        return done


def run_round(plan: Plan, blocks: Sequence[Block]) -> list[Stage]:
    """Passes each batch through all stages."""
    gc.collect()
    clock, out, reader = Clock(), Collected(), FrameReader()
    total = sum(len(block.records) for block in blocks)
    source, positions = make_source(plan)
    local, arrived = (InputChannel(credit_bytes=NO_LIMIT) for _ in range(2))
    remote = RemoteOutput(0, NO_LIMIT, NO_LIMIT)
    output = EdgeOutput(plan.edges[0], [LocalOutput(local), remote], plan.max_parallelism)
    head = next(one.nodes[0].operator for one in plan.vertices if one.id == plan.edges[0].downstream)
    assert isinstance(head, WindowOperator)
    window = head.open(Slot(plan.max_parallelism, choose_backend("memory", retained=1)))
    for block in blocks:
        rows = len(block.records)
        frame, mark = clock.time("source", rows, partial(read, source, positions, block))
        clock.time("exchange: split, encode", rows, partial(output.emit, frame))
        batches = [local.pop()]
        sent = rows - batches[0].frame.height  # type: ignore[union-attr]  # nothing else was sent
        clock.time("exchange: receive", sent, partial(receive, remote, reader, arrived))
        batches.append(arrived.pop())
        clock.time("window", rows, partial(aggregate, window, batches, mark, out))
    aggregate(window, (), END_OF_TIME, out)
    assert sum(int(batch["count"].sum()) for batch in out.batches) + window.late_rows == total
    return list(clock.stages.values())


def read(source: KafkaSource, positions: Positions, block: Block) -> tuple[pl.DataFrame, int]:
    """Returns the rows of a block, and the watermark after them."""
    records = NativeMessages(block.records._loans, frozenset(), block.records._all, block.records.size_bytes)  # noqa: SLF001  # without what is remembered
    batch, out = source._decode(Pending(records), positions), Collected()  # noqa: SLF001  # a source without a client
    assert isinstance(batch, SourceBatch)
    assert source.watermarks is not None
    source.watermarks.send_after(out)
    return batch.frame, max((one.time_ms for one in out.order if isinstance(one, Watermark)), default=LOWEST)


def receive(remote: RemoteOutput, reader: FrameReader, arrived: InputChannel) -> None:
    """Passes frames as a socket does: in pieces of a megabyte at most."""
    while (taken := remote.take()) is not None:
        kind, sequence, body = taken
        for part in write_frame(kind, 0, sequence, body):
            for start in range(0, len(part), 1 << 20):
                for frame in reader.feed(part[start : start + (1 << 20)]):
                    arrived.push(decode_element(frame))


def aggregate(window: OperatorRuntime, batches: Sequence[Element], mark: int, out: Collected) -> None:
    """Passes batches and a watermark."""
    for batch in batches:
        assert isinstance(batch, Batch)
        window.process(0, batch.frame, out)
    window.on_watermark(mark, out)
    while window.poll(NO_LIMIT, out):
        pass


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 4096), ("batches", 40), ("rounds", 5), ("run", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    library, client = find_library(), find_librdkafka()
    if not isinstance(library, Library) or not isinstance(client, Librdkafka):
        sys.exit(f"records are not read in place here: {library}, {client}")
    collect_rarely()
    plan = build_plan(parse_pipeline(PIPELINE, "stages.yaml", {}))
    blocks = [make_block(library, client, make_orders(at, given.rows, given.run)) for at in range(given.batches)]
    rounds = [run_round(plan, blocks) for _ in range(given.rounds)]
    total = 0.0
    for same in zip(*rounds, strict=True):
        best = min(same, key=lambda one: one.cpu_ns)
        total += best.cpu_ns / (given.rows * given.batches)
        print(f"{best.name:<30}{best.cpu_ns / best.rows:>8.0f} ns per row of its own")
    print(f"{'together':<30}{total:>8.0f} ns per row of the source")


if __name__ == "__main__":
    main()
