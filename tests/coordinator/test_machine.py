"""Coordinator, journal and recovery together against every order of events that hypothesis can think of.

The world around them is a model: one source that hands out record numbers, two sink subtasks that prepare one
transaction per interval and repeat what is not confirmed, a broker that remembers which transactions were committed,
and a storage with lost, late and unconfirmed writes. Daemons crash, zombies wake up. What must hold is exactly once:
committed transactions never overlap, and after a recovery they cover every record below the restored position.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import invariant, precondition, rule

from tests.coordinator.fake_storage import FakeStorage, Fault
from tests.coordinator.values import completed
from tests.coordinator.world import FAULTS, INPUT, SINKS, SOURCE, WorldBase
from tests.depth import DEPTH
from tidegate.coordinator.entries import Writer
from tidegate.coordinator.events import (
    AckReceived,
    AttemptEnded,
    DeclineReceived,
    Journaled,
    JournalFailed,
    SavepointFailed,
    SavepointWritten,
    Tick,
    TransactionsEnded,
    TriggerFailed,
    TriggerRequested,
)
from tidegate.coordinator.history import CheckpointResult
from tidegate.coordinator.triggers import AttemptPhase
from tidegate.coordinator.types import (
    Ack,
    CompletedCheckpoint,
    Decline,
    SourcePositions,
    StateHandle,
)
from tidegate.errors import Superseded
from tidegate.ids import (
    CheckpointId,
    OperatorName,
    SlotIndex,
)
from tidegate.journal.journal import AppendUnsettled, Journal
from tidegate.storage.base import StorageError
from tidegate.storage.names import state_name


class World(WorldBase):
    """See the module."""

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

    @precondition(lambda self: self.alive)
    @rule()
    def somebody_asks_for_a_savepoint(self) -> None:
        self.feed(TriggerRequested(self.now_ms, savepoint=True))

    @precondition(lambda self: self.alive)
    @rule(count=st.integers(1, 12))
    def savepoints_are_asked_for_and_given_up(self, count: int) -> None:
        for _ in range(count):
            self.feed(TriggerRequested(self.now_ms, savepoint=True))
            for checkpoint in self.coordinator.under_way:
                self.feed(DeclineReceived(Decline(self.attempt, checkpoint, SINKS[0], "cannot"), self.now_ms))
            if not self.alive:
                return

    @precondition(lambda self: bool(self.writing) and self.coordinator.phase is not AttemptPhase.ENDED)
    @rule(works=st.booleans())
    def a_savepoint_is_written(self, works: bool) -> None:
        checkpoint = self.writing.pop()
        missing = [state.path for state in checkpoint.states if state.path not in self.shared.objects]
        assert not missing, f"state {missing} of savepoint {checkpoint.id} is gone before it was copied"
        answer = SavepointWritten(checkpoint.id, self.now_ms)
        self.feed(answer if works else SavepointFailed(checkpoint.id, "full", self.now_ms))

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
            handle = StateHandle(OperatorName("out"), SlotIndex(who), path, 5, "00", 0, "")
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
        another=st.sampled_from(["", "", "damage", "choice"]),
    )
    def the_attempt_ends_and_another_begins(
        self, kind: str, land: bool, reluctance: int, faults: list[Fault], another: str = ""
    ) -> None:
        if self.alive and reluctance:
            return
        if kind == "same daemon":
            self.feed(AttemptEnded(self.now_ms))
        if land:
            self.shared.land()
        if kind != "same daemon":
            self.zombies = [*self.zombies, self.journal][-3:] if kind == "zombie" else self.zombies
            self.start_daemon()
        self.start_attempt(faults, another)

    @precondition(lambda self: self.alive)
    @rule(
        records=st.integers(0, 2),
        who=st.permutations(range(3)),
        decisions=st.integers(1, 3),
        crashes=st.integers(1, 2),
        another=st.sampled_from(["damage", "damage", "choice"]),
    )
    def decisions_pile_up_and_the_newest_is_damaged(
        self, records: int, who: list[int], decisions: int, crashes: int, another: str
    ) -> None:
        """Decided, not committed; then the daemon crashes, and perhaps once more before it has decided anything."""
        for _ in range(decisions):
            self.run_checkpoint(records, who, [], "journal")
            if not self.alive:
                return
        for _ in range(crashes):
            self.start_daemon()
            self.start_attempt([], another)

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

    @invariant()
    def the_history_has_what_is_under_way_and_what_is_decided(self) -> None:
        if not hasattr(self, "shared"):
            return
        found = {record.id: record for record in self.history.checkpoints}
        triggered = set(self.positions)
        assert found.keys() == set(sorted(triggered)[-len(found) :] if found else ())
        under_way = {number for number, record in found.items() if record.result is CheckpointResult.UNDER_WAY}
        assert set(self.coordinator.under_way) <= under_way
        for number in under_way - set(self.coordinator.under_way):
            assert found[number].journal_ms is not None, f"checkpoint {number} has ended, the history does not know it"

    def teardown(self) -> None:
        """Whatever happened, one more recovery makes everything whole."""
        if hasattr(self, "shared"):
            self.start_daemon()
            self.start_attempt([])


def build() -> Any:
    case = World.TestCase
    case.settings = settings(
        max_examples=50 * DEPTH,
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
