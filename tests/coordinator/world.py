"""The world around the coordinator in test_machine.py: the edge that carries instructions out, sinks, a broker.

A source hands out record numbers; two sink subtasks prepare one transaction per interval, repeat what is not confirmed,
and build their state on that of the newest confirmed checkpoint; a broker remembers what was committed and aborted.
"""

from __future__ import annotations

from collections import deque

import hypothesis.strategies as st
import pytest
from hypothesis.stateful import RuleBasedStateMachine, initialize

from tests.coordinator.fake_storage import FakeStorage, Fault, SharedObjects
from tests.coordinator.values import IDENTITY, completed
from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.events import (
    AppendCheckpoint,
    CommitTransactions,
    DiscardStates,
    Event,
    NotifyCompleted,
    SendTrigger,
    SubtaskRunning,
    TriggerRefusal,
    TriggerRefused,
    WriteSavepoint,
)
from tidegate.coordinator.history import CheckpointHistory
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.ledger import key_of
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, RestoreRefused, decide_restore
from tidegate.coordinator.restore_target import (
    TransactionStatus,
    decide_fallback,
    derive_asked,
    derive_candidates,
    derive_chosen,
    find_retained,
    validate_restore_target,
)
from tidegate.coordinator.triggers import ACTIVE, CheckpointPolicy
from tidegate.coordinator.types import Ack, CompletedCheckpoint, Job, StateHandle
from tidegate.ids import (
    Attempt,
    CheckpointId,
    OperatorName,
    SlotIndex,
    SubtaskId,
    TopicPartition,
    TransactionalId,
    VertexId,
)
from tidegate.journal.journal import AppendUnsettled, Journal
from tidegate.storage.base import StorageError

SOURCE = SubtaskId(VertexId("orders"), SlotIndex(0))
SINKS = tuple(SubtaskId(VertexId("out"), SlotIndex(slot)) for slot in range(2))
ALL = frozenset({SOURCE, *SINKS})
INPUT = TopicPartition("orders", 0)
POOL = 4
INCREMENTS_MAX = 3
FAULTS = [
    [],
    [],
    [],
    [Fault.REFUSED],
    [Fault.UNKNOWN],
    [Fault.BLIND],
    [Fault.REFUSED] * 2,
    [Fault.UNKNOWN] * 2,
    [Fault.LATE] * 2,
]


class SinkModel:
    """One sink subtask of one attempt: prepares, repeats, confirms, and uses an id again only when allowed."""

    def __init__(self, subtask: SubtaskId, attempt: Attempt, position: int, producers: list[int]) -> None:
        self.subtask, self.attempt, self.position, self.producers = subtask, attempt, position, producers
        self.last_acked = 0
        self.free = deque(TransactionalId(f"shop.out.{subtask.index}.{attempt}-j.{slot}") for slot in range(POOL))
        self.unconfirmed: list[Committable] = []
        self.inbox: deque[NotifyCompleted] = deque()
        self.base: tuple[StateHandle, ...] = ()
        """State of the newest confirmed checkpoint, which increments build on."""

    def acknowledge(self, checkpoint: CheckpointId, position: int, state: StateHandle) -> Ack:
        self.last_acked = checkpoint
        full = checkpoint % 2 == 0 or len(self.base) >= INCREMENTS_MAX
        states = (state,) if full else (*self.base, state)
        if position > self.position:
            self.producers[0] += 1
            part = WrittenRange(
                TopicPartition("out", self.subtask.index), self.position, position, position - self.position
            )
            self.unconfirmed.append(
                Committable(
                    OperatorName("out"), self.subtask.index, self.attempt, checkpoint, self.free.popleft(),
                    self.producers[0], 0, (part,), opened_at_ms=10**15, timeout_ms=1,
                )
            )  # fmt: skip
            self.position = position
        return Ack(self.attempt, checkpoint, self.subtask, states=states, committables=tuple(self.unconfirmed))

    def read_one(self) -> None:
        note = self.inbox.popleft()
        self.base = tuple(state for state in note.checkpoint.states if state.subtask == self.subtask.index)
        self.unconfirmed = [one for one in self.unconfirmed if one.checkpoint > note.checkpoint.id]
        mine = f"shop.out.{self.subtask.index}.{self.attempt}-j."
        self.free.extendleft(sorted(name for name in note.released if name.startswith(mine)))


class WorldBase(RuleBasedStateMachine):
    """Everything but the rules and what must hold."""

    @initialize(
        max_concurrent=st.integers(1, 3),
        tolerable=st.integers(0, 3),
        retained=st.integers(1, 3),
        pause=st.integers(0, 50),
    )
    def begin(self, max_concurrent: int, tolerable: int, retained: int, pause: int) -> None:
        self.settings = CheckpointPolicy(
            interval_ms=100, timeout_ms=450, min_pause_ms=pause, max_concurrent=max_concurrent,
            tolerable_failures=tolerable, retained=retained,
        )  # fmt: skip
        self.shared = SharedObjects()
        self.now_ms = 0
        self.daemons = 0
        self.producers = [0]
        self.committed: dict[int, Committable] = {}
        self.dead: set[int] = set()
        self.all_prepared: dict[int, Committable] = {}
        self.decided_ids: list[int] = []
        self.zombies: list[Journal] = []
        self.old_acks: list[Ack] = []
        self.start_daemon()
        self.start_attempt([])

    # The edge: what carries the instructions out

    def start_daemon(self) -> None:
        self.daemons += 1
        self.storage = FakeStorage(self.shared)
        writer = Writer(f"token-{self.daemons}", "host", self.daemons)
        self.journal = Journal(
            self.storage, writer, retained=self.settings.retained, id_reserve=self.settings.id_reserve
        )

    def take_over(self, faults: list[Fault]) -> JournalState:
        """A storage that fails is asked again, as the daemon does at its next start of an attempt."""
        self.storage.faults = list(faults)
        for _ in range(len(faults)):
            try:
                return self.journal.take_over(IDENTITY, self.now_ms)
            except (StorageError, AppendUnsettled):
                with pytest.raises(RuntimeError, match="does not own the journal"):
                    self.journal.append_checkpoint(completed(1, attempt=self.journal.state.attempt))
        return self.journal.take_over(IDENTITY, self.now_ms)

    def restore_another(self, plan: RestorePlan, another: str) -> RestorePlan:
        """Damage makes the newest unusable, or somebody chooses a checkpoint; refused where it is not consistent."""
        state = self.journal.state
        try:
            if another == "damage":
                entry = next(iter(derive_candidates(state)), None)
                if entry is None:
                    return plan
                statuses = {key_of(one): self.fate(one) for one in derive_asked(state, entry, IDENTITY)}
                found = decide_fallback(state, entry, statuses, ["broken"], IDENTITY)
                self.dead |= {one.producer_id for one in found.abort}
                chosen = found.chosen
            else:
                target = find_retained(state, state.retained[0].checkpoint.id)
                if not validate_restore_target(state, target, repeat_output=False):
                    return plan
                self.commit(plan.committables)
                chosen = derive_chosen(target, IDENTITY)
        except RestoreRefused:
            return plan
        self.journal.append_restored(plan, chosen, self.now_ms)
        return decide_restore(self.journal.state, self.facts)

    def fate(self, one: Committable) -> TransactionStatus:
        if one.producer_id in self.committed:
            return TransactionStatus.COMMITTED
        return TransactionStatus.ABORTED if one.producer_id in self.dead else TransactionStatus.OPEN

    def start_attempt(self, faults: list[Fault], another: str = "") -> None:
        self.facts = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 1}}, frozenset({OperatorName("out")}))
        self.take_over(faults)
        assert not self.storage.faults, "a fault did not happen"
        plan = decide_restore(self.journal.state, self.facts)
        if another and len(self.journal.state.retained) > 1:
            plan = self.restore_another(plan, another)
        state = self.journal.state
        permit = self.journal.recovery_permit(plan)
        if permit is not None:
            self.commit(permit.committables)
        self.dead |= self.all_prepared.keys() - self.committed.keys()
        self.journal.sweep_orphans()
        self.journal.clean_up()
        self.attempt = plan.attempt
        self.position = self.restored = plan.slots[0].positions[0].next_offsets[0][1] if plan.checkpoint else 0
        self.check_complete(self.restored)
        self.positions: dict[CheckpointId, int] = {}
        self.sinks = [SinkModel(subtask, self.attempt, self.restored, self.producers) for subtask in SINKS]
        self.source_acked = 0
        self.append: CompletedCheckpoint | None = None
        self.permits: dict[CheckpointId, CommitPermit] = {}
        self.commits: list[CheckpointId] = []
        self.writing: list[CompletedCheckpoint] = []
        for sink in self.sinks:
            sink.base = tuple(s for s in (plan.checkpoint.states if plan.checkpoint else ())
                              if s.subtask == sink.subtask.index)  # fmt: skip
        job = Job(
            attempt=self.attempt,
            sources=frozenset({SOURCE}),
            subtasks=ALL,
            first_checkpoint=plan.first_checkpoint,
            reserved_to=state.reserved_to,
            retained=tuple(entry.checkpoint for entry in state.retained),
        )
        self.coordinator = Coordinator(self.settings, job)
        self.history = CheckpointHistory()
        for subtask in sorted(ALL):
            self.feed(SubtaskRunning(subtask, self.now_ms))

    def feed(self, event: Event) -> None:
        instructions = self.coordinator.handle(event)
        self.history.observe(event, instructions)
        for instruction in instructions:
            match instruction:
                case SendTrigger(checkpoint=checkpoint):
                    self.positions[checkpoint] = self.position
                case AppendCheckpoint(checkpoint=checkpoint):
                    assert self.append is None, "two appends at a time"
                    self.append = checkpoint
                case CommitTransactions(checkpoint=checkpoint):
                    assert checkpoint in self.permits, "a commit without a permit"
                    self.commits.append(checkpoint)
                case NotifyCompleted():
                    listed = instruction.checkpoint.committables
                    assert all(one.producer_id in self.committed for one in listed), "completed before it is committed"
                    for sink in self.sinks:
                        sink.inbox.append(instruction)
                    self.journal.clean_up(instruction.needed)
                case WriteSavepoint(checkpoint=checkpoint):
                    self.check_committed_to(self.positions[checkpoint.id])
                    self.writing.append(checkpoint)
                case DiscardStates(handles=handles):
                    for handle in handles:
                        self.storage.delete(handle.path)
                case TriggerRefused(refusal=refusal, properties=properties) if not properties.savepoint:
                    assert refusal is not TriggerRefusal.NO_ID, "the reserve is too small"
                case _:
                    pass

    def commit(self, committables: tuple[Committable, ...]) -> None:
        for one in committables:
            assert one.producer_id not in self.dead, f"{one} was aborted by a recovery, and is committed now"
            self.committed[one.producer_id] = one

    def check_complete(self, position: int) -> None:
        """Every record below the restored position is committed once, by each sink subtask."""
        for subtask in SINKS:
            ranges = sorted((o.written[0].start_offset, o.written[0].end_offset) for o in self.committed.values()
                            if o.subtask == subtask.index)  # fmt: skip
            assert [start for start, _ in ranges] == [0, *(end for _, end in ranges)][: len(ranges)], ranges
            assert (ranges[-1][1] if ranges else 0) == position, (ranges, position)

    def check_committed_to(self, position: int) -> None:
        """A savepoint may be restored anywhere and at any time, so all output before it is committed, without a gap."""
        for subtask in SINKS:
            end = 0
            for one in sorted(self.committed.values(), key=lambda o: o.written[0].start_offset):
                if one.subtask == subtask.index and one.written[0].start_offset == end:
                    end = one.written[0].end_offset
            assert end >= position, f"a savepoint at {position} is written, output is committed to {end}"

    def read_journal(self) -> JournalState:
        """As a stranger sees it."""
        return Journal(FakeStorage(self.shared), Writer("x", "x", 0), retained=1, id_reserve=1).read()

    @property
    def alive(self) -> bool:
        return self.coordinator.phase in ACTIVE
