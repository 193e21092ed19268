"""What the edge does with single instructions."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.coordinator.values import ATTEMPT, committable, completed
from tests.sinks.driving import permit
from tests.support.clusters import alone
from tests.waiting import PATIENCE_S
from tidegate.clock import SYSTEM_CLOCK
from tidegate.committable import Committable
from tidegate.coordinator.events import (
    FINAL,
    ORDERED,
    PERIODIC,
    SAVEPOINT,
    CheckpointProperties,
    CommitTransactions,
    Event,
    Journaled,
    SendTrigger,
    TransactionsEnded,
    TriggerFailed,
    TriggerRefusal,
    TriggerRefused,
)
from tidegate.coordinator.permit import CommitPermit
from tidegate.daemon.instructions import InstructionExecutor
from tidegate.daemon.kafka_clusters import KafkaClusters
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.errors import TidegateError
from tidegate.ids import MAIN_CLUSTER, CheckpointId, ClusterName, JournalSequence
from tidegate.journal.journal import Appended, JournalLost
from tidegate.kafka.errors import KafkaRefused, TransactionGone, TransactionLost, TransactionUndecidable
from tidegate.sinks.outcome import CommitOutcome
from tidegate.task.elements import Barrier
from tidegate.task.messages import DriverMessage, Trigger

SEVEN = CheckpointId(7)


def transactions(metrics: PipelineMetrics, result: str) -> float | None:
    labels = {"pipeline": "shop", "result": result}
    return metrics.registry.get_sample_value("tidegate_transactions_total", labels)


def test_C40_C41_a_trigger_names_pipeline_attempt_and_checkpoint_and_its_failure_is_fed_from_the_loop() -> None:
    """Not while instructions are carried out: the coordinator's next answer would overtake the rest of them."""
    sent: list[DriverMessage] = []
    fed: list[Event] = []

    def send_all(message: DriverMessage) -> list[str]:
        sent.append(message)
        return ["slot 1 (process 4711 on here)"]

    async def scene() -> None:
        services = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK))
        executor = InstructionExecutor("shop", services, send_all, fed.append, *[cast("Any", None)] * 3)
        executor.execute([SendTrigger(ATTEMPT, SEVEN, 5, PERIODIC)])
        assert fed == []
        await asyncio.sleep(0)

    asyncio.run(scene())
    (trigger,) = sent
    assert isinstance(trigger, Trigger)
    assert (trigger.pipeline, trigger.attempt, trigger.barrier.checkpoint) == ("shop", ATTEMPT, SEVEN)
    (failed,) = fed
    assert isinstance(failed, TriggerFailed)
    assert (failed.checkpoint, failed.detail) == (7, "no connection to slot 1 (process 4711 on here)")


def barrier_of(order: SendTrigger, unaligned_after_ms: int | None) -> Barrier:
    """The barrier that slots are sent for it."""
    sent: list[DriverMessage] = []

    def send_all(message: DriverMessage) -> list[str]:
        sent.append(message)
        return []

    nothing = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK))
    executor = InstructionExecutor("shop", nothing, send_all, nothing, nothing, nothing, nothing, unaligned_after_ms)
    executor.execute([order])
    (trigger,) = sent
    assert isinstance(trigger, Trigger)
    return trigger.barrier


@pytest.mark.parametrize(
    ("kind", "after_ms", "final", "savepoint"),
    [
        (PERIODIC, 5, False, False),
        (ORDERED, 5, False, False),
        (FINAL, None, True, False),
        (SAVEPOINT, None, False, True),
    ],
)
def test_B48_C34_the_barrier_has_id_time_and_options_and_is_aligned_where_it_must_be(
    kind: CheckpointProperties, after_ms: int | None, final: bool, savepoint: bool
) -> None:
    order = SendTrigger(ATTEMPT, SEVEN, 1234, kind)
    assert barrier_of(order, 5) == Barrier(SEVEN, 1234, final, after_ms, savepoint)
    assert barrier_of(order, None).unaligned_after_ms is None


def test_X03_a_directory_that_is_gone_while_it_is_cleaned_up_ends_the_attempt_by_that_error() -> None:
    """Not as an error of the program."""
    failed: list[TidegateError] = []

    async def vanished(_call: object) -> None:
        raise JournalLost("the journal is not where it was")

    async def scene() -> None:
        services = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK, journal=None, in_journal_thread=vanished))
        executor = InstructionExecutor(
            "shop", services, cast("Any", None), cast("Any", None), failed.append, *[cast("Any", None)] * 2
        )
        executor._spawn(executor._clean_up(frozenset()))
        await asyncio.sleep(0.01)

    asyncio.run(scene())
    (error,) = failed
    assert isinstance(error, JournalLost)


@pytest.mark.parametrize("why", TriggerRefusal)
def test_a_final_checkpoint_that_cannot_begin_fails_the_attempt_unless_it_ends_already(why: TriggerRefusal) -> None:
    failed: list[TidegateError] = []
    services = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK))
    executor = InstructionExecutor(
        "shop", services, cast("Any", None), cast("Any", None), failed.append, *[cast("Any", None)] * 2
    )
    executor.execute([TriggerRefused(why, FINAL)])
    told = [] if why is TriggerRefusal.SHUT_DOWN else [f"no final checkpoint: {why.value}"]
    assert [error.message for error in failed] == told


def test_a_commit_asks_for_nothing_that_an_earlier_one_of_the_attempt_has_ended() -> None:
    """The second checkpoint lists the transactions of the first, which were not known to be ended when it was written.

    Their ids are in use again by the time of its commit: the coordinator would refuse, and every partition be read.
    """
    first = [committable(1, 100, pool_slot=0), committable(1, 101, pool_slot=1)]
    second = [committable(2, 102, pool_slot=2)]
    answers = [[CommitOutcome.ENDED_NOW, CommitOutcome.STILL_OPEN], [CommitOutcome.COMMITTED, CommitOutcome.ENDED_NOW]]
    asked: list[tuple[Committable, ...]] = []
    metrics = PipelineMetrics("shop", "0")
    fed: list[Event] = []

    async def commit(right: CommitPermit) -> list[CommitOutcome]:
        asked.append(right.committables)
        return answers.pop(0)

    async def scene() -> None:
        services = SimpleNamespace(
            clock=SYSTEM_CLOCK, kafka=alone(SimpleNamespace(commit=commit, unavailable=False)), metrics=metrics
        )
        executor = InstructionExecutor(
            "shop", cast("Any", services), cast("Any", None), fed.append, *[cast("Any", None)] * 3
        )
        await asyncio.gather(executor._commit(permit(first)), executor._commit(permit([*first, *second], checkpoint=2)))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidegate.daemon.instructions.COMMIT_RETRY_S", 0.0)
        asyncio.run(scene())
    assert asked == [tuple(first), (first[1], *second)]
    assert sorted(len(one.ended) for one in fed if isinstance(one, TransactionsEnded)) == [2, 3]
    assert transactions(metrics, "committed") == 3, "each ends once"


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (TransactionLost("it has timed out"), 1),
        (KafkaRefused("grant WRITE"), 0),
        (TransactionGone("retention has removed it"), 0),
        (TransactionUndecidable("a marker is missing"), 0),
    ],
)
def test_only_a_transaction_that_the_broker_has_aborted_is_counted_as_lost(error: TidegateError, lost: int) -> None:
    """The alert says that its records were written again, and what to raise."""
    metrics = PipelineMetrics("shop", "0")
    failed: list[TidegateError] = []

    async def commit(_right: CommitPermit) -> list[CommitOutcome]:
        raise error

    async def scene() -> None:
        services = SimpleNamespace(
            clock=SYSTEM_CLOCK, kafka=alone(SimpleNamespace(commit=commit, unavailable=False)), metrics=metrics
        )
        executor = InstructionExecutor(
            "shop", cast("Any", services), cast("Any", None), cast("Any", None), failed.append, *[cast("Any", None)] * 2
        )
        await executor._commit(permit([committable(7)]))

    asyncio.run(scene())
    assert len(failed) == 1
    assert transactions(metrics, "lost") == lost


@pytest.mark.parametrize("ended", [True, False])
def test_the_right_to_commit_is_dropped_where_there_is_nothing_to_commit(
    monkeypatch: pytest.MonkeyPatch, ended: bool
) -> None:
    """An idle pipeline completes a checkpoint each interval, for months."""
    right = permit([] if ended else [committable(7)], checkpoint=7)
    asked: list[CommitPermit] = []

    async def append(_call: object) -> Appended:
        return Appended(JournalSequence(3), right, CheckpointId(9))

    async def scene() -> None:
        services = cast("Any", SimpleNamespace(clock=SYSTEM_CLOCK, journal=None, in_journal_thread=append))

        def feed(event: Event) -> None:
            assert isinstance(event, Journaled)
            if not ended:
                executor.execute([CommitTransactions(SEVEN)])

        async def commit(right: CommitPermit) -> None:
            asked.append(right)

        executor = InstructionExecutor("shop", services, cast("Any", None), feed, *[cast("Any", None)] * 3)
        monkeypatch.setattr(executor, "_commit", commit)  # what it does with it is another test's
        await executor._append(completed(7))
        await asyncio.sleep(0)
        assert executor._permits == {}

    asyncio.run(scene())
    assert asked == ([] if ended else [right])


def test_the_commit_in_one_cluster_waits_for_no_answer_of_another() -> None:
    """Also the commits of later checkpoints there; the checkpoint has ended when both have."""
    us = ClusterName("us")
    there = msgspec.structs.replace(committable(1, 101, pool_slot=1), cluster=us)
    later = committable(2, 102, pool_slot=2)
    asked: list[tuple[Committable, ...]] = []
    fed: list[Event] = []
    answers = asyncio.Event()

    async def commit(right: CommitPermit) -> list[CommitOutcome]:
        asked.append(right.committables)
        return [CommitOutcome.COMMITTED] * len(right.committables)

    async def commit_there(right: CommitPermit) -> list[CommitOutcome]:
        await answers.wait()
        return await commit(right)

    async def scene() -> None:
        edges = {
            MAIN_CLUSTER: SimpleNamespace(commit=commit, unavailable=False),
            us: SimpleNamespace(commit=commit_there, unavailable=False),
        }
        services = SimpleNamespace(
            clock=SYSTEM_CLOCK, kafka=KafkaClusters(cast("Any", edges)), metrics=PipelineMetrics("shop", "0")
        )
        executor = InstructionExecutor(
            "shop", cast("Any", services), cast("Any", None), fed.append, *[cast("Any", None)] * 3
        )
        first = asyncio.create_task(executor._commit(permit([committable(1), there])))
        await asyncio.create_task(executor._commit(permit([later], checkpoint=2)))
        assert asked == [(committable(1),), (later,)]
        answers.set()
        await asyncio.wait_for(first, PATIENCE_S)

    asyncio.run(scene())
    assert asked[2:] == [(there,)]
    assert [one.checkpoint for one in fed if isinstance(one, TransactionsEnded)] == [2, 1]
