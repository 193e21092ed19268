"""What is skipped where retention has removed input, and the checkpoint that says so."""

from __future__ import annotations

import msgspec

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, handle, positions
from tidegate.coordinator.recovery import RestoreFacts, decide_restore
from tidegate.coordinator.start_offsets import derive_lost, derive_positions, derive_skipped
from tidegate.coordinator.types import LostRange, SourcePositions
from tidegate.ids import OperatorName, TopicPartition
from tidegate.journal.journal import Journal

ORDERS = OperatorName("orders")
ONE, TWO, THREE = (TopicPartition("orders", number) for number in range(3))
FACTS = RestoreFacts(IDENTITY, {ORDERS: {"orders": 3}}, frozenset({OperatorName("totals")}))


def test_what_lies_before_the_first_offset_is_lost() -> None:
    at = {ORDERS: SourcePositions(ORDERS, ((ONE, 10), (TWO, 20)))}
    assert derive_lost(at, {ORDERS: {ONE: 12, TWO: 20}}) == (LostRange(ORDERS, ONE, 10, 12),)
    assert derive_lost(at, {ORDERS: {ONE: 0, TWO: 5}}) == ()


def test_a_bounded_read_misses_nothing_after_its_end() -> None:
    at = {ORDERS: SourcePositions(ORDERS, ((ONE, 10), (TWO, 20)), ((ONE, 15), (TWO, 20)))}
    assert derive_lost(at, {ORDERS: {ONE: 100, TWO: 100}}) == (LostRange(ORDERS, ONE, 10, 15),)


def test_the_range_is_in_the_journal_and_every_restart_skips_the_same() -> None:
    storage = FakeStorage()
    journal = Journal(storage, ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    newest = completed(
        1,
        at=(positions("orders", {"orders": {0: 10, 1: 20}}),),
        states=(handle(1),),
        committables=(committable(1),),
    )
    journal.append_checkpoint(newest)
    restore = decide_restore(journal.state, FACTS)
    at = derive_positions(restore, {ORDERS})
    assert at[ORDERS].next_offsets == ((ONE, 10), (TWO, 20), (THREE, 0))
    lost = derive_lost(at, {ORDERS: {ONE: 12, TWO: 3, THREE: 7}})
    assert derive_positions(restore, ()) == {}
    journal.append_restored(restore, derive_skipped(journal.state, IDENTITY, lost), 9)
    other = Journal(storage, OTHER, retained=1, id_reserve=5)
    again = decide_restore(other.take_over(IDENTITY, 10), FACTS)
    assert derive_positions(again, {ORDERS})[ORDERS].next_offsets == ((ONE, 12), (TWO, 20), (THREE, 7))
    assert again.checkpoint is not None
    assert again.checkpoint.lost == (LostRange(ORDERS, ONE, 10, 12), LostRange(ORDERS, THREE, 0, 7))
    assert (again.checkpoint.states, again.checkpoint.committables) == (newest.states, ())


def test_positions_that_are_there_twice_all_move() -> None:
    """A bounded source that starts again has an entry with ends after the one without."""
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    first, again = (SourcePositions(ORDERS, ((ONE, 10),), ends) for ends in ((), ((ONE, 30),)))
    journal.append_checkpoint(completed(1, at=(first, again)))
    skipped = derive_skipped(journal.state, IDENTITY, (LostRange(ORDERS, ONE, 10, 12),)).checkpoint
    assert [one.next_offsets for one in skipped.positions] == [((ONE, 12),), ((ONE, 12),)]


def test_the_ends_of_a_bounded_read_are_known_so_that_nothing_after_them_is_lost() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    bounded = SourcePositions(ORDERS, ((ONE, 10), (TWO, 20)), ((ONE, 15), (TWO, 25)))
    journal.append_checkpoint(completed(1, at=(bounded,)))
    facts = msgspec.structs.replace(FACTS, sources={ORDERS: {"orders": 2}})
    assert derive_positions(decide_restore(journal.state, facts), {ORDERS}) == {ORDERS: bounded}


def test_a_source_that_has_no_end_any_more_misses_what_is_lost_after_its_former_one() -> None:
    """It would be met there, at each start again, although the source continues without lost input."""
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, at=(SourcePositions(ORDERS, ((ONE, 4),), ((ONE, 10),)),), final=True))
    facts = msgspec.structs.replace(FACTS, sources={ORDERS: {"orders": 1}}, unbounded=frozenset({ORDERS}))
    at = derive_positions(decide_restore(journal.state, facts), {ORDERS})
    assert derive_lost(at, {ORDERS: {ONE: 20}}) == (LostRange(ORDERS, ONE, 4, 20),)


def test_what_continues_after_lost_input_is_not_the_end_of_a_bounded_read() -> None:
    """It was, and began again: a final checkpoint would end the next attempt before it reads anything."""
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, at=(SourcePositions(ORDERS, ((ONE, 10),)),), final=True))
    assert not derive_skipped(journal.state, IDENTITY, (LostRange(ORDERS, ONE, 10, 12),)).checkpoint.final
