"""The resources that the metrics of a pipeline know: its status, and the history of its checkpoints and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import replace

from tidegate.coordinator.history import CheckpointRecord, FailureRecord
from tidegate.daemon.http.redaction import redact_checkpoints, redact_events, redact_failures, redact_status
from tidegate.daemon.http.resources import Resource, ResourceQuery, ResourceRefused, in_thread
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.pipeline_history import EventList, History
from tidegate.daemon.source_progress import PartitionsAnswer
from tidegate.daemon.status import Status
from tidegate.ids import OperatorName

POLLED_S: Final = 0.5
"""How long figures are kept that each viewer asks for once a second: with 100 slots, each takes 4 ms to render."""


class CheckpointsQuery(ResourceQuery, frozen=True, kw_only=True):
    """Which checkpoints, and whether with the phases of their subtasks, which are most of the answer."""

    id: int | None = None
    subtasks: bool = True


def select_checkpoints(records: Sequence[CheckpointRecord], query: CheckpointsQuery) -> list[CheckpointRecord]:
    """Selects what a query asks for. Raises ResourceRefused if that checkpoint is not kept. Pure."""
    found = [one for one in records if query.id in (None, one.id)]
    if query.id is not None and not found:
        kept = f"it has {records[-1].id} to {records[0].id}" if records else "it has none"
        raise ResourceRefused(404, "unknown-checkpoint", f"this daemon has no record of checkpoint {query.id}: {kept}")
    return found if query.subtasks else [replace(one, subtasks=()) for one in found]


class HistoryQuery(ResourceQuery, frozen=True):
    """Which points to return."""

    after_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Unix time in milliseconds: only later points are returned."""
    step: tuple[OperatorName, ...] = ()
    """Steps whose series are returned as well; may be repeated. One without points yet is left out."""


def read_history(metrics: PipelineMetrics, query: HistoryQuery) -> History:
    """Reads the points. Raises ResourceRefused if a step does not exist."""
    found = metrics.history(query.after_ms, query.step)
    without = set(query.step) - found.steps.keys()
    unknown = without - {one.name for one in metrics.snapshot().operators} if without else ()
    if unknown:
        names = ", ".join(sorted(unknown))[:200]
        raise ResourceRefused(404, "unknown-step", f"there is no step {names}: /status lists the steps")
    return found


def make_pipeline_resources(metrics: PipelineMetrics) -> list[Resource[Any]]:
    """Makes the resources that every daemon has."""

    async def read_checkpoints(query: CheckpointsQuery) -> object:
        return await asyncio.to_thread(lambda: redact_checkpoints(select_checkpoints(metrics.checkpoints, query)))

    async def read_points(query: HistoryQuery) -> History:
        return await asyncio.to_thread(read_history, metrics, query)

    return [
        Resource(
            name="status",
            summary="The figures of the pipeline now.",
            answer=Status,
            read=in_thread(lambda: redact_status(metrics.snapshot())),
            kept_s=POLLED_S,
        ),
        Resource(
            name="checkpoints",
            summary="The newest checkpoints and savepoints of this daemon, newest first; with `id` that one.",
            answer=list[CheckpointRecord],
            read=read_checkpoints,
            query=CheckpointsQuery,
        ),
        Resource(
            name="failures",
            summary="The newest failed attempts of this daemon, newest first.",
            answer=list[FailureRecord],
            read=in_thread(lambda: redact_failures(metrics.failures)),
        ),
        Resource(
            name="events",
            summary="The newest events of this daemon, newest first.",
            answer=EventList,
            read=in_thread(lambda: redact_events(metrics.events)),
        ),
        Resource(
            name="history",
            summary="Figures of the last hour, a point every five seconds: of the pipeline, and of the steps named.",
            answer=History,
            read=read_points,
            query=HistoryQuery,
        ),
        Resource(
            name="partitions",
            summary="The partitions that the sources read: offsets, lag and watermarks.",
            answer=PartitionsAnswer,
            read=in_thread(lambda: PartitionsAnswer(metrics.partitions)),
            kept_s=POLLED_S,
        ),
    ]
