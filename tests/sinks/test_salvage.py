"""What may be salvaged, and under which names."""

from __future__ import annotations

import msgspec
import pytest

from tests.sinks.driving import permit
from tests.sinks.test_committer import ScriptedClient
from tidegate.committable import Committable, WrittenRange
from tidegate.ids import Attempt, CheckpointId, OperatorName, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.errors import SinkFailed, TransactionGone, TransactionLost
from tidegate.kafka.facts import EndAnswer, LoggedRange, Marker
from tidegate.sinks.committer import Committer
from tidegate.sinks.naming import derive_name
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.pool import POOL_SIZE_MAX
from tidegate.sinks.salvage import (
    SALVAGE_SLOT,
    LostTransaction,
    SalvageOrder,
    decide_found,
    decide_order,
    decide_whole,
    derive_groups,
    merge_ranges,
)

LISTED_BY = CheckpointId(8)


def committable(
    checkpoint: int, partitions: tuple[int, ...] = (0,), sink: str = "totals", topic: str = "out", subtask: int = 0
) -> Committable:
    return Committable(
        sink=OperatorName(sink),
        subtask=SlotIndex(subtask),
        attempt=Attempt(1),
        checkpoint=CheckpointId(checkpoint),
        transactional_id=TransactionalId(f"p.{sink}.{subtask}.1-j.{checkpoint}"),
        producer_id=checkpoint,
        producer_epoch=0,
        written=tuple(WrittenRange(TopicPartition(topic, index), 10, 20, 5) for index in partitions),
        opened_at_ms=1_700_000_000_000,
        timeout_ms=60_000,
    )


def lost(one: Committable) -> LostTransaction:
    return LostTransaction(one, "lost.")


def order(*ones: Committable) -> SalvageOrder:
    return SalvageOrder("p", "0a1b2c3d", Attempt(3), CheckpointId(9), LISTED_BY, 1000, tuple(map(lost, ones)))


@pytest.mark.parametrize(
    ("of_lost", "of_committed", "allowed"),
    [
        (committable(4), None, True),
        (committable(4), committable(3), True),  # older ones are committed
        (committable(4, subtask=1), committable(4), True),  # the same checkpoint: other keys
        (committable(4), committable(5, (1,)), True),  # later, in other partitions
        (committable(4), committable(5, sink="other"), True),  # another sink's
        (committable(4), committable(5, topic="elsewhere"), True),
        (committable(4), committable(5), False),
        (committable(4, (0, 1)), committable(5, (1, 2)), False),  # one partition is enough
        (committable(4, subtask=1), committable(5), False),  # whoever wrote it
        (committable(4), committable(9), False),
    ],
)
def test_nothing_is_put_behind_records_of_a_later_checkpoint(
    of_lost: Committable, of_committed: Committable | None, allowed: bool
) -> None:
    committed = [] if of_committed is None else [of_committed]
    if allowed:
        decide_order([lost(of_lost)], committed)
        return
    with pytest.raises(TransactionLost, match="would follow newer ones of their keys") as refused:
        decide_order([lost(of_lost)], committed)
    assert not refused.value.retriable


def test_every_lost_transaction_is_compared() -> None:
    with pytest.raises(TransactionLost, match=r"checkpoint 5 of the same sink is already committed in out\[0\]"):
        decide_order([lost(committable(5)), lost(committable(4))], [committable(5, (3,)), committable(5)])


def test_every_committed_transaction_is_compared() -> None:
    with pytest.raises(TransactionLost, match="checkpoint 5 of the same sink"):
        decide_order([lost(committable(4))], [committable(5, sink="other"), committable(3), committable(5)])


@pytest.mark.parametrize(
    ("found", "complete"),
    [
        ([LoggedRange(10, 15, 5)], True),
        ([LoggedRange(10, 12, 2), LoggedRange(14, 17, 3)], True),
        ([], False),
        ([LoggedRange(10, 14, 4)], False),
        ([LoggedRange(10, 20, 6)], False),
    ],
)
def test_only_all_records_of_a_transaction_are_salvaged(found: list[LoggedRange], complete: bool) -> None:
    one = lost(committable(4))
    if complete:
        decide_found(one, TopicPartition("out", 0), 5, found, LISTED_BY)
        return
    with pytest.raises(TransactionLost, match=r"out\[0\] has (\d of its 5 records|6 records of its producer)"):
        decide_found(one, TopicPartition("out", 0), 5, found, LISTED_BY)


@pytest.mark.parametrize(
    ("found", "gone"),
    [([], 5), ([LoggedRange(13, 15, 2)], 3), ([LoggedRange(10, 15, 5)], 0), ([LoggedRange(10, 16, 6)], -1)],
)
def test_records_that_are_gone_may_be_accepted_but_none_that_are_not_ours(found: list[LoggedRange], gone: int) -> None:
    one = lost(committable(4))
    if gone >= 0:
        assert decide_found(one, TopicPartition("out", 0), 5, found, LISTED_BY, accept_gone=LISTED_BY) == gone
        return
    with pytest.raises(TransactionLost, match=r"has 6 records of its producer where it wrote 5"):
        decide_found(one, TopicPartition("out", 0), 5, found, LISTED_BY, accept_gone=LISTED_BY)


def test_what_is_gone_of_another_checkpoint_is_not_accepted() -> None:
    """A supervisor gives the same option to every start."""
    with pytest.raises(TransactionLost, match=r"has 0 of its 5 records.*start with --accept-gone 8, "):
        decide_found(lost(committable(4)), TopicPartition("out", 0), 5, [], LISTED_BY, accept_gone=CheckpointId(4))


def test_all_lost_transactions_of_a_sink_become_one() -> None:
    groups = derive_groups(
        order(committable(4), committable(4, (1,), subtask=1), committable(5), committable(4, sink="b"))
    )
    assert [(group.name.sink, group.topic, len(group.lost)) for group in groups] == [
        ("b", "out", 1),
        ("totals", "out", 3),
    ]


def test_a_sink_whose_topic_was_changed_gets_one_per_topic() -> None:
    groups = derive_groups(order(committable(4), committable(5, topic="new")))
    assert [group.topic for group in groups] == ["new", "out"]
    assert len({group.name.transactional_id for group in groups}) == 2
    assert [(group.name.subtask, group.name.pool_slot - SALVAGE_SLOT) for group in groups] == [(0, 0), (0, 1)]


def test_salvage_ids_are_ours_of_this_attempt_and_never_a_sinks() -> None:
    (group,) = derive_groups(order(committable(4)))
    assert derive_name(group.name.transactional_id) == group.name
    assert (group.name.attempt, group.name.journal) == (3, order().journal)
    assert group.name.pool_slot >= SALVAGE_SLOT > POOL_SIZE_MAX


def test_records_come_in_the_order_of_their_offsets() -> None:
    first = [LoggedRange(10, 12, 2), LoggedRange(20, 22, 2)]
    second = [LoggedRange(14, 15, 1), LoggedRange(30, 33, 3)]
    assert [part.first_offset for part in merge_ranges([second, first])] == [10, 14, 20, 30]


def test_a_partition_that_got_fewer_records_than_were_read_fails_the_salvage() -> None:
    one = committable(9, (0, 1))
    decide_whole(one, {TopicPartition("out", 0): 5, TopicPartition("out", 1): 5})
    with pytest.raises(SinkFailed, match="were read"):
        decide_whole(one, {TopicPartition("out", 0): 4, TopicPartition("out", 1): 6})


def of_checkpoint(checkpoint: int, producer_id: int, sink: str = "totals") -> Committable:
    return msgspec.structs.replace(committable(checkpoint, sink=sink), producer_id=producer_id)


def test_a_settlement_tells_what_is_committed_open_and_lost() -> None:
    client = ScriptedClient(
        {1: EndAnswer.ENDED, 2: EndAnswer.FENCED, 3: EndAnswer.FENCED, 4: EndAnswer.NO_ANSWER},
        [[Marker.ABORT], [Marker.COMMIT]],
    )
    ones = [of_checkpoint(4, number) for number in (1, 2, 3, 4)]
    settled = Committer(client).settle(permit(ones))
    assert settled.outcomes == (
        CommitOutcome.ENDED_NOW,
        CommitOutcome.LOST,
        CommitOutcome.COMMITTED,
        CommitOutcome.STILL_OPEN,
    )
    assert settled.committed == (ones[0], ones[2])
    assert [one.committable for one in settled.lost] == [ones[1]]
    assert "5 records in out[0] offsets 10..19" in settled.lost[0].explanation
    assert settled.held == ()
    assert not settled.definite


def test_a_settlement_with_a_transaction_that_is_gone_is_refused() -> None:
    client = ScriptedClient({1: EndAnswer.FENCED, 2: EndAnswer.FENCED}, [[Marker.ABORT], [Marker.GONE]])
    with pytest.raises(TransactionGone):
        Committer(client).settle(permit([of_checkpoint(4, 1), of_checkpoint(4, 2)]))


def test_one_that_is_accepted_as_gone_keeps_nobody_from_a_salvage() -> None:
    """Nothing of it is left that a copy of an older one of its sink could come after."""
    client = ScriptedClient({1: EndAnswer.FENCED, 2: EndAnswer.FENCED}, [[Marker.ABORT], [Marker.GONE]])
    older, newer = of_checkpoint(4, 1), of_checkpoint(5, 2)
    settled = Committer(client, accept_gone=LISTED_BY).settle(permit([older, newer], LISTED_BY), hold=False)
    assert settled.outcomes == (CommitOutcome.LOST, CommitOutcome.ACCEPTED)
    assert settled.definite
    assert settled.committed == ()
    decide_order(settled.lost, settled.committed)


NEWER = [of_checkpoint(5, 2), of_checkpoint(4, 1), of_checkpoint(5, 3, "other"), of_checkpoint(6, 4)]


def test_newer_transactions_of_a_sink_are_not_committed_behind_a_lost_one() -> None:
    """Permits are in any order; only producers 1 and 3 are asked."""
    client = ScriptedClient({1: EndAnswer.FENCED, 3: EndAnswer.ENDED}, [[Marker.ABORT]])
    settled = Committer(client).settle(permit(NEWER))
    assert settled.outcomes == (
        CommitOutcome.STILL_OPEN,
        CommitOutcome.LOST,
        CommitOutcome.ENDED_NOW,
        CommitOutcome.STILL_OPEN,
    )
    assert settled.held == (NEWER[0], NEWER[3])
    assert settled.definite
    assert [one.committable for one in settled.losing] == [NEWER[1], NEWER[0], NEWER[3]]


@pytest.mark.parametrize("answer", [EndAnswer.NO_ANSWER, EndAnswer.FENCED])
def test_newer_transactions_of_a_sink_wait_in_normal_life_too(answer: EndAnswer) -> None:
    client = ScriptedClient({1: answer, 3: EndAnswer.ENDED}, [[Marker.ABORT]])
    committer = Committer(client)
    if answer is EndAnswer.FENCED:
        with pytest.raises(TransactionLost, match="checkpoint 4"):
            committer.commit(permit(NEWER))
        return
    open_one = CommitOutcome.STILL_OPEN
    assert committer.commit(permit(NEWER)) == [open_one, open_one, CommitOutcome.ENDED_NOW, open_one]


def test_what_is_held_back_is_aborted_and_then_lost() -> None:
    client = ScriptedClient({1: EndAnswer.FENCED, 3: EndAnswer.ENDED}, [[Marker.ABORT]])
    committer = Committer(client)
    committer.abort_held(committer.settle(permit(NEWER)))
    assert client.fenced == [NEWER[0].transactional_id, NEWER[3].transactional_id]
    client.answers |= {2: EndAnswer.FENCED, 4: EndAnswer.FENCED}
    client.markers = [Marker.ABORT, Marker.ABORT, Marker.ABORT]
    settled = committer.settle(permit(NEWER), hold=False)
    assert {one.committable.checkpoint for one in settled.lost} == {4, 5, 6}
    assert settled.definite
    assert settled.held == ()
