"""Which handler a pipeline gets, and what all handlers share (contract B04-B06, B08, B10, B12)."""

from __future__ import annotations

import pytest

from tests.task.topologies import edge
from tidegate.ids import CheckpointId
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.barriers.alternating import Alternating
from tidegate.task.barriers.choice import choose_handler, may_overtake
from tidegate.task.barriers.handler import AbortReason, start_delay_ms
from tidegate.task.barriers.tracker import Tracker
from tidegate.task.elements import Barrier


def test_B04_exactly_once_gets_the_aligner() -> None:
    assert isinstance(choose_handler(exactly_once=True, unaligned=False, channels=2), Aligner)


def test_B04_F19_at_least_once_gets_the_tracker() -> None:
    assert isinstance(choose_handler(exactly_once=False, unaligned=False, channels=2), Tracker)


def test_B05_at_least_once_with_unaligned_is_refused() -> None:
    with pytest.raises(ValueError, match="unaligned needs mode: exactly-once"):
        choose_handler(exactly_once=False, unaligned=True, channels=2)


def test_B04_exactly_once_with_unaligned_gets_both_in_turn() -> None:
    assert isinstance(choose_handler(exactly_once=True, unaligned=True, channels=2), Alternating)


def test_B43_barriers_overtake_only_where_every_edge_is_partitioned_by_key() -> None:
    keyed, forward = edge(0, "left", "join", "k"), edge(1, "right", "join")
    assert may_overtake([keyed, keyed])
    assert not may_overtake([keyed, forward])
    assert not may_overtake([forward])


def test_a_handler_without_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one channel"):
        choose_handler(exactly_once=True, unaligned=False, channels=0)


@pytest.mark.parametrize(("now_ms", "delay_ms"), [(1500, 500), (1000, 0), (900, 0)])
def test_B08_the_start_delay_is_never_negative(now_ms: int, delay_ms: int) -> None:
    assert start_delay_ms(Barrier(CheckpointId(1), 1000), now_ms) == delay_ms


def test_B10_abort_reasons_are_distinct() -> None:
    assert len({str(reason) for reason in AbortReason}) == len(list(AbortReason)) >= 3


@pytest.mark.parametrize("exactly_once", [True, False])
def test_B12_nothing_is_blocked_at_the_start(exactly_once: bool) -> None:
    handler = choose_handler(exactly_once=exactly_once, unaligned=False, channels=3)
    assert [handler.is_blocked(channel) for channel in range(3)] == [False] * 3


@pytest.mark.parametrize("exactly_once", [True, False])
def test_B13_only_a_higher_id_starts_a_checkpoint(exactly_once: bool) -> None:
    handler = choose_handler(exactly_once=exactly_once, unaligned=False, channels=1)
    notified = [bool(handler.on_barrier(0, Barrier(CheckpointId(checkpoint), 0), 0)) for checkpoint in (3, 2, 4, 1, 5)]
    assert notified == [True, False, True, False, True]
