"""Properties of both barrier handlers over random channels and interleavings (F07, F13, F16, F19, F20)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import DEPTH
from tidegate.ids import CheckpointId
from tidegate.task.barriers.choice import choose_handler
from tidegate.task.barriers.handler import Abort, BarrierHandler, Notify
from tidegate.task.elements import Barrier, CancelMarker

Record = tuple[int, int]
"""Channel and number within it."""

Item = Record | Barrier | CancelMarker
CHECKPOINTS = 4


@dataclass
class Case:
    """What the channels carry, the order in which they are looked at, and when the coordinator gives what up."""

    channels: list[list[Item]]
    turns: list[int]
    abandoned: dict[int, int]
    """Checkpoint to the number of the step before which it is given up."""


@dataclass
class Run:
    """What a subtask with this handler did."""

    processed: list[Record] = field(default_factory=list)
    snapshots: dict[int, set[Record]] = field(default_factory=dict)
    events: list[tuple[str, int]] = field(default_factory=list)


@st.composite
def channel(draw: st.DrawFn, index: int, kinds: Sequence[str]) -> list[Item]:
    """Records between the barriers (or what stands for them) of checkpoints 1, 2 ...; the last one's always comes."""
    items: list[Item] = []
    sent = 0
    for checkpoint in range(1, CHECKPOINTS + 1):
        for _ in range(draw(st.integers(0, 3))):
            items.append((index, sent))
            sent += 1
        kind = draw(st.sampled_from(kinds)) if checkpoint < CHECKPOINTS else "barrier"
        if kind == "barrier":
            items.append(Barrier(CheckpointId(checkpoint), 0))
        elif kind == "cancel":
            items.append(CancelMarker(CheckpointId(checkpoint)))
    return items


@st.composite
def cases(draw: st.DrawFn, kinds: Sequence[str], *, abandoning: bool) -> Case:
    """Two to four channels."""
    count = draw(st.integers(2, 4))
    channels = [draw(channel(index, kinds)) for index in range(count)]
    steps = sum(map(len, channels))
    turns = draw(st.lists(st.integers(0, 1000), min_size=steps, max_size=steps))
    abandoned = draw(st.dictionaries(st.integers(1, CHECKPOINTS), st.integers(0, steps))) if abandoning else {}
    return Case(channels, turns, abandoned)


def run(case: Case, handler: BarrierHandler) -> Run:
    """Deliver everything, one element a step, never from a blocked channel."""
    queues = [deque(items) for items in case.channels]
    result = Run()
    for step, turn in enumerate(case.turns):
        for checkpoint, when in case.abandoned.items():
            if when == step:
                handler.on_abandoned(CheckpointId(checkpoint))
                result.events.append(("abandoned", checkpoint))
        open_channels = [index for index, queue in enumerate(queues) if queue and not handler.is_blocked(index)]
        assert open_channels, "deadlock: what is left waits for blocked channels"
        index = open_channels[turn % len(open_channels)]
        deliver(handler, index, queues[index].popleft(), result)
    assert not any(queues)
    assert not any(handler.is_blocked(index) for index in range(len(queues)))
    return result


def deliver(handler: BarrierHandler, index: int, item: Item, result: Run) -> None:
    match item:
        case Barrier():
            actions = handler.on_barrier(index, item, 0)
        case CancelMarker():
            actions = handler.on_cancel(index, item.checkpoint)
        case _:
            result.processed.append(item)
            return
    for action in actions:
        if isinstance(action, Notify):
            result.events.append(("notified", action.barrier.checkpoint))
            result.snapshots[action.barrier.checkpoint] = set(result.processed)
        elif isinstance(action, Abort):
            result.events.append(("aborted", action.checkpoint))


def before_barrier(case: Case, checkpoint: int) -> set[Record]:
    """The records that belong to the checkpoint, of which every channel has a barrier."""
    records: set[Record] = set()
    for items in case.channels:
        for item in items:
            if isinstance(item, Barrier) and item.checkpoint >= checkpoint:
                break
            if isinstance(item, tuple):
                records.add(item)
    return records


def delivered_everywhere(case: Case) -> list[int]:
    """Checkpoints whose barrier comes on every channel."""
    everywhere = set(range(1, CHECKPOINTS + 1))
    for items in case.channels:
        everywhere &= {item.checkpoint for item in items if isinstance(item, Barrier)}
    return sorted(everywhere)


def check_order_and_completeness(case: Case, result: Run) -> None:
    """Nothing is lost, repeated or overtaken on its channel."""
    for index, items in enumerate(case.channels):
        sent = [item for item in items if isinstance(item, tuple)]
        assert [record for record in result.processed if record[0] == index] == sent


def check_announcements(result: Run) -> None:
    """A checkpoint is notified or aborted at most once, never both, never notified once it was given up."""
    notified = [checkpoint for what, checkpoint in result.events if what == "notified"]
    aborted = [checkpoint for what, checkpoint in result.events if what == "aborted"]
    assert notified == sorted(set(notified))
    assert len(aborted) == len(set(aborted))
    assert not set(notified) & set(aborted)
    given_up: set[int] = set()
    for what, checkpoint in result.events:
        assert what == "abandoned" or checkpoint not in given_up
        if what == "abandoned":
            given_up.add(checkpoint)


ANYTHING = ("barrier", "barrier", "barrier", "cancel", "nothing")
HEALTHY = ("barrier",)


@pytest.mark.slow
@settings(max_examples=70 * DEPTH, deadline=None)
@given(case=cases(ANYTHING, abandoning=True))
def test_F13_F16_aligner_snapshots_hold_exactly_what_came_before_the_barriers(case: Case) -> None:
    result = run(case, choose_handler(exactly_once=True, unaligned=False, channels=len(case.channels)))
    check_order_and_completeness(case, result)
    check_announcements(result)
    for checkpoint, snapshot in result.snapshots.items():
        assert snapshot == before_barrier(case, checkpoint)
    for checkpoint in delivered_everywhere(case):
        assert checkpoint in result.snapshots or checkpoint in case.abandoned


@pytest.mark.slow
@settings(max_examples=70 * DEPTH, deadline=None)
@given(case=cases(ANYTHING, abandoning=True))
def test_F19_F20_tracker_snapshots_hold_at_least_what_came_before_the_barriers(case: Case) -> None:
    result = run(case, choose_handler(exactly_once=False, unaligned=False, channels=len(case.channels)))
    check_order_and_completeness(case, result)
    check_announcements(result)
    for checkpoint, snapshot in result.snapshots.items():
        assert snapshot >= before_barrier(case, checkpoint)


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [True, False])
@settings(max_examples=50, deadline=None)
@given(case=cases(HEALTHY, abandoning=False))
def test_F07_every_checkpoint_in_flight_is_notified_in_order(case: Case, exactly_once: bool) -> None:
    result = run(case, choose_handler(exactly_once=exactly_once, unaligned=False, channels=len(case.channels)))
    assert result.events == [("notified", checkpoint) for checkpoint in range(1, CHECKPOINTS + 1)]
