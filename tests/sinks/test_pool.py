"""The life of transactional ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from tidegate.coordinator.story import ProtocolBroken
from tidegate.ids import CheckpointId, TransactionalId
from tidegate.sinks.pool import LIFE, IdPool, TransactionState, TransactionStep, derive_pool_size, derive_warm

A, B = TransactionalId("a"), TransactionalId("b")


def prepared(pool: IdPool, checkpoint: int) -> TransactionalId:
    taken = pool.take()
    assert taken is not None
    pool.opened(taken)
    pool.begun(taken)
    pool.barrier(taken, CheckpointId(checkpoint))
    pool.proven(taken)
    return taken


@pytest.mark.parametrize(("interval_ms", "ids"), [(60_000, 4), (500, 4), (100, 8), (50, 13), (1, 64), (0, 64)])
def test_short_intervals_have_more_ids(interval_ms: int, ids: int) -> None:
    assert derive_pool_size(interval_ms) == ids


@pytest.mark.parametrize(("interval_ms", "warm"), [(60_000, 2), (200, 2), (100, 3), (50, 4), (1, 4), (0, 4)])
def test_short_intervals_have_more_warm_producers(interval_ms: int, warm: int) -> None:
    assert derive_warm(interval_ms) == warm


@pytest.mark.parametrize(("max_concurrent", "ids"), [(1, 4), (3, 6), (100, 64)])
def test_more_checkpoints_at_a_time_have_more_ids(max_concurrent: int, ids: int) -> None:
    assert derive_pool_size(1000, max_concurrent) == ids


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
    pool.begun(A)
    assert pool.take() is None
    pool.barrier(A, CheckpointId(1))
    assert pool.take() == B
    assert pool.take() is None


def test_a_repeated_release_does_not_free_the_next_transaction() -> None:
    pool = IdPool([A])
    prepared(pool, 3)
    assert pool.released(A, CheckpointId(4))
    prepared(pool, 5)
    assert not pool.released(A, CheckpointId(4))
    assert pool.count(TransactionState.PREPARED) == 1


def test_ids_of_others_are_ignored() -> None:
    assert not IdPool([A]).released(B, CheckpointId(9))


WAY: dict[TransactionState, list[Callable[[IdPool], object]]] = {
    TransactionState.FREE: [],
    TransactionState.OPENING: [IdPool.take],
    TransactionState.WARM: [IdPool.take, lambda pool: pool.opened(A)],
    TransactionState.WRITING: [IdPool.take, lambda pool: pool.opened(A), lambda pool: pool.begun(A)],
}
WAY[TransactionState.FLUSHING] = [*WAY[TransactionState.WRITING], lambda pool: pool.barrier(A, CheckpointId(3))]
WAY[TransactionState.PREPARED] = [*WAY[TransactionState.FLUSHING], lambda pool: pool.proven(A)]
STEPS: dict[TransactionStep, Callable[[IdPool], object]] = {
    TransactionStep.OPENED: lambda pool: pool.opened(A),
    TransactionStep.REOPENED: lambda pool: pool.reopened(A),
    TransactionStep.BEGUN: lambda pool: pool.begun(A),
    TransactionStep.BARRIER: lambda pool: pool.barrier(A, CheckpointId(4)),
    TransactionStep.PROVEN: lambda pool: pool.proven(A),
}


@pytest.mark.parametrize("state", TransactionState, ids=lambda state: state.name)
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_a_step_that_the_table_lacks_is_reported_with_what_came_before(
    state: TransactionState, step: TransactionStep
) -> None:
    pool = IdPool([A])
    for go in WAY[state]:
        go(pool)
    if (after := LIFE.get((state, step))) is not None:
        STEPS[step](pool)
        assert pool.count(after) == 1
        return
    with pytest.raises(ProtocolBroken, match=f"a is {state.name} when {step}") as caught:
        STEPS[step](pool)
    assert len(cast("tuple[str, ...]", caught.value.fields["story"])) == len(WAY[state])
    assert pool.count(state) == 1


def test_an_id_is_released_only_when_its_transaction_was_proven() -> None:
    pool = IdPool([A])
    for go in WAY[TransactionState.FLUSHING]:
        go(pool)
    with pytest.raises(ProtocolBroken, match="a is FLUSHING when a later checkpoint"):
        pool.released(A, CheckpointId(4))


def test_an_id_that_is_opened_anew_takes_no_records_meanwhile() -> None:
    pool = IdPool([A])
    pool.take()
    pool.opened(A)
    pool.reopened(A)
    assert (pool.count(TransactionState.OPENING), pool.count(TransactionState.WARM)) == (1, 0)
    pool.opened(A)
    assert pool.count(TransactionState.WARM) == 1
