"""What makes a transaction a committable, and what does not."""

from __future__ import annotations

import msgspec
import pytest

from tidegate.committable import WrittenRange
from tidegate.ids import Attempt, CheckpointId, OperatorName, ProducerId, SlotIndex, TopicPartition, TransactionalId
from tidegate.kafka.errors import SinkFailed, SinkRefused
from tidegate.kafka.facts import CoordinatorState, PreparedView, ProducerProgress, TransactionDescription
from tidegate.sinks.proof import Flushed, decide_committable, decide_first_sequences, decide_flushed

P0, P1 = TopicPartition("out", 0), TopicPartition("out", 1)
FLUSHED = Flushed(
    sink=OperatorName("totals"),
    subtask=SlotIndex(1),
    attempt=Attempt(2),
    checkpoint=CheckpointId(9),
    transactional_id=TransactionalId("p.totals.1.2-j.0"),
    producer=ProducerId(70, 3),
    produced=30,
    undelivered=0,
    delivery_errors=0,
    first_error="",
    refused=False,
)
DESCRIPTION = TransactionDescription(CoordinatorState.ONGOING, ProducerId(70, 3), 60_000, 1_000, frozenset({P0, P1}))
VIEW = PreparedView(DESCRIPTION, {P1: ProducerProgress(5, 10), P0: ProducerProgress(100, 20)}, {P0: 130, P1: 15})


def test_a_whole_transaction_is_a_committable() -> None:
    committable = decide_committable(FLUSHED, VIEW)
    assert committable.written == (WrittenRange(P0, 100, 130, 20), WrittenRange(P1, 5, 15, 10))
    assert (committable.records, committable.opened_at_ms, committable.timeout_ms) == (30, 1_000, 60_000)


def test_records_that_the_brokers_did_not_count_are_noticed() -> None:
    with pytest.raises(SinkFailed, match="counted 30 records, 31 were produced"):
        decide_committable(msgspec.structs.replace(FLUSHED, produced=31), VIEW)


def test_a_partition_that_does_not_know_the_producer_is_noticed() -> None:
    with pytest.raises(SinkFailed, match="counted 20 records, 30 were produced"):
        decide_committable(FLUSHED, msgspec.structs.replace(VIEW, progress={P0: ProducerProgress(100, 20)}))


@pytest.mark.parametrize("state", [state for state in CoordinatorState if state is not CoordinatorState.ONGOING])
def test_only_an_ongoing_transaction_is_prepared(state: CoordinatorState) -> None:
    view = msgspec.structs.replace(VIEW, description=msgspec.structs.replace(DESCRIPTION, state=state))
    with pytest.raises(SinkFailed, match=state.value):
        decide_committable(FLUSHED, view)


@pytest.mark.parametrize(("producer_id", "epoch"), [(70, 4), (70, 2), (71, 3)])
def test_another_producer_on_the_id_is_noticed(producer_id: int, epoch: int) -> None:
    description = msgspec.structs.replace(DESCRIPTION, producer=ProducerId(producer_id, epoch))
    with pytest.raises(SinkFailed, match=r"another producer has taken its id.*does another pipeline"):
        decide_committable(FLUSHED, msgspec.structs.replace(VIEW, description=description))


def test_an_unknown_id_is_noticed() -> None:
    with pytest.raises(SinkFailed, match="does not know its id"):
        decide_committable(FLUSHED, msgspec.structs.replace(VIEW, description=None))


def test_delivery_errors_fail_even_when_everything_was_flushed() -> None:
    failed = msgspec.structs.replace(FLUSHED, delivery_errors=2, first_error="timed out")
    with pytest.raises(SinkFailed, match="2 records were not delivered, the first: timed out"):
        decide_flushed(failed)


def test_undelivered_records_fail() -> None:
    with pytest.raises(SinkFailed, match="4 of 30 records"):
        decide_flushed(msgspec.structs.replace(FLUSHED, undelivered=4))


def test_a_refused_record_is_not_tried_again() -> None:
    refused = msgspec.structs.replace(FLUSHED, delivery_errors=1, first_error="too large", refused=True)
    with pytest.raises(SinkRefused, match="too large"):
        decide_flushed(refused)


def test_first_sequence_zero_is_whole() -> None:
    decide_flushed(FLUSHED)
    decide_first_sequences(FLUSHED, {P0: 0, P1: 0})


@pytest.mark.parametrize(("sequence", "text"), [(3, "sequence 3"), (None, "no batch of it")])
def test_a_missing_first_batch_is_noticed(sequence: int | None, text: str) -> None:
    with pytest.raises(SinkFailed, match=rf"out\[1\] begins with {text}"):
        decide_first_sequences(FLUSHED, {P0: 0, P1: sequence})
