"""How far every source partition is: what slots report, and which one holds the others back."""

from __future__ import annotations

from tests.support.clocks import HandClock
from tidegate.coordinator.types import SourcePositions
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.operator_accounts import OperatorAccounts
from tidegate.daemon.source_progress import LINES_MAX, PartitionReport, PartitionStatus, derive_partitions
from tidegate.ids import MAIN_CLUSTER, Attempt, ClusterName, OperatorName, TopicPartition
from tidegate.task.report import OperatorCounts, SlotReport

ORDERS, RAW = OperatorName("orders"), OperatorName("raw")
US = ClusterName("us")
FIRST, SECOND, THIRD = (TopicPartition("orders", number) for number in range(3))


def reported() -> PipelineMetrics:
    """Slot 0 reads two partitions of one source and one of a source without event time, slot 1 an idle one."""
    accounts = OperatorAccounts({ORDERS: "source", RAW: "source"})
    metrics = PipelineMetrics("shop", "0", HandClock(0.0), accounts, clusters={ORDERS: MAIN_CLUSTER, RAW: US})
    metrics.attempt_started(Attempt(1))
    metrics.slot_report(
        Attempt(1),
        1,
        SlotReport(
            operators={ORDERS: OperatorCounts(watermark_ms=900, idle=True)},
            positions=(SourcePositions(ORDERS, ((SECOND, 7),), watermarks=((SECOND, 900),)),),
            idle={ORDERS: (SECOND,)},
        ),
    )
    metrics.slot_report(
        Attempt(1),
        0,
        SlotReport(
            operators={ORDERS: OperatorCounts(watermark_ms=1000, held_back_by=str(THIRD))},
            positions=(
                SourcePositions(ORDERS, ((FIRST, 5), (THIRD, 9)), watermarks=((FIRST, 5000), (THIRD, 1000))),
                SourcePositions(RAW, ((FIRST, 3),)),
            ),
            idle={ORDERS: ()},
        ),
    )
    return metrics


def test_every_partition_has_its_offsets_and_its_event_time() -> None:
    metrics = reported()
    metrics.lags(MAIN_CLUSTER, {FIRST: (3, 4), SECOND: (0, 7)})
    metrics.lags(US, {FIRST: (100, 0)})
    assert metrics.partitions == (
        PartitionStatus(ORDERS, MAIN_CLUSTER, "orders", 0, 0, 5, 7, 2, 5000, idle=False, holds_back=False),
        PartitionStatus(ORDERS, MAIN_CLUSTER, "orders", 1, 1, 7, 7, 0, 900, idle=True, holds_back=False),
        PartitionStatus(ORDERS, MAIN_CLUSTER, "orders", 2, 0, 9, None, None, 1000, idle=False, holds_back=True),
        PartitionStatus(RAW, US, "orders", 0, 0, 3, 100, 97, None, idle=False, holds_back=False),
    )


def test_a_new_attempt_begins_without_partitions() -> None:
    metrics = reported()
    metrics.attempt_started(Attempt(2))
    assert metrics.partitions == ()


def test_the_number_of_lines_is_bounded() -> None:
    many = SourcePositions(ORDERS, tuple((TopicPartition("orders", number), 0) for number in range(LINES_MAX + 1)))
    found = derive_partitions([PartitionReport(0, (many,), {})], {}, lambda _: MAIN_CLUSTER, {})
    assert len(found) == LINES_MAX
