"""Where sources begin is a checkpoint before anybody reads."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, committable, completed, handle, on_cluster, positions
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, RestoreRefused, decide_restore
from tidegate.coordinator.start_offsets import UnassignedSource, derive_begun, derive_moved_starts, derive_unplaced
from tidegate.coordinator.types import SourcePositions
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.ids import OperatorName, TopicPartition
from tidegate.journal.journal import Journal

ORDERS, RETURNS = OperatorName("orders"), OperatorName("returns")
PARTS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
LATEST = {ORDERS: "latest"}


def facts(sources: Mapping[str, Mapping[str, int]] | None = None) -> RestoreFacts:
    chosen = {"orders": {"orders": 2}} if sources is None else sources
    named = {OperatorName(name): topics for name, topics in chosen.items()}
    return RestoreFacts(IDENTITY, named, frozenset({OperatorName("totals")}))


def begun(journal: Journal, at: SourcePositions, now: RestoreFacts) -> RestorePlan:
    """As the daemon does it: take over, look up, append."""
    restore = decide_restore(journal.take_over(IDENTITY, 1), now)
    assert derive_unplaced(restore, ())
    journal.append_restored(restore, derive_begun(journal.state, IDENTITY, (at,), LATEST), 5)
    return decide_restore(journal.state, now)


def test_F04_a_crash_before_the_first_checkpoint_restores_the_fixed_begin() -> None:
    storage, at = FakeStorage(), positions("orders", {"orders": {0: 100, 1: 200}})
    first = begun(Journal(storage, ME, retained=1, id_reserve=5), at, facts())
    assert [dict(slot.positions[0].next_offsets) for slot in first.slots] == [{PARTS[0]: 100}, {PARTS[1]: 200}]
    other = Journal(storage, OTHER, retained=1, id_reserve=5)
    again = decide_restore(other.take_over(IDENTITY, 9), facts())
    assert [slot.positions for slot in again.slots] == [slot.positions for slot in first.slots]
    assert derive_unplaced(again, ()) == ()
    assert again.first_checkpoint > first.first_checkpoint


def test_C10_the_attempt_goes_on_behind_the_id_of_the_begin() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    plan = begun(journal, positions("orders", {"orders": {0: 0, 1: 0}}), facts())
    assert plan.checkpoint is not None
    assert (plan.checkpoint.id, plan.checkpoint.attempt, plan.first_checkpoint) == (1, 1, 2)
    assert plan.checkpoint.completed_at_ms == 5


def test_a_partition_that_appears_behind_the_fixed_begin_starts_at_its_first_record() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    begun(journal, positions("orders", {"orders": {0: 100, 1: 200}}), facts())
    grown = decide_restore(journal.take_over(IDENTITY, 9), facts({"orders": {"orders": 3}}))
    known = {part: offset for slot in grown.slots for one in slot.positions for part, offset in one.next_offsets}
    assert known == {PARTS[0]: 100, PARTS[1]: 200, TopicPartition("orders", 2): 0}
    assert derive_unplaced(grown, ()) == ()


def test_a_source_that_was_added_begins_next_to_what_the_checkpoint_has() -> None:
    """State and the other positions stay; what the checkpoint listed is committed by then."""
    storage, now = FakeStorage(), facts({"orders": {"orders": 2}, "returns": {"returns": 1}})
    journal = Journal(storage, ME, retained=1, id_reserve=5)
    journal.take_over(msgspec.structs.replace(IDENTITY, parallelism=1), 1)
    old, state = positions("orders", {"orders": {0: 7, 1: 8}}), handle(1, subtask=0)
    journal.append_checkpoint(completed(1, at=(old,), states=(state,), committables=(committable(1),)))
    restore = decide_restore(journal.take_over(IDENTITY, 2), now)
    (unplaced,) = derive_unplaced(restore, ())
    assert unplaced == UnassignedSource(RETURNS, (TopicPartition("returns", 0),))
    new = positions("returns", {"returns": {0: 55}})
    journal.append_restored(restore, derive_begun(journal.state, IDENTITY, (new,), {RETURNS: "latest"}), 5)
    fixed = journal.state.newest_checkpoint
    assert fixed is not None
    assert (fixed.positions, fixed.states, fixed.committables) == ((old, new), (state,), ())
    assert fixed.starts == ((RETURNS, "latest"),)
    assert journal.state.identity == msgspec.structs.replace(IDENTITY, parallelism=1)
    assert derive_unplaced(decide_restore(journal.state, now), ()) == ()


def test_X09_a_topic_that_is_added_to_a_source_begins_as_start_says() -> None:
    """Only new partitions of topics that the checkpoint knows begin at 0."""
    now = facts({"orders": {"orders": 3, "legacy": 2}})
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    begun(journal, positions("orders", {"orders": {0: 100, 1: 200}}), facts())
    restore = decide_restore(journal.take_over(IDENTITY, 2), now)
    legacy = (TopicPartition("legacy", 0), TopicPartition("legacy", 1))
    assert derive_unplaced(restore, ()) == (UnassignedSource(ORDERS, legacy, known_topics=frozenset({"orders"})),)
    looked_up = positions("orders", {"legacy": {0: 5000, 1: 6000}})
    journal.append_restored(restore, derive_begun(journal.state, IDENTITY, (looked_up,), LATEST), 5)
    plan = decide_restore(journal.state, now)
    known = {part: offset for slot in plan.slots for one in slot.positions for part, offset in one.next_offsets}
    assert known == {PARTS[0]: 100, PARTS[1]: 200, TopicPartition("orders", 2): 0, legacy[0]: 5000, legacy[1]: 6000}
    assert derive_unplaced(plan, ()) == ()
    assert plan.checkpoint is not None
    assert plan.checkpoint.starts == ((ORDERS, "latest"),)


def test_X09_a_topic_that_is_added_to_a_bounded_read_gets_an_end_of_its_own() -> None:
    now = facts({"orders": {"orders": 2, "legacy": 1}})
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    ends = ((PARTS[0], 70), (PARTS[1], 80))
    journal.append_checkpoint(completed(1, at=(SourcePositions(ORDERS, ((PARTS[0], 7), (PARTS[1], 8)), ends),)))
    restore = decide_restore(journal.take_over(IDENTITY, 2), now)
    legacy = TopicPartition("legacy", 0)
    assert derive_unplaced(restore, {ORDERS}) == (
        UnassignedSource(ORDERS, (legacy,), known_topics=frozenset({"orders"})),
    )
    looked_up = SourcePositions(ORDERS, ((legacy, 3),), ((legacy, 9),))
    journal.append_restored(restore, derive_begun(journal.state, IDENTITY, (looked_up,), {}), 5)
    plan = decide_restore(journal.state, now)
    found = {part: end for slot in plan.slots for one in slot.positions for part, end in one.end_offsets}
    assert found == {**dict(ends), legacy: 9}
    assert derive_unplaced(plan, {ORDERS}) == ()


def test_a_bounded_source_behind_its_final_checkpoint_only_lacks_new_ends() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    done = positions("orders", {"orders": {0: 7, 1: 8}}, ends=True)
    journal.append_checkpoint(completed(1, at=(done,), final=True))
    restore = decide_restore(journal.take_over(IDENTITY, 2), facts())
    (unplaced,) = derive_unplaced(restore, {ORDERS})
    assert unplaced == UnassignedSource(ORDERS, PARTS, done.next_offsets, frozenset({"orders"}))
    assert derive_unplaced(restore, ()) == ()
    ends = ((PARTS[0], 70), (PARTS[1], 80))
    anew = SourcePositions(ORDERS, done.next_offsets, ends)
    journal.append_restored(restore, derive_begun(journal.state, IDENTITY, (anew,), {}), 5)
    plan = decide_restore(journal.state, facts())
    assert [slot.positions[0].end_offsets for slot in plan.slots] == [ends[:1], ends[1:]]
    assert not journal.state.final
    assert derive_unplaced(plan, {ORDERS}) == ()


def test_a_bounded_source_that_was_stopped_before_its_end_lacks_nothing() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    stopped = SourcePositions(ORDERS, ((PARTS[0], 7), (PARTS[1], 80)), ((PARTS[0], 70), (PARTS[1], 80)))
    journal.append_checkpoint(completed(1, at=(stopped,), final=True))
    restore = decide_restore(journal.take_over(IDENTITY, 2), facts())
    assert derive_unplaced(restore, {ORDERS}) == ()
    added = facts({"orders": {"orders": 2}, "returns": {"returns": 1}})
    (unplaced,) = derive_unplaced(decide_restore(journal.state, added), {ORDERS, RETURNS})
    assert unplaced == UnassignedSource(RETURNS, (TopicPartition("returns", 0),))


def test_a_bounded_source_that_starts_again_keeps_its_watermarks() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    done = positions("orders", {"orders": {0: 7, 1: 8}}, ends=True)
    at = ((PARTS[0], 60_000), (PARTS[1], 90_000))
    journal.append_checkpoint(completed(1, at=(msgspec.structs.replace(done, watermarks=at),), final=True))
    restore = decide_restore(journal.take_over(IDENTITY, 2), facts())
    looked_up = SourcePositions(ORDERS, done.next_offsets, ((PARTS[0], 70), (PARTS[1], 80)))
    journal.append_restored(restore, derive_begun(journal.state, IDENTITY, (looked_up,), {}), 5)
    plan = decide_restore(journal.state, facts())
    assert [slot.positions[0].watermarks for slot in plan.slots] == [at[:1], at[1:]]


def test_a_source_without_partitions_is_placed_once() -> None:
    now = facts({"orders": {"orders": 2}, "returns": {}})
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    restore = decide_restore(journal.take_over(IDENTITY, 1), now)
    placed = (positions("orders", {"orders": {0: 1, 1: 1}}, ends=True), SourcePositions(RETURNS, ()))
    journal.append_restored(restore, derive_begun(journal.state, IDENTITY, placed, {}), 5)
    assert derive_unplaced(decide_restore(journal.state, now), {ORDERS, RETURNS}) == ()


def test_a_start_that_was_changed_behind_the_fixed_begin_is_told() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    plan = begun(journal, positions("orders", {"orders": {0: 1, 1: 1}}), facts())
    assert plan.checkpoint is not None
    assert derive_moved_starts(plan.checkpoint, {ORDERS: "earliest"}) == ((ORDERS, "latest", "earliest"),)
    assert derive_moved_starts(plan.checkpoint, {ORDERS: "latest", RETURNS: "earliest"}) == ()
    assert derive_moved_starts(plan.checkpoint, {}) == ()


def test_where_sources_began_is_kept_when_others_are_added() -> None:
    storage = FakeStorage()
    journal = Journal(storage, ME, retained=1, id_reserve=5)
    begun(journal, positions("orders", {"orders": {0: 100, 1: 200}}), facts())
    at = positions("returns", {"returns": {0: 5}})
    chosen = derive_begun(journal.state, IDENTITY, (at,), {ORDERS: "earliest", RETURNS: "earliest"}).checkpoint
    assert chosen.starts == ((ORDERS, "latest"), (RETURNS, "earliest"))
    assert chosen.final is False


def test_positions_that_are_appended_again_are_still_of_the_topics_that_they_were_of() -> None:
    """Of a source that is given up, whose name comes back after a crash, with another topic of that name."""
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    begun(journal, positions("orders", {"orders": {0: 100, 1: 200}}), facts())
    now = msgspec.structs.replace(IDENTITY, clusters=on_cluster({"returns": "id-returns", "out": "id-out"}))
    given_up = CommandLineDirectives(drop=(ORDERS,))
    without = RestoreFacts(now, {RETURNS: {"returns": 1}}, frozenset(), command_line=given_up)
    restore = decide_restore(journal.take_over(now, 9), without)
    placed = positions("returns", {"returns": {0: 5}})
    journal.append_restored(restore, derive_begun(journal.state, now, (placed,), {}, restore.upgrade), 10)
    made_again = msgspec.structs.replace(IDENTITY, clusters=on_cluster({"orders": "id-new", "out": "id-out"}))
    back = RestoreFacts(
        made_again, {ORDERS: {"orders": 2}}, frozenset(), command_line=CommandLineDirectives(drop=(RETURNS,))
    )
    with pytest.raises(RestoreRefused, match="topic orders was deleted and created again since the checkpoint"):
        decide_restore(journal.state, back)
