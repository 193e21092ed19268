"""The life of transactional ids."""

from __future__ import annotations

import pytest

from tidegate.ids import CheckpointId, TransactionalId
from tidegate.sinks.pool import IdPool, SlotState, derive_pool_size

A, B = TransactionalId("a"), TransactionalId("b")


def prepared(pool: IdPool, checkpoint: int) -> TransactionalId:
    taken = pool.take()
    assert taken is not None
    pool.opened(taken)
    pool.prepared(taken, CheckpointId(checkpoint))
    return taken


@pytest.mark.parametrize(("interval_ms", "ids"), [(60_000, 4), (100, 4), (50, 5), (20, 8), (1, 64), (0, 64)])
def test_short_intervals_have_more_ids(interval_ms: int, ids: int) -> None:
    assert derive_pool_size(interval_ms) == ids


@pytest.mark.parametrize(("concurrent", "ids"), [(1, 4), (3, 6), (100, 64)])
def test_more_checkpoints_at_a_time_have_more_ids(concurrent: int, ids: int) -> None:
    assert derive_pool_size(1000, concurrent) == ids


def test_an_id_is_taken_once() -> None:
    pool = IdPool([A, B])
    assert [pool.take(), pool.take(), pool.take()] == [A, B, None]


def test_an_id_is_free_again_when_a_later_checkpoint_releases_it() -> None:
    pool = IdPool([A])
    prepared(pool, 3)
    assert pool.take() is None
    assert pool.released(A, CheckpointId(4))
    assert pool.take() == A


@pytest.mark.parametrize("checkpoint", [1, 2, 3])
def test_its_own_or_an_earlier_checkpoint_cannot_release_an_id(checkpoint: int) -> None:
    pool = IdPool([A])
    prepared(pool, 3)
    assert not pool.released(A, CheckpointId(checkpoint))
    assert pool.take() is None


def test_a_spare_id_is_added_only_when_all_hold_committables() -> None:
    pool = IdPool([A], spare=[B])
    pool.take()
    assert pool.take() is None
    pool.opened(A)
    assert pool.take() is None
    pool.prepared(A, CheckpointId(1))
    assert pool.take() == B
    assert pool.take() is None


def test_a_repeated_release_does_not_free_the_next_transaction() -> None:
    pool = IdPool([A])
    prepared(pool, 3)
    assert pool.released(A, CheckpointId(4))
    prepared(pool, 5)
    assert not pool.released(A, CheckpointId(4))
    assert pool.count(SlotState.PREPARED) == 1


def test_ids_of_others_are_ignored() -> None:
    assert not IdPool([A]).released(B, CheckpointId(9))


@pytest.mark.parametrize("state", [SlotState.FREE, SlotState.OPENING, SlotState.PREPARED])
def test_only_an_open_id_can_be_prepared(state: SlotState) -> None:
    pool = IdPool([A])
    if state is SlotState.PREPARED:
        prepared(pool, 1)
    elif state is SlotState.OPENING:
        pool.take()
    with pytest.raises(ValueError, match=f"a is {state.value}, not open"):
        pool.prepared(A, CheckpointId(2))


def test_an_id_that_is_opened_anew_takes_no_records_meanwhile() -> None:
    pool = IdPool([A])
    pool.take()
    pool.opened(A)
    pool.reopening(A)
    assert (pool.count(SlotState.OPENING), pool.count(SlotState.OPEN)) == (1, 0)
    pool.opened(A)
    assert pool.count(SlotState.OPEN) == 1
