"""What a start compares with the journal: the pipeline and the cluster as they are now."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, completed, on_cluster, positions
from tests.support.clusters import alone
from tidegate.cli.options import read_directives
from tidegate.clock import SYSTEM_CLOCK
from tidegate.config.draft import SAMPLE
from tidegate.config.load import parse_pipeline
from tidegate.coordinator.journal_state import EMPTY, JournalState
from tidegate.coordinator.ownership import Known
from tidegate.coordinator.recovery import RestoreFacts, RestorePlan, RestoreRefused
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.preflight import decide_newest, read_facts, run_preflight
from tidegate.daemon.recovery import take_over
from tidegate.daemon.recovery_stages import RestorePointAppended, TransactionsResolved
from tidegate.daemon.restore_point import RestoreOption, StartOptions
from tidegate.ids import OperatorName, TopicPartition
from tidegate.journal.journal import Journal
from tidegate.kafka.facts import TopicFacts
from tidegate.plan.build import build_plan
from tidegate.plan.upgrade_directives import give_up_columns


def facts_of(
    text: str, state: JournalState = EMPTY, *listed: str, drop: tuple[tuple[OperatorName, str], ...] = ()
) -> RestoreFacts:
    """`listed`: all topics that the brokers list; by name they know any. `drop`: as on the command line."""

    async def cluster_facts(topics: set[str]) -> tuple[str, dict[str, TopicFacts]]:
        return "cluster-1", {topic: TopicFacts(f"id-{topic}", 3) for topic in topics}

    async def all_topics() -> dict[str, TopicFacts]:
        return {topic: TopicFacts(f"id-{topic}", 3) for topic in listed}

    edge = SimpleNamespace(cluster_facts=cluster_facts, all_topics=all_topics)
    services = cast("Any", SimpleNamespace(kafka=alone(edge)))
    plan = give_up_columns(build_plan(parse_pipeline(text, "p.yaml", {})), drop)
    return asyncio.run(read_facts(plan, services, state))


def test_X16_the_meaning_of_every_state_is_part_of_the_identity() -> None:
    before = facts_of(SAMPLE).identity
    step = OperatorName("per_customer")
    assert set(before.fingerprints) == {step}
    after = facts_of(SAMPLE.replace("amount >= 100", "amount >= 200")).identity
    assert after.fingerprints[step] != before.fingerprints[step]
    assert after.clusters == before.clusters


PATTERN = """\
version: 1
name: w
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///tmp/w}
sources:
  orders: {pattern: "orders-.*|__orders-x", schema: {id: bigint}}
sinks:
  out: {from: orders, topic: out}
"""


def test_a_pattern_stands_for_the_topics_whose_whole_names_match() -> None:
    facts = facts_of(PATTERN, EMPTY, "orders-b", "orders-a", "old-orders-a", "orders", "__orders-x")
    assert facts.sources == {OperatorName("orders"): {"orders-a": 3, "orders-b": 3}}
    assert facts.identity.clusters == on_cluster(
        {"orders-a": "id-orders-a", "orders-b": "id-orders-b", "out": "id-out"}
    )


def test_a_topic_with_positions_is_asked_for_although_it_is_not_listed() -> None:
    """A broker that has just started may not list it; one that is gone has to be missed."""
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(completed(1, at=(positions("orders", {"orders-c": {0: 5}}),)))
    facts = facts_of(PATTERN, journal.state, "orders-a")
    assert facts.sources == {OperatorName("orders"): {"orders-a": 3, "orders-c": 3}}


def test_a_pattern_that_does_not_match_a_topic_with_positions_any_more_is_refused() -> None:
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    at = positions("orders", {"orders-a": {0: 5}, "orders-b": {0: 5}})
    journal.append_checkpoint(completed(1, at=(at,)))
    facts = facts_of(PATTERN.replace("orders-.*", "orders-a"), journal.state, "orders-a", "orders-b")
    assert facts.sources == {OperatorName("orders"): {"orders-a": 3}}
    with pytest.raises(RestoreRefused, match=r"source 'orders' no longer reads topic orders-b.*--drop orders"):
        decide_newest(journal.state, msgspec.structs.replace(facts, identity=IDENTITY), replaced=False)


def with_watermarks(offsets: dict[str, dict[int, int]]) -> SourcePositions:
    """Positions whose watermarks are the offsets."""
    made = positions("orders", offsets)
    return msgspec.structs.replace(made, watermarks=made.next_offsets)


GONE = with_watermarks({"orders-a": {0: 5}, "orders-b": {0: 7}})
KEPT = with_watermarks({"orders-a": {0: 5}})


def restored(*listed: str, at: SourcePositions = GONE, after: RestorePlan | None = None) -> RestorePlan:
    """What a start with `--drop orders.orders-b` restores if the brokers list these topics.

    With `after`, a checkpoint of the attempt that restored it.
    """
    journal = Journal(FakeStorage(), ME, retained=1, id_reserve=5)
    applied = {} if after is None else after.upgrade.applied_directives
    journal.take_over(msgspec.structs.replace(IDENTITY, applied_directives=applied), 1)
    journal.append_checkpoint(completed(1, at=(at,)))
    dropped = read_directives((), (), ("orders.orders-b",))
    facts = facts_of(PATTERN, journal.state, *listed, drop=dropped.columns)
    return decide_newest(
        journal.state, msgspec.structs.replace(facts, identity=IDENTITY, command_line=dropped), replaced=False
    )


def test_a_deleted_topic_of_a_pattern_is_given_up_by_its_name_and_the_others_continue() -> None:
    """Its deletion cost the positions of all topics of the source."""
    restore = restored("orders-a")
    assert restore.positions == (KEPT,)
    assert [step.remarks for step in restore.upgrade.steps] == [("its positions in topic orders-b are given up",)]
    assert restored("orders-a", at=KEPT, after=restore).positions == (KEPT,), "supervisors repeat the option"
    again = restored("orders-a", "orders-b", after=restore)
    assert again.positions == (GONE,), "a topic that was found again later"
    assert restored("orders-a", after=again).positions == (GONE,), "and it is asked for, in case it is gone again"


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        (("orders-a", "orders-b"), "--drop orders.orders-b: the source still reads this topic"),
        ((), "no longer reads topic orders-b.*Restore the topic; give the changed source a new name"),
    ],
)
def test_a_topic_that_is_there_and_the_last_topic_of_a_source_are_not_given_up_by_name(
    listed: tuple[str, ...], said: str
) -> None:
    at = GONE if listed else with_watermarks({"orders-b": {0: 7}})
    with pytest.raises(RestoreRefused, match=said):
        restored(*listed, at=at)


def test_no_topic_may_match_yet() -> None:
    assert facts_of(PATTERN, EMPTY, "other").sources == {OperatorName("orders"): {}}


OLD = """\
version: 1
name: shop
kafka: {bootstrap.servers: localhost:9092}
checkpoints: {directory: file:///nowhere/shop}
sources:
  orders: {topic: orders, schema: {k: string, n: int}}
steps:
  - {name: totals, from: orders, key: k, aggregate: {sum: sum(n)}}
sinks:
  out: {from: totals, topic: out, key: k}
"""


class Shop:
    """A pipeline whose newest checkpoint is one of a new file, and the one before it of the old file."""

    def __init__(self) -> None:
        self.plan = build_plan(parse_pipeline(OLD, "shop.yaml", {}))
        self.journal = Journal(FakeStorage(), ME, retained=3, id_reserve=5)
        services = SimpleNamespace(
            storage=self.journal._storage,
            journal=self.journal,
            clock=SYSTEM_CLOCK,
            kafka=alone(self),
            in_journal_thread=self.call,
        )
        self.services = cast("Any", services)
        facts = asyncio.run(read_facts(self.plan, self.services, EMPTY))
        old = facts.identity
        new = msgspec.structs.replace(old, fingerprints={OperatorName("sums"): {"purchases": {}}})
        for identity, name, number in ((old, "orders", 1), (new, "purchases", 2)):
            self.journal.take_over(identity, number)
            at = [positions(name, {"orders": {0: number}})]
            first = self.journal.state.reserved_to
            self.journal.append_checkpoint(completed(first, attempt=number, at=at))
        self.numbers = [entry.checkpoint.id for entry in self.journal.state.retained]

    async def call(self, what: Any) -> Any:
        return what()

    async def cluster_facts(self, topics: set[str]) -> tuple[str, dict[str, TopicFacts]]:
        return "cluster-1", {topic: TopicFacts(f"id-{topic}", 1) for topic in topics}

    async def read_known(self, _pipeline: str) -> Known:
        return Known()

    async def claim(self, *_: object, **__: object) -> None:
        pass

    async def start(self, option: RestoreOption | None) -> RestorePointAppended:
        """Up to what is restored."""
        options = StartOptions(option, begin_anew=True)
        look = await run_preflight(self.plan, self.services, options, first=True, verify=True)
        owned = await take_over(self.plan, self.services, cast("Any", self), look, patiently=True)
        whole = await look.restore_point.get_round_damage(owned)
        return await look.restore_point.go_back(TransactionsResolved(whole.restore, whole.facts))


def test_the_old_file_goes_back_to_its_own_checkpoint_although_the_newest_is_of_another_definition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    shop = Shop()
    with pytest.raises(RestoreRefused, match="positions of source 'purchases'"):
        asyncio.run(shop.start(None))
    with pytest.raises(RestoreRefused, match="--repeat-output"):
        asyncio.run(shop.start(RestoreOption(str(shop.numbers[0]))))
    wanted = RestoreOption(str(shop.numbers[0]), repeat_output=True)
    decided = asyncio.run(shop.start(wanted))
    (slot,) = decided.restore.slots
    assert [dict(one.next_offsets) for one in slot.positions] == [{TopicPartition("orders", 0): 1}]
    assert "as requested: output after it is written again" in caplog.text
    assert "changes nothing" not in caplog.text
    again = asyncio.run(shop.start(wanted))  # a supervisor repeats it
    assert again.restore.slots
    assert caplog.text.count("--restore has no effect") == 1


def test_begin_anew_says_that_it_continues_from_what_the_directory_has(caplog: pytest.LogCaptureFixture) -> None:
    shop = Shop()
    asyncio.run(shop.start(RestoreOption(str(shop.numbers[0]), repeat_output=True)))
    assert "changes nothing" not in caplog.text
    asyncio.run(shop.start(None))
    newest = shop.journal.state.newest_checkpoint
    assert newest is not None
    assert f"has checkpoints, and the pipeline continues from the newest, {newest.id}" in caplog.text


def test_what_another_daemon_has_done_after_the_look_is_not_done_again_and_is_restored() -> None:
    shop = Shop()
    wanted = RestoreOption(str(shop.numbers[0]), repeat_output=True)

    async def late() -> RestorePointAppended:
        options = StartOptions(wanted, begin_anew=True)
        look = await run_preflight(shop.plan, shop.services, options, first=True, verify=True)
        await shop.start(wanted)
        owned = await take_over(shop.plan, shop.services, cast("Any", shop), look, patiently=True)
        return await look.restore_point.go_back(TransactionsResolved(owned.restore, owned.facts))

    assert asyncio.run(late()).restore.slots


def test_a_choice_does_not_make_another_pipelines_directory_ones_own() -> None:
    shop = Shop()
    other = msgspec.structs.replace(asyncio.run(read_facts(shop.plan, shop.services, EMPTY)).identity, pipeline="other")
    facts = RestoreFacts(other, {}, frozenset())
    with pytest.raises(RestoreRefused, match="belongs to pipeline 'shop'"):
        decide_newest(shop.journal.state, facts, replaced=True)
