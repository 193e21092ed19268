"""Records that wait for a schema: what is held, what goes on, and in which order it comes back."""

from __future__ import annotations

from collections.abc import Sequence

import confluent_kafka as ck
import pytest

from tidegate.formats.contract import WaitingForSchema
from tidegate.ids import TopicPartition
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.positions import Due
from tidegate.sources.reader import ConsumerThread, Pending
from tidegate.sources.waiting_records import AGAIN_S, HeldRecords

FIRST, SECOND, THIRD = (TopicPartition("t", number) for number in range(3))


class FlowReader(ConsumerThread):
    """Notes what is paused."""

    def __init__(self) -> None:
        self.paused: set[TopicPartition] = set()

    def pause(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def resume(self, partitions: Sequence[TopicPartition]) -> None:
        self.paused -= set(partitions)


class Holding:
    """Records of a source whose time stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reader = FlowReader()
        self.held = HeldRecords("s", lambda: self.now)

    def hold(self, pending: Pending) -> None:
        self.held.hold(pending)

    def rest_of(self, pending: Pending) -> Pending:
        return self.held.without_held(pending)


def message(partition: int, value: bytes) -> ck.Message:
    return ck.Message(topic="t", partition=partition, offset=0, value=value)


def pending_of(*messages: ck.Message, **more: dict[TopicPartition, int]) -> Pending:
    caught_up = {part: Due(offset) for part, offset in more.get("caught_up", {}).items()}
    return Pending(KafkaMessages(messages), more.get("ends", {}), sum(map(len, messages)), caught_up)


def values(pending: Pending) -> list[bytes | None]:
    return list(pending.records.values)


def test_ends_stay_with_the_records_in_front_of_them() -> None:
    one = Holding()
    one.hold(pending_of(message(0, b"a"), message(1, b"b"), message(0, b"c"), ends={FIRST: 3, SECOND: 1}))
    first, second = one.held.due()
    assert (values(first.pending), first.pending.ends, first.pending.size_bytes) == ([b"a", b"c"], {FIRST: 3}, 2)
    assert (values(second.pending), second.pending.ends) == ([b"b"], {SECOND: 1})


def test_what_comes_later_of_a_partition_that_waits_is_held_after_it_and_the_rest_goes_on() -> None:
    one = Holding()
    one.hold(pending_of(message(0, b"a")))
    later = pending_of(message(1, b"x"), message(0, b"b"), ends={FIRST: 2, SECOND: 1}, caught_up={FIRST: 2, SECOND: 1})
    rest = one.rest_of(later)
    assert (values(rest), rest.ends, rest.caught_up) == ([b"x"], {SECOND: 1}, {SECOND: Due(1)})
    (held,) = one.held.due()
    assert (values(held.pending), held.pending.ends, held.pending.caught_up) == ([b"a", b"b"], {FIRST: 2}, {})
    assert held.pending.size_bytes == 2


def test_all_partitions_go_on_that_do_not_wait_in_the_order_of_their_records() -> None:
    one = Holding()
    one.hold(pending_of(message(0, b"a")))
    rest = one.rest_of(pending_of(message(2, b"x"), message(1, b"y"), message(0, b"b"), message(2, b"z")))
    assert (values(rest), rest.size_bytes) == ([b"x", b"y", b"z"], 3)


def test_who_is_caught_up_while_others_begin_to_wait_is_not_forgotten() -> None:
    """The reader says it once."""
    one = Holding()
    one.hold(pending_of(message(0, b"a"), caught_up={FIRST: 0, SECOND: 1}))
    first, second = one.held.due()
    assert (values(first.pending), first.pending.caught_up) == ([b"a"], {})
    assert (second.partition, values(second.pending), second.pending.caught_up) == (SECOND, [], {SECOND: Due(1)})


def test_a_partition_is_paused_while_it_waits_and_offered_again_after_a_moment(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "tidegate.sources")
    one = Holding()
    one.now = 50.0
    one.hold(pending_of(message(0, b"a"), message(0, b"b"), message(1, b"x")))
    first, second = one.held.due()
    one.held.wait(first, WaitingForSchema("schema 7"), one.reader)
    one.held.advance(second, Pending(), one.reader)
    assert one.reader.paused == {FIRST}
    assert list(one.held.due()) == []
    one.now += AGAIN_S
    (again,) = one.held.due()
    taken, rest = again.pending.split(1)
    one.held.advance(again, rest, one.reader)
    assert (values(taken), values(again.pending), one.reader.paused) == ([b"a"], [b"b"], {FIRST})
    one.now += 3.0 - AGAIN_S
    one.held.advance(again, Pending(), one.reader)
    assert one.reader.paused == set()
    assert not one.held
    assert [record.getMessage() for record in caplog.records] == [
        "source s: records of t[0] wait for schema 7",
        "source s: records of t[0] continue, after 3.0 s",
    ]


def test_a_bounded_partition_that_has_reached_its_end_stays_paused() -> None:
    one = Holding()
    one.hold(pending_of(message(0, b"a")))
    (held,) = one.held.due()
    one.held.wait(held, WaitingForSchema("schema 7"), one.reader)
    one.held.advance(held, Pending(), one.reader, ended=True)
    assert one.reader.paused == {FIRST}
