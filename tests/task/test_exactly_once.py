"""Whole topologies under random scheduling: what a checkpoint holds (contract F13, F16, F19, F20, F22)."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.task.fakes import Row
from tests.task.rig import Rig
from tests.task.topologies import (
    edge,
    filter_node,
    parallel_plan,
    plan_of,
    shuffle_plan,
    sink_node,
    source_node,
    totals_node,
    vertex,
)
from tidegate.plan.graph import Plan

CHECKPOINTS = 3
BATCHES = 12


def batches(name: str, slot: int) -> list[list[Row]]:
    """Every row occurs once in the whole rig; every source has rows for every slot."""
    base = 10_000 * slot + (1_000_000 if name == "second" else 0)
    return [[(n % 7, base + n) for n in range(3 * batch, 3 * batch + 3)] for batch in range(BATCHES)]


def join_plan(parallelism: int, *, exactly_once: bool = True) -> Plan:
    """Two sources meet at one exchange, whose rows go through a second one: two levels of alignment."""
    return plan_of(
        parallelism,
        [
            vertex(source_node("read", edges=(0,))),
            vertex(source_node("second", children=(1,)), filter_node("pass", edges=(1,))),
            vertex(totals_node("total", edges=(2,))),
            vertex(totals_node("again", children=(1,)), sink_node("write")),
        ],
        [edge(0, "read", "total", "k"), edge(1, "second", "total", "k"), edge(2, "total", "again", "n")],
        exactly_once=exactly_once,
    )


def run(plan: Plan, seed: int) -> Rig:
    """Checkpoints are triggered at random moments, several at a time, while rows flow; then everything settles."""
    randomness = random.Random(seed)
    rig = Rig(plan, batches=batches)
    for checkpoint in range(1, CHECKPOINTS + 1):
        for _ in range(randomness.randint(0, 150)):
            rig.stir(randomness)
        rig.trigger(checkpoint)
    rig.settle()
    return rig


def all_rows(rig: Rig) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for slot in rig.slots:
        for name in slot.sources:
            rows.update(row for batch in batches(name, slot.index) for row in batch)
    return rows


def written(rig: Rig) -> Counter[Row]:
    rows: Counter[Row] = Counter()
    for slot in rig.slots:
        for sink in slot.sinks.values():
            rows.update(sink.open)
            for transaction in sink.transactions.values():
                rows.update(transaction)
    return rows


def levels(rig: Rig) -> int:
    """How many stateful operators a row passes."""
    return sum(1 for each in rig.plan.vertices if each.nodes[0].operator.name in ("total", "again"))


TOPOLOGIES = {"shuffle": shuffle_plan, "join": join_plan, "parallel": parallel_plan}


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("parallelism", [2, 3])
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_F13_F16_an_aligned_checkpoint_holds_exactly_the_rows_before_its_barriers(
    topology: str, parallelism: int, seed: int
) -> None:
    rig = run(TOPOLOGIES[topology](parallelism), seed)
    for checkpoint in range(1, CHECKPOINTS + 1):
        assert rig.is_complete(checkpoint)
        before = rig.rows_before(checkpoint)
        assert rig.rows_in_state(checkpoint) == Counter({row: levels(rig) for row in before})
        assert rig.rows_in_transactions(checkpoint) == before
    assert written(rig) == all_rows(rig)


@pytest.mark.slow
@pytest.mark.parametrize("parallelism", [2, 3])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_F22_a_purely_parallel_pipeline_is_exactly_once_even_at_least_once(parallelism: int, seed: int) -> None:
    check_parallel(parallelism, seed)


def test_F22_one_schedule_of_a_purely_parallel_pipeline() -> None:
    check_parallel(parallelism=2, seed=1)


def check_parallel(parallelism: int, seed: int) -> None:
    rig = run(parallel_plan(parallelism, exactly_once=False), seed)
    for checkpoint in range(1, CHECKPOINTS + 1):
        assert rig.is_complete(checkpoint)
        before = rig.rows_before(checkpoint)
        assert rig.rows_in_state(checkpoint) == before
        assert rig.rows_in_transactions(checkpoint) == before


@pytest.mark.slow
@pytest.mark.parametrize("topology", TOPOLOGIES)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_F20_at_least_once_loses_no_row(topology: str, seed: int) -> None:
    check_no_loss(topology, seed)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_F20_one_schedule_loses_no_row(topology: str) -> None:
    check_no_loss(topology, seed=1)


def check_no_loss(topology: str, seed: int) -> None:
    rig = run(TOPOLOGIES[topology](2, exactly_once=False), seed)
    for checkpoint in range(1, CHECKPOINTS + 1):
        assert rig.is_complete(checkpoint)
        before = rig.rows_before(checkpoint)
        assert not before - rig.rows_in_state(checkpoint)
        assert not before - rig.rows_in_transactions(checkpoint)
    assert written(rig) == all_rows(rig)


def test_F20_at_least_once_may_hold_rows_from_behind_a_barrier() -> None:
    """The planned fault of F19: without alignment the snapshot holds too much, and the replay repeats it."""
    rig = Rig(shuffle_plan(2, exactly_once=False), batches=lambda name, slot: [[(n, 10 * slot + n) for n in range(9)]])
    first, second = rig.slots
    rig.trigger(1)
    for _ in range(3):
        first.loop.turn()
    assert rig.rows_before(1) == Counter()
    for connection in rig.connections:
        while connection.send():
            connection.receive(1 << 20)
    for _ in range(3):
        second.loop.turn()
    for connection in rig.connections:
        while connection.send():
            connection.receive(1 << 20)
    rig.settle()
    assert rig.is_complete(1)
    assert rig.rows_in_state(1) - rig.rows_before(1)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), abandoned=st.sets(st.integers(1, 4), max_size=4))
def test_abandoned_checkpoints_disturb_neither_the_rows_nor_the_next_checkpoint(seed: int, abandoned: set[int]) -> None:
    randomness = random.Random(seed)
    rig = Rig(shuffle_plan(3), batches=batches)
    for checkpoint in range(1, 6):
        for _ in range(randomness.randint(0, 80)):
            rig.stir(randomness)
        rig.trigger(checkpoint)
        for _ in range(randomness.randint(0, 80)):
            rig.stir(randomness)
        if checkpoint in abandoned:
            for slot in randomness.sample(rig.slots, 3):
                rig.abandon_at(slot, checkpoint)
                rig.stir(randomness)
    rig.settle()
    for checkpoint in sorted({1, 2, 3, 4, 5} - abandoned):
        before = rig.rows_before(checkpoint)
        assert rig.is_complete(checkpoint)
        assert rig.rows_in_state(checkpoint) == before
        assert rig.rows_in_transactions(checkpoint) == before
    assert written(rig) == all_rows(rig)


@pytest.mark.parametrize("parallelism", [2, 3])
def test_rows_of_a_key_stay_in_order_and_at_one_subtask(parallelism: int) -> None:
    rig = run(shuffle_plan(parallelism), seed=1)
    homes: dict[int, int] = {}
    for slot in rig.slots:
        (sink,) = slot.sinks.values()
        rows = [row for transaction in sink.transactions.values() for row in transaction] + sink.open
        for sender in range(parallelism):
            for key in {key for key, _ in rows}:
                assert homes.setdefault(key, slot.index) == slot.index
                numbers = [n for k, n in rows if k == key and n // 10_000 == sender]
                assert numbers == sorted(numbers)
    assert len(homes) == 7
