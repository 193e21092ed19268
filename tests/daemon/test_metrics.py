"""Metrics: counters through attempts, names, the format that Prometheus reads."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.clocks import HandClock
from tidegate.committable import Committable, WrittenRange
from tidegate.coordinator.types import CompletedCheckpoint, SourcePositions, StateHandle
from tidegate.daemon.broker_watch import ProbeResult
from tidegate.daemon.metric_catalogue import CATALOGUE, LATENCY_BUCKETS, MetricKind
from tidegate.daemon.metrics import REASONS_MAX, PipelineMetrics, TransactionResult
from tidegate.daemon.operator_accounts import CounterWindow, OperatorAccounts
from tidegate.daemon.source_holds import SourceHold
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity, PipelineState
from tidegate.formats.failures import FailureKind
from tidegate.ids import (
    MAIN_CLUSTER,
    Attempt,
    CheckpointId,
    ClusterName,
    OperatorName,
    SlotIndex,
    TopicPartition,
    TransactionalId,
)
from tidegate.task.report import OperatorCounts, SlotReport

ORDERS = OperatorName("orders")
TOTALS = OperatorName("totals")
FIRST, SECOND = Attempt(1), Attempt(2)


def make_metrics(clock: HandClock | None = None) -> PipelineMetrics:
    clock = clock or HandClock(1000.0)
    return PipelineMetrics(
        "shop", "0.1.0", elapsed=clock, operators=OperatorAccounts({ORDERS: "source", TOTALS: "aggregate"})
    )


def value(metrics: PipelineMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"tidegate_{name}", {"pipeline": "shop", **labels})


def committable(checkpoint: int, records: int) -> Committable:
    written = (WrittenRange(TopicPartition("out", 0), 0, records, records),)
    return Committable(
        TOTALS, SlotIndex(0), FIRST, CheckpointId(checkpoint), TransactionalId("t"), checkpoint, 0, written, 0, 60_000
    )


def completed(checkpoint: int, *committables: Committable) -> CompletedCheckpoint:
    states = (
        StateHandle(TOTALS, SlotIndex(0), "a", 700, "x", 0, ""),
        StateHandle(TOTALS, SlotIndex(1), "b", 300, "y", 0, ""),
    )
    positions = (SourcePositions(ORDERS, ((TopicPartition("orders", 0), 10),)),)
    return CompletedCheckpoint(CheckpointId(checkpoint), FIRST, 500_000, 500_250, positions, states, committables)


def test_limits_of_the_file_are_there_for_alerts_and_latency_is_measured_up_to_an_interval_of_an_hour() -> None:
    metrics = make_metrics()
    metrics.limits(interval_ms=600_000, min_pause_ms=0, transaction_timeout_ms=900_000)
    assert value(metrics, "checkpoint_interval_seconds") == 600
    assert value(metrics, "transaction_timeout_seconds") == 900
    metrics.limits(interval_ms=1000, min_pause_ms=30_000, transaction_timeout_ms=900_000)
    assert value(metrics, "checkpoint_interval_seconds") == 30
    assert LATENCY_BUCKETS[-1] > 300 + 2 * 3600
    assert all(above <= 300 + 2 * below for below, above in pairwise(LATENCY_BUCKETS) if below >= 60)


def fill(metrics: PipelineMetrics) -> None:
    metrics.diagnosed([Diagnosis(code="sink-slow", severity=DiagnosisSeverity.PROBLEM, sentence="", remedy="")])
    metrics.limits(interval_ms=1000, min_pause_ms=0, transaction_timeout_ms=900_000)
    """At least one sample in every family."""
    metrics.state(PipelineState.RUNNING)
    metrics.registry_says("", 0)
    metrics.schemas_incompatible(0)
    metrics.on_hold({ORDERS: SourceHold("gate", "until `table` of `step` has caught up", 1)})
    report = SlotReport(
        records_in={ORDERS: 10},
        bytes_in={ORDERS: 1000},
        records_out={TOTALS: 9},
        bytes_out={TOTALS: 900},
        bad_records={ORDERS: {FailureKind.WRONG_TYPE: 1}},
        dead_letters={ORDERS: {FailureKind.WRONG_TYPE: 1}},
        operators={
            ORDERS: OperatorCounts(watermarks=2, watermark_ms=7),
            TOTALS: OperatorCounts(
                rows_in=10,
                rows_out=8,
                filtered=1,
                failed=1,
                late=1,
                busy_ms=5,
                gauges={"waiting_rows": 2, "waiting_until_ms": 7},
            ),
        },
        busy_seconds=0.5,
        backpressured_seconds=0.25,
        idle_seconds=0.25,
        queued_batches=3,
        state_keys={TOTALS: 4},
        newest=((ORDERS, TopicPartition("orders", 0), 9, 990_000),),
    )
    metrics.slot_report(FIRST, 0, report)
    metrics.lags(MAIN_CLUSTER, {TopicPartition("orders", 0): (5, 10)})
    metrics.checkpoint_completed(completed(1, committable(1, 9)), {"alignment": 0.01, "journal": 0.002})
    metrics.checkpoint_failed("expired")
    metrics.transactions_committed([committable(1, 9), committable(2, 5)], 0.004)
    metrics.oldest_transaction(10.0)
    metrics.restarted("attempt-failed")
    metrics.lost_input(ORDERS, 5)


def test_how_late_the_pipeline_is_in_seconds() -> None:
    clock = HandClock(1000.0)
    metrics = PipelineMetrics("shop", "0.1.0", elapsed=clock, now_ms=lambda: int(clock.now * 1000))
    part = TopicPartition("orders", 0)
    metrics.lags(MAIN_CLUSTER, {part: (5, 4)})
    assert value(metrics, "source_lag_seconds", cluster="kafka", topic="orders", partition="0") is None
    assert metrics.snapshot().lag_seconds is None
    metrics.slot_report(FIRST, 0, SlotReport(newest=((ORDERS, part, 9, 990_000),)))
    metrics.lags(MAIN_CLUSTER, {part: (5, 10)})
    assert value(metrics, "source_lag_seconds", cluster="kafka", topic="orders", partition="0") == 10
    assert metrics.snapshot().lag_seconds == 10
    clock.now = 1002.0
    metrics.checkpoint_completed(completed(1), {})
    assert value(metrics, "record_latency_seconds_sum", cluster="kafka", topic="orders") == 12
    assert value(metrics, "record_latency_seconds_count", cluster="kafka", topic="orders") == 1


def test_counters_add_up_over_reports_of_one_attempt() -> None:
    metrics = make_metrics()
    metrics.slot_report(FIRST, 0, SlotReport(records_in={ORDERS: 10}))
    metrics.slot_report(FIRST, 0, SlotReport(records_in={ORDERS: 25}))
    metrics.slot_report(FIRST, 1, SlotReport(records_in={ORDERS: 3}))
    assert value(metrics, "records_in_total", step="orders", subtask="0") == 25
    assert value(metrics, "records_in_total", step="orders", subtask="1") == 3
    assert metrics.snapshot().records_in == 28


def test_a_new_attempt_counts_from_zero_and_the_counter_goes_on() -> None:
    metrics = make_metrics()
    metrics.slot_report(FIRST, 0, SlotReport(records_in={ORDERS: 10}))
    metrics.slot_report(SECOND, 0, SlotReport(records_in={ORDERS: 4}))
    metrics.slot_report(SECOND, 0, SlotReport(records_in={ORDERS: 12}))
    assert value(metrics, "records_in_total", step="orders", subtask="0") == 22


def test_late_reports_of_an_older_attempt_are_ignored() -> None:
    metrics = make_metrics()
    metrics.slot_report(FIRST, 0, SlotReport(records_in={ORDERS: 10}))
    metrics.attempt_started(SECOND)
    metrics.slot_report(FIRST, 0, SlotReport(records_in={ORDERS: 50}))
    assert value(metrics, "records_in_total", step="orders", subtask="0") == 10
    assert value(metrics, "attempt") == 2


def test_a_lower_value_within_an_attempt_adds_nothing() -> None:
    metrics = make_metrics()
    for seen in (10, 7, 12):
        metrics.slot_report(FIRST, 0, SlotReport(records_in={ORDERS: seen}))
    assert value(metrics, "records_in_total", step="orders", subtask="0") == 12


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 10**6), st.floats(0, 1e6, allow_nan=False)),
        max_size=30,
    )
)
def test_counters_never_fall_whatever_is_reported(reports: list[tuple[int, int, int, float]]) -> None:
    metrics = make_metrics()
    before: dict[tuple[str, ...], float] = {}
    for attempt, subtask, records, seconds in reports:
        report = SlotReport(records_in={ORDERS: records}, busy_seconds=seconds)
        metrics.slot_report(Attempt(attempt), subtask, report)
        for family in metrics.registry.collect():
            if family.type != "counter":
                continue
            for sample in family.samples:
                key = (sample.name, *sorted(sample.labels.values()))
                assert sample.value >= before.get(key, 0.0)
                before[key] = sample.value


def test_gauges_of_slots_do_not_survive_their_attempt() -> None:
    metrics = make_metrics()
    fill(metrics)
    metrics.attempt_started(SECOND)
    assert value(metrics, "state_keys", step="totals", subtask="0") is None


def test_lag_is_summed_over_partitions() -> None:
    metrics = make_metrics()
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    metrics.lags(MAIN_CLUSTER, {first: (5, 0), second: (7, 0)})
    assert metrics.snapshot().lag_records == 12
    metrics.lags(MAIN_CLUSTER, {second: (2, 5)})
    assert metrics.snapshot().lag_records == 7
    assert value(metrics, "source_lag_records", cluster="kafka", topic="orders", partition="1") == 2
    assert value(metrics, "source_position_offset", cluster="kafka", topic="orders", partition="1") == 5


def test_reasons_are_bounded() -> None:
    metrics = make_metrics()
    for number in range(REASONS_MAX + 10):
        metrics.restarted(f"cause {number}")
    assert value(metrics, "restarts_total", cause="other") == 10
    assert metrics.snapshot().restarts == REASONS_MAX + 10


def test_bad_records_are_counted_by_kind() -> None:
    metrics = make_metrics()
    counts = {kind: number for number, kind in enumerate(FailureKind, 1)}
    metrics.slot_report(FIRST, 0, SlotReport(bad_records={ORDERS: counts}))
    for kind, count in counts.items():
        assert value(metrics, "bad_records_total", step="orders", subtask="0", reason=kind.value) == count
    assert metrics.snapshot().bad_records == sum(counts.values())


def test_dead_letters_are_counted_by_kind_besides_bad_records() -> None:
    metrics = make_metrics()
    for number in (2, 5):
        counts = {FailureKind.WRONG_TYPE: number}
        metrics.slot_report(FIRST, 0, SlotReport(bad_records={ORDERS: counts}, dead_letters={ORDERS: counts}))
    assert value(metrics, "dead_letters_total", step="orders", subtask="0", reason="WRONG_TYPE") == 5
    assert (metrics.snapshot().dead_letters, metrics.snapshot().bad_records) == (5, 5)


def test_a_completed_checkpoint_is_counted_with_phases_size_and_time() -> None:
    metrics = make_metrics()
    fill(metrics)
    assert value(metrics, "checkpoints_total", result="completed") == 1
    assert value(metrics, "checkpoint_duration_seconds_sum", phase="total") == pytest.approx(0.252)
    assert value(metrics, "checkpoint_duration_seconds_count", phase="journal") == 1
    assert value(metrics, "checkpoint_size_bytes", kind="full") == 1000
    assert value(metrics, "checkpoint_last_success_timestamp_seconds") == pytest.approx(500.25)
    assert value(metrics, "state_bytes", step="totals") == 1000
    assert value(metrics, "records_committed_total", step="totals") == 9


def test_carried_committables_count_once() -> None:
    metrics = make_metrics()
    metrics.checkpoint_completed(completed(1, committable(1, 9)), {})
    metrics.checkpoint_completed(completed(2, committable(1, 9), committable(2, 5)), {})
    assert value(metrics, "records_committed_total", step="totals") == 14


def test_committables_of_a_checkpoint_that_was_given_up_count_with_the_next() -> None:
    metrics = make_metrics()
    metrics.checkpoint_completed(completed(1, committable(1, 9)), {})
    metrics.checkpoint_failed("expired")
    metrics.checkpoint_completed(completed(3, committable(2, 4), committable(3, 5)), {})
    assert value(metrics, "records_committed_total", step="totals") == 18


def test_what_was_committed_when_an_attempt_had_ended_counts_once() -> None:
    metrics = make_metrics()
    metrics.attempt_started(FIRST)
    metrics.checkpoint_completed(completed(1, committable(1, 9)), {})
    for _ in range(2):
        metrics.committed([committable(1, 9), committable(2, 5)], since=SECOND)
    assert value(metrics, "records_committed_total", step="totals") == 14
    assert metrics.snapshot().records_committed == 14


def test_an_unknown_phase_is_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown phases.*coffee"):
        make_metrics().checkpoint_completed(completed(1), {"coffee": 1.0})


def test_failed_checkpoints_transactions_and_restarts_are_counted() -> None:
    metrics = make_metrics()
    fill(metrics)
    metrics.transactions_ended(TransactionResult.LOST, 1)
    assert value(metrics, "checkpoint_failures_total", reason="expired") == 1
    assert value(metrics, "transactions_total", result="committed") == 2
    assert value(metrics, "transactions_total", result="lost") == 1
    assert value(metrics, "transaction_commit_seconds_count") == 2
    assert value(metrics, "restarts_total", cause="attempt-failed") == 1
    assert metrics.snapshot().restarts == 1


def test_the_oldest_transaction_grows_older_by_the_clock() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    metrics.oldest_transaction(10.0)
    clock.now += 5
    assert value(metrics, "transaction_oldest_open_age_seconds") == pytest.approx(15)
    metrics.oldest_transaction(None)
    assert value(metrics, "transaction_oldest_open_age_seconds") == 0


def test_a_new_attempt_has_no_transaction_of_the_one_before() -> None:
    """Its recovery has ended them. The age grew until its slots ran, for as long as an executor was not to be had."""
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    metrics.attempt_started(Attempt(1))
    metrics.oldest_transaction(10.0)
    clock.now += 600
    metrics.attempt_started(Attempt(2))
    assert value(metrics, "transaction_oldest_open_age_seconds") == 0


def test_exactly_one_state_is_set() -> None:
    metrics = make_metrics()
    metrics.state(PipelineState.RESTORING)
    metrics.state(PipelineState.RUNNING)
    states = {state.value: value(metrics, "pipeline_state", state=state.value) for state in PipelineState}
    assert [name for name, each in states.items() if each == 1] == ["running"]
    assert sum(each or 0 for each in states.values()) == 1


def test_rates_are_over_the_last_seconds() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    for second in range(11):
        metrics.slot_report(FIRST, 0, SlotReport(records_in={ORDERS: 100 * second}, records_out={TOTALS: 10 * second}))
        clock.now += 1
    clock.now -= 1
    assert metrics.snapshot().records_in_per_second == pytest.approx(100)
    assert metrics.snapshot().records_out_per_second == pytest.approx(10)


def test_the_rate_falls_to_zero_when_reports_stop() -> None:
    window = CounterWindow(5.0)
    for second in range(4):
        window.total += 50
        window.observe(float(second))
    assert window.rate(3.0) == pytest.approx(50)
    assert window.rate(60.0) == 0


def test_the_snapshot_tells_the_last_checkpoint_and_its_age() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    metrics.checkpoint_completed(completed(7, committable(7, 9)), {})
    clock.now += 2.5
    last = metrics.snapshot().last_checkpoint
    assert last is not None
    assert (last.id, last.age_seconds, last.records_committed, last.size_bytes) == (7, 2.5, 9, 1000)


def test_two_pipelines_share_nothing() -> None:
    one, other = make_metrics(), make_metrics()
    one.restarted("x")
    assert other.registry.get_sample_value("tidegate_restarts_total", {"pipeline": "shop", "cause": "x"}) is None


def test_every_metric_of_the_catalogue_has_a_sample_and_no_other_exists() -> None:
    metrics = make_metrics()
    fill(metrics)
    found = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in metrics.registry.collect()
        if family.samples and family.name.startswith("tidegate_")
    }
    assert found == set(CATALOGUE)


def test_names_follow_the_conventions() -> None:
    for spec in CATALOGUE.values():
        assert spec.name.startswith("tidegate_")
        assert spec.name.endswith("_total") == (spec.kind is MetricKind.COUNTER)
        assert not {"ms", "milliseconds", "kb", "minutes"} & set(spec.name.split("_"))
        assert spec.help.endswith(".")
        assert "pipeline" not in spec.labels


def test_metrics_parse_with_every_label_bounded() -> None:
    metrics = make_metrics()
    fill(metrics)
    text = list(text_string_to_metric_families(generate_latest(metrics.registry).decode()))
    ours = [family for family in text if family.name.startswith("tidegate_")]
    assert len(ours) == len(CATALOGUE)
    for family in ours:
        assert family.documentation
        assert family.type in ("counter", "gauge", "histogram")
        assert all(sample.labels["pipeline"] == "shop" for sample in family.samples)
        assert all(not sample.name.endswith("_created") for sample in family.samples)


def test_promtool_has_no_complaint() -> None:
    metrics = make_metrics()
    fill(metrics)
    exposition = generate_latest(metrics.registry)
    families = list(text_string_to_metric_families(exposition.decode()))
    assert len({family.name for family in families}) == len(families)
    promtool = shutil.which("promtool")
    if promtool is not None:  # Debian package prometheus; the checks above and in this file do not depend on it
        result = subprocess.run([promtool, "check", "metrics"], input=exposition, capture_output=True, check=False)
        assert (result.returncode, result.stdout, result.stderr) == (0, b"", b"")


# -- no broker answers -------------------------------------------------------------------------------------------------


ANSWER = ProbeResult(None, "", 0.0)


def look(metrics: PipelineMetrics) -> tuple[int, float]:
    """The checkpoint that is shown, and its age."""
    last = metrics.snapshot().last_checkpoint
    assert last is not None
    return last.id, last.age_seconds


def test_X18_a_checkpoint_of_an_outage_is_not_fresh_and_the_age_grows_until_the_brokers_are_back() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    for second in range(1, 11):  # a checkpoint and a look each second; from the 6th on no broker answers
        clock.now += 1
        metrics.checkpoint_completed(completed(second), {})
        metrics.brokers(MAIN_CLUSTER, ProbeResult(None if second <= 5 else second - 5.0, "away", 0.5))
        if second <= 5:
            assert look(metrics) == (second, 0)
    shown, age = look(metrics)
    assert shown == 4, "the newest that was triggered before an answered question; the 5th was not"
    assert age == 6
    clock.now += 1
    metrics.brokers(MAIN_CLUSTER, ANSWER)
    assert look(metrics)[0] == shown, "that brokers are back is no checkpoint"
    metrics.checkpoint_completed(completed(11), {})
    assert look(metrics)[0] == shown, "it was triggered while none answered"
    clock.now += 1
    metrics.checkpoint_completed(completed(12), {})
    assert look(metrics) == (12, 0)
    assert value(metrics, "checkpoints_total", result="completed") == 12, "all are counted"


def test_X18_the_timestamp_goes_back_with_the_checkpoint() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    metrics.checkpoint_completed(completed(1), {})
    assert value(metrics, "checkpoint_last_success_timestamp_seconds") == pytest.approx(500.25)
    metrics.brokers(MAIN_CLUSTER, ProbeResult(2.5, "away", 2.5))
    assert value(metrics, "checkpoint_last_success_timestamp_seconds") == 0
    assert metrics.snapshot().last_checkpoint is None


def test_X18_while_no_broker_answers_the_pipeline_waits_and_says_why_and_for_how_long() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    metrics.state(PipelineState.RUNNING)
    metrics.degraded(MAIN_CLUSTER, "readers are blocked")
    metrics.brokers(MAIN_CLUSTER, ProbeResult(12.5, "no broker answers at b:9092: refused", 2.5))
    assert metrics.current_state == (PipelineState.WAITING, "no broker answers at b:9092: refused (for 12.5 s)")
    assert value(metrics, "pipeline_state", state="waiting") == 1
    assert value(metrics, "pipeline_state", state="running") == 0
    assert metrics.snapshot().brokers_unavailable_seconds == 12.5
    clock.now += 70.0  # since the last look, which may take its time
    for state in (PipelineState.RESTARTING, PipelineState.RESTORING, PipelineState.RUNNING):
        metrics.state(state, "a slot is gone")
        assert metrics.current_state == (PipelineState.WAITING, "no broker answers at b:9092: refused (for 82.5 s)")
    assert metrics.snapshot().brokers_unavailable_seconds == 82.5
    assert value(metrics, "brokers_unavailable_seconds", cluster="kafka") == 82.5
    metrics.state(PipelineState.STOPPING)
    assert metrics.current_state == (PipelineState.STOPPING, "")
    metrics.state(PipelineState.RUNNING)
    metrics.brokers(MAIN_CLUSTER, ANSWER)
    assert metrics.current_state == (PipelineState.DEGRADED, "readers are blocked")
    metrics.degraded(MAIN_CLUSTER, "")
    assert metrics.current_state == (PipelineState.RUNNING, "")
    assert value(metrics, "brokers_unavailable_seconds", cluster="kafka") == 0


def test_X18_the_last_known_lag_stays_with_its_age() -> None:
    clock = HandClock(1000.0)
    metrics = make_metrics(clock)
    assert (metrics.snapshot().lag_records, metrics.snapshot().lag_age_seconds) == (None, None)
    assert value(metrics, "source_lag_age_seconds", cluster="kafka") is None
    metrics.lags(MAIN_CLUSTER, {TopicPartition("orders", 0): (5, 10)})
    clock.now += 90
    metrics.attempt_started(SECOND)
    assert (metrics.snapshot().lag_records, metrics.snapshot().lag_age_seconds) == (5, 90)
    assert value(metrics, "source_lag_age_seconds", cluster="kafka") == 90
    metrics.lags(MAIN_CLUSTER, {TopicPartition("orders", 0): (9, 10)})
    assert (metrics.snapshot().lag_records, metrics.snapshot().lag_age_seconds) == (9, 0)


def test_partitions_that_wait_for_a_schema_are_counted_and_a_reason() -> None:
    metrics = make_metrics()
    metrics.state(PipelineState.RUNNING)
    metrics.registry_says("", 1)  # it was just asked
    assert metrics.current_state == (PipelineState.RUNNING, "")
    metrics.registry_says("no route", 2)
    assert metrics.current_state == (PipelineState.DEGRADED, "records wait for a schema: no route")
    assert value(metrics, "schemas_waiting") == 2
    metrics.registry_says("", 0)
    assert metrics.current_state == (PipelineState.RUNNING, "")


def test_the_brokers_of_each_cluster_are_away_by_themselves() -> None:
    clock, us = HandClock(1000.0), ClusterName("us")
    metrics = PipelineMetrics("shop", "0.1.0", elapsed=clock, clusters={ORDERS: MAIN_CLUSTER, TOTALS: us})
    metrics.state(PipelineState.RUNNING)
    metrics.checkpoint_completed(completed(1), {})
    metrics.brokers(us, ProbeResult(5.0, "no broker answers at us:9092", 0.5))
    metrics.brokers(MAIN_CLUSTER, ANSWER)
    clock.now += 1
    assert value(metrics, "brokers_unavailable_seconds", cluster="us") == 6
    assert value(metrics, "brokers_unavailable_seconds", cluster="kafka") == 0
    assert metrics.current_state == (PipelineState.WAITING, "no broker answers at us:9092 (for 6000 ms)")
    metrics.brokers(MAIN_CLUSTER, ProbeResult(2.0, "no broker answers at eu:9092", 0.5))
    assert metrics.current_state[1].startswith("no broker answers at us:9092; no broker answers at eu:9092")
    metrics.brokers(us, ANSWER)
    metrics.checkpoint_completed(completed(2), {})
    assert metrics.snapshot().last_checkpoint is None, "nothing that was triggered while a cluster was away counts"
    metrics.brokers(MAIN_CLUSTER, ANSWER)
    assert metrics.current_state == (PipelineState.RUNNING, "")
    clock.now += 1
    metrics.checkpoint_completed(completed(3), {})
    newest = metrics.snapshot().last_checkpoint
    assert newest is not None
    assert newest.id == 3


def test_partitions_of_one_name_in_two_clusters_have_a_lag_each() -> None:
    us, more, part = ClusterName("us"), OperatorName("more"), TopicPartition("orders", 0)
    metrics = PipelineMetrics("shop", "0.1.0", elapsed=HandClock(1000.0), clusters={ORDERS: MAIN_CLUSTER, more: us})
    at = tuple(SourcePositions(source, ((part, offset),)) for source, offset in ((ORDERS, 10), (more, 20)))
    metrics.slot_report(FIRST, 0, SlotReport(positions=at))
    assert (metrics.reached(MAIN_CLUSTER), metrics.reached(us)) == ({part: 10}, {part: 20})
    metrics.lags(MAIN_CLUSTER, {part: (5, 10)})
    metrics.lags(us, {part: (7, 20)})
    assert value(metrics, "source_lag_records", cluster="us", topic="orders", partition="0") == 7
    assert value(metrics, "source_position_offset", cluster="kafka", topic="orders", partition="0") == 10
    assert metrics.snapshot().lag_records == 12
