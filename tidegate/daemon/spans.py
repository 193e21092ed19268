"""Derives a trace of a checkpoint: its phases and those of its subtasks, on one time axis. Pure; sent by `tracing.py`.

Everything is derived from the record in `GET /checkpoints`, after the checkpoint has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from tidegate.coordinator.history import CheckpointRecord, CheckpointResult, SubtaskPhases

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
