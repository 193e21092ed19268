"""Sends a trace of each checkpoint with OpenTelemetry (OTLP over HTTP), if the environment names an endpoint.

A thread of its own polls the records of `GET /checkpoints` every second and derives spans from those that have ended,
so the checkpoint code does not depend on it. The packages come with the extra `tracing`; the SDK itself reads the other
variables of the standard (OTEL_*).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from typing_extensions import override

from tidegate import __version__
from tidegate.coordinator.history import CHECKPOINTS_MAX, CheckpointRecord, CheckpointResult, SubtaskPhases
from tidegate.daemon.http.redaction import redact_checkpoints

SUBTASKS_MAX: Final = 100
"""The subtasks in one trace: those whose acks arrived last."""
_NS_PER_MS: Final = 1_000_000

Value = str | int | float | bool


class Span(msgspec.Struct, frozen=True):
    """One span. Times are ns since 1970. `parent` is an index in the same list, -1 for the root."""

    name: str
    parent: int
    start_ns: int
    end_ns: int
    attributes: dict[str, Value]
    error: str | None = None


def derive_spans(record: CheckpointRecord) -> list[Span]:
    """Derives the spans of a checkpoint that has ended; the first one is the root."""
    begin_ns = record.triggered_at_ms * _NS_PER_MS
    kept = record.subtasks[-SUBTASKS_MAX:]
    failed = record.result is not CheckpointResult.COMPLETED
    spans = [
        Span(
            str(record.kind),
            -1,
            begin_ns,
            _after(begin_ns, record.duration_ms or 0),
            {
                "tidegate.checkpoint.id": int(record.id),
                "tidegate.attempt": int(record.attempt),
                "tidegate.checkpoint.result": str(record.result),
                "tidegate.checkpoint.size_bytes": record.size_bytes,
                "tidegate.checkpoint.records": record.records,
                "tidegate.checkpoint.subtasks_left_out": record.subtasks_left_out + len(record.subtasks) - len(kept),
                **({"tidegate.checkpoint.missing": ", ".join(record.missing[:SUBTASKS_MAX])} if record.missing else {}),
            },
            record.reason if failed else None,
        )
    ]
    at_ns = begin_ns
    for name, duration_ms in (
        ("acknowledge", record.acknowledged_ms),
        ("journal", record.journal_ms),
        ("commit", record.commit_ms),
    ):
        if duration_ms is None:
            break
        spans.append(Span(name, 0, at_ns, _after(at_ns, duration_ms), {}))
        at_ns = spans[-1].end_ns
    for subtask in kept:
        parent = len(spans)
        spans.append(_subtask(subtask, begin_ns))
        spans += _phases(subtask, begin_ns, parent)
    return spans


def _subtask(phases: SubtaskPhases, begin_ns: int) -> Span:
    return Span(
        f"{phases.vertex}[{phases.slot}]",
        0,
        begin_ns,
        _after(begin_ns, phases.acknowledged_after_ms),
        {
            "tidegate.vertex": str(phases.vertex),
            "tidegate.slot": int(phases.slot),
            "tidegate.size_bytes": phases.size_bytes,
            "tidegate.written_bytes": phases.written_bytes,
            "tidegate.inflight_rows": phases.inflight_rows,
        },
    )


def _phases(phases: SubtaskPhases, begin_ns: int, parent: int) -> Iterator[Span]:
    """Derives the spans of a subtask's phases in sequence.

    The asynchronous ones, the upload and the flush of sinks, begin after the synchronous part.
    """
    at_ns = begin_ns
    for name, duration_ms in (
        ("barrier", phases.start_delay_ms),
        ("alignment", phases.alignment_ms),
        ("sync", phases.snapshot_ms),
    ):
        yield Span(name, parent, at_ns, _after(at_ns, duration_ms), {})
        at_ns = _after(at_ns, duration_ms)
    for name, duration_ms in (("async", phases.upload_ms), ("prepare", phases.prepare_ms)):
        if duration_ms > 0:
            yield Span(name, parent, at_ns, _after(at_ns, duration_ms), {})


def _after(start_ns: int, duration_ms: float) -> int:
    return start_ns + round(duration_ms * _NS_PER_MS)


logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
FLUSH_MS: Final = 5000
"""How long to wait for unsent traces when the daemon ends."""
ENDPOINTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL: Final = "http/protobuf"
HEADERS: Final = ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")

Look = Callable[[], Sequence[CheckpointRecord]]


class Sender(Protocol):
    """Takes traces and sends them asynchronously."""

    def send(self, spans: Sequence[Span]) -> None:
        """Sends one trace; the first span is the root."""

    def close(self) -> None:
        """Sends the remaining traces, within FLUSH_MS."""


class Tracing:
    """Sends each checkpoint once after it has ended. `look` returns the newest records, newest first."""

    def __init__(self, look: Look, sender: Sender, look_s: float = LOOK_S) -> None:
        self._look = look
        self._sender = sender
        self._look_s = look_s
        self._sent: deque[tuple[int, int]] = deque(maxlen=2 * CHECKPOINTS_MAX)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tracing", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Sends the remaining traces and ends."""
        self._ended.set()
        self._thread.join(self._look_s + 2 * FLUSH_MS / 1000)

    def look(self) -> None:
        """Sends the checkpoints that have ended since the last call."""
        for record in reversed(self._look()):
            key = (int(record.attempt), int(record.id))
            if record.result is not CheckpointResult.UNDER_WAY and key not in self._sent:
                self._sent.append(key)
                self._sender.send(derive_spans(*redact_checkpoints([record])))

    def _run(self) -> None:
        try:
            while not self._ended.wait(self._look_s):
                self.look()
            self.look()
            self._sender.close()
        except Exception:
            logger.exception("internal error: there are no more traces of checkpoints; the pipeline continues")


def start_tracing(pipeline: str, look: Look, environ: Mapping[str, str]) -> Tracing | None:
    """Starts tracing.

    Returns None if no endpoint is named, or if tracing is impossible, which is logged as a warning.
    """
    if not _is_wanted(environ):
        return None
    protocol = next((environ[name] for name in PROTOCOLS if environ.get(name)), PROTOCOL)
    if protocol != PROTOCOL:
        logger.warning("no traces are sent: %s is not supported; set %s=%s", protocol, PROTOCOLS[1], PROTOCOL)
        return None
    try:
        sender = _OpenTelemetry(pipeline, environ)
    except ImportError as error:
        logger.warning("no traces are sent: a package is missing (%s); pip install 'tidegate[tracing]'", error)
        return None
    except Exception as error:  # noqa: BLE001 - whatever a variable is rejected for: the pipeline runs
        logger.warning("no traces are sent: OpenTelemetry does not start: %s; correct its variables (OTEL_*)", error)
        return None
    tracing = Tracing(look, sender)
    tracing.start()
    logger.info("traces of checkpoints are sent by OpenTelemetry")
    return tracing


def find_header_secrets(environ: Mapping[str, str]) -> list[str]:
    """Lists header values that must be redacted: the SDK logs the whole text of a header that it cannot parse."""
    return [part.strip() for name in HEADERS for part in environ.get(name, "").split(",") if part.strip()]


def _is_wanted(environ: Mapping[str, str]) -> bool:
    off = (
        environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
        or (environ.get("OTEL_TRACES_EXPORTER") or "otlp") != "otlp"
    )
    return not off and any(environ.get(name) for name in ENDPOINTS)


class _OpenTelemetry(Sender):
    """Sends with the SDK, which buffers within limits and sends on a thread of its own."""

    def __init__(self, pipeline: str, environ: Mapping[str, str]) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        named = "OTEL_SERVICE_NAME" in environ or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
        own = {"service.version": __version__, "tidegate.pipeline": pipeline}
        resource = Resource.create(own if named else {**own, "service.name": "tidegate"})
        self._provider: Any = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("tidegate", __version__)

    @override
    def send(self, spans: Sequence[Span]) -> None:
        from opentelemetry import trace
        from opentelemetry.context import Context

        made: list[Any] = []
        for span in spans:
            context = Context() if span.parent < 0 else trace.set_span_in_context(made[span.parent], Context())
            one = self._tracer.start_span(span.name, context, start_time=span.start_ns, attributes=span.attributes)
            if span.error is not None:
                one.set_status(trace.Status(trace.StatusCode.ERROR, span.error))
            made.append(one)
        for one, span in zip(made, spans, strict=True):
            one.end(end_time=span.end_ns)

    @override
    def close(self) -> None:
        self._provider.force_flush(FLUSH_MS)
        self._provider.shutdown()
