"""The ledger of prepared transactions by itself: what ended ones hide, and when an id is free again."""

from __future__ import annotations

import pytest

from tests.coordinator.values import TOTALS, ack, committable
from tidegate.committable import Committable
from tidegate.coordinator.ledger import TransactionLedger
from tidegate.coordinator.story import ProtocolBroken, Story
from tidegate.ids import CheckpointId

ONE, TWO = (committable(number, producer_id=100 + number, pool_slot=number) for number in (1, 2))


def decided(*listed: Committable) -> TransactionLedger:
    """Of checkpoint 1, whose ack lists the first transaction, and whose entry lists these."""
    ledger = TransactionLedger((), Story())
    first = ack(1, TOTALS, committables=[ONE])
    ledger.prepared(first)
    ledger.decided(listed, [first])
    return ledger


def test_an_ended_transaction_that_an_ack_repeats_hides_none_of_those_that_follow() -> None:
    ledger = decided(ONE)
    ledger.ended([ONE])
    ledger.prepared(ack(2, TOTALS, committables=[ONE, TWO]))
    assert ledger.due(CheckpointId(2)) == (TWO,)


def test_a_repeated_transaction_that_has_not_ended_is_still_compared() -> None:
    ledger = decided(ONE)
    with pytest.raises(ProtocolBroken, match="two different ways"):
        ledger.prepared(ack(2, TOTALS, committables=[committable(1, producer_id=101, pool_slot=1, records=6)]))


def test_an_id_is_released_once_by_a_later_notice_than_its_own() -> None:
    ledger = decided()
    ledger.ended([ONE])
    assert [ledger.take_released(CheckpointId(number)) for number in (1, 2, 3)] == [
        frozenset(),
        {ONE.transactional_id},
        frozenset(),
    ]


def test_an_id_that_the_newest_entry_lists_is_not_released() -> None:
    ledger = decided(ONE)
    ledger.ended([ONE])
    assert ledger.take_released(CheckpointId(2)) == frozenset()
    ledger.decided([], [])
    assert ledger.take_released(CheckpointId(2)) == {ONE.transactional_id}
