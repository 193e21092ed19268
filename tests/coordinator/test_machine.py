"""Coordinator, journal and recovery together against every order of events that hypothesis can think of.

The world around them is a model: one source that hands out record numbers, two sink subtasks that prepare one
transaction per interval and repeat what is not confirmed, a broker that remembers which transactions were committed,
and a storage with lost, late and unconfirmed writes. Daemons crash, zombies wake up. What must hold is exactly once:
committed transactions never overlap, and after a recovery they cover every record below the restored position.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.coordinator.fake_storage import FakeStorage, Fault, SharedObjects
from tests.coordinator.values import IDENTITY, completed
from tidegate.coordinator.coordinator import Coordinator, Job
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.events import (
    AckReceived,
    AppendCheckpoint,
    AttemptEnded,
    CommitTransactions,
    DeclineReceived,
    DiscardStates,
    Event,
    Journaled,
    JournalFailed,
    NotifyCompleted,
    SendTrigger,
    SubtaskRunning,
    Tick,
    TransactionsEnded,
    TriggerFailed,
    TriggerRefusal,
    TriggerRefused,
    TriggerRequested,
)
from tidegate.coordinator.journal import AppendUnsettled, Journal
from tidegate.coordinator.journal_state import JournalState
from tidegate.coordinator.permit import CommitPermit
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.triggers import ACTIVE, CheckpointSettings
from tidegate.coordinator.types import (
    Ack,
    Committable,
    CompletedCheckpoint,
    Decline,
    SourcePositions,
    StateHandle,
    WrittenRange,
)
from tidegate.errors import Superseded
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
from tidegate.storage.base import StorageError
from tidegate.storage.names import state_name

SOURCE = SubtaskId(VertexId("orders"), SlotIndex(0))
SINKS = tuple(SubtaskId(VertexId("out"), SlotIndex(slot)) for slot in range(2))
ALL = frozenset({SOURCE, *SINKS})
INPUT = TopicPartition("orders", 0)
POOL = 4
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
    """One sink subtask of one attempt: prepares, repeats, confirms, and uses an id again only when told so."""

    def __init__(self, subtask: SubtaskId, attempt: Attempt, position: int, producers: list[int]) -> None:
        self.subtask, self.attempt, self.position, self.producers = subtask, attempt, position, producers
        self.last_acked = 0
        self.free = deque(TransactionalId(f"shop.out.{subtask.index}.{attempt}.{slot}") for slot in range(POOL))
        self.unconfirmed: list[Committable] = []
        self.inbox: deque[NotifyCompleted] = deque()

    def acknowledge(self, checkpoint: CheckpointId, position: int, state: StateHandle) -> Ack:
        self.last_acked = checkpoint
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
        return Ack(self.attempt, checkpoint, self.subtask, states=(state,), committables=tuple(self.unconfirmed))

    def read_one(self) -> None:
        note = self.inbox.popleft()
        self.unconfirmed = [one for one in self.unconfirmed if one.checkpoint > note.checkpoint.id]
        mine = f"shop.out.{self.subtask.index}.{self.attempt}."
        self.free.extendleft(sorted(name for name in note.released if name.startswith(mine)))


class World(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        max_concurrent=st.integers(1, 3),
        tolerable=st.integers(0, 3),
        retained=st.integers(1, 3),
        pause=st.integers(0, 50),
    )
    def begin(self, max_concurrent: int, tolerable: int, retained: int, pause: int) -> None:
        self.settings = CheckpointSettings(
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
                with pytest.raises(RuntimeError, match="belongs to nobody"):
                    self.journal.append_checkpoint(completed(1, attempt=self.journal.state.attempt))
        return self.journal.take_over(IDENTITY, self.now_ms)

    def start_attempt(self, faults: list[Fault]) -> None:
        facts = RestoreFacts(IDENTITY, {OperatorName("orders"): {"orders": 1}}, frozenset({OperatorName("out")}))
        state = self.take_over(faults)
        assert not self.storage.faults, "a fault did not happen"
        plan = decide_restore(state, facts)
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
        job = Job(
            attempt=self.attempt,
            sources=frozenset({SOURCE}),
            subtasks=ALL,
            first_checkpoint=plan.first_checkpoint,
            reserved_to=state.reserved_to,
            retained=tuple(entry.checkpoint for entry in state.retained),
        )
        self.coordinator = Coordinator(self.settings, job)
        for subtask in sorted(ALL):
            self.feed(SubtaskRunning(subtask, self.now_ms))

    def feed(self, event: Event) -> None:
        for instruction in self.coordinator.handle(event):
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
                    self.journal.clean_up()
                case DiscardStates(handles=handles):
                    for handle in handles:
                        self.storage.delete(handle.path)
                case TriggerRefused(refusal=refusal):
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

    def read_journal(self) -> JournalState:
        """As a stranger sees it."""
        return Journal(FakeStorage(self.shared), Writer("x", "x", 0), retained=1, id_reserve=1).read()

    @property
    def alive(self) -> bool:
        return self.coordinator.phase in ACTIVE

    # What may happen

    @rule(by=st.integers(1, 300))
    def time_passes(self, by: int) -> None:
        self.now_ms += by
        self.feed(Tick(self.now_ms))

    @precondition(lambda self: self.alive)
    @rule()
    def the_timer_rings(self) -> None:
        deadline = self.coordinator.next_deadline_ms()
        if deadline is None:
            return
        self.now_ms = max(self.now_ms, deadline)
        self.feed(Tick(self.now_ms))
        following = self.coordinator.next_deadline_ms()
        assert following is None or following > self.now_ms, "the timer would ring for ever"

    @rule(records=st.integers(1, 3))
    def records_arrive(self, records: int) -> None:
        self.position += records

    @precondition(lambda self: self.alive)
    @rule(kind=st.integers(0, 9))
    def somebody_asks_for_a_checkpoint(self, kind: int) -> None:
        final = kind == 0
        if final or len(self.coordinator.under_way) < self.settings.max_concurrent:
            self.feed(TriggerRequested(self.now_ms, final=final))

    def acknowledge(self, who: int, checkpoint: CheckpointId) -> None:
        """0 and 1 are the sinks, 2 the source. A subtask answers in order and may leave a checkpoint out."""
        last = self.source_acked if who == 2 else self.sinks[who].last_acked
        if checkpoint <= last or checkpoint not in self.positions or (who < 2 and not self.sinks[who].free):
            return
        if who == 2:
            self.source_acked = checkpoint
            part = SourcePositions(OperatorName("orders"), ((INPUT, self.positions[checkpoint]),))
            ack = Ack(self.attempt, checkpoint, SOURCE, positions=(part,))
        else:
            path = state_name(checkpoint, OperatorName("out"), SlotIndex(who))
            self.storage.put(path, b"state")
            handle = StateHandle(OperatorName("out"), SlotIndex(who), path, 5, "00")
            ack = self.sinks[who].acknowledge(checkpoint, self.positions[checkpoint], handle)
            for one in ack.committables:
                listed = self.journal.state.committables
                clash = [x for x in listed if x.transactional_id == one.transactional_id and x != one]
                assert not clash, "an id is used again while the journal lists its last transaction"
                self.all_prepared[one.producer_id] = one
        self.old_acks.append(ack)
        self.feed(AckReceived(ack, self.now_ms))

    @precondition(lambda self: bool(self.positions))
    @rule(back=st.integers(0, 2), who=st.permutations(range(3)), count=st.integers(1, 3))
    def subtasks_acknowledge(self, back: int, who: list[int], count: int) -> None:
        checkpoint = sorted(self.positions)[-min(back + 1, len(self.positions))]
        for number in who[:count]:
            self.acknowledge(number, checkpoint)

    @precondition(lambda self: self.alive)
    @rule(
        records=st.integers(0, 2),
        who=st.permutations(range(3)),
        faults=st.sampled_from(FAULTS),
        stop_at=st.sampled_from(["acks", "journal", "commit", "mail", "mail"]),
        rounds=st.integers(0, 2),
    )
    def checkpoints_go_through(
        self, records: int, who: list[int], faults: list[Fault], stop_at: str, rounds: int
    ) -> None:
        """Deep states are many lucky steps away; this takes most of them at once, and stops somewhere."""
        for _ in range(rounds):
            self.run_checkpoint(records, who, [], "mail")
        self.run_checkpoint(records, who, faults, stop_at)

    def run_checkpoint(self, records: int, who: list[int], faults: list[Fault], stop_at: str) -> None:
        self.position += records
        self.now_ms += 10
        if not self.coordinator.under_way:
            self.feed(TriggerRequested(self.now_ms))
        for number in who:
            if self.coordinator.under_way:
                self.acknowledge(number, self.coordinator.under_way[-1])
        if stop_at != "acks" and self.append is not None:
            self.write_journal(faults)
        if stop_at in {"commit", "mail"}:
            while self.commits:
                self.end_transactions(self.commits[0], part=False)
        if stop_at == "mail":
            for sink in self.sinks:
                while sink.inbox:
                    sink.read_one()

    @precondition(lambda self: bool(self.old_acks))
    @rule(data=st.data())
    def an_ack_arrives_once_more(self, data: st.DataObject) -> None:
        self.feed(AckReceived(data.draw(st.sampled_from(self.old_acks)), self.now_ms))

    @precondition(lambda self: bool(self.positions))
    @rule(data=st.data(), lost=st.booleans())
    def a_checkpoint_fails(self, data: st.DataObject, lost: bool) -> None:
        checkpoint = data.draw(st.sampled_from(sorted(self.positions)))
        if lost:
            self.feed(TriggerFailed(checkpoint, "lost", self.now_ms))
        else:
            self.feed(DeclineReceived(Decline(self.attempt, checkpoint, SINKS[0], "cannot"), self.now_ms))

    @precondition(lambda self: self.append is not None)
    @rule(faults=st.sampled_from(FAULTS))
    def the_journal_is_written(self, faults: list[Fault]) -> None:
        self.write_journal(faults)

    def write_journal(self, faults: list[Fault]) -> None:
        checkpoint, self.append = self.append, None
        assert checkpoint is not None
        self.storage.faults = list(faults)
        try:
            appended = self.journal.append_checkpoint(checkpoint)
        except (StorageError, AppendUnsettled) as failure:
            settled = not isinstance(failure, AppendUnsettled)
            self.feed(JournalFailed(checkpoint.id, failure.message, self.now_ms, settled=settled))
        else:
            self.permits[checkpoint.id] = appended.permit
            self.check_nothing_is_forgotten(checkpoint)
            self.feed(Journaled(checkpoint.id, appended.reserved_to, self.now_ms))
        assert not self.storage.faults or faults[0] is Fault.REFUSED
        self.storage.faults = []

    def check_nothing_is_forgotten(self, checkpoint: CompletedCheckpoint) -> None:
        listed = {one.producer_id for one in checkpoint.committables}
        for one in self.all_prepared.values():
            if one.attempt == self.attempt and one.checkpoint <= checkpoint.id:
                assert one.producer_id in listed or one.producer_id in self.committed, f"{one} is forgotten"

    @precondition(lambda self: bool(self.commits))
    @rule(data=st.data(), part=st.booleans())
    def the_committer_works(self, data: st.DataObject, part: bool) -> None:
        self.end_transactions(data.draw(st.sampled_from(self.commits)), part)

    def end_transactions(self, checkpoint: CheckpointId, part: bool) -> None:
        committables = self.permits[checkpoint].committables
        if part:
            committables = committables[:1]
        else:
            self.commits.remove(checkpoint)
        self.commit(committables)
        self.feed(TransactionsEnded(checkpoint, committables, self.now_ms))

    @rule(who=st.integers(0, 1))
    def a_sink_reads_its_mail(self, who: int) -> None:
        if self.sinks[who].inbox:
            self.sinks[who].read_one()

    @rule(
        kind=st.sampled_from(["same daemon", "new daemon", "zombie"]),
        land=st.booleans(),
        reluctance=st.integers(0, 3),
        faults=st.sampled_from(FAULTS),
    )
    def the_attempt_ends_and_another_begins(self, kind: str, land: bool, reluctance: int, faults: list[Fault]) -> None:
        if self.alive and reluctance:
            return
        if kind == "same daemon":
            self.feed(AttemptEnded(self.now_ms))
        if land:
            self.shared.land()
        if kind != "same daemon":
            self.zombies = [*self.zombies, self.journal][-3:] if kind == "zombie" else self.zombies
            self.start_daemon()
        self.start_attempt(faults)

    @rule()
    def a_late_write_lands(self) -> None:
        self.shared.land()

    @precondition(lambda self: bool(self.zombies))
    @rule(data=st.data())
    def a_zombie_wakes_up(self, data: st.DataObject) -> None:
        zombie = data.draw(st.sampled_from(self.zombies))
        zombie.clean_up()
        zombie.sweep_orphans()
        newest = zombie.state.newest_checkpoint
        dream = completed(1 if newest is None else newest.id + 1, attempt=zombie.state.attempt)
        try:
            zombie.append_checkpoint(dream)
        except (Superseded, AppendUnsettled, RuntimeError):
            return
        raise AssertionError("a zombie has decided")

    # What must always hold

    @invariant()
    def decided_checkpoints_only_grow(self) -> None:
        if not hasattr(self, "shared"):
            return
        newest = (
            Journal(FakeStorage(self.shared), Writer("x", "x", 0), retained=1, id_reserve=1).read().newest_checkpoint
        )
        if newest is not None and (not self.decided_ids or newest.id != self.decided_ids[-1]):
            assert not self.decided_ids or newest.id > self.decided_ids[-1]
            self.decided_ids.append(newest.id)

    @invariant()
    def the_state_of_retained_checkpoints_is_there(self) -> None:
        if not hasattr(self, "shared"):
            return
        for entry in self.read_journal().retained:
            missing = [handle.path for handle in entry.checkpoint.states if handle.path not in self.shared.objects]
            assert not missing, f"checkpoint {entry.checkpoint.id} is retained, its state {missing} is gone"

    @invariant()
    def no_record_is_committed_twice(self) -> None:
        seen: dict[int, int] = {}
        for one in sorted(getattr(self, "committed", {}).values(), key=lambda o: o.written[0].start_offset):
            assert one.written[0].start_offset >= seen.get(one.subtask, 0), f"{one} repeats committed records"
            seen[one.subtask] = one.written[0].end_offset

    def teardown(self) -> None:
        """Whatever happened, one more recovery makes everything whole."""
        if hasattr(self, "shared"):
            self.start_daemon()
            self.start_attempt([])


def build() -> Any:
    case = World.TestCase
    case.settings = settings(
        max_examples=200,
        stateful_step_count=60,
        deadline=None,
        derandomize=True,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    return pytest.mark.slow(case)


TestWorld = build()


def test_an_append_that_worked_after_all_is_met_by_the_next_one_and_by_the_takeover() -> None:
    """Found with 2,000 examples: the second append finds its place taken by the first."""
    world = World()
    world.begin(max_concurrent=1, tolerable=1, retained=1, pause=0)
    world.run_checkpoint(0, [0, 1, 2], [Fault.UNKNOWN, Fault.UNKNOWN], "journal")
    world.the_timer_rings()
    world.subtasks_acknowledge(0, [0, 1, 2], 3)
    world.write_journal([Fault.BLIND])
    world.the_attempt_ends_and_another_begins("same daemon", land=False, reluctance=0, faults=[Fault.BLIND])
    world.decided_checkpoints_only_grow()
    world.no_record_is_committed_twice()
    world.the_state_of_retained_checkpoints_is_there()
    world.teardown()
