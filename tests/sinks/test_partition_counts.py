"""Rows that name partitions which their topic was given after the sink had looked at it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from tests.kafka.test_writer import ONGOING, Tools
from tests.operators.driven import Collected
from tidegate.datatypes import BINARY
from tidegate.formats.failures import BadRecordPolicy
from tidegate.ids import Attempt, OperatorName, SlotIndex
from tidegate.kafka.errors import BrokerUnavailable
from tidegate.kafka.facts import TopicFacts, TopicLimits
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.sinks.kafka import SinkPlacement
from tidegate.sinks.limits import CHECK_S, PartitionCounts
from tidegate.sinks.runtime import SinkRuntime

COPY = SinkOperator(
    OperatorName("out"), "orders", "raw", (("value", BINARY),), None, None, BadRecordPolicy.SKIP, {}, partition="p"
)


class PromptHelper:
    """Does its jobs at once."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error

    def submit(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:  # noqa: BLE001 - as a thread does
            self._on_error(error)

    def stop(self) -> None:
        pass

    def join(self, _timeout_s: float) -> bool:
        return True


class GrowingTopic(Tools):
    """One topic, `orders`, with 2 partitions at first; client, producer and clients' tools at once."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.silent = False
        self.closed = 0

    def helper(self, _name: str, on_error: Callable[[BaseException], None]) -> Any:
        return PromptHelper(on_error)

    def connect_again(self, _kafka: Any, _timeout_s: float) -> Any:
        return self

    def id_lifetime_ms(self, _timeout_s: float) -> None:
        return None

    def topic_limits(self, _topic: str, _timeout_s: float) -> TopicLimits:
        return TopicLimits()

    def describe(self, _transactional_id: str, _timeout_s: float) -> Any:
        return ONGOING

    def topics(self, names: list[str], _timeout_s: float) -> dict[str, TopicFacts]:
        self.asked += 1
        if self.silent:
            raise BrokerUnavailable("nobody answers")
        return {name: TopicFacts("id", self.partitions) for name in names if self.partitions}

    def poll(self, _timeout_s: float) -> int:
        return 0

    def close(self) -> None:
        self.closed += 1


def opened(topic: GrowingTopic, *, exactly_once: bool = False) -> SinkRuntime:
    placement = SinkPlacement("p", SlotIndex(0), Attempt(1), 60_000, "j", exactly_once=exactly_once)
    sink = SinkRuntime(COPY, placement, lambda: None, tools=topic)
    sink.open()
    sink.turn()
    assert sink.room
    return sink


def put(sink: SinkRuntime, *partitions: int) -> list[str]:
    """Messages of the rows that are bad."""
    out = Collected()
    frame = pl.DataFrame(
        {"value": [b"%d" % one for one in partitions], "p": partitions}, schema_overrides={"p": pl.Int32}
    )
    sink.process(0, frame, out)
    sink.turn()
    return [failure.message for failure in out.failures]


@pytest.mark.parametrize("exactly_once", [False, True])
def test_X12_a_partition_that_the_topic_was_given_meanwhile_is_written_to(exactly_once: bool) -> None:
    """With exactly once by a producer that was opened before."""
    topic = GrowingTopic()
    sink = opened(topic, exactly_once=exactly_once)
    assert put(sink, 1) == []
    assert topic.asked == 0, "all that is named is known"
    topic.partitions = 4
    assert put(sink, 0, 3, 2) == []
    assert topic.produced == [(b"1", 1), (b"0", 0), (b"3", 3), (b"2", 2)]
    assert sink.records == 4
    sink.close()
    assert topic.closed == 1 + (not exactly_once), "the one that has read the topics' limits, too"


def test_a_partition_that_the_topic_does_not_have_is_asked_about_once_in_a_while() -> None:
    topic = GrowingTopic()
    sink = opened(topic)
    for _ in range(5):
        assert put(sink, 0, 7) == ["`p` is 7, but topic orders has the partitions 0 to 1"]
    assert topic.asked == 1
    topic.sleep(CHECK_S)
    topic.partitions = 4
    assert put(sink, 7, 3) == ["`p` is 7, but topic orders has the partitions 0 to 3"]
    assert topic.asked == 2
    assert topic.produced == [(b"0", 0)] * 5 + [(b"3", 3)]


def test_no_row_is_bad_because_nobody_answers() -> None:
    topic = GrowingTopic()
    sink = opened(topic)
    topic.silent = True
    with pytest.raises(BrokerUnavailable):
        put(sink, 7)


def test_what_was_seen_once_is_there_whatever_a_broker_that_lags_or_a_deleted_topic_says() -> None:
    topic = GrowingTopic()
    client: Any = topic
    counts = PartitionCounts(topic)
    assert not counts
    counts.learn({"orders": 2})
    topic.partitions = 4
    assert counts and counts.look_again("orders", client)
    counts.learn({"orders": 3})
    assert counts["orders"] == 4
    for fewer in (3, 0):
        topic.sleep(CHECK_S)
        topic.partitions = fewer
        assert not counts.look_again("orders", client)
    assert counts["orders"] == 4
