"""Which open transactions nobody will end, and which may be: a coordinator's decision is completed, never made."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import pytest

from tests.coordinator.values import committable
from tidegate.ids import ProducerId, TopicPartition, TransactionalId
from tidegate.kafka.facts import (
    TRANSACTION_LOG,
    CoordinatorState,
    Leader,
    OpenBrokerTransaction,
    TransactionDescription,
    TransactionListing,
)
from tidegate.sinks.hanging_transactions import (
    RIPE_S,
    BlockedPartition,
    HangingTransaction,
    HangingTransactionTracker,
    HangingVerdict,
    UnresolvedTransaction,
    decide_verdict,
    derive_blocked,
    derive_watch,
    find_suspects,
    find_unended,
    report_resolved,
    tell_left,
)

PART = TopicPartition("out", 3)
OWN = TransactionalId("shop.eu.totals.0.7-j.2")
FOREIGN = [
    TransactionalId(name) for name in ("billing-1", "shop.totals.0.7-j.2", "shop.eu2.totals.0.7-j.2", "shop.eu.totals")
]
EPOCH = 5
OPENED = OpenBrokerTransaction(PART, ProducerId(9, EPOCH), 120, -1)


def told(state: CoordinatorState, epoch: int = EPOCH, *partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription(state, ProducerId(OPENED.producer.id, epoch), 60_000, 1, frozenset(partitions))


def verdict(description: TransactionDescription | None, name: TransactionalId = OWN) -> HangingVerdict:
    return decide_verdict(OPENED, name, description, "shop.eu")


@pytest.mark.parametrize("epoch", range(EPOCH - 2, EPOCH + 4))
@pytest.mark.parametrize("state", list(CoordinatorState))
def test_a_marker_is_written_only_for_the_recorded_end_of_exactly_this_transaction(
    state: CoordinatorState, epoch: int
) -> None:
    found = verdict(told(state, epoch))
    assert (found is HangingVerdict.COMMIT) == (state is CoordinatorState.COMPLETE_COMMIT and epoch == EPOCH)
    aborted = state is CoordinatorState.COMPLETE_ABORT and epoch in (EPOCH, EPOCH + 1)
    fenced = state is CoordinatorState.EMPTY and epoch >= EPOCH + 2
    assert (found is HangingVerdict.ABORT) == (aborted or fenced)


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1, EPOCH + 2])
@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("state", list(CoordinatorState))
def test_nothing_of_others_is_ever_ended(state: CoordinatorState, name: TransactionalId, epoch: int) -> None:
    assert verdict(told(state, epoch), name) in (HangingVerdict.FOREIGN, HangingVerdict.LIVE)


def test_an_open_transaction_of_its_coordinator_is_live_only_where_it_is_known_to_have_records() -> None:
    assert verdict(told(CoordinatorState.ONGOING, EPOCH, PART)) is HangingVerdict.LIVE
    assert verdict(told(CoordinatorState.ONGOING, EPOCH, TopicPartition("out", 4))) is HangingVerdict.UNSURE
    assert verdict(told(CoordinatorState.ONGOING, EPOCH + 1, PART)) is HangingVerdict.UNSURE


@pytest.mark.parametrize(
    "state", [CoordinatorState.PREPARE_COMMIT, CoordinatorState.PREPARE_ABORT, CoordinatorState.PREPARE_EPOCH_FENCE]
)
def test_markers_that_are_under_way_are_left_to_the_coordinator(state: CoordinatorState) -> None:
    assert verdict(told(state)) is HangingVerdict.LIVE


def test_another_producer_id_or_no_coordinator_says_nothing() -> None:
    other = TransactionDescription(
        CoordinatorState.COMPLETE_COMMIT, ProducerId(OPENED.producer.id + 1, EPOCH), 1, 1, frozenset()
    )
    assert verdict(other) is HangingVerdict.UNSEEN
    assert verdict(None) is HangingVerdict.UNSEEN
    assert decide_verdict(OPENED, None, None, "shop.eu") is HangingVerdict.UNSEEN


def test_coordinators_are_asked_about_what_should_not_be_open_and_about_what_stays_open() -> None:
    ones = [OpenBrokerTransaction(PART, ProducerId(number, 0), number, -1) for number in range(4)]
    states = [CoordinatorState.ONGOING, CoordinatorState.COMPLETE_COMMIT, CoordinatorState.PREPARE_COMMIT]
    listed = {i: TransactionListing(OWN, i, state) for i, state in enumerate(states)}
    assert find_suspects(ones, listed, ()) == [ones[1], ones[3]]
    assert find_suspects(ones, listed, {ones[0]}) == [ones[0], ones[1], ones[3]]


def test_the_last_transaction_of_an_id_is_looked_for_by_producer_id_and_epoch() -> None:
    one = committable(1)
    parts = [TopicPartition("out", index) for index in range(4)]
    owner = one.producer
    opened = [
        OpenBrokerTransaction(parts[2], owner, 0, -1),
        OpenBrokerTransaction(parts[0], owner, 0, -1),
        OpenBrokerTransaction(parts[1], ProducerId(one.producer_id, one.producer_epoch + 1), 0, -1),
        OpenBrokerTransaction(parts[3], ProducerId(one.producer_id + 1, one.producer_epoch), 0, -1),
    ]
    assert find_unended(one, opened) == [parts[0], parts[2]]


def test_one_warning_for_each_mended_transaction_names_all_its_partitions() -> None:
    other = OpenBrokerTransaction(TopicPartition("out", 1), ProducerId(9, EPOCH), 80, -1)
    texts = report_resolved([HangingTransaction(each, HangingVerdict.COMMIT, OWN, EPOCH) for each in (OPENED, other)])
    assert len(texts) == 1
    for part in ("shop.eu.totals.0.7-j.2", "commit marker", "out[3] (from offset 120 on), out[1] (from offset 80 on)"):
        assert part in texts[0]


ABORT = "kafka-transactions.sh --bootstrap-server b:9092 abort --topic out --partition 3 --start-offset 120"


@pytest.mark.parametrize("found", [one for one in HangingVerdict if one is not HangingVerdict.LIVE])
def test_what_is_left_is_told_with_place_reason_and_command(found: HangingVerdict) -> None:
    known = None if found is HangingVerdict.UNSEEN else OWN
    text = tell_left(
        UnresolvedTransaction(HangingTransaction(OPENED, found, known, EPOCH), "not authorized", forbidden=True),
        "b:9092",
    )
    assert "readers of committed records are blocked at offset 120 of out[3]" in text
    assert "producer id 9 epoch 5" in text
    if found is HangingVerdict.COMMIT:
        assert "not authorized" in text
        assert "kafka-acls.sh --bootstrap-server b:9092 --add" in text
        assert ABORT not in text, "that would take committed records away"
    else:
        assert ABORT in text


def test_an_id_waits_for_its_markers_from_its_first_try_or_from_the_last_outage_on() -> None:
    first = derive_blocked(None, 10.0, 2)
    assert derive_blocked(first, 25.0, 2) == first == BlockedPartition(10.0, 2)
    assert derive_blocked(first, 25.0, 3) == BlockedPartition(25.0, 3)


# -- several looks: nothing is done while anything moves ---------------------------------------------------------------

OUT, LOG = TopicPartition("out", 3), TopicPartition(TRANSACTION_LOG, 7)
SEATS = {OUT: Leader(1, 4), LOG: Leader(2, 9)}
FOUND = HangingTransaction(OPENED, HangingVerdict.COMMIT, OWN, EPOCH, coordinator=2)


def ripe_after(*looks: HangingTransactionTracker | None, seconds: float = RIPE_S) -> bool:
    """Whether the marker is written at the last look; each look comes `seconds` after the one before."""
    watch, now = None, 100.0
    for look in looks:
        assert look is not None
        watch = derive_watch(watch, look.leaders, look.interruptions, look.since.keys(), now)
        now += seconds
    assert watch is not None
    return watch.is_ripe(FOUND, now - seconds)


def look(
    leaders: Mapping[TopicPartition, Leader] = SEATS, interruptions: int = 0, found: HangingTransaction | None = FOUND
) -> HangingTransactionTracker:
    return HangingTransactionTracker(leaders, interruptions, {} if found is None else {found: 0.0})


def test_X08_one_look_is_never_enough_and_a_second_one_comes_seconds_later() -> None:
    assert not ripe_after(look())
    assert not ripe_after(look(), look(), seconds=RIPE_S - 0.1)
    assert ripe_after(look(), look())
    assert ripe_after(look(), look(), look(), seconds=RIPE_S / 2)


@pytest.mark.parametrize(
    "moved",
    [
        {**SEATS, OUT: Leader(1, 5)},
        {**SEATS, OUT: Leader(2, 5)},
        {**SEATS, OUT: Leader(-1, 4)},
        {**SEATS, LOG: Leader(2, 10)},
        {**SEATS, TopicPartition("out", 4): Leader(1, 0)},
        {OUT: SEATS[OUT]},
    ],
)
def test_X08_any_change_of_a_leader_or_coordinator_between_two_looks_begins_anew(
    moved: dict[TopicPartition, Leader],
) -> None:
    assert not ripe_after(look(), look(moved))
    assert not ripe_after(look(moved), look())
    assert not ripe_after(look(), look(moved), look())
    assert ripe_after(look(), look(moved), look(moved))


def test_X08_a_look_at_which_it_was_not_found_or_was_another_one_begins_anew() -> None:
    others = [
        None,
        msgspec.structs.replace(FOUND, coordinator=1),
        msgspec.structs.replace(FOUND, verdict=HangingVerdict.UNSURE),
        msgspec.structs.replace(
            FOUND, opened=msgspec.structs.replace(OPENED, producer=ProducerId(OPENED.producer.id, EPOCH + 1))
        ),
    ]
    for other in others:
        assert not ripe_after(look(), look(found=other), look())


def test_X08_where_the_transaction_log_is_hidden_interrupted_requests_are_what_there_is_to_see_of_a_coordinator() -> (
    None
):
    hidden = {OUT: SEATS[OUT]}
    assert ripe_after(look(hidden, 3), look(hidden, 3))
    assert not ripe_after(look(hidden, 3), look(hidden, 4))
    assert ripe_after(look(SEATS, 3), look(SEATS, 4)), "leaders of the log say more"


def test_X08_a_refusal_because_of_something_newer_is_no_reason_to_grant_anything() -> None:
    text = tell_left(
        UnresolvedTransaction(FOUND, "out[3] has refused the marker: TransactionCoordinatorFencedError (52)"), "b:9092"
    )
    assert "CLUSTER_ACTION" not in text
    assert "retried at every check" in text
