"""The committer over a client whose answers are given; the real client is in test_crashes.py."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from tests.sinks.driving import permit
from tests.sinks.leaping import LeapingClock
from tidegate.committable import Committable, WrittenRange
from tidegate.ids import Attempt, CheckpointId, OperatorName, ProducerId, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.errors import (
    BrokerUnavailable,
    KafkaRefused,
    TransactionGone,
    TransactionLost,
    TransactionUndecidable,
)
from tidegate.kafka.facts import CoordinatorState, EndAnswer, Marker, TransactionDescription, TransactionListing
from tidegate.sinks.committer import COMMIT_TIMEOUT_S, MARKER_TIMEOUT_S, Committer
from tidegate.sinks.outcome import CommitOutcome
from tidegate.sinks.salvage import Settlement


def committable(number: int, partitions: int = 2) -> Committable:
    return Committable(
        sink=OperatorName("totals"),
        subtask=SlotIndex(number),
        attempt=Attempt(1),
        checkpoint=CheckpointId(4),
        transactional_id=TransactionalId(f"p.totals.{number}.1-j.0"),
        producer_id=number,
        producer_epoch=0,
        written=tuple(WrittenRange(TopicPartition("out", index), 10, 20, 5) for index in range(partitions)),
        opened_at_ms=1_700_000_000_000,
        timeout_ms=60_000,
    )


class ScriptedClient:
    """Answers by producer id; markers are given one list per round."""

    def __init__(self, answers: dict[int, EndAnswer], rounds: Sequence[Sequence[Marker]] = ()) -> None:
        self.answers = answers
        self.markers = [marker for one in rounds for marker in one]
        self.listed: list[TransactionListing] = []
        self.fenced: list[str] = []
        self.unavailable = False
        self.told: dict[TransactionalId, TransactionDescription] = {}

    def end_transactions(self, committables: Sequence[Committable], timeout_s: float) -> list[EndAnswer]:
        return [self.answers[one.producer_id] for one in committables]

    def outcome(self, written: WrittenRange, producer: ProducerId, timeout_s: float) -> Marker:
        if self.unavailable:
            raise BrokerUnavailable("no broker")
        return self.markers.pop(0)

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription | None:
        return self.told.get(transactional_id)

    def list_transactions(self, prefix: str, timeout_s: float) -> list[TransactionListing]:
        return [listing for listing in self.listed if listing.transactional_id.startswith(prefix)]

    def fence(self, transactional_id: TransactionalId, timeout_s: float) -> ProducerId:
        self.fenced.append(transactional_id)
        return ProducerId(0, 0)


def test_outcomes_come_in_the_order_of_the_permit() -> None:
    client = ScriptedClient({1: EndAnswer.NO_ANSWER, 2: EndAnswer.ENDED})
    outcomes = Committer(client).commit(permit([committable(1), committable(2)]))
    assert outcomes == [CommitOutcome.STILL_OPEN, CommitOutcome.ENDED_NOW]


def test_an_empty_permit_ends_nothing() -> None:
    assert Committer(ScriptedClient({})).commit(permit([])) == []


def test_markers_that_are_still_being_written_are_waited_for() -> None:
    rounds = [[Marker.OPEN, Marker.OPEN], [Marker.OPEN, Marker.OPEN], [Marker.COMMIT, Marker.OPEN]]
    client = ScriptedClient({1: EndAnswer.FENCED}, rounds)
    assert Committer(client).commit(permit([committable(1)])) == [CommitOutcome.COMMITTED]
    assert client.markers == []


def test_lost_markers_are_looked_for_soon_instead_of_waited_for() -> None:
    """Whoever commits looks for them between two tries: a try ends when markers should long be there."""
    clock = LeapingClock()
    client = ScriptedClient({1: EndAnswer.FENCED, 2: EndAnswer.FENCED}, [[Marker.OPEN]] * 1000)
    begun = clock.monotonic()
    outcomes = Committer(client, clock=clock).commit(permit([committable(1, 1), committable(2, 1)]))
    assert outcomes == [CommitOutcome.STILL_OPEN, CommitOutcome.STILL_OPEN]
    assert MARKER_TIMEOUT_S <= clock.monotonic() - begun < 1.5 * MARKER_TIMEOUT_S


def test_a_look_into_a_long_log_does_not_take_the_time_of_those_that_are_asked_after_it() -> None:
    """Else a transaction of another sink could never be committed, and no salvage would begin."""
    clock = LeapingClock(speed=1)

    class LongLog(ScriptedClient):
        def outcome(self, written: WrittenRange, producer: ProducerId, timeout_s: float) -> Marker:
            clock.sleep(100)
            return super().outcome(written, producer, timeout_s)

        def end_transactions(self, committables: Sequence[Committable], timeout_s: float) -> list[EndAnswer]:
            given.append(timeout_s)
            clock.sleep(12)
            return super().end_transactions(committables, timeout_s)

    given: list[float] = []
    client = LongLog({1: EndAnswer.FENCED, 2: EndAnswer.ENDED}, [[Marker.ABORT, Marker.ABORT]])
    other = replace(committable(2), sink=OperatorName("other"), checkpoint=CheckpointId(5))
    settled = Committer(client, clock=clock).settle(permit([committable(1), other]))
    assert settled.outcomes == (CommitOutcome.LOST, CommitOutcome.ENDED_NOW)
    assert given == [COMMIT_TIMEOUT_S, COMMIT_TIMEOUT_S - 12]


def test_an_unreachable_broker_is_not_final() -> None:
    client = ScriptedClient({1: EndAnswer.FENCED})
    client.unavailable = True
    assert Committer(client).commit(permit([committable(1)])) == [CommitOutcome.STILL_OPEN]


def test_a_lost_transaction_does_not_keep_the_others_from_being_committed() -> None:
    client = ScriptedClient({1: EndAnswer.FENCED, 2: EndAnswer.FENCED}, [[Marker.ABORT] * 2, [Marker.COMMIT] * 2])
    with pytest.raises(TransactionLost):
        Committer(client).commit(permit([committable(1), committable(2)]))
    assert client.markers == []


def test_a_lost_transaction_is_told_with_place_size_reason_and_remedy() -> None:
    client = ScriptedClient({1: EndAnswer.FENCED}, [[Marker.ABORT] * 2])
    with pytest.raises(TransactionLost) as lost:
        Committer(client).commit(permit([committable(1)]))
    text = lost.value.message
    for part in (
        "sink totals, checkpoint 4, subtask 1, 10 records",
        "out[0] offsets 10..19, out[1] offsets 10..19",
        "opened at 2023-11-14T22:13:20Z with a timeout of 60 s",
        "times it out from 2023-11-14T22:14:20Z on. If that time has not come yet",
        "does another pipeline of the same name run?",
        "read_uncommitted",
        "checkpoints.transaction_timeout",
    ):
        assert part in text
    assert not lost.value.retriable
    assert lost.value.fields["records"] == 10


def test_contradicting_markers_stop_with_what_was_found() -> None:
    client = ScriptedClient({1: EndAnswer.INVALID_STATE}, [[Marker.COMMIT, Marker.ABORT]])
    with pytest.raises(TransactionUndecidable, match=r"out\[0\]: commit, out\[1\]: abort"):
        Committer(client).commit(permit([committable(1)]))


@pytest.mark.parametrize("state", list(CoordinatorState))
def test_only_open_transactions_are_fenced(state: CoordinatorState) -> None:
    client = ScriptedClient({})
    client.listed = [TransactionListing(TransactionalId("p.totals.0.1-j.0"), 1, state)]
    fenced = Committer(client).fence_leftovers("p", [], Attempt(2), "j")
    assert bool(fenced) == (state is CoordinatorState.ONGOING)
    assert client.fenced == fenced


@pytest.mark.parametrize("in_cluster", ["", " in us"])
def test_a_restart_of_many_slots_tells_of_its_leftovers_in_one_line(
    in_cluster: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = ScriptedClient({})
    ids = [TransactionalId(f"p.totals.{slot}.1-j.0") for slot in range(50)]
    client.listed = [TransactionListing(one, 1, CoordinatorState.ONGOING) for one in ids]
    with caplog.at_level("INFO"):
        assert Committer(client, in_cluster=in_cluster).fence_leftovers("p", [], Attempt(2), "j") == ids
    assert client.fenced == ids
    (line,) = (record.getMessage() for record in caplog.records if record.name.startswith("tidegate."))
    told = f"aborted 50 open transactions{in_cluster} of attempts that have ended: p.totals.0.1-j.0, "
    assert line.startswith(told)
    assert line.endswith(" and 46 more")


@pytest.mark.parametrize(
    "identity",
    ["p.totals.0.2-j.0", "p.totals.0.3-j.0", "p.x.totals.0.1-j.0", "p.totals.0.1", "pp.totals.0.1-j.0", "p.own"],
)
def test_newer_attempts_and_other_peoples_ids_are_left_alone(identity: str) -> None:
    client = ScriptedClient({})
    client.listed = [TransactionListing(TransactionalId(identity), 1, CoordinatorState.ONGOING)]
    assert Committer(client).fence_leftovers("p", [], Attempt(2), "j") == []


def test_what_stands_behind_other_peoples_ids_in_the_list_is_fenced() -> None:
    client = ScriptedClient({})
    client.listed = [
        TransactionListing(TransactionalId("p.own"), 1, CoordinatorState.ONGOING),
        TransactionListing(TransactionalId("p.totals.0.1-j.0"), 2, CoordinatorState.COMPLETE_COMMIT),
        TransactionListing(TransactionalId("p.totals.1.1-j.0"), 3, CoordinatorState.ONGOING),
    ]
    assert Committer(client).fence_leftovers("p", [], Attempt(2), "j") == ["p.totals.1.1-j.0"]


def test_ids_of_unfinished_committables_are_kept() -> None:
    client = ScriptedClient({})
    one = committable(1).transactional_id
    client.listed = [TransactionListing(one, 1, CoordinatorState.ONGOING)]
    assert Committer(client).fence_leftovers("p", {one}, Attempt(2), "j") == []


def test_X07_leftovers_of_another_checkpoint_directory_are_fenced_whatever_their_attempt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = ScriptedClient({})
    foreign = ["p.totals.0.9-0a1b2c3d.0", "p.totals.0.9-77777777.0"]
    own = ["p.totals.0.1-99999999.0", "p.totals.0.2-99999999.0"]
    client.listed = [TransactionListing(TransactionalId(one), 1, CoordinatorState.ONGOING) for one in (*foreign, *own)]
    with caplog.at_level("INFO"):
        fenced = Committer(client).fence_leftovers("p", [], Attempt(2), "99999999")
    assert set(fenced) == {*foreign, own[0]}
    assert any("of pipeline p from another checkpoint directory: " in line for line in caplog.messages)
    client.fenced.clear()
    assert Committer(client).fence_leftovers("p", [], Attempt(2), "99999999", others=["77777777"]) == [
        own[0],
        foreign[1],
    ]
    assert Committer(client).fence_leftovers("p", [], Attempt(3), "99999999", others=[], since=Attempt(2)) == [own[1]]


def test_X02_what_is_gone_everywhere_needs_a_word() -> None:
    """The word is the number of the checkpoint that lists it, which may not be the one that it was written for."""
    client = ScriptedClient({1: EndAnswer.UNKNOWN_PRODUCER}, [[Marker.GONE, Marker.GONE]] * 3)
    listing = permit([committable(1)], 7)
    for accepted in (None, CheckpointId(4)):
        with pytest.raises(TransactionGone, match=r"no trace left.*sink totals, checkpoint 4.*--accept-gone 7, "):
            Committer(client, accept_gone=accepted).commit(listing)
    assert Committer(client, accept_gone=CheckpointId(7)).commit(listing) == [CommitOutcome.ACCEPTED]


def test_an_end_that_is_not_permitted_is_refused_instead_of_waited_for() -> None:
    client = ScriptedClient({1: EndAnswer.NOT_AUTHORIZED}, [[Marker.OPEN, Marker.OPEN]] * 20)
    with pytest.raises(KafkaRefused, match="grant WRITE"):
        Committer(client, clock=LeapingClock()).commit(permit([committable(1)]))


@pytest.mark.parametrize("epoch", [0, 1])
@pytest.mark.parametrize("state", list(CoordinatorState))
def test_what_was_held_back_is_fenced_unless_its_coordinator_says_that_exactly_it_is_committed(
    state: CoordinatorState, epoch: int
) -> None:
    one = committable(1)
    client = ScriptedClient({})
    client.told[one.transactional_id] = TransactionDescription(state, ProducerId(1, epoch), 60_000, 1, frozenset())
    Committer(client).abort_held(Settlement((CommitOutcome.STILL_OPEN,), (), (), held=(one,)))
    committed = state in (CoordinatorState.PREPARE_COMMIT, CoordinatorState.COMPLETE_COMMIT) and epoch == 0
    assert client.fenced == ([] if committed else [one.transactional_id])
