"""What is left at the end of a schedule, and readers that are blocked."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.simulation.test_life import schedule_of
from tidegate.coordinator.entries import decode_entry, encode_entry
from tidegate.ids import JournalSequence, TransactionalId
from tidegate.simulation.campaign import quiet
from tidegate.simulation.faults import Fault
from tidegate.simulation.model_broker.log import Record, Stamp
from tidegate.simulation.operations import Operations
from tidegate.simulation.watch import STANDING_S, check_left
from tidegate.simulation.world import World
from tidegate.storage.names import journal_name, journal_sequence

pytestmark = pytest.mark.slow


@pytest.fixture
def world() -> Iterator[World]:
    """At its end."""
    with quiet():
        made = World(schedule_of(2, quiet=2))
        assert not made.run().problems
        yield made


def test_nothing_is_left_behind(world: World) -> None:
    assert check_left(world) == []


def test_a_state_file_that_nobody_lists_is_a_violation(world: World) -> None:
    world.operations.objects["state/000000000001-totals-7.state"] = b""
    assert "1 state files are left over" in check_left(world)[0]


def test_a_state_file_that_is_missing_is_a_violation(world: World) -> None:
    names = [name for name in world.operations.objects if name.startswith("state/")]
    del world.operations.objects[names[0]]
    assert "1 state files are missing" in check_left(world)[0]


def test_a_journal_entry_that_nobody_needs_is_a_violation(world: World) -> None:
    name = max(name for name in world.operations.objects if name.startswith("journal/"))
    newest = decode_entry(journal_sequence(name) or JournalSequence(0), world.operations.objects[name])
    old = msgspec.structs.replace(newest, sequence=JournalSequence(0), floor=JournalSequence(0))
    world.operations.objects[journal_name(JournalSequence(0))] = encode_entry(old)
    assert "1 journal entries below" in check_left(world)[0]


def test_an_open_transaction_of_the_pipeline_is_a_violation(world: World) -> None:
    now_ms = world.kernel.clock.now_ms()
    name = TransactionalId("simulated.sums.0.99-j.0")
    broker, there = world.clusters.at(world.account.outputs.places[0])
    owner = broker.init_producer(now_ms, name, 60_000)
    assert check_left(world) == []
    broker.add_partitions(now_ms, name, *owner, [there])
    assert check_left(world) == [f"transactions are left open: ['{name}']"]


def test_a_savepoint_that_has_lost_a_file_is_a_violation() -> None:
    savepoint = Fault(kind="savepoint", at_s=0.1)
    with quiet():
        world = World(schedule_of(2, savepoint, quiet=2, faults_s=3.0))
        assert not world.run().problems
        (path,) = world.operations.savepoints
        state = next(
            name for name in world.machines.files if name.startswith(path.strip("/")) and name.endswith(".state")
        )
        world.machines.files[state] = b"else"
        assert "is gone or changed" in check_left(world)[0]
        del world.machines.files[f"{path}/metadata.json"]
        assert "has lost its metadata" in check_left(world)[0]


def test_readers_that_stand_still_while_an_attempt_runs_are_a_violation(world: World) -> None:
    """An open transaction of somebody whom nobody fences."""
    place, watch = world.account.outputs.places[0], world.watch
    (broker, there), kernel = world.clusters.at(place), world.kernel
    now_ms = kernel.clock.now_ms()
    name = TransactionalId("other")
    owner = broker.init_producer(now_ms, name, 900_000)
    broker.add_partitions(now_ms, name, *owner, [there])
    broker.produce(now_ms, there, [Record(b"", b"{}", now_ms)], Stamp(*owner, 0, transactional=True), name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Operations, "is_running", True)
        watch.look()
        kernel.now += STANDING_S - 1
        watch.look()
        assert world.problems == []
        kernel.now += 2
        watch.look()
    assert [problem.split(":")[0] for problem in world.problems] == [str(place)]


def test_readers_are_not_waited_for_while_nothing_runs(world: World) -> None:
    place, watch = world.account.outputs.places[0], world.watch
    (broker, there), now_ms = world.clusters.at(place), world.kernel.clock.now_ms()
    name = TransactionalId("other")
    owner = broker.init_producer(now_ms, name, 900_000)
    broker.add_partitions(now_ms, name, *owner, [there])
    broker.produce(now_ms, there, [Record(b"", b"{}", now_ms)], Stamp(*owner, 0, transactional=True), name)
    for _ in range(3):
        world.kernel.now += STANDING_S
        watch.look()
    assert world.problems == []
