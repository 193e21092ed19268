"""What a client must never do is noticed: give a record again, or after a newer one."""

from __future__ import annotations

import re

import confluent_kafka as ck
import pytest

from tests.sources.scripted import NAME, P0, P1
from tidegate.ids import TopicPartition
from tidegate.kafka.errors import SourceUnavailable
from tidegate.sources.messages import KafkaMessages
from tidegate.sources.positions import Positions
from tidegate.sources.waiting_records import find_last_offsets


def last(*places: tuple[int, int]) -> dict[TopicPartition, int]:
    """Of records at these partitions and offsets; the positions are 5 and 7."""
    messages = [ck.Message(topic="orders", partition=part, offset=at, value=b"v", error=None) for part, at in places]
    return find_last_offsets(KafkaMessages(messages), Positions(NAME, {P0: 5, P1: 7}))


def test_records_in_order_with_gaps() -> None:
    assert last((0, 5), (0, 9), (1, 7), (0, 10), (1, 100)) == {P0: 10, P1: 100}
    assert last() == {}


@pytest.mark.parametrize(
    ("places", "named"),
    [
        ([(0, 5), (0, 5)], "offset 5 of orders[0]"),
        ([(0, 5), (0, 9), (1, 7), (0, 8)], "offset 8 of orders[0]"),
        ([(0, 5), (1, 6)], "offset 6 of orders[1]"),
    ],
    ids=["twice", "after a higher one", "before the position"],
)
def test_records_out_of_order_end_the_attempt(places: list[tuple[int, int]], named: str) -> None:
    with pytest.raises(SourceUnavailable, match=re.escape(named)) as failure:
        last(*places)
    part, offset = TopicPartition("orders", places[-1][0]), places[-1][1]
    position = 5 if part == P0 else 7
    assert failure.value.fields == {"partition": str(part), "offset": offset, "position": position}
