"""What arrives while a schedule is played."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec
import pytest

from tidegate.ids import MAIN_CLUSTER, TopicPartition
from tidegate.simulation.campaign import quiet
from tidegate.simulation.draw import draw_schedule
from tidegate.simulation.feed import RECORDS_MAX, WAITING_MAX
from tidegate.simulation.lateness import IDLE_S
from tidegate.simulation.timing import Timing
from tidegate.simulation.workload import Workload
from tidegate.simulation.world import World

PLAIN = msgspec.structs.replace(
    draw_schedule(1).workload, topology="union", partitions=2, backlog=7, burst=3, gap_s=0.1, wave=0, noisy=False
)


def world_of(workload: Workload) -> World:
    with quiet():
        return World(msgspec.structs.replace(draw_schedule(1), workload=workload))


@pytest.fixture
def world() -> Iterator[World]:
    made = world_of(PLAIN)
    yield made
    made.kernel.close()


def appended(world: World, topic: str) -> int:
    counts = world.clusters.broker(MAIN_CLUSTER).topics([topic])[topic].partitions
    return sum(
        world.clusters.broker(MAIN_CLUSTER).end_offset(TopicPartition(topic, number)) for number in range(counts)
    )


def test_the_backlog_is_there_at_once_and_bursts_follow_until_it_is_stopped(world: World) -> None:
    world.feed.start(7)
    assert len(world.feed.records) == 7
    world.kernel.run(1.0)
    grown = len(world.feed.records)
    assert 7 + 6 <= grown <= 7 + 3 * 20
    world.feed.stop()
    world.kernel.run(1.0)
    assert len(world.feed.records) == grown
    assert appended(world, "orders") + appended(world, "returns") == grown


def test_records_are_numbered_in_the_order_of_their_arrival(world: World) -> None:
    world.feed.start(20)
    world.kernel.run(0.5)
    assert [record.id for record in world.feed.records] == list(range(len(world.feed.records)))


def test_nothing_arrives_while_too_much_waits(world: World) -> None:
    world.feed.start(0)
    world.kernel.run(60.0)
    assert WAITING_MAX <= len(world.feed.records) < WAITING_MAX + 3
    world.account.processed_count = 50
    world.kernel.run(60.0)
    assert WAITING_MAX + 50 <= len(world.feed.records) < WAITING_MAX + 53


def test_a_wave_brings_what_is_lacking_for_so_many_to_wait() -> None:
    world = world_of(msgspec.structs.replace(PLAIN, wave=40))
    world.feed.start(0)
    world.kernel.run(5.0)
    assert len(world.feed.records) >= 40


def test_a_topic_that_grows_takes_records_in_its_new_partition() -> None:
    world = world_of(msgspec.structs.replace(PLAIN, topology="totals", partitions=1, customers=9, growing=True))
    world.feed.start(0)
    for _ in range(10):
        world.kernel.run(5.0)
        world.account.processed_count = len(world.feed.records)
    assert world.clusters.broker(MAIN_CLUSTER).topics(["orders"])["orders"].partitions == 3
    assert {record.place.partition for record in world.feed.records} == {0, 1, 2}
    assert world.reach.counts["topics grown"] == 2


def test_aborted_noise_lies_between_the_records(world: World) -> None:
    noisy = world_of(msgspec.structs.replace(PLAIN, noisy=True))
    noisy.feed.start(5)
    for _ in range(5):
        noisy.kernel.run(2.0)
        noisy.account.processed_count = noisy.feed._count_appended()
    assert appended(noisy, "orders") + appended(noisy, "returns") > len(noisy.feed.records)


def test_there_is_an_end_to_it(world: World) -> None:
    world.feed.append(RECORDS_MAX)
    world.feed.append(1)
    assert len(world.feed.records) == RECORDS_MAX


# -- event times -------------------------------------------------------------------------------------------------------

TIMING = Timing(
    size_ms=100, delay_ms=50, idle="caught-up", disorder_ms=80, stray=0.0, silence=0.0, steady=True, lag_ms=0
)
TIMED = msgspec.structs.replace(PLAIN, topology="union-windows", timing=TIMING, customers=1, bounded=False, backlog=0)


def times_of(world: World) -> list[int]:
    return [record.event_ms for record in world.feed.records]


def test_only_where_there_are_windows_records_have_event_times(world: World) -> None:
    world.feed.start(5)
    assert [record.at for record in world.feed.records] == [None] * 5
    assert b'"at"' not in world.feed.records[0].value
    timed = world_of(TIMED)
    timed.feed.start(5)
    timed.kernel.run(2.0)
    now_ms = timed.kernel.clock.now_ms()
    assert all(now_ms - 2000 - 80 <= at <= now_ms for at in times_of(timed))
    assert times_of(timed) != sorted(times_of(timed))


def test_a_steady_partition_is_never_without_records_for_as_long_as_it_takes_to_be_idle() -> None:
    world = world_of(msgspec.structs.replace(TIMED, gap_s=5.0))
    world.feed.start(0)
    for _ in range(10):
        world.kernel.run(1.0)
        world.account.processed_count = len(world.feed.records)
    assert len(world.feed.places) == 4
    for numbers in world.feed.places.values():
        moments = [world.feed.records[number].arrived_s for _, number in numbers]
        assert max(later - earlier for earlier, later in pairwise(moments)) < IDLE_S


def test_partitions_fall_silent() -> None:
    world = world_of(msgspec.structs.replace(TIMED, timing=msgspec.structs.replace(TIMING, silence=0.3)))
    world.feed.start(0)
    for _ in range(10):
        world.kernel.run(1.0)
        world.account.processed_count = len(world.feed.records)
    gaps = [
        world.feed.records[second].arrived_s - world.feed.records[first].arrived_s
        for numbers in world.feed.places.values()
        for (_, first), (_, second) in pairwise(numbers)
    ]
    assert max(gaps) > IDLE_S


@pytest.mark.parametrize("idle", ["never", "caught-up"])
def test_at_the_end_records_far_ahead_close_all_windows_and_what_follows_is_later_still(idle: str) -> None:
    world = world_of(msgspec.structs.replace(TIMED, timing=msgspec.structs.replace(TIMING, idle=idle)))
    world.feed.start(20)
    newest = max(times_of(world))
    world.feed.stop()
    closing = world.feed.records[20:]
    assert 1 <= len(closing) <= 4
    assert len({record.place for record in closing}) == len(closing)
    assert len(closing) == 4 or idle == "caught-up"
    assert min(record.event_ms for record in closing) > newest + 3_000_000
    world.feed.start(5)
    assert min(record.event_ms for record in world.feed.records[-5:]) > newest + 3_000_000


def test_the_end_of_a_bounded_read_closes_windows_by_itself() -> None:
    world = world_of(msgspec.structs.replace(TIMED, bounded=True))
    world.feed.start(20)
    world.feed.stop()
    assert len(world.feed.records) == 20
