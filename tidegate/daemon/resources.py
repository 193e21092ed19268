"""All resources of a daemon, put together; each is defined in the module that owns its data."""

from __future__ import annotations

from typing import Any

from tidegate.config.load import LoadedPipeline
from tidegate.daemon.file_resources import make_file_resources
from tidegate.daemon.http.pipeline_resources import make_pipeline_resources
from tidegate.daemon.http.resources import Resource
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.reading.dead_letters import make_dead_letters_resource
from tidegate.daemon.reading.state import make_state_resource
from tidegate.daemon.tap_resource import TapService
from tidegate.plan.graph import Plan
from tidegate.plan.masked_columns import derive_masked_columns


def make_resources(
    loaded: LoadedPipeline, plan: Plan, metrics: PipelineMetrics, taps: TapService
) -> list[Resource[Any]]:
    """Makes what can be read at `/api/v1/NAME` of this daemon."""
    masked = derive_masked_columns(plan, loaded.settings.http.redact)
    return [
        *make_pipeline_resources(metrics),
        *make_file_resources(loaded, plan),
        make_dead_letters_resource(loaded, masked),
        make_state_resource(loaded, masked),
        taps.resource,
    ]
