"""How long the reader gathers, and in what parts it hands over."""

from __future__ import annotations

from typing import cast

import confluent_kafka as ck

from tidegate.ids import TopicPartition
from tidegate.sources.reader import FEW_RECORDS, LINGER_SECONDS, Pending, derive_linger_seconds


def test_small_rounds_are_handed_over_once_per_linger() -> None:
    assert derive_linger_seconds(FEW_RECORDS - 1, 0.0) == LINGER_SECONDS
    assert derive_linger_seconds(1, LINGER_SECONDS / 4) == LINGER_SECONDS * 3 / 4


def test_the_first_record_after_a_pause_is_not_held_back() -> None:
    assert derive_linger_seconds(1, LINGER_SECONDS) == 0.0
    assert derive_linger_seconds(0, 3600.0) == 0.0


def test_a_backlog_is_not_held_back() -> None:
    assert derive_linger_seconds(FEW_RECORDS, 0.0) == 0.0


def test_the_end_of_a_partition_is_told_behind_its_last_record() -> None:
    messages = [cast("ck.Message", b"x" * size) for size in (1, 2, 3)]
    end = {TopicPartition("orders", 0): 3}
    first, rest = Pending(messages, end, 6).split(2)
    assert (first.messages, first.ends, first.size_bytes) == (messages[:2], {}, 3)
    assert (rest.messages, rest.ends, rest.size_bytes) == (messages[2:], end, 3)
    last, nothing = rest.split(1)
    assert (last, nothing) == (rest, Pending([], {}))
