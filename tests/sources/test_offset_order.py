"""What a client must never do is noticed: give a record again, or after a newer one."""

from __future__ import annotations

import re
from collections.abc import Sequence

import confluent_kafka as ck
import pytest

from tests.sources.scripted import NAME, P0, P1
from tidegate.ids import TopicPartition
from tidegate.sources.errors import SourceUnavailable
from tidegate.sources.messages import KafkaMessages, OutOfOrder
from tidegate.sources.offset_order import find_last_offsets
from tidegate.sources.positions import Positions

PARTITIONS = {0: P0, 1: P1}


def last(*places: tuple[int, int]) -> dict[int, int]:
    """Of records at these partitions and offsets; the positions are 5 and 7."""
    messages = [ck.Message(topic="orders", partition=part, offset=at, value=b"v", error=None) for part, at in places]
    positions = Positions(NAME, {P0: 5, P1: 7})
    return find_last_offsets(KafkaMessages(messages), [part for part, _ in places], PARTITIONS, positions)


def test_records_in_order_with_gaps() -> None:
    assert last((0, 5), (0, 9), (1, 7), (0, 10), (1, 100)) == {0: 10, 1: 100}
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


def test_a_record_that_the_batch_itself_finds_out_of_order_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where C looks through the offsets, it says which one is wrong."""

    def run_ends(_: KafkaMessages) -> Sequence[int]:
        raise OutOfOrder(1)

    monkeypatch.setattr(KafkaMessages, "run_ends", property(run_ends))
    with pytest.raises(SourceUnavailable, match=r"offset 6 of orders\[1\]"):
        last((0, 5), (1, 6))
