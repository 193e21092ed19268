"""Freezes what is written today: `python -m tests.golden.freeze tests/golden/format-1` makes that folder.

Until the first release a change of the format replaces the set: remove the folder and freeze it again. From then on a
set never changes, and a change of the format needs a further one.

A pipeline is played in two lives. In between an aggregate is added, and the meaning of another changes with a word. The
last checkpoint has rows in flight, and builds on files of the one before it; so does the savepoint. Slot 0 keeps its
state in memory, slot 1 in RocksDB. Every step has its own files, so that the set has one of each kind of state.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from tests.golden.bench import BEGINS_MS, ENDS, PIPELINE, contents, feed_some, load_plan, play_on, rows_in_flight
from tidegate.checks.upgrade_check import derive_offline_facts
from tidegate.coordinator.entries import ClusterIdentity, Identity, Writer
from tidegate.coordinator.recovery import RestorePlan, decide_restore
from tidegate.coordinator.types import CompletedCheckpoint
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.ids import MAIN_CLUSTER, Attempt, CheckpointId, OperatorName, TopicPartition
from tidegate.journal.journal import Journal
from tidegate.journal.savepoint import write_savepoint
from tidegate.operators.builtin.kafka_source import SourceOperator
from tidegate.plan.clusters import derive_sink_clusters, derive_source_clusters
from tidegate.plan.graph import Plan
from tidegate.plan.state_fingerprints import derive_fingerprints
from tidegate.storage.base import Storage
from tidegate.storage.local import LocalStorage
from tidegate.task.elements import Barrier
from tidegate.task.messages import Completed, Deploy, Trigger
from tidegate.testing.feed import Log
from tidegate.testing.harness import Harness, HarnessSnapshot
from tidegate.testing.parts import MemoryStorage, VirtualClock

BEFORE = (
    ("sum(amount * 2)", "sum(amount)"),
    ("      added: max(small)\n", ""),
    ('    state: {keep: "the net is doubled"}\n', ""),
)
"""What the file was in the first life."""
BACKENDS = ("memory", "rocksdb")
"""Of the slots."""
WRITER = Writer("a1b2c3d4e5f60718", "golden", 1)
RETAINED = 2
SAVEPOINT = "savepoint-golden"


class Life(Harness):
    """One attempt, which takes several checkpoints."""

    def __init__(self, plan: Plan, log: Log, restored: RestorePlan, before: Life | None = None) -> None:
        self._restored = restored
        begun: HarnessSnapshot | None = None
        if before is not None:
            quiet = {source.name: frozenset[TopicPartition]() for source in plan.operators(SourceOperator)}
            begun = HarnessSnapshot(((),) * plan.parallelism, (quiet,) * plan.parallelism, {}, before.storage)
        super().__init__(plan, log, VirtualClock(BEGINS_MS), _fail, begun)

    @property
    def storage(self) -> MemoryStorage:
        """What the slots write to."""
        return self._storage

    def _deploy(self, slot: int, partitions: Any, snapshot: HarnessSnapshot | None) -> Deploy:  # as Harness
        deploy = super()._deploy(slot, partitions, None)
        settings = msgspec.structs.replace(
            deploy.settings, state_backend=BACKENDS[slot % len(BACKENDS)], checkpoints_retained=RETAINED
        )
        dealt = self._restored.slots[slot]
        positions = dealt.positions or deploy.positions
        return msgspec.structs.replace(deploy, settings=settings, states=dealt.states, positions=positions)

    def take(self, number: int, *, savepoint: bool = False, unaligned: bool = False) -> CompletedCheckpoint:
        """A checkpoint of what is in the pipeline now; the slots do not hear yet that it is complete."""
        self._acks = [[] for _ in self._slots]
        checkpoint, now_ms = CheckpointId(number), self.clock.now_ms()
        barrier = Barrier(checkpoint, now_ms, unaligned_after_ms=0 if unaligned else None, savepoint=savepoint)
        for deployment in self._slots:
            deployment.loop.on_trigger(Trigger(self.plan.pipeline, self._attempt, barrier))
        while self._waiting_for(len(self.plan.vertices)):
            assert self.turn() or not self._waiting_for(len(self.plan.vertices)), "the checkpoint did not complete"
        acks = list(chain.from_iterable(self._acks))
        return CompletedCheckpoint(
            id=checkpoint,
            attempt=self._attempt,
            triggered_at_ms=now_ms,
            completed_at_ms=now_ms + number,
            positions=tuple(one for ack in acks for one in ack.positions),
            states=tuple(one for ack in acks for one in ack.states),
            committables=(),
        )

    def confirm(self, checkpoint: CompletedCheckpoint) -> None:
        """The journal has it."""
        for deployment in self._slots:
            deployment.loop.on_completed(Completed(self._attempt, checkpoint.id, frozenset()))


def freeze(folder: Path) -> None:
    """Write the set. Raises FileExistsError, and writes nothing then."""
    folder.mkdir(parents=True)
    text = PIPELINE
    for now, former in BEFORE:
        assert now in text, now
        text = text.replace(now, former)
    plan = load_plan(2)
    files = LocalStorage(str(folder / "checkpoints"))
    saved = _play(load_plan(2, text), plan, files, LocalStorage(str(folder / "savepoints")))
    _write_expected(folder, plan, files, saved)


def _play(before: Plan, plan: Plan, files: Storage, savepoints: Storage) -> CompletedCheckpoint:
    """Both lives; the savepoint's checkpoint, with paths within the savepoint."""
    journal = Journal(files, WRITER, retained=RETAINED, id_reserve=10)
    log = Log(ENDS)
    feed_some(log, range(12))
    first = _begin(journal, before, log)
    first.settle()
    _complete(journal, first, first.take(_next_id(journal)), files)
    first.close()

    feed_some(log, range(12, 24))
    second = _begin(journal, plan, log, first)
    second.settle()
    number = _next_id(journal)
    _complete(journal, second, second.take(number), files)
    feed_some(log, range(24, 27))
    second.settle()
    savepoint = second.take(number + 1, savepoint=True)
    identity = journal.identity
    assert identity is not None
    written = write_savepoint(second.storage, savepoints, SAVEPOINT, savepoint, identity, "feedfacefeedface")
    feed_some(log, range(27, 30))
    second.turn()
    _complete(journal, second, second.take(number + 2, unaligned=True), files)
    second.close()
    journal.clean_up()
    return written.checkpoint


def _begin(journal: Journal, plan: Plan, log: Log, before: Life | None = None) -> Life:
    """As a start does: what is restored is decided by the journal, which is taken over, and remembers what was said."""
    state = journal.read()
    nothing = CompletedCheckpoint(CheckpointId(0), Attempt(0), 0, 0, (), (), ())
    identity = Identity(
        pipeline=plan.pipeline,
        clusters={MAIN_CLUSTER: ClusterIdentity("cluster", {"orders": "o", "lines": "l"})},
        sources=derive_source_clusters(plan),
        sinks=derive_sink_clusters(plan),
        parallelism=plan.parallelism,
        max_parallelism=plan.max_parallelism,
        fingerprint="print",
        fingerprints=derive_fingerprints(plan),
    )
    facts = derive_offline_facts(plan, state.newest_checkpoint or nothing, identity, CommandLineDirectives())
    restored = decide_restore(state, facts)
    life = Life(plan, log, restored, before)
    journal.take_over(identity, BEGINS_MS)
    journal.adopt(restored.upgrade)
    return life


def _next_id(journal: Journal) -> int:
    newest = journal.state.newest
    assert newest is not None
    return int(getattr(newest, "first_checkpoint", newest.reserved_to))


def _complete(journal: Journal, life: Life, checkpoint: CompletedCheckpoint, files: Storage) -> None:
    for handle in checkpoint.states:
        if not files.exists(handle.path):
            files.put(handle.path, life.storage.get(handle.path))
    journal.append_checkpoint(checkpoint)
    life.confirm(checkpoint)


# -- what is to be restored --------------------------------------------------------------------------------------------


def _write_expected(folder: Path, plan: Plan, files: Storage, saved: CompletedCheckpoint) -> None:
    """Read by today's code, of both backends, at another parallelism than that of the files."""
    newest = Journal(files, WRITER, retained=RETAINED, id_reserve=1).read().newest_checkpoint
    assert newest is not None
    three = load_plan(3)
    state = _content(three, newest, files)
    of_savepoint = _content(three, saved, LocalStorage(str(folder / "savepoints" / SAVEPOINT)))
    expected = {
        "state": state,
        "in the savepoint": {step: held for step, held in of_savepoint.items() if held != state[step]},
        "in flight": rows_in_flight(three, newest, files),
        "output": play_on(plan, newest, files),
    }
    (folder / "expected.json").write_text(_format(expected) + "\n", encoding="utf-8")


def _content(plan: Plan, checkpoint: CompletedCheckpoint, files: Storage) -> dict[OperatorName, Any]:
    found, other = (contents(plan, checkpoint, files, backend) for backend in BACKENDS)
    assert found == other
    return found


def _format(value: object, indent: int = 0) -> str:
    """JSON with objects that hold something on lines of their own, and one line for each entry of a list in them."""
    if not value or indent > 3 or not isinstance(value, Mapping | list):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        lines = [_format(one, 4) for one in value]
    else:
        lines = [f"{json.dumps(name, ensure_ascii=False)}: {_format(one, indent + 1)}" for name, one in value.items()]
    space = "\n" + " " * (indent + 1)
    ends = "[]" if isinstance(value, list) else "{}"
    return f"{ends[0]}{space}{(',' + space).join(lines)}{space[:-1]}{ends[1]}"


def _fail(line: str) -> None:
    raise AssertionError(f"a record was left out: {line}")


if __name__ == "__main__":
    freeze(Path(sys.argv[1]))
