"""Small makers of coordinator values for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.coordinator import Coordinator
from tidegate.coordinator.entries import ClusterIdentity, Identity, Writer
from tidegate.coordinator.events import AckReceived, Instruction, Journaled, SubtaskRunning
from tidegate.coordinator.triggers import CheckpointPolicy
from tidegate.coordinator.types import Ack, CompletedCheckpoint, Job, SourcePositions, StateHandle
from tidegate.ids import (
    MAIN_CLUSTER,
    Attempt,
    CheckpointId,
    ClusterName,
    OperatorName,
    SlotIndex,
    SubtaskId,
    TopicPartition,
    TransactionalId,
    VertexId,
)
from tidegate.storage.names import state_name

T = TypeVar("T")

ATTEMPT = Attempt(3)
SOURCE = SubtaskId(VertexId("orders"), SlotIndex(0))
TOTALS = SubtaskId(VertexId("totals"), SlotIndex(0))
SUBTASKS = frozenset({SOURCE, TOTALS})


def on_cluster(topic_ids: dict[str, str], cluster_id: str = "cluster-1") -> dict[ClusterName, ClusterIdentity]:
    """The clusters of an identity: `kafka` alone, with these topics."""
    return {MAIN_CLUSTER: ClusterIdentity(cluster_id, topic_ids)}


TOPIC_IDS = {"orders": "id-orders", "out": "id-out"}
IDENTITY = Identity(
    "shop",
    on_cluster(TOPIC_IDS),
    parallelism=2,
    max_parallelism=128,
    sources={OperatorName("orders"): MAIN_CLUSTER},
    sinks={OperatorName("out"): MAIN_CLUSTER},
)
ME = Writer("token-me", "host-a", 11)
OTHER = Writer("token-other", "host-b", 22)


def handle(
    checkpoint: int, operator: str = "totals", subtask: int = 0, path: str | None = None, size: int = 10
) -> StateHandle:
    name = path or state_name(CheckpointId(checkpoint), OperatorName(operator), SlotIndex(subtask))
    return StateHandle(OperatorName(operator), SlotIndex(subtask), name, size, "00", 0, "")


def committable(
    checkpoint: int,
    producer_id: int = 100,
    epoch: int = 0,
    pool_slot: int = 0,
    opened_at_ms: int = 1_000_000,
    records: int = 5,
) -> Committable:
    written = WrittenRange(TopicPartition("out", 0), 0, records, records)
    return Committable(
        sink=OperatorName("out"),
        subtask=SlotIndex(0),
        attempt=ATTEMPT,
        checkpoint=CheckpointId(checkpoint),
        transactional_id=TransactionalId(f"shop.out.0.{ATTEMPT}-j.{pool_slot}"),
        producer_id=producer_id,
        producer_epoch=epoch,
        written=(written,),
        opened_at_ms=opened_at_ms,
        timeout_ms=900_000,
    )


def positions(source: str, offsets: dict[str, dict[int, int]], ends: bool = False) -> SourcePositions:
    pairs = tuple((TopicPartition(topic, p), offset) for topic, parts in offsets.items() for p, offset in parts.items())
    return SourcePositions(OperatorName(source), pairs, pairs if ends else ())


def completed(
    checkpoint: int,
    *,
    attempt: int = 1,
    states: Iterable[StateHandle] = (),
    committables: Iterable[Committable] = (),
    at: Iterable[SourcePositions] = (),
    final: bool = False,
) -> CompletedCheckpoint:
    return CompletedCheckpoint(
        id=CheckpointId(checkpoint),
        attempt=Attempt(attempt),
        triggered_at_ms=checkpoint * 1000,
        completed_at_ms=checkpoint * 1000 + 50,
        positions=tuple(at),
        states=tuple(states),
        committables=tuple(committables),
        final=final,
    )


def ack(
    checkpoint: int,
    subtask: SubtaskId,
    *,
    attempt: int = ATTEMPT,
    states: Iterable[StateHandle] = (),
    committables: Iterable[Committable] = (),
    at: Iterable[SourcePositions] = (),
) -> Ack:
    return Ack(
        attempt=Attempt(attempt),
        checkpoint=CheckpointId(checkpoint),
        subtask=subtask,
        positions=tuple(at),
        states=tuple(states),
        committables=tuple(committables),
    )


def settings(
    interval_ms: int = 1000,
    timeout_ms: int = 60_000,
    min_pause_ms: int = 0,
    max_concurrent: int = 1,
    tolerable_failures: int = 3,
    transaction_margin_ms: int = 10_000,
) -> CheckpointPolicy:
    return CheckpointPolicy(
        interval_ms=interval_ms,
        timeout_ms=timeout_ms,
        min_pause_ms=min_pause_ms,
        max_concurrent=max_concurrent,
        tolerable_failures=tolerable_failures,
        transaction_margin_ms=transaction_margin_ms,
    )


def job(
    first: int = 1,
    reserved_to: int = 1000,
    retained: Iterable[CompletedCheckpoint] = (),
    carried: Iterable[Committable] = (),
    subtasks: frozenset[SubtaskId] = SUBTASKS,
) -> Job:
    return Job(
        attempt=ATTEMPT,
        sources=frozenset({SOURCE}),
        subtasks=subtasks,
        first_checkpoint=CheckpointId(first),
        reserved_to=CheckpointId(reserved_to),
        retained=tuple(retained),
        carried=tuple(carried),
    )


def running(given: CheckpointPolicy | None = None, work: Job | None = None, now_ms: int = 0) -> Coordinator:
    """A coordinator all of whose subtasks run since `now_ms`."""
    chosen = work or job()
    coordinator = Coordinator(given or settings(), chosen)
    for subtask in sorted(chosen.subtasks):
        assert coordinator.handle(SubtaskRunning(subtask, now_ms)) == ()
    return coordinator


def acknowledge_all(coordinator: Coordinator, checkpoint: int, now_ms: int) -> tuple[Instruction, ...]:
    """Bare acks of all subtasks; the instructions of the last."""
    out: tuple[Instruction, ...] = ()
    for subtask in sorted(SUBTASKS):
        out = coordinator.handle(AckReceived(ack(checkpoint, subtask), now_ms))
    return out


def journaled(checkpoint: int, now_ms: int) -> Journaled:
    return Journaled(CheckpointId(checkpoint), CheckpointId(1000), now_ms)


def only(instructions: Iterable[Instruction], kind: type[T]) -> T:
    """The one instruction of a kind."""
    found = of(instructions, kind)
    assert len(found) == 1, found
    return found[0]


def of(instructions: Iterable[Instruction], kind: type[T]) -> list[T]:
    """All instructions of a kind."""
    return [instruction for instruction in instructions if isinstance(instruction, kind)]
