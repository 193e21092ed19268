"""The mender's two looks, over answers that are given: what is asked in which order, and what is done with refusals."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tidegate.ids import ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.errors import BrokerUnavailable, KafkaRefused, MarkerOvertaken
from tidegate.kafka.facts import (
    TRANSACTION_LOG,
    CoordinatorState,
    Leader,
    OpenBrokerTransaction,
    TransactionDescription,
    TransactionListing,
)
from tidegate.sinks.hanging_resolver import HangingTransactionResolver
from tidegate.sinks.hanging_transactions import RIPE_S, HangingVerdict, ResolveReport

PART, LOG = TopicPartition("out", 0), TopicPartition(TRANSACTION_LOG, 0)
OWN = TransactionalId("shop.out.0.1-j.2")
OPENED = OpenBrokerTransaction(PART, ProducerId(9, 5), 120, -1)


class Cluster:
    """A committed transaction without its marker. Everything that is asked is noted; time passes when it is said."""

    def __init__(self) -> None:
        self.now = 50.0
        self.interruptions = 0
        self.seats = {PART: Leader(1, 4), LOG: Leader(2, 7)}
        self.opened = [OPENED]
        self.refusal: Exception | None = None
        self.state, self.epoch = CoordinatorState.COMPLETE_COMMIT, OPENED.producer.epoch
        self.markers: list[tuple[OpenBrokerTransaction, int, bool]] = []
        self.asked: list[str] = []
        self.resolver = HangingTransactionResolver(self, "shop", self)

    def after(self, seconds: float) -> ResolveReport:
        """A look so much later."""
        self.now += seconds
        self.asked.clear()
        return self.resolver.resolve(["out"])

    # -- the clock ---------------------------------------------------------------------------------------------------

    def now_ms(self) -> int:
        raise AssertionError("the wall clock decides nothing here")

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        raise AssertionError(f"nothing waits here ({seconds} s)")

    # -- the client --------------------------------------------------------------------------------------------------

    def leaders(self, topics: Iterable[str], timeout_s: float) -> dict[TopicPartition, Leader]:
        self.asked.append("leaders")
        assert list(topics) == ["out"]
        return dict(self.seats)

    def open_transactions(self, partitions: Iterable[TopicPartition], timeout_s: float) -> list[OpenBrokerTransaction]:
        self.asked.append("partition")
        wanted = list(partitions)
        return [one for one in self.opened if one.partition in wanted]

    def list_transactions(self, prefix: str, timeout_s: float) -> list[TransactionListing]:
        return [TransactionListing(OWN, 9, self.state)] if OWN.startswith(prefix) else []

    def describe(self, transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription:
        self.asked.append("coordinator")
        return TransactionDescription(self.state, ProducerId(9, self.epoch), 60_000, -1, frozenset())

    def known_coordinator(self, transactional_id: TransactionalId) -> int:
        return 2

    def write_marker(self, opened: OpenBrokerTransaction, epoch: int, commit: bool, timeout_s: float) -> None:
        self.asked.append("marker")
        if self.refusal is not None:
            raise self.refusal
        self.markers.append((opened, epoch, commit))
        self.opened.remove(opened)


def test_X08_the_second_quiet_look_writes_the_marker_and_the_first_does_not() -> None:
    cluster = Cluster()
    first = cluster.after(0)
    assert [each.one.opened for each in first.waiting] == [OPENED]
    assert "marker" not in cluster.asked
    second = cluster.after(RIPE_S)
    assert [one.verdict for one in second.resolved] == [HangingVerdict.COMMIT]
    assert not second.waiting
    assert cluster.asked == ["leaders", "partition", "coordinator", "partition", "leaders", "marker", "partition"]


@pytest.mark.parametrize(
    ("state", "raised", "commit"),
    [
        (CoordinatorState.COMPLETE_COMMIT, 0, True),
        (CoordinatorState.COMPLETE_ABORT, 0, False),
        (CoordinatorState.COMPLETE_ABORT, 1, False),
        (CoordinatorState.EMPTY, 2, False),
    ],
)
def test_X08_the_marker_says_how_the_coordinator_has_ended_it_with_the_coordinators_epoch(
    state: CoordinatorState, raised: int, commit: bool
) -> None:
    cluster = Cluster()
    cluster.state, cluster.epoch = state, OPENED.producer.epoch + raised
    cluster.after(0)
    (resolved,) = cluster.after(RIPE_S).resolved
    assert cluster.markers == [(OPENED, cluster.epoch, commit)]
    assert (resolved.transactional_id, resolved.coordinator) == (OWN, 2)


def test_where_nothing_is_open_nothing_more_is_asked() -> None:
    cluster = Cluster()
    cluster.opened.clear()
    cluster.after(0)
    assert cluster.asked == ["leaders", "partition"]


def test_X08_a_leader_that_moves_while_it_is_looked_puts_the_marker_off() -> None:
    cluster = Cluster()
    cluster.after(0)
    describe = cluster.describe

    def move(transactional_id: TransactionalId, timeout_s: float) -> TransactionDescription:
        cluster.seats[PART] = Leader(2, 5)
        return describe(transactional_id, timeout_s)

    cluster.describe = move  # type: ignore[method-assign]  # what happens in the middle of a look
    assert len(cluster.after(RIPE_S).waiting) == 1
    assert "marker" not in cluster.asked
    assert len(cluster.after(RIPE_S - 0.1).waiting) == 1
    assert len(cluster.after(0.2).resolved) == 1


def test_X08_a_partition_that_knows_something_newer_is_looked_at_anew() -> None:
    cluster = Cluster()
    cluster.after(0)
    cluster.refusal = MarkerOvertaken("out[0] has refused the marker: TransactionCoordinatorFencedError (52)")
    report = cluster.after(RIPE_S)
    assert "marker" in cluster.asked
    assert (len(report.waiting), report.left, report.resolved) == (1, (), ())
    cluster.refusal = None
    assert len(cluster.after(RIPE_S - 0.1).waiting) == 1
    assert "marker" not in cluster.asked, "its time started again"
    cluster.opened.clear()
    assert cluster.after(RIPE_S) == ResolveReport(frozenset()), "it was a marker under way"


@pytest.mark.parametrize(
    ("refusal", "forbidden"), [(KafkaRefused("no right"), True), (BrokerUnavailable("away"), False)]
)
def test_a_marker_that_cannot_be_written_is_left_with_the_reason(refusal: Exception, forbidden: bool) -> None:
    cluster = Cluster()
    cluster.after(0)
    cluster.refusal = refusal
    (left,) = cluster.after(RIPE_S).left
    assert (left.why, left.forbidden) == (str(refusal), forbidden)


def test_where_nothing_is_open_two_questions_are_enough() -> None:
    cluster = Cluster()
    cluster.opened.clear()
    assert cluster.after(0) == ResolveReport(frozenset())
    assert cluster.asked == ["leaders", "partition"]
