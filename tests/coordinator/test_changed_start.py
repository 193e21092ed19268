"""A start with a changed file up to its first checkpoint: what is appended until then can be taken back."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, OTHER, completed, handle, positions
from tidegate.config.load import parse_pipeline
from tidegate.config.models import SourceSettings
from tidegate.coordinator.entries import Identity
from tidegate.coordinator.recovery import RestoreFacts, RestoreRefused, decide_restore
from tidegate.coordinator.start_offsets import derive_begun, derive_skipped, derive_unplaced
from tidegate.coordinator.types import LostRange, SourcePositions, StateKind
from tidegate.coordinator.upgrade import CommandLineDirectives
from tidegate.coordinator.upgrade_decision import decide_upgrade
from tidegate.ids import OperatorName, TopicPartition
from tidegate.journal.journal import Journal
from tidegate.plan.build import build_plan
from tidegate.plan.graph import derive_edge_names
from tidegate.plan.state_fingerprints import derive_fingerprints

OLD = """\
version: 1
name: shop
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere/shop}
parallelism: 2
sources:
  orders: {topic: orders, schema: {k: string, n: int}}
steps:
  - {name: totals, from: orders, key: k, aggregate: {sum: sum(n)}}
sinks:
  out: {from: totals, topic: out, key: k}
"""
NEW = """\
version: 1
name: shop
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere/shop}
parallelism: 2
sources:
  purchases: {was: orders, topic: orders, schema: {k: string, n: int}}
  returns: {topic: returns, schema: {k: string, n: int}, start: latest}
steps:
  - {name: sums, was: totals, from: [purchases, returns], key: k, aggregate: {sum: sum(n * 2)}, state: {keep: twice}}
sinks:
  out: {from: sums, topic: out, key: k}
"""
ORDERS, PURCHASES, RETURNS = OperatorName("orders"), OperatorName("purchases"), OperatorName("returns")
PART, OTHER_PART = TopicPartition("orders", 0), TopicPartition("returns", 0)


def facts(text: str, command_line: CommandLineDirectives | None = None) -> RestoreFacts:
    plan = build_plan(parse_pipeline(text, "shop.yaml", {}))
    identity = msgspec.structs.replace(IDENTITY, fingerprints=derive_fingerprints(plan))
    topics = {OperatorName(name): {str(source.topic): 1} for name, source in sources_of(text).items()}
    stateful = frozenset(node.operator.name for node in plan.nodes if node.operator.states(128))
    return RestoreFacts(identity, topics, stateful, frozenset(), plan, command_line or CommandLineDirectives())


def sources_of(text: str) -> dict[str, SourceSettings]:
    return dict(parse_pipeline(text, "shop.yaml", {}).settings.sources)


@pytest.fixture
def journal() -> Journal:
    """It has a checkpoint of the old file."""
    one = Journal(FakeStorage(), ME, retained=3, id_reserve=5)
    one.take_over(facts(OLD).identity, 1)
    one.append_checkpoint(completed(7, at=[positions("orders", {"orders": {0: 10}})], states=[handle(7)]))
    return one


def identity_of(journal: Journal) -> Identity:
    found = journal.state.identity
    assert found is not None
    return found


def test_what_is_fixed_before_the_first_checkpoint_keeps_the_names_and_meanings_of_the_old_file(
    journal: Journal,
) -> None:
    now, old = facts(NEW), identity_of(journal)
    restore = decide_restore(journal.take_over(now.identity, 2), now)
    (unplaced,) = derive_unplaced(restore, ())
    assert unplaced.source == RETURNS
    placed = SourcePositions(RETURNS, ((OTHER_PART, 5),))
    journal.append_restored(
        restore, derive_begun(journal.state, now.identity, (placed,), {RETURNS: "latest"}, restore.upgrade), 3
    )
    begun = journal.state.retained[-1]
    assert {one.source for one in begun.checkpoint.positions} == {ORDERS, RETURNS}
    assert (begun.identity.fingerprints, begun.identity.applied_directives) == (old.fingerprints, {})
    again = decide_restore(journal.state, now)
    assert again.upgrade.renamed == restore.upgrade.renamed == {PURCHASES: ORDERS, "sums": "totals"}
    assert derive_unplaced(again, ()) == ()
    with pytest.raises(RestoreRefused, match=r"positions of source 'returns'.*--drop returns"):
        decide_restore(journal.state, facts(OLD))
    back = decide_restore(journal.state, facts(OLD, CommandLineDirectives(drop=(RETURNS,))))
    assert [dict(one.next_offsets) for slot in back.slots for one in slot.positions if one.next_offsets] == [{PART: 10}]


def test_what_a_renamed_source_begins_with_has_the_name_that_the_checkpoint_has(journal: Journal) -> None:
    """A topic that was added to it: its positions join those that are there."""
    now = facts(NEW)
    restore = decide_restore(journal.take_over(now.identity, 2), now)
    placed = SourcePositions(PURCHASES, ((TopicPartition("more", 0), 5),))
    begun = derive_begun(journal.state, now.identity, (placed,), {PURCHASES: "latest"}, restore.upgrade).checkpoint
    assert [one.source for one in begun.positions] == [ORDERS, ORDERS]
    assert begun.starts == ((ORDERS, "latest"),)


def test_rows_in_flight_follow_renamed_steps_on_both_ends_of_their_edge() -> None:
    """Also of a step without state, which nothing else in the checkpoint names."""
    before = (
        OLD.replace("n: int}", "n: int, t: timestamp}, event_time: t")
        .replace("from: orders, key: k, aggregate: {sum: sum(n)}", "from: clean, dedup: {key: k, within: 1h}")
        .replace("steps:\n", "steps:\n  - {name: clean, from: orders, where: n > 1}\n")
    )
    after = (
        before.replace("name: clean", "name: tidy, was: clean")
        .replace("name: totals", "name: sums, was: totals")
        .replace("from: clean", "from: tidy")
        .replace("from: totals", "from: sums")
    )
    old, now = facts(before), facts(after)
    assert old.plan is not None
    assert list(derive_edge_names(old.plan).values()) == ["clean -> totals"]
    row = msgspec.structs.replace(handle(7), kind=StateKind.INPUT, edges=("clean -> totals",))
    checkpoint = completed(7, at=[positions("orders", {"orders": {0: 10}})], states=[handle(7), row])
    upgrade = decide_upgrade(checkpoint, old.identity, now.definition)
    assert (upgrade.refusals, upgrade.renamed) == ((), {"sums": "totals"})
    assert upgrade.edges == {"tidy -> sums": "clean -> totals"}
    assert decide_upgrade(checkpoint, old.identity, old.definition).edges == {}
    gone = msgspec.structs.replace(checkpoint, states=(handle(7), msgspec.structs.replace(row, edges=("x -> totals",))))
    assert decide_upgrade(gone, old.identity, now.definition).refusals


def test_lost_input_of_a_renamed_source_is_skipped_under_the_name_that_the_checkpoint_has(journal: Journal) -> None:
    now = facts(NEW)
    restore = decide_restore(journal.take_over(now.identity, 2), now)
    lost = LostRange(PURCHASES, PART, 10, 12)
    skipped = derive_skipped(journal.state, now.identity, (lost,), restore.upgrade)
    journal.append_restored(restore, skipped, 3)
    (one,) = journal.state.retained[-1].checkpoint.positions
    assert (one.source, one.next_offsets) == (ORDERS, ((PART, 12),))
    found = [part for slot in decide_restore(journal.state, now).slots for part in slot.positions]
    assert {one.source for one in found} == {PURCHASES}
    assert [offset for one in found for _, offset in one.next_offsets] == [12]


def test_the_first_checkpoint_of_an_attempt_says_what_was_taken_over(journal: Journal) -> None:
    now = facts(NEW)
    restore = decide_restore(journal.take_over(now.identity, 2), now)
    journal.adopt(restore.upgrade)
    at = [positions("purchases", {"orders": {0: 20}}), positions("returns", {"returns": {0: 5}})]
    journal.append_checkpoint(completed(20, at=at, states=[handle(20, "sums")]))
    assert identity_of(journal).applied_directives == {"sums": ("keep: twice",)}
    again = Journal(journal._storage, OTHER, retained=3, id_reserve=5)
    plan = decide_restore(again.take_over(now.identity, 9), now)
    assert (plan.upgrade.renamed, plan.upgrade.applied_directives) == ({}, {"sums": ("keep: twice",)})
    with pytest.raises(RestoreRefused, match=r"keep: \"twice\".*was applied to an earlier change"):
        decide_restore(again.state, facts(NEW.replace("n * 2", "n * 3")))


def test_nobody_adopts_anything_for_a_journal_that_is_not_theirs() -> None:
    one = Journal(FakeStorage(), ME, retained=3, id_reserve=5)
    with pytest.raises(RuntimeError, match="take_over comes first"):
        one.adopt(decide_restore(one.state, facts(NEW)).upgrade)
