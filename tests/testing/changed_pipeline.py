"""Lives of one pipeline whose file changes between them: slots as in production, without Kafka and Spark.

What is restored, and under which name, is decided by the code that a start runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from tests.coordinator.values import ME
from tests.support.user_code import describe_here
from tidegate.checks.unfit_state import refuse_unfit_rows
from tidegate.checks.upgrade_check import Report, Target, check_upgrade, derive_offline_facts
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.entries import CheckpointEntry, Identity
from tidegate.coordinator.journal_state import EMPTY, JournalState
from tidegate.coordinator.recovery import RestorePlan, decide_restore, refuse_unfit
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.ids import Attempt, CheckpointId, JournalSequence, OperatorName, TopicPartition
from tidegate.journal.state_files import read_stored
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.build import build_plan
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.plan.upgrade_directives import give_up_columns
from tidegate.task.messages import Deploy
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness, HarnessSnapshot
from tidegate.testing.parts import MemoryStorage, VirtualClock

HEAD = """\
version: 1
name: shop
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere/shop}
"""
NOTHING = CommandLineDirectives()
RECORDS_MAX = 500
"""Of a topic, in all lives."""


class Restored(Harness):
    """A harness that begins as `restore` says."""

    def __init__(self, plan: Plan, log: Log, storage: MemoryStorage, restore: RestorePlan, backend: str) -> None:
        self._restore = restore
        self._backend = backend
        self.checkpoint = restore.first_checkpoint
        quiet = {source.name: frozenset[TopicPartition]() for source in plan.operators(SourceOperator)}
        begun = HarnessSnapshot(((),) * plan.parallelism, (quiet,) * plan.parallelism, {}, storage)
        super().__init__(plan, log, VirtualClock(1_000), lambda text: None, begun)

    def _deploy(self, slot: int, partitions: Any, snapshot: HarnessSnapshot | None) -> Deploy:
        deploy = super()._deploy(slot, partitions, None)
        settings = msgspec.structs.replace(deploy.settings, state_backend=self._backend)
        deploy = msgspec.structs.replace(deploy, settings=settings)
        dealt, upgrade = self._restore.slots[slot], self._restore.upgrade
        known = {one.source for one in dealt.positions}
        return msgspec.structs.replace(
            deploy,
            states=dealt.states,
            positions=(*dealt.positions, *(one for one in deploy.positions if one.source not in known)),
            renamed=upgrade.renamed,
            former_edges=upgrade.edges,
            base=self._restore.base,
        )


def plan_of(text: str, modules: Mapping[str, str]) -> Plan:
    """The plan of a file and the user's modules. Raises ConfigErrors."""
    return build_plan(describe_here(parse_pipeline(HEAD + text, "shop.yaml", {}), modules))


class Life:
    """One attempt of a file. `topics` are those of all lives, of one partition each, and their records stay."""

    def __init__(
        self,
        text: str,
        before: Life | None = None,
        command_line: CommandLineDirectives = NOTHING,
        *,
        backend: str = "memory",
        size: int = 500,
        modules: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Raises RestoreRefused and others, as a start. `modules`: the user's, by path."""
        self.plan = give_up_columns(plan_of(text, modules), command_line.columns)
        self.state: JournalState = EMPTY if before is None else before.state
        self.storage = MemoryStorage()
        topics = {topic for source in self.plan.operators(SourceOperator) for topic in source.topics}
        ends = {TopicPartition(topic, 0): RECORDS_MAX for topic in topics}
        self._log = Log(ends)
        if before is not None:
            for name in before.storage.list(""):
                self.storage.put(name, before.storage.get(name))
            self._log.partitions |= {part: list(records) for part, records in before._log.partitions.items()}
            self._log.ends = {**before._log.ends, **ends}
        self.restore = self._decide(command_line)
        applied, begun = self.restore.upgrade.applied_directives, self.restore.upgrade.begun
        self.identity = Identity(
            "shop",
            {},
            self.plan.parallelism,
            self.plan.max_parallelism,
            "",
            derive_fingerprints(self.plan),
            applied,
            begun,
            self.plan.code,
        )
        self._harness = Restored(self.plan, self._log, self.storage, self.restore, backend)

    def _decide(self, command_line: CommandLineDirectives) -> RestorePlan:
        checkpoint, identity = self.state.newest_checkpoint, self.state.identity
        empty = CompletedCheckpoint(CheckpointId(0), Attempt(0), 0, 0, (), (), ())
        old = Identity("shop", {}, self.plan.parallelism, self.plan.max_parallelism)
        facts = derive_offline_facts(self.plan, checkpoint or empty, identity or old, command_line)
        if checkpoint is not None and identity is not None:
            upgrade = refuse_unfit(checkpoint, identity, facts, read_stored(self.storage, checkpoint.states))
            refuse_unfit_rows(self.storage, self.plan, checkpoint.states, upgrade)
        return decide_restore(self.state, facts)

    def produce(self, topic: str, *values: Mapping[str, object]) -> None:
        """Records, processed as far as they can be."""
        for value in values:
            at = TopicPartition(topic, 0)
            self._log.append(at, None, json.dumps(value).encode(), 1_000 + len(self._log.partitions[at]))
        self._harness.settle()

    def rest(self, milliseconds: int) -> None:
        """Time passes."""
        self._harness.advance(self._harness.clock.time_ms + milliseconds)

    def hurry(self, topic: str, *values: Mapping[str, object]) -> None:
        """Records that are still on their way when the checkpoint is taken."""
        for value in values:
            at = TopicPartition(topic, 0)
            self._log.append(at, None, json.dumps(value).encode(), 1_000 + len(self._log.partitions[at]))
        self._harness.turn()

    def checkpoint(self) -> Life:
        """A completed checkpoint in the journal; then the attempt ends."""
        snapshot = self._harness.snapshot()
        acks = [ack for of in snapshot.acks for ack in of]
        number = CheckpointId(1 if not self.state.retained else self.state.retained[-1].checkpoint.id + 1)
        self.written = {name: [_plain(one.value) for one in records] for name, records in snapshot.written.items()}
        checkpoint = CompletedCheckpoint(
            number,
            Attempt(1),
            0,
            0,
            tuple(one for ack in acks for one in ack.positions),
            tuple(one for ack in acks for one in ack.states),
            (),
        )
        sequence = self.state.next_sequence
        entry = CheckpointEntry(
            format_version=1,
            sequence=sequence,
            floor=JournalSequence(0),
            attempt=Attempt(1),
            writer=ME,
            reserved_to=number,
            identity=self.identity,
            at_ms=0,
            journal="j",
            checkpoint=checkpoint,
        )
        self.state = self.state.after(entry)
        self._harness.close()
        return self

    def output(self, sink: str) -> list[Any]:
        """What a sink has written in this life before its checkpoint."""
        return self.written.get(OperatorName(sink), [])

    def check(
        self,
        text: str,
        command_line: CommandLineDirectives = NOTHING,
        *,
        migrate: str = "",
        modules: Mapping[str, str] = MappingProxyType({}),
    ) -> Report:
        """What `upgrade` says of another file."""
        plan = plan_of(text, modules)
        newest, identity = self.state.newest_checkpoint, self.state.identity
        assert newest is not None
        assert identity is not None
        target = Target(f"checkpoint {newest.id}", newest, identity)
        return check_upgrade(plan, target, self.storage, command_line, migrate=migrate)


def _plain(value: bytes | None) -> object:
    return None if value is None else json.loads(value)


def last(rows: Sequence[dict[str, Any]], key: str, column: str) -> dict[Any, Any]:
    """The newest value of a column by key."""
    return {row[key]: row[column] for row in rows}
