"""The resources that the metrics of a pipeline know: its status, and the history of its checkpoints and failures."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from tidegate.coordinator.history import CheckpointRecord, FailureRecord
from tidegate.daemon.http.redaction import redact_checkpoints, redact_failures, redact_status
from tidegate.daemon.http.resources import Resource, ResourceQuery
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.status import Status

T = TypeVar("T")


def make_pipeline_resources(metrics: PipelineMetrics) -> list[Resource[Any]]:
    """Makes the resources that every daemon has."""
    return [
        _make("status", "The figures of the pipeline now.", Status, lambda: redact_status(metrics.snapshot())),
        _make(
            "checkpoints",
            "The newest checkpoints and savepoints of this daemon with the phases of every subtask, newest first.",
            list[CheckpointRecord],
            lambda: redact_checkpoints(metrics.checkpoints),
        ),
        _make(
            "failures",
            "The newest failed attempts of this daemon, newest first.",
            list[FailureRecord],
            lambda: redact_failures(metrics.failures),
        ),
    ]


def _make(name: str, summary: str, answer: Any, take: Callable[[], object]) -> Resource[ResourceQuery]:
    async def read(_query: ResourceQuery) -> object:
        return await asyncio.to_thread(take)

    return Resource(name=name, summary=summary, answer=answer, read=read)
