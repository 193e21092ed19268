"""Unaligned checkpoints in whole topologies: any completed checkpoint restores exactly (contract B43-B50, F13, C35).

A run goes through several attempts. In each, checkpoints of random kinds are triggered and given up at random moments
while rows flow against backpressure; it ends in a crash, and the next attempt starts from a completed checkpoint of
it, with another parallelism at times. What all restored checkpoints and the last, final one commit must be every row
once, in order per key and source partition.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tests.task.fakes import Row
from tests.task.restarts import History, Start, committed_by, counted, order_violations
from tests.task.rig import Rig
from tests.task.test_exactly_once import join_plan
from tests.task.topologies import edge, filter_node, plan_of, shuffle_plan, sink_node, source_node, totals_node, vertex
from tidegate.coordinator.types import StateKind
from tidegate.ids import CheckpointId
from tidegate.operators.runtime import ROWS_MAX
from tidegate.plan.graph import Plan
from tidegate.task import inflight
from tidegate.task.barriers.handler import Action, Notify
from tidegate.task.barriers.unaligner import Unaligner
from tidegate.task.channels import InputChannel, RemoteOutput
from tidegate.task.elements import Barrier, Batch
from tidegate.task.inflight import Recording
from tidegate.task.vertex import VertexTask

MakePlan = Callable[[int], Plan]
TOPOLOGIES: dict[str, MakePlan] = {"shuffle": shuffle_plan, "join": join_plan}
PARTITIONS = 4
ROWS = 60
KEYS = 5


def history_of(plan: Plan) -> History:
    """Every row occurs once."""
    sources = [node.operator.name for vertex in plan.vertices for node in vertex.nodes if node is vertex.nodes[0]]
    names = [name for name in sources if name in ("read", "second")]
    return {
        (name, partition): [(number % KEYS, 10_000 * partition + 1_000_000 * index + number) for number in range(ROWS)]
        for index, name in enumerate(names)
        for partition in range(PARTITIONS)
    }


@dataclass
class Story:
    """What a run committed and met."""

    history: History
    committed: list[list[Row]] = field(default_factory=list)
    inflight_rows: int = 0
    kinds: set[StateKind] = field(default_factory=set)
    restores: int = 0
    events: list[str] = field(default_factory=list)


class Attempt:
    """One attempt of a run."""

    def __init__(self, start: Start, plan: Plan, randomness: random.Random, first: int, credit: int) -> None:
        self.rig = Rig(plan, unaligned=True, restored=start, credit_bytes=credit)
        self.start = start
        self.plan = plan
        self.next_id = first
        self.abandoned: set[int] = set()
        self._randomness = randomness

    def stir(self, steps: int) -> None:
        """Rows flow, sinks are ready at times only, time passes."""
        randomness = self._randomness
        for _ in range(steps):
            self.rig.stir(randomness)
            if randomness.random() < 0.1:
                slot = randomness.choice(self.rig.slots)
                for sink in slot.sinks.values():
                    sink.free = randomness.choice([0, 0, 0, 1, 2, ROWS_MAX])
            if randomness.random() < 0.2:
                self.rig.clock.ms += randomness.randint(1, 40)

    def trigger(self, after_ms: int | None, *, final: bool = False) -> int:
        checkpoint = self.next_id
        self.next_id += 1
        self.rig.trigger(checkpoint, final=final, after_ms=after_ms)
        return checkpoint

    def give_up_some(self) -> None:
        """What the coordinator does on a decline, or for reasons of its own."""
        declined = {decline.checkpoint for decline in self.rig.declines()} - self.abandoned
        if self._randomness.random() < 0.1 and self.next_id > 1:
            declined.add(self._randomness.randint(max(1, self.next_id - 2), self.next_id - 1))  # type: ignore[arg-type]  # an id
        for checkpoint in sorted(declined - self.abandoned):
            if not self.rig.is_complete(checkpoint):
                self.abandoned.add(checkpoint)
                for slot in self._randomness.sample(self.rig.slots, len(self.rig.slots)):
                    self.rig.abandon_at(slot, checkpoint)
                    self.stir(self._randomness.randint(0, 3))

    def completed(self, first: int) -> list[int]:
        return [c for c in range(first, self.next_id) if c not in self.abandoned and self.rig.is_complete(c)]

    def open_sinks(self) -> None:
        for slot in self.rig.slots:
            for sink in slot.sinks.values():
                sink.free = ROWS_MAX


def run(make_plan: MakePlan, seed: int, credit: int, tamper: Callable[[Start], None] = lambda start: None) -> Story:
    """Attempts until a final checkpoint completes; with little `credit` rows wait at the senders."""
    randomness = random.Random(seed)
    plan = make_plan(randomness.choice([2, 3]))
    start = Start(plan, history_of(plan))
    story = Story(history_of(plan))
    first = 1
    for attempt_number in range(4):
        attempt = Attempt(start, plan, randomness, first, credit)
        for _ in range(randomness.randint(2, 5)):
            attempt.stir(randomness.randint(0, 150))
            attempt.trigger(randomness.choice([0, 0, 20, 20, None]))
            attempt.give_up_some()
        attempt.stir(randomness.randint(0, 300))
        if attempt_number == 3:
            finish(attempt, story)
            return story
        completed = attempt.completed(first)
        story.events.append(f"attempt {attempt_number}: {plan.parallelism} slots, completed {completed}")
        first = attempt.next_id
        if not completed:
            continue
        chosen = randomness.choice(completed)
        story.events.append(f"restores {chosen}")
        story.restores += 1
        story.committed += committed_by(attempt.rig, chosen)
        kinds = [state.kind for ack in attempt.rig.acks(chosen) for state in ack.states]
        story.kinds.update(kinds)
        plan = make_plan(randomness.choice([plan.parallelism, 2, 3]))
        start = start.after(attempt.rig, chosen, plan)
        tamper(start)
    raise AssertionError("unreachable")


def finish(attempt: Attempt, story: Story) -> None:
    """Everything flows out; the final checkpoint is aligned."""
    attempt.open_sinks()
    attempt.rig.settle()
    final = attempt.trigger(None, final=True)
    attempt.rig.settle()
    assert attempt.rig.is_complete(final), story.events
    assert nothing_is_left(attempt.rig), story.events
    story.committed += committed_by(attempt.rig, final)
    kinds = {state.kind for ack in attempt.rig.acks(final) for state in ack.states}
    assert kinds <= {StateKind.OPERATOR}, "a final checkpoint leaves nothing in flight"


def nothing_is_left(rig: Rig) -> bool:
    """No recording, no tracked checkpoint, no barrier that waits."""
    for slot in rig.slots:
        for task in slot.loop.tasks:
            if task._recordings or task.replaying or task.next_deadline_ms is not None:
                return False
            inputs = task.inputs
            if inputs and any(inputs.handler.recording(index) for index in range(len(inputs.channels))):
                return False
        if any(output._overtaken or output._limited or output.queued_bytes for output in slot.remote.values()):
            return False
    return True


def check(story: Story) -> None:
    expected = {row: 1 for rows in story.history.values() for row in rows}
    found = counted(story.committed)
    assert {row: n for row, n in found.items() if n != expected.get(row)} == {}, story.events
    assert [row for row in expected if row not in found] == [], story.events


BETWEEN = pytest.param(600, marks=pytest.mark.deep)
"""Bytes of credit: a row at a time and all at once are the ends."""


@pytest.mark.slow
@pytest.mark.parametrize("credit", [1, BETWEEN, 2 << 20])
@settings(max_examples=3 * DEPTH, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_B49_B50_every_completed_checkpoint_restores_every_row_once_and_in_order(credit: int, seed: int) -> None:
    story = run(shuffle_plan, seed, credit)
    check(story)
    assert order_violations(by_owner(story), story.history) == [], story.events


def by_owner(story: Story) -> list[list[Row]]:
    """One lane for the whole run: a key has one writer at a time, and attempts follow each other."""
    return [[row for rows in story.committed for row in rows]]


@pytest.mark.slow
@pytest.mark.parametrize("credit", [1, BETWEEN])
@settings(max_examples=3 * DEPTH, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_B49_B50_two_exchanges_and_two_sources_restore_every_row_once(credit: int, seed: int) -> None:
    story = run(join_plan, seed, credit)
    check(story)


def mixed_plan(parallelism: int) -> Plan:
    """An edge by key and a forward edge meet at one vertex."""
    return plan_of(
        parallelism,
        [
            vertex(source_node("read", edges=(0,))),
            vertex(source_node("second", children=(1,)), filter_node("pass", edges=(1,))),
            vertex(totals_node("total", edges=(2,))),
            vertex(totals_node("again", children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total", "k"), edge(1, "second", "total"), edge(2, "total", "again", "n")],
    )


@pytest.mark.slow
@settings(max_examples=3 * DEPTH, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_B49_B50_rows_of_a_forward_edge_are_never_in_flight_and_those_by_key_next_to_it_are_restored_once(
    seed: int,
) -> None:
    """Nothing could say where the rows of a forward edge belong after a rescale."""
    story = run(mixed_plan, seed, 600)
    check(story)


# -- planted bugs: each property can fail ------------------------------------------------------------------------------

SEEDS = 60


def violations(make_plan: MakePlan, seed: int, tamper: Callable[[Start], None]) -> bool:
    """Whether a run under a planted bug is found out: rows lost, doubled, out of order, or a state that cannot be."""
    try:
        story = run(make_plan, seed, 600, tamper)
        check(story)
    except (AssertionError, KeyError):
        return True
    return bool(order_violations(by_owner(story), story.history))


def plant_no_replay(_patch: pytest.MonkeyPatch) -> Callable[[Start], None]:
    def tamper(start: Start) -> None:
        start.forget_replay = True

    return tamper


def plant_sender_part_first(patch: pytest.MonkeyPatch) -> Callable[[Start], None]:
    patch.setattr(inflight, "REPLAY_ORDER", (StateKind.OUTPUT, StateKind.INPUT))
    return lambda start: None


def plant(target: type, name: str, replacement: object) -> Callable[[pytest.MonkeyPatch], Callable[[Start], None]]:
    def planted(patch: pytest.MonkeyPatch) -> Callable[[Start], None]:
        patch.setattr(target, name, replacement)
        return lambda start: None

    return planted


def _arrived_twice(self: Recording, channel: int, batch: Batch) -> None:
    self._channels[channel][1].extend([batch, batch])


def _everything_queued(self: InputChannel, checkpoint: CheckpointId) -> list[Batch]:
    return [element for element in self._elements if isinstance(element, Batch)]


_begin = Unaligner.begin


def _forget_what_was_consumed(
    self: Unaligner, barrier: Barrier, received: set[int], consumed: set[int], started_ms: int, now_ms: int
) -> list[Action]:
    del consumed
    return _begin(self, barrier, received, (), started_ms, now_ms)


def _replay_is_no_content(self: VertexTask, notify: Notify) -> None:
    if self.inputs is None:
        return _record(self, notify)
    held, self.inputs.replay = self.inputs.replay, deque()
    try:
        return _record(self, notify)
    finally:
        self.inputs.replay = held


_record = VertexTask._record

BUGS: dict[str, Callable[[pytest.MonkeyPatch], Callable[[Start], None]]] = {
    "rows in flight are not replayed": plant_no_replay,
    "the sender's part is replayed first": plant_sender_part_first,
    "arriving rows are recorded twice": plant(Recording, "arrived", _arrived_twice),
    "arriving rows are not recorded": plant(Recording, "arrived", lambda self, channel, batch: None),
    "rows after the barrier are recorded": plant(InputChannel, "batches_ahead_of", _everything_queued),
    "overtaken rows are not recorded": plant(RemoteOutput, "take_overtaken", lambda self, checkpoint: ()),
    "a switch forgets what was consumed": plant(Unaligner, "begin", _forget_what_was_consumed),
    "rows that wait to be replayed are not recorded": plant(VertexTask, "_record", _replay_is_no_content),
}


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found_by_the_properties(bug: str) -> None:
    for seed in range(SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            if violations(shuffle_plan, seed, BUGS[bug](patch)):
                print(f"found by seed {seed}")
                return
    pytest.fail(f"{SEEDS} seeds do not find: {bug}")
