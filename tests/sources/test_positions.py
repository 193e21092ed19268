"""What messages mean for positions: no Kafka."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.driven import Collected
from tests.sources.scripted import NAME, P0, P1, Scripted, order
from tests.waiting import wait_until
from tidegate.config.fields.records import Idle
from tidegate.coordinator.types import SourcePositions
from tidegate.ids import TopicPartition
from tidegate.operators.builtin.kafka_source import EventTime
from tidegate.operators.runtime import END_OF_TIME, ROWS_MAX
from tidegate.sources.positions import (
    AGAIN_SECONDS,
    STAYS_SECONDS,
    CaughtUp,
    Due,
    Positions,
    derive_restored,
    describe_out_of_range,
)
from tidegate.task.elements import StreamStatus, Watermark


def test_F08_snapshot_has_all_partitions_in_order() -> None:
    positions = Positions(NAME, {P1: 7, P0: 3}, {P0: 10, P1: 10})
    assert positions.snapshot() == SourcePositions(NAME, ((P0, 3), (P1, 7)), ((P0, 10), (P1, 10)))


def test_records_move_the_next_offset() -> None:
    positions = Positions(NAME, {P0: 3, P1: 0})
    positions.move({P0: 8})
    assert positions.next_offsets == {P0: 8, P1: 0}


def test_an_older_event_never_moves_a_position_back() -> None:
    positions = Positions(NAME, {P0: 8})
    positions.move({P0: 5})
    assert positions.next_offsets == {P0: 8}


def test_an_added_partition_begins_at_its_first_offset_and_is_in_the_next_snapshot() -> None:
    positions = Positions(NAME, {P0: 3})
    positions.add([P1])
    assert positions.snapshot().next_offsets == ((P0, 3), (P1, 0))
    positions.move({P1: 5})
    positions.add([P1])
    assert positions.snapshot().next_offsets == ((P0, 3), (P1, 5))


def test_a_bounded_read_takes_no_new_partition() -> None:
    with pytest.raises(ValueError, match="bounded"):
        Positions(NAME, {P0: 3}, {P0: 10}).add([P1])


def test_an_unbounded_read_never_finishes() -> None:
    positions = Positions(NAME, {P0: 0})
    positions.move({P0: 1_000_000})
    assert not positions.bounded
    assert not positions.finished


def test_a_bounded_read_is_finished_when_every_partition_is() -> None:
    positions = Positions(NAME, {P0: 0, P1: 0}, {P0: 5, P1: 0})
    assert positions.ended == {P1}
    assert not positions.finished
    positions.move({P0: 4})
    assert not positions.finished
    positions.move({P0: 5})
    assert positions.finished


def test_an_event_behind_the_end_stops_at_the_end() -> None:
    positions = Positions(NAME, {P0: 0}, {P0: 5})
    assert positions.crosses_end({P0: 6})
    assert [offset for offset in range(4, 8) if positions.within(P0, offset)] == [4]
    positions.move({P0: 9})
    assert positions.next_offsets == {P0: 5}
    assert positions.finished


def test_a_start_behind_the_end_stays_where_it_is() -> None:
    positions = Positions(NAME, {P0: 9}, {P0: 5})
    assert positions.finished
    positions.move({P0: 12})
    assert positions.next_offsets == {P0: 9}


def test_a_bounded_read_needs_every_end() -> None:
    with pytest.raises(ValueError, match="an end for each"):
        Positions(NAME, {P0: 0, P1: 0}, {P0: 5})


def test_F04_restored_positions_of_this_subtask_and_unknown_partitions() -> None:
    restored = SourcePositions(NAME, ((P0, 4), (TopicPartition("orders", 9), 1)), ((P0, 6),))
    assert derive_restored([P0, P1], restored) == ({P0: 4}, {P0: 6}, [P1])


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (10, "orders[0]: offset 10 is gone, the log now starts at 30: 20 offsets were removed"),
        (99, "orders[0]: offset 99 is past the end of the log (30 to 50)"),
        (51, "orders[0]: offset 51 is past the end of the log (30 to 50)"),
        (50, "orders[0]: offset 50 was past the end of the log, which is 30 to 50 now: it was truncated and has "),
        (30, "orders[0]: offset 30 was past the end of the log, which is 30 to 50 now"),
    ],
)
def test_lost_input_is_told_with_its_range(wanted: int, message: str) -> None:
    assert describe_out_of_range(P0, wanted, 30, 50).startswith(message)


@pytest.mark.slow
@given(st.lists(st.dictionaries(st.sampled_from([P0, P1]), st.integers(0, 30))), st.integers(0, 20))
def test_positions_only_grow_and_never_pass_the_end(events: list[dict[TopicPartition, int]], end: int) -> None:
    positions = Positions(NAME, {P0: 0, P1: 0}, {P0: end, P1: end})
    before = dict(positions.next_offsets)
    for event in events:
        positions.move(event)
        assert all(before[part] <= offset <= end for part, offset in positions.next_offsets.items())
        before = dict(positions.next_offsets)
    assert positions.finished == all(offset == end for offset in before.values())


def test_records_up_to_an_end_do_not_cross_it_and_an_unbounded_read_has_none() -> None:
    bounded = Positions(NAME, {P0: 3, P1: 3}, {P0: 5, P1: 9})
    assert [bounded.crosses_end({P0: first, P1: 9}) for first in (5, 6)] == [False, True]
    assert not Positions(NAME, {P0: 3}).crosses_end({P0: 1000})


def test_a_read_has_caught_up_when_every_partition_has_passed_what_it_held_at_the_start() -> None:
    positions = Positions(NAME, {P0: 0, P1: 7}, initial_ends={P0: 5, P1: 7})
    positions.move({P0: 4, P1: 9})
    assert not positions.caught_up
    positions.move({P0: 6})  # the end may be a gap: of a marker, or of compaction
    assert positions.caught_up


def test_a_bounded_read_has_caught_up_when_it_is_finished() -> None:
    positions = Positions(NAME, {P0: 0}, {P0: 5})
    assert not positions.caught_up
    positions.move({P0: 5})
    assert positions.caught_up


def test_a_read_of_no_partition_has_caught_up() -> None:
    assert Positions(NAME, {}).caught_up


AT = EventTime("at", 0)
ACTIVE, IDLE = StreamStatus(idle=False), StreamStatus(idle=True)


# -- the decision ----------------------------------------------------------------------------------------------------


def test_a_partition_is_asked_about_a_while_after_its_end_and_idle_when_it_still_ends_there() -> None:
    one = CaughtUp()
    one.watch({P0: 7}, 10.0)
    assert one.due(10.0 + STAYS_SECONDS - 0.01) == {}
    assert one.due(10.0 + STAYS_SECONDS) == {P0: Due(7)}
    assert one.answer(P0, Due(7), 7, 11.0)
    assert one.due(99.0) == {}, "once is enough"


def test_a_partition_with_more_to_read_is_not_caught_up_until_its_next_end() -> None:
    one = CaughtUp()
    one.watch({P0: 7}, 10.0)
    assert not one.answer(P0, Due(7), 8, 11.0)
    assert one.due(99.0) == {}


@pytest.mark.parametrize("stable", [None, 6])
def test_without_an_answer_nothing_is_known_and_the_question_is_repeated(stable: int | None) -> None:
    one = CaughtUp()
    one.watch({P0: 7}, 10.0)
    assert not one.answer(P0, Due(7), stable, 11.0)
    assert one.due(11.0 + AGAIN_SECONDS - 0.01) == {}
    assert one.due(11.0 + AGAIN_SECONDS) == {P0: Due(7)}


def test_a_partition_with_an_open_transaction_is_asked_about_again_after_a_while() -> None:
    one = CaughtUp()
    one.watch({P0: 7}, 10.0)
    assert not one.answer(P0, Due(7), 7, 11.0, is_open=True)
    assert one.due(11.0 + STAYS_SECONDS - 0.01) == {}
    assert one.due(11.0 + STAYS_SECONDS) == {P0: Due(7)}


def test_an_answer_about_an_end_that_has_moved_on_says_nothing() -> None:
    one = CaughtUp()
    one.watch({P0: 7}, 10.0)
    one.watch({P0: 9}, 10.5)
    assert not one.answer(P0, Due(7), 7, 11.0)
    assert not one.answer(P1, Due(7), 7, 11.0)
    assert one.due(11.5) == {P0: Due(9)}


def test_whether_a_partition_is_still_caught_up_is_asked_at_once_and_by_its_number() -> None:
    one = CaughtUp()
    one.ask({P0: Due(7, 1)}, 10.0)
    assert one.due(10.0) == {P0: Due(7, 1)}
    one.ask({P0: Due(7, 2)}, 10.0)
    assert not one.answer(P0, Due(7, 1), 7, 11.0), "that was asked too early"
    assert one.answer(P0, Due(7, 2), 7, 11.0)


# -- with the thread that reads --------------------------------------------------------------------------------------


def at_the_end(one: Scripted, *parts: TopicPartition) -> list[Any]:
    """The ends of partitions are seen by the loop."""
    for part in parts:
        one.client.end(part)
    one.gather()
    return one.poll()


def test_an_idle_partition_does_not_hold_the_watermark_back_and_is_active_in_front_of_its_next_rows() -> None:
    with Scripted(AT) as one:
        one.client.put(P0, order(1, 100))
        one.client.put(P1, order(2, 50))
        one.gather()
        assert one.poll() == [[1, 2], Watermark(49)]
        assert one.source.held_back_by == P1
        assert at_the_end(one, P1) == []
        one.stay(STAYS_SECONDS - 0.1)
        assert one.client.asked == []
        one.stay(0.1)
        wait_until(lambda: one.client.asked == [P1], "the reader asks")
        one.gather()
        assert one.poll() == [Watermark(99)]
        assert one.source.held_back_by == P0
        assert at_the_end(one, P0) == []
        one.stay()
        assert one.poll() == [IDLE]
        one.client.put(P1, order(3, 60))
        one.gather()
        assert one.poll() == [ACTIVE, [3], Watermark(99)]


def test_a_partition_without_any_record_does_not_hold_the_watermark_back_for_ever() -> None:
    with Scripted(AT) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        assert one.poll() == [[1]]
        at_the_end(one, P1)
        one.stay()
        assert one.poll() == [Watermark(99)]


def test_an_outage_makes_no_partition_idle_however_long_it_lasts() -> None:
    with Scripted(AT) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        one.poll()
        at_the_end(one, P1)
        one.client.away = True
        for asked in range(1, 5):
            one.stay(AGAIN_SECONDS)
            wait_until(lambda: len(one.client.asked) >= asked, "the reader asks")  # noqa: B023  # called at once
            one.gather()
            assert one.poll() == []
        assert one.source.held_back_by == P1
        one.client.away = False
        one.stay(AGAIN_SECONDS)
        assert one.poll() == [Watermark(99)]


def test_a_partition_with_an_open_transaction_is_not_idle_until_it_is_decided() -> None:
    """Its records are on their way: another partition may have those of the same transaction already (ADR 52)."""
    with Scripted(AT) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        one.poll()
        one.client.undecided[P1] = 3
        at_the_end(one, P1)
        one.stay(STAYS_SECONDS)
        assert one.poll() == []
        assert one.source.held_back_by == P1
        one.client.undecided[P1] = 0
        one.stay(STAYS_SECONDS)
        assert one.poll() == [Watermark(99)]


def test_a_slow_slot_makes_no_partition_idle_that_has_records_at_the_broker() -> None:
    """The end was seen long ago; that the partition has gone on since, only the broker can say."""
    with Scripted(AT) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        one.poll()
        at_the_end(one, P1)
        one.client.stable[P1] += 1
        one.stay(3600)
        assert one.client.asked == [P1]
        assert one.poll() == []
        assert one.source.held_back_by == P1


def test_an_end_that_the_loop_has_not_come_to_makes_nothing_idle() -> None:
    with Scripted(AT) as one:
        one.client.put(P0, order(1, 100))
        one.client.put(P1, *(order(number, 50) for number in range(5)))
        one.client.end(P1)
        one.gather()
        one.stay(3600)
        assert one.poll(rows_max=4) == [[1, 0, 1, 2], Watermark(49)]
        one.stay(3600)
        assert one.client.asked == []


def test_records_that_come_after_the_answer_count_more_than_the_answer() -> None:
    with Scripted(AT) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        one.poll()
        at_the_end(one, P1)
        one.stay()
        assert one.client.asked == [P1]
        one.client.put(P1, order(2, 50))
        one.gather()
        assert one.poll() == [[2], Watermark(49)]
        assert one.source.held_back_by == P1


def test_an_end_that_records_have_passed_keeps_no_other_partition_from_being_idle() -> None:
    with Scripted(AT) as one:
        one.client.end(P0)
        one.client.put(P0, order(1, 100))
        one.client.end(P1)
        one.gather()
        assert one.poll() == [[1]]
        one.stay()
        assert one.client.asked == [P1]
        assert one.poll() == [Watermark(99)]


def test_an_end_that_comes_while_an_answer_is_out_is_asked_about_because_of_the_same_question() -> None:
    """Else whoever has asked is never answered, and the watermark stands."""
    with Scripted(AT) as one:
        at_the_end(one, P0, P1)
        one.stay()
        assert one.poll() == [IDLE]
        one.client.away = True
        one.client.put(P0, order(1, 100))
        one.gather()
        out = Collected()
        one.source.poll(ROWS_MAX, out)
        one.gather()
        assert [element for element in out.order if isinstance(element, Watermark)] == []
        asked = len(one.client.asked)
        one.client.away = False
        one.gather()
        assert len(one.client.asked) == asked, "it is not asked again so soon"
        one.client.end(P1)
        one.gather()
        assert one.poll() == [Watermark(99)]


def test_a_watermark_that_waits_is_something_that_was_done() -> None:
    """Who polls goes on until nothing is done."""
    with Scripted(AT) as one:
        at_the_end(one, P0, P1)
        one.stay()
        out = Collected()
        assert one.source.poll(ROWS_MAX, out)
        assert out.order == [IDLE]
        assert not one.source.poll(ROWS_MAX, out)


def test_who_asks_whether_a_source_is_still_idle_is_answered_once_its_partitions_were_asked() -> None:
    with Scripted(AT) as one:
        assert not one.source.take_still_idle(), "nobody has asked"
        at_the_end(one, P0, P1)
        one.stay()
        assert one.poll() == [IDLE]
        asked = len(one.client.asked)
        one.source.ask_still_idle()
        wait_until(lambda: len(one.client.asked) == asked + 2, "both partitions are asked about")
        one.gather()
        assert one.poll() == []
        assert one.source.take_still_idle()
        assert not one.source.take_still_idle(), "once"


def test_a_source_without_event_time_is_never_idle_and_has_nothing_to_do_with_the_clock() -> None:
    with Scripted(None) as one:
        one.source.ask_still_idle()
        assert not one.source.take_still_idle()
        out = Collected()
        assert not one.source.on_time(10_000, out)
        assert out.order == []


def test_a_partition_is_waited_for_where_the_file_says_never() -> None:
    with Scripted(EventTime("at", 0, Idle.NEVER)) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        one.poll()
        at_the_end(one, P1)
        one.stay(3600)
        assert one.client.asked == []
        assert one.source.held_back_by == P1


def test_nobody_is_asked_where_no_step_needs_event_time() -> None:
    with Scripted(EventTime("at", 0), carries=()) as one:
        at_the_end(one, P0, P1)
        one.stay(3600)
        assert one.client.asked == []
        assert one.source.held_back_by is None


# -- the clock, and the end ------------------------------------------------------------------------------------------


def test_a_silent_topic_follows_the_clock_once_a_second_where_the_file_says_so() -> None:
    with Scripted(EventTime("at", 50, Idle.WALL_CLOCK)) as one:
        one.client.put(P0, order(1, 100))
        one.gather()
        one.poll()
        assert one.deadlines == []
        at_the_end(one, P0, P1)
        one.stay()
        assert one.poll() == [Watermark(49)]
        assert one.deadlines == [0], "at once"
        out = Collected()
        assert one.source.on_time(10_000, out), "the brokers are asked at once"
        assert out.order == []
        assert one.poll() == [Watermark(9949)]
        assert one.deadlines == [11_000]
        assert one.source.positions().watermarks == ((P0, 9949), (P1, 9949))
        frame = one.read((P1, order(2, 9000)))
        assert frame.select("__tidegate_time", "__tidegate_behind").rows() == [(9000, 950)]
        assert one.deadlines == []


def test_the_clock_does_not_pass_records_that_a_silent_broker_may_have() -> None:
    """What arrives while it cannot be asked is read with the time at which it arrived."""
    with Scripted(EventTime(None, 0, Idle.WALL_CLOCK, arrival=True), partitions=(P0,)) as one:
        one.client.put(P0, (order(1, 0), 1000))
        one.gather()
        one.poll()
        at_the_end(one, P0)
        one.stay()
        one.poll()
        one.client.away = True
        for now_ms in (10_000, 11_000, 12_000):
            one.source.on_time(now_ms, Collected())
            one.stay(AGAIN_SECONDS)
        assert one.source.positions().watermarks == ((P0, 999),)
        one.client.away = False
        frame = one.read((P0, (order(2, 0), 10_500)))
        assert frame.select("__tidegate_time", "__tidegate_behind").rows() == [(10_500, 0)]


def test_a_record_that_is_behind_arrives_now_and_again_at_the_same_time_after_a_restore() -> None:
    arrival = EventTime(None, 100, Idle.WALL_CLOCK, arrival=True)
    stamps = [5000, 4950, 3000, 4898, 5001]
    with Scripted(arrival, partitions=(P0,)) as one:
        frame = one.read(*[(P0, (order(number, 0), at_ms)) for number, at_ms in enumerate(stamps)])
        assert frame["__tidegate_time"].to_list() == [5000, 4950, 4900, 4900, 5001]
        assert frame["__tidegate_behind"].to_list() == [0] * 5
        stored = one.source.positions()
    assert stored.watermarks == ((P0, 4900),)
    begin = msgspec.structs.replace(stored, next_offsets=((P0, 0),))
    with Scripted(arrival, begin, partitions=(P0,)) as one:
        frame = one.read((P0, (order(5, 0), 100)), (P0, (order(6, 0), 6000)))
        assert frame["__tidegate_time"].to_list() == [4901, 6000]


def test_W02_a_bounded_source_is_finished_when_the_end_of_time_is_sent() -> None:
    ends = SourcePositions(NAME, ((P0, 0), (P1, 0)), ((P0, 2), (P1, 0)))
    with Scripted(AT, ends, until="latest") as one:
        one.client.put(P0, order(1, 100), order(2, 200), order(3, 300))
        one.gather()
        assert one.poll(rows_max=1) == [[1], Watermark(99)]
        assert [one.finished] == [False]
        assert one.poll() == [[2], Watermark(199), Watermark(END_OF_TIME)]
        assert one.finished
        assert one.source.positions() == SourcePositions(
            NAME, ((P0, 2), (P1, 0)), ((P0, 2), (P1, 0)), ((P0, 199),), "at"
        )


def test_W02_a_bounded_source_that_was_restored_at_its_end_is_finished_once_it_has_sent_the_end_of_time() -> None:
    ends = SourcePositions(NAME, ((P0, 2),), ((P0, 2),), ((P0, 199),), "at")
    with Scripted(AT, ends, partitions=(P0,), until="latest") as one:
        assert [one.finished] == [False]
        assert one.poll() == [Watermark(199), Watermark(END_OF_TIME)]
        assert one.finished
        assert one.source.positions() == ends
