"""A pipeline file that is changed between starts, its checkpoint directory, and starts that end before Spark."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from tests.support.clusters import alone
from tidegate.checks.pipeline_file import check_file, plan_file
from tidegate.cli.doctor import find_problems
from tidegate.cli.run import run_pipeline
from tidegate.config.load import read_pipeline
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions, StateHandle
from tidegate.daemon.kafka_edge import KafkaEdge
from tidegate.daemon.preflight import read_facts
from tidegate.daemon.restore_point import NO_OPTIONS, StartOptions
from tidegate.daemon.services import Stores
from tidegate.ids import CheckpointId, SlotIndex, TopicPartition
from tidegate.journal.journal import Journal
from tidegate.journal.state_files import derive_head
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.plan.build import build_plan
from tidegate.spark.master import SparkUnavailable
from tidegate.state.snapshot import encode_snapshot
from tidegate.storage.checksum import seal
from tidegate.storage.local import LocalStorage
from tidegate.storage.names import state_name

Document = dict[str, Any]
SPARK = -1
"""Instead of an exit code: the `run` has come as far as Spark."""


AGGREGATES = {"seen": "count(*)", "least": "min(n)"}


class Shop:
    """A pipeline file that is changed between starts, and its checkpoint directory."""

    def __init__(self, directory: Path, bootstrap: str, orders: str, out: str) -> None:
        self.directory = directory
        self.bootstrap = bootstrap
        self.reached = False
        self.document: Document = {
            "version": 1,
            "name": directory.name,
            "kafka": {"bootstrap.servers": bootstrap},
            "checkpoints": {"directory": str(directory / "checkpoints")},
            "http": {"port": 0},
            "logging": {"format": "json"},
            "sources": {
                "orders": {"topic": orders, "schema": {"id": "bigint", "sku": "string", "n": "int"}},
            },
            "steps": [{"name": "totals", "from": "orders", "key": "sku", "aggregate": AGGREGATES}],
            "sinks": {"out": {"from": "totals", "topic": out}},
        }

    def write(self) -> Path:
        """The file as it is now."""
        path = self.directory / "pipeline.yaml"
        path.write_text(json.dumps(self.document, indent=1))
        return path

    def validate(self, options: StartOptions = NO_OPTIONS) -> tuple[int, list[str]]:
        """Exit code and errors of `validate --connect`."""
        path = self.write()
        assert not [problem for problem in check_file(path, os.environ)[1] if problem.severity == "error"]
        loaded = read_pipeline(path, os.environ)
        problems, code = find_problems(loaded, build_plan(loaded), options)
        return code, [str(problem) for problem in problems if problem.severity == "error"]

    def run(self, options: StartOptions | None = None) -> int:
        """Exit code of `run`, or SPARK."""
        self.reached = False
        code = run_pipeline(self.write(), options)
        return SPARK if self.reached else code

    def start_spark(self, _parallelism: int) -> None:
        """Instead of Spark's own."""
        self.reached = True
        raise SparkUnavailable("Spark was about to be started")

    def checkpoint(self, at: int = 0, **identity: Any) -> None:
        """A checkpoint of the pipeline as it is now, at this offset, or of one with another identity."""
        asyncio.run(self._checkpoint(identity, at))

    async def _checkpoint(self, identity: Mapping[str, Any], at: int = 0) -> None:
        _, plan = plan_file(self.write(), os.environ)
        storage = LocalStorage(str(self.document["checkpoints"]["directory"]))
        journal = Journal(storage, Writer("test", "test", 1), retained=3, id_reserve=10)
        kafka = alone(KafkaEdge({"bootstrap.servers": self.bootstrap}))
        await kafka.open()
        with ThreadPoolExecutor(1) as thread:
            facts = await read_facts(plan, Stores(storage, journal, thread, kafka), journal.state)
        await kafka.close()
        number = journal.take_over(msgspec.structs.replace(facts.identity, **identity), 0).reserved_to
        states = []
        for operator in plan.operators(AggregateOperator):
            (totals,) = operator.states(plan.max_parallelism)
            data = seal(encode_snapshot(operator.name, totals, {}))
            name = state_name(CheckpointId(number), operator.name, SlotIndex(0))
            storage.put(name, data)
            digest, head = hashlib.sha256(data).hexdigest(), derive_head(data)
            handle = StateHandle(operator.name, SlotIndex(0), name, len(data), digest, *head, state=totals.name)
            states.append(handle)
        positions = tuple(
            SourcePositions(source.name, tuple((TopicPartition(topic, 0), at) for topic in source.topics))
            for source in plan.operators(SourceOperator)
        )
        one = CompletedCheckpoint(CheckpointId(number), journal.state.attempt, 0, 0, positions, tuple(states), ())
        journal.append_checkpoint(one)


def set_in(*path: Any, value: Any) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        *owners, last = path
        for owner in owners:
            document = document[owner]
        document[last] = value

    return change
