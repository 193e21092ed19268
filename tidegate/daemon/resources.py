"""All resources of a daemon, put together, and those that the pipeline file determines: its plan and its settings.

Plan and settings do not change while a daemon runs, so each is derived once, at the first request.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from tidegate.config.listing import Origin, find_origin, hide_secrets, list_settings, render_value
from tidegate.config.load import LoadedPipeline
from tidegate.daemon.http.pipeline_resources import make_pipeline_resources
from tidegate.daemon.http.resources import Resource, in_thread
from tidegate.daemon.metrics import PipelineMetrics
from tidegate.daemon.reading.dead_letters import make_dead_letters_resource
from tidegate.daemon.reading.state import make_state_resource
from tidegate.daemon.taps import TapService
from tidegate.ids import OperatorName, VertexId
from tidegate.plan.explain import derive_explanation, render_explanation
from tidegate.plan.graph import Plan
from tidegate.plan.layout import Layout, derive_layout
from tidegate.plan.taps import derive_masked_columns


class PlanInput(msgspec.Struct, frozen=True, rename={"source": "from"}):
    """An operator whose rows an operator reads."""

    source: OperatorName
    port: int
    alias: str = ""
    """The name of the input in the file, if the step names its inputs."""
    output: str = ""
    """The side output that is read; empty for the main one."""
    keys: tuple[str, ...] = ()
    """The columns by which rows are exchanged; empty if they stay in their slot."""


class PlanStep(msgspec.Struct, frozen=True):
    """An operator of the plan, under the name that it has in `status` and in metrics."""

    name: OperatorName
    kind: str
    vertex: VertexId
    inputs: tuple[PlanInput, ...]
    text: tuple[str, ...]
    """What it does, in the lines that `tidegate explain` prints."""


class PlanAnswer(msgspec.Struct, frozen=True):
    """The plan of a pipeline; positions and lengths of its layout are in pixels."""

    pipeline: str
    parallelism: int
    steps: tuple[PlanStep, ...]
    layout: Layout
    explain: str
    """The output of `tidegate explain`, without what only the checkpoint directory knows."""


class ConfigSetting(msgspec.Struct, frozen=True):
    """A setting with its value as text, without secrets."""

    path: str
    value: str
    origin: Origin
    place: str | None
    """File and line of the value or of the reference to it, `pipeline.yaml:12`; null for a default."""
    references: tuple[str, ...]
    """The variables that the value refers to, and `file PATH` for each file with a secret."""


class ConfigAnswer(msgspec.Struct, frozen=True):
    """The settings of a pipeline, and the text of its file, in which `***` stands for secrets."""

    file: str
    text: str
    settings: tuple[ConfigSetting, ...]


def make_file_resources(loaded: LoadedPipeline, plan: Plan) -> list[Resource[Any]]:
    """Makes the resources `plan` and `config`."""
    return [
        Resource(
            name="plan",
            summary="The steps of the pipeline, their inputs, and where they are in its picture.",
            answer=PlanAnswer,
            read=in_thread(cache(lambda: derive_plan_answer(loaded, plan))),
        ),
        Resource(
            name="config",
            summary="Every setting of the pipeline with its origin, and the text of its file, without secrets.",
            answer=ConfigAnswer,
            read=in_thread(cache(lambda: derive_config_answer(loaded))),
        ),
    ]


def derive_plan_answer(loaded: LoadedPipeline, plan: Plan) -> PlanAnswer:
    """Derives the answer about a plan, without secrets. Pure."""
    explanation = derive_explanation(loaded, plan)
    inputs: dict[OperatorName, list[PlanInput]] = {node.operator.name: [] for node in plan.nodes}
    for reader, one in _find_inputs(plan):
        inputs[reader].append(one)
    return PlanAnswer(
        pipeline=plan.pipeline,
        parallelism=plan.parallelism,
        steps=tuple(
            PlanStep(
                name=operator["name"],
                kind=operator["kind"],
                vertex=vertex["name"],
                inputs=tuple(inputs[operator["name"]]),
                text=tuple(map(loaded.secrets, operator["text"])),
            )
            for vertex in explanation["vertices"]
            for operator in vertex["operators"]
        ),
        layout=derive_layout(plan),
        explain=loaded.secrets(render_explanation(explanation)),
    )


def _find_inputs(plan: Plan) -> Iterator[tuple[OperatorName, PlanInput]]:
    """Yields each input of each operator, in the order of the operators that it reads."""
    vertices = {vertex.id: vertex for vertex in plan.vertices}
    for vertex in plan.vertices:
        for node in vertex.nodes:
            name = node.operator.name
            for output, way in node.outputs.items():
                for child in way.children:
                    yield vertex.nodes[child].operator.name, PlanInput(name, 0, output=output)
                for edge in (plan.edges[index] for index in way.edges):
                    reader = vertices[edge.downstream].nodes[edge.node].operator.name
                    yield reader, PlanInput(name, edge.port, edge.alias, output, edge.keys)


def derive_config_answer(loaded: LoadedPipeline) -> ConfigAnswer:
    """Derives the answer about the configuration, without secrets. Pure."""
    return ConfigAnswer(
        file=loaded.file,
        text=hide_secrets(loaded),
        settings=tuple(
            ConfigSetting(
                loaded.display(one.path),
                loaded.secrets(render_value(one.value)),
                *find_origin(loaded, one.path),
            )
            for one in list_settings(loaded, steps=True)
        ),
    )


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
