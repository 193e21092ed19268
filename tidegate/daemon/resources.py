"""All resources of a daemon, put together; each is defined in the module that owns its data."""

from __future__ import annotations

from typing import Any

from tidegate.config.load import LoadedPipeline
from tidegate.daemon.http.pipeline_resources import make_pipeline_resources
from tidegate.daemon.http.resources import Resource
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.tap_resource import TapService
from tidegate.plan.graph import Plan


def make_resources(
    loaded: LoadedPipeline,  # noqa: ARG001  # for those to come
    plan: Plan,  # noqa: ARG001  # for those to come
    metrics: PipelineMetrics,
    taps: TapService,
) -> list[Resource[Any]]:
    """Makes what can be read at `/api/v1/NAME` of this daemon."""
    return [
        *make_pipeline_resources(metrics),
        taps.resource,
    ]
