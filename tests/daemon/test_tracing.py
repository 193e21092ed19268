"""Traces of checkpoints, as far as OpenTelemetry has no part in them; that is in tests/tracing (`make tracing`)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import msgspec
import pytest

from tests.waiting import wait_until
from tidegate.coordinator.history import CheckpointKind, CheckpointRecord, CheckpointResult, SubtaskPhases
from tidegate.daemon.tracing import SUBTASKS_MAX, Span, Tracing, derive_spans, find_header_secrets, start_tracing
from tidegate.ids import Attempt, CheckpointId, SlotIndex, VertexId
from tidegate.process.logs import redact, set_secrets

SUBTASK = SubtaskPhases(
    vertex=VertexId("totals"),
    slot=SlotIndex(1),
    start_delay_ms=2.5,
    alignment_ms=4.0,
    snapshot_ms=1.0,
    upload_ms=20.0,
    prepare_ms=30.0,
    acknowledged_after_ms=40,
    size_bytes=1000,
    written_bytes=100,
    inflight_bytes=0,
    inflight_rows=0,
)
RECORD = CheckpointRecord(
    id=CheckpointId(7),
    attempt=Attempt(2),
    kind=CheckpointKind.CHECKPOINT,
    result=CheckpointResult.COMPLETED,
    reason="",
    triggered_at_ms=1_000,
    duration_ms=60,
    acknowledged_ms=40,
    journal_ms=5,
    commit_ms=15,
    size_bytes=1000,
    records=12,
    subtasks=(SUBTASK,),
    missing=(),
)


def times(spans: Sequence[Span]) -> dict[str, tuple[float, float]]:
    """Of each span, ms after the trigger."""
    return {span.name: ((span.start_ns / 1e6) - 1_000, (span.end_ns / 1e6) - 1_000) for span in spans}


def test_a_checkpoint_is_a_trace_of_its_parts_and_of_the_phases_of_its_subtasks() -> None:
    spans = derive_spans(RECORD)
    assert times(spans) == {
        "checkpoint": (0, 60),
        "acknowledge": (0, 40),
        "journal": (40, 45),
        "commit": (45, 60),
        "totals[1]": (0, 40),
        "barrier": (0, 2.5),
        "alignment": (2.5, 6.5),
        "sync": (6.5, 7.5),
        "async": (7.5, 27.5),
        "prepare": (7.5, 37.5),
    }
    subtask = [span.name for span in spans].index("totals[1]")
    assert [span.parent for span in spans] == [-1, 0, 0, 0, 0, *[subtask] * 5]
    assert spans[0].error is None
    assert spans[0].attributes["tidegate.checkpoint.id"] == 7


def test_a_checkpoint_that_failed_has_its_reason_and_the_parts_that_it_came_to() -> None:
    record = msgspec.structs.replace(
        RECORD,
        result=CheckpointResult.FAILED,
        reason="timeout",
        acknowledged_ms=None,
        journal_ms=None,
        commit_ms=None,
        subtasks=(),
        missing=("totals[1]",),
    )
    (span,) = derive_spans(record)
    assert span.error == "timeout"
    assert span.attributes["tidegate.checkpoint.missing"] == "totals[1]"


def test_a_trace_has_the_slowest_subtasks_only_and_says_how_many_it_leaves_out() -> None:
    many = tuple(msgspec.structs.replace(SUBTASK, slot=SlotIndex(slot)) for slot in range(SUBTASKS_MAX + 50))
    spans = derive_spans(msgspec.structs.replace(RECORD, subtasks=many, subtasks_left_out=3))
    names = [span.name for span in spans if span.name.startswith("totals")]
    assert names == [f"totals[{slot}]" for slot in range(50, SUBTASKS_MAX + 50)]
    assert spans[0].attributes["tidegate.checkpoint.subtasks_left_out"] == 53


class Sent:
    def __init__(self) -> None:
        self.traces: list[Sequence[Span]] = []
        self.closed = False

    def send(self, spans: Sequence[Span]) -> None:
        self.traces.append(spans)

    def close(self) -> None:
        self.closed = True


def test_each_checkpoint_that_has_ended_is_sent_once_and_the_last_one_at_the_end() -> None:
    records = [RECORD]
    sent = Sent()
    tracing = Tracing(lambda: tuple(records), sent, look_s=0.01)
    tracing.start()
    wait_until(lambda: len(sent.traces) == 1, "the first one")
    records.insert(0, msgspec.structs.replace(RECORD, id=CheckpointId(8), result=CheckpointResult.UNDER_WAY))
    records.insert(0, msgspec.structs.replace(RECORD, id=CheckpointId(9)))
    wait_until(lambda: len(sent.traces) == 2, "the one that has ended")
    records[1] = msgspec.structs.replace(RECORD, id=CheckpointId(8))
    tracing.stop()
    assert [trace[0].attributes["tidegate.checkpoint.id"] for trace in sent.traces] == [7, 9, 8]
    assert sent.closed


def test_secrets_are_in_no_trace() -> None:
    set_secrets(["opensesame"])
    try:
        sent = Sent()
        failed = msgspec.structs.replace(RECORD, result=CheckpointResult.FAILED, reason="declined (opensesame)")
        Tracing(lambda: (failed,), sent).look()
        assert sent.traces[0][0].error == "declined (***)"
    finally:
        set_secrets([])


ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc is not"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, "pip install 'tidegate[tracing]'"),
        (
            {**ENDPOINT, "OTEL_EXPORTER_OTLP_PROTOCOL": "", "OTEL_TRACES_EXPORTER": ""},
            "pip install 'tidegate[tracing]'",
        ),
    ],
)
def test_there_are_no_traces_without_endpoint_or_packages(
    environ: dict[str, str], said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert start_tracing("orders", lambda: (), environ) is None
    assert [record.levelname for record in caplog.records] == (["WARNING"] if said else [])
    assert said in caplog.text


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ImportError("No module named 'opentelemetry.exporter'"), "pip install 'tidegate[tracing]'"),
        (ValueError("max_export_batch_size must be less"), "max_export_batch_size must be less; correct its variables"),
    ],
)
def test_what_opentelemetry_refuses_is_a_warning_and_not_the_end_of_a_run(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK without the exporter, or OTEL_BSP_MAX_QUEUE_SIZE=10."""

    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr("tidegate.daemon.tracing._OpenTelemetry", refuse)
    assert start_tracing("orders", lambda: (), ENDPOINT) is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert said in record.getMessage()


def test_a_header_that_opentelemetry_does_not_understand_is_not_in_the_log() -> None:
    """It shows the whole of `authorization: Bearer ...`, which has a colon in the place of the equals sign."""
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=1, authorization: Bearer opensesame"}
    set_secrets(find_header_secrets(environ))
    try:
        assert redact("Header format invalid! authorization: Bearer opensesame") == "Header format invalid! ***"
    finally:
        set_secrets([])
    assert find_header_secrets({"OTEL_EXPORTER_OTLP_HEADERS": " , "}) == []
