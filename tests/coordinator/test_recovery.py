"""What is restored into what, and which starts are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec
import pytest

from tests.coordinator.fake_storage import FakeStorage
from tests.coordinator.values import IDENTITY, ME, TOPIC_IDS, committable, completed, handle, on_cluster, positions
from tests.task.topologies import edge, plan_of, source_node, totals_node, vertex
from tidegate.coordinator.entries import Identity, decode_entry, encode_entry
from tidegate.coordinator.journal_state import EMPTY, JournalState
from tidegate.coordinator.recovery import (
    RestoreFacts,
    RestorePlan,
    RestoreRefused,
    decide_replaced,
    decide_restore,
    merge_offsets,
    refuse_unfit,
)
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions, StateKind
from tidegate.coordinator.upgrade import CommandLineDirectives, WrittenState
from tidegate.ids import Attempt, CheckpointId, OperatorName, TopicPartition
from tidegate.journal.journal import Journal
from tidegate.operators.fingerprint import StateFingerprint
from tidegate.operators.kinds.aggregate import AggregateOperator
from tidegate.storage.checksum import seal, unseal

ORDERS = OperatorName("orders")
TOTALS = OperatorName("totals")


def state_of(*checkpoints: CompletedCheckpoint, identity: Identity = IDENTITY) -> JournalState:
    journal = Journal(FakeStorage(), ME, retained=3, id_reserve=5)
    journal.take_over(identity, 1)
    for checkpoint in checkpoints:
        journal.append_checkpoint(checkpoint)
    return journal.state


def identity(
    cluster_id: str = "cluster-1",
    topic_ids: dict[str, str] | None = None,
    parallelism: int = 2,
    max_parallelism: int = 128,
    pipeline: str = "shop",
) -> Identity:
    ids = TOPIC_IDS if topic_ids is None else topic_ids
    return Identity(pipeline, on_cluster(ids, cluster_id), parallelism, max_parallelism)


def facts(
    now: Identity = IDENTITY,
    sources: Mapping[str, Mapping[str, int]] | None = None,
    stateful: frozenset[str] = frozenset({"totals"}),
) -> RestoreFacts:
    chosen = sources if sources is not None else {"orders": {"orders": 4}}
    return RestoreFacts(
        now,
        {OperatorName(name): topics for name, topics in chosen.items()},
        frozenset(OperatorName(name) for name in stateful),
    )


CHECKPOINT = completed(
    7,
    at=[positions("orders", {"orders": {0: 10, 2: 12}}), positions("orders", {"orders": {1: 11, 3: 13}})],
    states=[handle(7, subtask=0), handle(7, subtask=1)],
    committables=[committable(7)],
)


def offsets(part: SourcePositions) -> dict[int, int]:
    return {partition.partition: offset for partition, offset in part.next_offsets}


def test_a_first_start_reads_everything_from_where_the_plan_says() -> None:
    plan = decide_restore(EMPTY, facts())
    assert (plan.checkpoint, plan.committables, plan.first_checkpoint) == (None, (), 1)
    assert [slot.partitions[ORDERS] for slot in plan.slots] == [
        (TopicPartition("orders", 0), TopicPartition("orders", 2)),
        (TopicPartition("orders", 1), TopicPartition("orders", 3)),
    ]
    assert [(slot.positions, slot.states) for slot in plan.slots] == [((), ()), ((), ())]


def test_F01_C32_every_subtask_gets_exactly_what_it_put_into_the_newest_checkpoint() -> None:
    plan = decide_restore(state_of(completed(6), CHECKPOINT), facts())
    assert plan.checkpoint == CHECKPOINT
    assert plan.committables == (committable(7),)
    assert [offsets(slot.positions[0]) for slot in plan.slots] == [{0: 10, 2: 12}, {1: 11, 3: 13}]
    assert [slot.states for slot in plan.slots] == [(handle(7, subtask=0),), (handle(7, subtask=1),)]
    assert [slot.key_groups for slot in plan.slots] == [range(64), range(64, 128)]


@pytest.mark.parametrize(("parallelism", "base"), [(2, {5, 7}), (1, set()), (3, set())])
def test_snapshots_build_on_restored_files_if_the_key_groups_are_the_same(parallelism: int, base: set[int]) -> None:
    states = [handle(5, subtask=0), handle(7, subtask=0), handle(7, subtask=1)]
    restore = decide_restore(state_of(completed(7, states=states)), facts(identity(parallelism=parallelism)))
    assert restore.base == base


def test_C32_more_subtasks_share_the_old_files_and_the_partitions() -> None:
    plan = decide_restore(state_of(CHECKPOINT), facts(identity(parallelism=3)))
    assert [offsets(slot.positions[0]) for slot in plan.slots] == [{0: 10, 3: 13}, {1: 11}, {2: 12}]
    assert [[part.subtask for part in slot.states] for slot in plan.slots] == [[0], [0, 1], [1]]
    assert [slot.key_groups for slot in plan.slots] == [range(43), range(43, 86), range(86, 128)]


def test_fewer_subtasks_read_all_old_files_in_the_order_of_the_checkpoint() -> None:
    (slot,) = decide_restore(state_of(CHECKPOINT), facts(identity(parallelism=1))).slots
    assert slot.states == CHECKPOINT.states
    assert offsets(slot.positions[0]) == {0: 10, 1: 11, 2: 12, 3: 13}


ROWS_IN_FLIGHT = tuple(
    msgspec.structs.replace(handle(7, subtask=slot), path=f"{kind}-{slot}", kind=kind, edges=("orders -> totals",))
    for kind in (StateKind.INPUT, StateKind.OUTPUT)
    for slot in (0, 1)
)


def test_B50_received_rows_go_to_those_who_share_the_key_groups_and_unsent_ones_to_all() -> None:
    old = completed(7, states=[handle(7, subtask=0), handle(7, subtask=1), *ROWS_IN_FLIGHT])
    now = msgspec.structs.replace(facts(identity(parallelism=3)), edges=frozenset({"orders -> totals"}))
    plan = decide_restore(state_of(old), now)
    found = [[state.path for state in slot.states if state.kind is not StateKind.OPERATOR] for slot in plan.slots]
    unsent = ["output-0", "output-1"]
    assert found == [["input-0", *unsent], ["input-0", "input-1", *unsent], ["input-1", *unsent]]


def test_B50_rows_in_flight_on_a_connection_that_is_gone_are_refused() -> None:
    old = completed(7, states=ROWS_IN_FLIGHT)
    now = msgspec.structs.replace(facts(), edges=frozenset({"orders -> sums"}))
    with pytest.raises(RestoreRefused, match="rows in flight on orders -> totals") as caught:
        decide_restore(state_of(old), now)
    assert "it has: orders -> sums" in caught.value.message
    assert "SIGTERM" in caught.value.message


def test_the_bytes_in_flight_are_part_of_the_size() -> None:
    old = completed(7, states=[handle(7, subtask=0), *ROWS_IN_FLIGHT])
    assert old.inflight_bytes == sum(state.size_bytes for state in ROWS_IN_FLIGHT)
    assert old.size_bytes == old.inflight_bytes + handle(7, subtask=0).size_bytes


@pytest.mark.parametrize("before", [1, 2, 3, 5, 128])
@pytest.mark.parametrize("after", [1, 2, 4, 7, 128])
def test_every_key_group_finds_the_file_that_holds_it(before: int, after: int) -> None:
    old = completed(7, states=[handle(7, subtask=slot) for slot in range(before)])
    state = state_of(old, identity=identity(parallelism=before))
    plan = decide_restore(state, facts(identity(parallelism=after), sources={}))
    for group in range(128):
        readers = [slot for slot in plan.slots if group in slot.key_groups]
        assert len(readers) == 1
        assert group * before // 128 in {part.subtask for part in readers[0].states}


def test_partitions_that_are_new_are_read_from_their_beginning() -> None:
    plan = decide_restore(state_of(CHECKPOINT), facts(sources={"orders": {"orders": 5}}))
    assert offsets(plan.slots[0].positions[0]) == {0: 10, 2: 12, 4: 0}


def with_watermarks(checkpoint: CompletedCheckpoint) -> CompletedCheckpoint:
    """Partition n has come to n minutes, but for partition 2, which has had no record."""
    parts = tuple(
        msgspec.structs.replace(
            one,
            watermarks=tuple((part, part.partition * 60_000) for part, _ in one.next_offsets if part.partition != 2),
            event_time="at",
        )
        for one in checkpoint.positions
    )
    return msgspec.structs.replace(checkpoint, positions=parts)


def watermarks(part: SourcePositions) -> dict[int, int]:
    return {partition.partition: at_ms for partition, at_ms in part.watermarks}


@pytest.mark.parametrize(
    ("parallelism", "found"),
    [
        (1, [{0: 0, 1: 60_000, 3: 180_000}]),
        (2, [{0: 0}, {1: 60_000, 3: 180_000}]),
        (3, [{0: 0, 3: 180_000}, {1: 60_000}, {}]),
    ],
)
def test_F08_watermarks_are_restored_with_their_partitions_at_any_parallelism(
    parallelism: int, found: list[dict[int, int]]
) -> None:
    plan = decide_restore(state_of(with_watermarks(CHECKPOINT)), facts(identity(parallelism=parallelism)))
    assert [watermarks(slot.positions[0]) for slot in plan.slots] == found
    assert {slot.positions[0].event_time for slot in plan.slots if slot.positions[0].watermarks} == {"at"}


def test_partitions_that_are_new_have_no_watermark() -> None:
    state = state_of(with_watermarks(CHECKPOINT))
    plan = decide_restore(state, facts(identity(parallelism=1), {"orders": {"orders": 6}}))
    assert watermarks(plan.slots[0].positions[0]) == {0: 0, 1: 60_000, 3: 180_000}


def test_a_bounded_read_keeps_its_ends_and_takes_nothing_of_new_partitions() -> None:
    old = completed(7, at=[positions("orders", {"orders": {0: 10}}, ends=True)])
    plan = decide_restore(state_of(old), facts(identity(parallelism=1), {"orders": {"orders": 2}}))
    (part,) = plan.slots[0].positions
    assert part.end_offsets == ((TopicPartition("orders", 0), 10), (TopicPartition("orders", 1), 0))


def test_a_bounded_read_looks_its_ends_up_again_behind_a_final_checkpoint() -> None:
    old = completed(7, at=[positions("orders", {"orders": {0: 10}}, ends=True)], final=True)
    (part,) = decide_restore(state_of(old), facts(identity(parallelism=1))).slots[0].positions
    assert part.end_offsets == ()
    assert offsets(part)[0] == 10


def half_read(source: str, topic: str, at: int, end: int) -> SourcePositions:
    part = TopicPartition(topic, 0)
    return SourcePositions(OperatorName(source), ((part, at),), ((part, end),))


def test_a_stop_in_the_middle_of_a_bounded_read_keeps_its_end() -> None:
    """As a crash does. A stop counted as the end: the next start read up to what the topic had by then."""
    stopped = completed(7, at=[half_read("orders", "orders", 4, 10)], final=True)
    now = facts(identity(parallelism=1), {"orders": {"orders": 2}})
    (part,) = decide_restore(state_of(stopped), now).slots[0].positions
    assert part.end_offsets == ((TopicPartition("orders", 0), 10), (TopicPartition("orders", 1), 0))
    (crashed,) = decide_restore(state_of(msgspec.structs.replace(stopped, final=False)), now).slots[0].positions
    assert part == crashed


def test_a_bounded_source_that_has_ended_is_not_opened_again_before_the_others_have() -> None:
    now = facts(identity(parallelism=1), {"orders": {"orders": 1}, "returns": {"returns": 1}})
    for at, ends in ((4, (10, 9)), (9, ())):
        parts = [half_read("orders", "orders", 10, 10), half_read("returns", "returns", at, 9)]
        restored = decide_restore(state_of(completed(7, at=parts, final=True)), now).slots[0].positions
        assert tuple(end for part in restored for _, end in part.end_offsets) == ends


def test_a_bounded_source_that_is_given_up_does_not_hold_the_ends_of_the_others() -> None:
    parts = [half_read("orders", "orders", 10, 10), half_read("returns", "returns", 4, 9)]
    now = msgspec.structs.replace(
        facts(identity(parallelism=1), {"orders": {"orders": 1}}),
        command_line=CommandLineDirectives(drop=(OperatorName("returns"),)),
    )
    (part,) = decide_restore(state_of(completed(7, at=parts, final=True)), now).slots[0].positions
    assert part.end_offsets == ()


def test_a_source_that_is_read_without_an_end_now_does_not_hold_the_ends_of_the_others() -> None:
    parts = [half_read("orders", "orders", 10, 10), half_read("returns", "returns", 4, 9)]
    now = msgspec.structs.replace(
        facts(identity(parallelism=1), {"orders": {"orders": 1}, "returns": {"returns": 1}}),
        unbounded=frozenset({OperatorName("returns")}),
    )
    found = decide_restore(state_of(completed(7, at=parts, final=True)), now).slots[0].positions
    assert [part.end_offsets for part in found] == [(), ()]


def test_a_source_that_is_new_begins_as_the_plan_says() -> None:
    plan = decide_restore(state_of(CHECKPOINT), facts(sources={"orders": {"orders": 4}, "more": {"more": 1}}))
    assert [part.source for slot in plan.slots for part in slot.positions] == ["orders", "orders"]
    assert plan.slots[0].partitions[OperatorName("more")] == (TopicPartition("more", 0),)


def test_a_step_that_is_new_begins_empty() -> None:
    plan = decide_restore(state_of(CHECKPOINT), facts(stateful=frozenset({"totals", "other"})))
    assert {part.operator for slot in plan.slots for part in slot.states} == {TOTALS}


def test_state_of_a_step_that_is_given_up_is_not_restored() -> None:
    gone = msgspec.structs.replace(
        facts(stateful=frozenset({"other"})), command_line=CommandLineDirectives(drop=(TOTALS,))
    )
    plan = decide_restore(state_of(CHECKPOINT), gone)
    assert [slot.states for slot in plan.slots] == [(), ()]
    assert plan.checkpoint == CHECKPOINT


def test_positions_without_watermarks_are_by_no_column() -> None:
    plan = decide_restore(state_of(CHECKPOINT), facts())
    assert [slot.positions[0].event_time for slot in plan.slots] == ["", ""]


def test_what_another_one_takes_the_place_of_need_not_fit_and_is_not_dealt_out() -> None:
    state = state_of(CHECKPOINT)
    assert decide_replaced(state, facts(sources={}, stateful=frozenset())) == RestorePlan(
        state.attempt, CHECKPOINT, (), decide_restore(state, facts()).first_checkpoint, state.journal
    )
    assert decide_replaced(EMPTY, facts()) == RestorePlan(Attempt(0), None, (), CheckpointId(1))


def test_not_even_to_be_replaced_a_checkpoint_of_another_cluster_is_taken() -> None:
    with pytest.raises(RestoreRefused, match="cluster-2"):
        decide_replaced(state_of(CHECKPOINT), facts(identity(cluster_id="cluster-2")))


def test_what_the_files_of_state_say_counts() -> None:
    step = OperatorName("total")
    plan = plan_of(
        1, [vertex(source_node("read", edges=(0,))), vertex(totals_node(step))], [edge(0, "read", step, "k")]
    )
    (operator,) = plan.operators(AggregateOperator)
    (declared,) = operator.states(plan.max_parallelism)
    checkpoint = completed(7, states=[msgspec.structs.replace(handle(7, step), state=declared.name)])
    now = RestoreFacts(IDENTITY, {}, frozenset({step}), frozenset(), plan)
    other = msgspec.structs.replace(declared.shape, key_hash="hash v0")
    assert not refuse_unfit(checkpoint, IDENTITY, now, {(step, declared.name): WrittenState(declared.shape)}).refusals
    with pytest.raises(RestoreRefused, match="keys were hashed by 'hash v0'"):
        refuse_unfit(checkpoint, IDENTITY, now, {(step, declared.name): WrittenState(other)})


REFUSALS = [
    (facts(identity(cluster_id="cluster-2")), ["cluster-1", "cluster-2", "bootstrap.servers"]),
    (facts(identity(topic_ids={"orders": "id-new"})), ["topic orders", "id-orders", "id-new", "deleted and created"]),
    (facts(identity(topic_ids={"out": "id-new"})), ["topic out", "id-out", "id-new", "give the sink another topic"]),
    (facts(identity(max_parallelism=64)), ["was 128", "now 64", "set it back to 128"]),
    (facts(identity(pipeline="other")), ["'shop'", "'other'", "checkpoints.directory"]),
    (
        facts(sources={"purchases": {"orders": 4}}),
        ["source 'orders'", "it has: purchases", "`was: orders`", "--drop orders"],
    ),
    (facts(sources={"orders": {"elsewhere": 4}}), ["source 'orders' no longer reads topic orders", "--drop orders"]),
    (facts(sources={"orders": {"orders": 3}}), ["has 3 partitions", "partition 3"]),
    (facts(stateful=frozenset({"sums"})), ["state of step 'totals'", "it has: sums", "`was: totals`", "--drop totals"]),
    (facts(stateful=frozenset()), ["state of step 'totals'", "it has: none"]),
]


@pytest.mark.parametrize(("given", "told"), REFUSALS, ids=[words[0] for _, words in REFUSALS])
def test_what_does_not_fit_is_refused_with_old_new_and_remedy(given: RestoreFacts, told: list[str]) -> None:
    with pytest.raises(RestoreRefused) as caught:
        decide_restore(state_of(CHECKPOINT), given)
    assert [words for words in told if words not in caught.value.message] == []
    assert (caught.value.exit_code, caught.value.retriable) == (4, False)


def test_a_refused_takeover_does_not_make_the_wrong_cluster_right() -> None:
    storage = FakeStorage()
    journal = Journal(storage, ME, retained=3, id_reserve=5)
    journal.take_over(IDENTITY, 1)
    journal.append_checkpoint(CHECKPOINT)
    wrong = identity(cluster_id="cluster-2")
    state = journal.take_over(wrong, 2)
    with pytest.raises(RestoreRefused, match="cluster-2"):
        decide_restore(state, facts(wrong))


def test_a_wrong_cluster_is_no_matter_before_the_first_checkpoint() -> None:
    assert decide_restore(state_of(), facts(identity(cluster_id="cluster-2"))).checkpoint is None


@pytest.mark.parametrize(
    ("command_line", "told"),
    [
        (CommandLineDirectives(keep={OperatorName("xyz"): ""}), "--keep xyz: there is no step with state of that name"),
        (CommandLineDirectives(reset={OperatorName("xyz"): ""}), "--reset xyz: there is no step with state"),
        (CommandLineDirectives(drop=(OperatorName("xyz"),)), "--drop xyz: there is no checkpoint that could hold"),
    ],
)
def test_an_unknown_name_on_the_command_line_is_refused_before_the_first_checkpoint(
    command_line: CommandLineDirectives, told: str
) -> None:
    """The first start recorded the starting offsets before it refused, and `validate --connect` accepted the name."""
    with pytest.raises(RestoreRefused, match=told):
        decide_restore(state_of(), msgspec.structs.replace(facts(), command_line=command_line))


def test_the_final_mark_of_the_checkpoint_reaches_the_plan() -> None:
    final = msgspec.structs.replace(CHECKPOINT, final=True)
    state = state_of(final)
    plan = decide_restore(state, facts())
    assert state.final
    assert plan.checkpoint is not None
    assert plan.checkpoint.final


MADE = {TOTALS: {"orders": {"the choice of records": "2:aa", "`total`": "2:bb"}}}
CHANGED = {TOTALS: {"orders": {"the choice of records": "2:aa", "`total`": "2:cc"}}}


def meaning(fingerprints: dict[OperatorName, StateFingerprint]) -> Identity:
    return msgspec.structs.replace(IDENTITY, fingerprints=fingerprints)


def test_X16_state_that_was_made_by_another_definition_is_refused_with_the_choices() -> None:
    state = state_of(CHECKPOINT, identity=meaning(MADE))
    with pytest.raises(RestoreRefused) as refused:
        decide_restore(state, facts(meaning(CHANGED)))
    for said in ("'totals'", "`total` of orders", "restore the old definition", "new name", "--keep", "--reset"):
        assert said in refused.value.message
    assert refused.value.fields == {"operator": "totals", "changes": ["`total` of orders"]}
    assert refused.value.exit_code == 4
    assert decide_restore(state, facts(meaning(MADE))).checkpoint == CHECKPOINT


def test_X16_a_step_without_state_in_the_checkpoint_may_change() -> None:
    empty = completed(7, at=list(CHECKPOINT.positions))
    assert decide_restore(state_of(empty, identity=meaning(MADE)), facts(meaning(CHANGED))).checkpoint == empty


def test_X16_entries_of_older_releases_say_nothing_about_the_meaning_and_are_taken() -> None:
    taken = decide_restore(state_of(CHECKPOINT, identity=meaning({})), facts(meaning(CHANGED)))
    assert taken.checkpoint == CHECKPOINT
    (entry,) = state_of(CHECKPOINT, identity=meaning(MADE)).retained
    assert decode_entry(entry.sequence, encode_entry(entry)).identity == meaning(MADE)
    raw = json.loads(unseal("entry", encode_entry(entry)))
    del raw["identity"]["fingerprints"]
    assert decode_entry(entry.sequence, seal(json.dumps(raw).encode())).identity == IDENTITY


def test_offsets_of_all_sources_are_merged() -> None:
    at = (positions("orders", {"orders": {0: 3}}), positions("returns", {"returns": {1: 4}}))
    assert merge_offsets(at) == {TopicPartition("orders", 0): 3, TopicPartition("returns", 1): 4}


@pytest.mark.parametrize("slower", ["all", "recent"])
def test_of_a_partition_that_two_sources_read_the_one_that_is_behind_counts(slower: str) -> None:
    """Lag, and the offsets of the consumer group: a pipeline that begins there again reads all that it has not read."""
    part = TopicPartition("orders", 0)
    at = tuple(
        SourcePositions(OperatorName(name), ((part, 3 if name == slower else 900),)) for name in ("all", "recent")
    )
    assert merge_offsets(at) == {part: 3}


def test_an_entry_keeps_watermarks_and_says_nothing_of_them_where_there_are_none() -> None:
    later = msgspec.structs.replace(with_watermarks(CHECKPOINT), id=CheckpointId(8))
    state = state_of(CHECKPOINT, later)
    plain, timed = state.retained
    for entry in (plain, timed):
        assert decode_entry(entry.sequence, encode_entry(entry)) == entry
    assert b"watermarks" not in encode_entry(plain)
    assert b"watermarks" in encode_entry(timed)
