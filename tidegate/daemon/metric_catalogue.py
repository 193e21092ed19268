"""All metrics as one table, from which the registry and the page `docs/operations/metrics.md` are generated.

`python -m tidegate.daemon.metric_catalogue` prints the table of the page. Rules: one prefix, base units, `_total` on
counters, every label from a bounded set. The registry is filled by tidegate.daemon.metrics.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics


class MetricKind(StrEnum):
    """What a sample of the metric means."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSpec(msgspec.Struct, frozen=True):
    """One metric family. Each has the label `pipeline` before `labels`."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Upper bounds of a histogram, in seconds."""


SECONDS_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0)

LATENCY_BUCKETS: Final = (*SECONDS_BUCKETS, 1200.0, 2400.0, 4800.0, 9600.0)
"""Latency includes the checkpoint interval that records wait for, so intervals of up to an hour are covered."""

_C, _G, _H = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.HISTOGRAM

CATALOGUE: Final[Mapping[str, MetricSpec]] = {
    spec.name: spec
    for spec in (
        MetricSpec("tidegate_records_in_total", _C, "Records read by a source.", ("step", "subtask")),
        MetricSpec(
            "tidegate_bytes_in_total", _C, "Bytes of keys, values and headers read by a source.", ("step", "subtask")
        ),
        MetricSpec(
            "tidegate_records_out_total",
            _C,
            "Records produced by a sink, including those of transactions that were aborted later.",
            ("step", "subtask"),
        ),
        MetricSpec(
            "tidegate_bytes_out_total", _C, "Bytes of keys, values and headers produced by a sink.", ("step", "subtask")
        ),
        MetricSpec(
            "tidegate_records_committed_total",
            _C,
            "Committed records of a sink that this daemon has decided to commit; each counts once. "
            "None with `checkpoints.mode: at-least-once`.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_bad_records_total",
            _C,
            "Records that could not be decoded, computed or encoded and were left out, by kind of failure.",
            ("step", "subtask", "reason"),
        ),
        MetricSpec(
            "tidegate_dead_letters_total",
            _C,
            "Bad records that became dead letters, by kind of failure.",
            ("step", "subtask", "reason"),
        ),
        MetricSpec(
            "tidegate_lost_input_records_total",
            _C,
            "Offsets that a source has skipped because retention had removed them before they were read.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_source_lag_records",
            _G,
            "Offsets between the source's own position and the last stable offset of the partition.",
            ("cluster", "topic", "partition"),
        ),
        MetricSpec(
            "tidegate_source_lag_seconds",
            _G,
            "How old the oldest unread record of the partition may be; 0 without lag.",
            ("cluster", "topic", "partition"),
        ),
        MetricSpec(
            "tidegate_record_latency_seconds",
            _H,
            "Time from a record's timestamp to the end of its commit, for one record a second and partition.",
            ("cluster", "topic"),
            LATENCY_BUCKETS,
        ),
        MetricSpec(
            "tidegate_source_position_offset",
            _G,
            "Next offset that the source will read, ahead of the consumer group's mirrored offset.",
            ("cluster", "topic", "partition"),
        ),
        MetricSpec(
            "tidegate_source_lag_age_seconds",
            _G,
            "Time since lag and positions were measured: more than a few seconds while no broker answers.",
            ("cluster",),
        ),
        MetricSpec(
            "tidegate_time_seconds_total",
            _C,
            "Time that a slot's loop spent busy, backpressured or idle; the rates are the three ratios.",
            ("subtask", "state"),
        ),
        MetricSpec(
            "tidegate_operator_rows_in_total",
            _C,
            "Rows that an operator has received; for a source, records read.",
            ("step", "subtask"),
        ),
        MetricSpec(
            "tidegate_operator_rows_out_total",
            _C,
            "Rows that an operator has emitted; for a sink, records produced.",
            ("step", "subtask"),
        ),
        MetricSpec(
            "tidegate_operator_rows_filtered_total",
            _C,
            "Rows that an operator has dropped on purpose: no condition was true, or they are duplicates.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_operator_rows_failed_total",
            _C,
            "Rows that an operator has left out because they could not be read, computed or written.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_operator_busy_seconds_total",
            _C,
            "Time that an operator has kept its slot's loop busy; the step with the highest rate is the slowest.",
            ("step", "subtask"),
        ),
        MetricSpec(
            "tidegate_operator_blocked_seconds_total",
            _C,
            "Time in which no row could leave an operator and those chained after it, so that its slot waited.",
            ("step", "subtask"),
        ),
        MetricSpec(
            "tidegate_operator_rows_late_total",
            _C,
            "Late rows that an operator has left out, because the window or ranking they belong to was already closed.",
            ("step", "subtask"),
        ),
        MetricSpec(
            "tidegate_source_rows_before_1971_total",
            _C,
            "Rows of a source with an event time before 1971: usually another unit, or a default of the producer.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_operator_watermarks_total", _C, "Watermarks that an operator has passed on.", ("step", "subtask")
        ),
        MetricSpec(
            "tidegate_operator_watermark_timestamp_seconds",
            _G,
            "Event time that an operator has reached in all slots that are not idle, as Unix time.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_operator_event_time_lag_seconds",
            _G,
            "How far an operator's watermark is behind this machine's clock.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_source_watermark_stalled_seconds",
            _G,
            "How long a source's watermark has not advanced although rows arrive; 0 while it advances.",
            ("step",),
        ),
        MetricSpec(
            "tidegate_source_on_hold",
            _G,
            "Subtasks of a source that read nothing for now, by reason: an input that comes first has not caught up "
            "(`gate`), or they are too far ahead of another input (`lead`).",
            ("step", "reason"),
        ),
        MetricSpec(
            "tidegate_operator_entries",
            _G,
            "Entries that an operator holds, by kind: open_windows and timers of windows, remembered keys of dedup, "
            "timers of quiet and python, open_rankings of keep, calls that wait for their answer, table_rows of tables "
            "and lookups, left_rows and right_rows of joins, and waiting_rows, which wait for another input.",
            ("step", "subtask", "kind"),
        ),
        MetricSpec("tidegate_queue_batches", _G, "Batches waiting in the queues of a slot.", ("subtask",)),
        MetricSpec("tidegate_state_keys", _G, "Keys held in keyed state.", ("step", "subtask")),
        MetricSpec(
            "tidegate_state_bytes", _G, "Bytes of state of a step in the newest completed checkpoint.", ("step",)
        ),
        MetricSpec(
            "tidegate_checkpoints_total", _C, "Checkpoints that ended, by result (completed, failed).", ("result",)
        ),
        MetricSpec("tidegate_checkpoint_failures_total", _C, "Checkpoints that failed, by reason.", ("reason",)),
        MetricSpec(
            "tidegate_checkpoint_duration_seconds",
            _H,
            "Duration of completed checkpoints by phase: total (from the trigger to the end of the commit), those of "
            "the slowest subtask (start_delay, alignment, snapshot, upload, prepare), and journal and commit.",
            ("phase",),
            SECONDS_BUCKETS,
        ),
        MetricSpec(
            "tidegate_checkpoint_interval_seconds",
            _G,
            "`checkpoints.interval` of the file, or `checkpoints.min_pause` if that is longer.",
        ),
        MetricSpec(
            "tidegate_checkpoint_size_bytes",
            _G,
            "Bytes of state in the newest completed checkpoint: all (`full`), or of rows in flight (`in_flight`).",
            ("kind",),
        ),
        MetricSpec(
            "tidegate_checkpoint_last_success_timestamp_seconds",
            _G,
            "Unix time of the newest completed checkpoint that was triggered while brokers answered; 0 without one.",
        ),
        MetricSpec(
            "tidegate_transactions_total",
            _C,
            "Kafka transactions that ended, by result (committed, aborted, lost, salvaged).",
            ("result",),
        ),
        MetricSpec(
            "tidegate_transaction_commit_seconds",
            _H,
            "Time to commit a transaction, including retries.",
            (),
            SECONDS_BUCKETS,
        ),
        MetricSpec(
            "tidegate_transaction_oldest_open_age_seconds",
            _G,
            "Age of the oldest transaction that has not ended; 0 if there is none.",
        ),
        MetricSpec("tidegate_transaction_timeout_seconds", _G, "`checkpoints.transaction_timeout` of the file."),
        MetricSpec("tidegate_schemas_waiting", _G, "Schemas that records name and the registry has not returned yet."),
        MetricSpec(
            "tidegate_schemas_incompatible",
            _G,
            "Schemas since the start whose records no source can read; all these records are bad.",
        ),
        MetricSpec(
            "tidegate_brokers_unavailable_seconds",
            _G,
            "How long no broker of a cluster has answered; 0 while they answer.",
            ("cluster",),
        ),
        MetricSpec(
            "tidegate_hanging_transactions",
            _G,
            "Transactions that nothing will end and that block readers of committed records, by owner (own, foreign).",
            ("cluster", "owner"),
        ),
        MetricSpec(
            "tidegate_missing_markers_written_total",
            _C,
            "Transaction markers that Kafka had lost and the daemon has written, by end (commit, abort).",
            ("cluster", "end"),
        ),
        MetricSpec(
            "tidegate_restarts_total",
            _C,
            "Attempts that failed and were followed by another, by code of the error.",
            ("cause",),
        ),
        MetricSpec("tidegate_attempt", _G, "Number of the running attempt; it grows across daemons."),
        MetricSpec("tidegate_pipeline_state", _G, "1 for the state the pipeline is in, 0 for all others.", ("state",)),
        MetricSpec(
            "tidegate_diagnosis",
            _G,
            "1 while the diagnosis of this code is shown, 0 once it is not any more; codes are in diagnosis.md.",
            ("code",),
        ),
        MetricSpec("tidegate_uptime_seconds", _G, "Time since this daemon started."),
        MetricSpec("tidegate_build_info", _G, "Always 1; the labels say what is running.", ("version", "python")),
    )
}


def render_metrics_table() -> str:
    """Renders the table of `docs/operations/metrics.md`, one line per metric, without a newline at the end."""
    lines = ["| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
    for spec in CATALOGUE.values():
        labels = ", ".join(f"`{label}`" for label in ("pipeline", *spec.labels))
        lines.append(f"| `{spec.name}` | {spec.kind.value} | {labels} | {spec.help} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(render_metrics_table() + "\n")


class MetricSeries:
    """Finds the series of a metric by its name and labels; the label `pipeline` is added to each."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        makers: dict[MetricKind, Callable[..., Counter | Gauge | Histogram]] = {
            MetricKind.COUNTER: Counter,
            MetricKind.GAUGE: Gauge,
            MetricKind.HISTOGRAM: Histogram,
        }
        for spec in CATALOGUE.values():
            more = {"buckets": spec.buckets} if spec.kind is MetricKind.HISTOGRAM else {}
            metric = makers[spec.kind](spec.name, spec.help, ("pipeline", *spec.labels), registry=self.registry, **more)
            match metric:
                case Counter():
                    self._counters[spec.name] = metric
                case Gauge():
                    self._gauges[spec.name] = metric
                case Histogram():
                    self._histograms[spec.name] = metric
        # Process-wide in this library. Without it every counter has a second series with its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # library's gap
        ProcessCollector(registry=self.registry)

    def counter(self, name: str, *labels: str) -> Counter:
        """Finds the counter with these labels."""
        return self._counters[name].labels(self._pipeline, *labels)

    def gauge(self, name: str, *labels: str) -> Gauge:
        """Finds the gauge with these labels."""
        return self._gauges[name].labels(self._pipeline, *labels)

    def histogram(self, name: str, *labels: str) -> Histogram:
        """Finds the histogram with these labels."""
        return self._histograms[name].labels(self._pipeline, *labels)

    def remove_gauge(self, name: str, *labels: str) -> None:
        """Stops exporting a gauge whose value is unknown."""
        self._gauges[name].remove(self._pipeline, *labels)

    def clear_gauges(self, name: str) -> None:
        """Stops exporting a gauge for all labels."""
        self._gauges[name].clear()
