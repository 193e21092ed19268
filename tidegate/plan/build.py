"""Pipeline file -> physical plan. Pure; every problem of a file in one go.

`scope.py` resolves names, `steps.py` types them, `prune.py` narrows them and `chain.py` cuts the graph into vertices.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.kafka_source import SourceOperator
from tidegate.plan.chain import derive_vertices
from tidegate.plan.graph import Plan
from tidegate.plan.logical import LogicalGraph
from tidegate.plan.prune import derive_pruned, derive_reachable, derive_timed
from tidegate.plan.scope import Scope, derive_scope
from tidegate.plan.steps import Builder, PlacedExpression


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of looking at a file: `plan` is None when there are problems; warnings never stop anything."""

    plan: Plan | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    expressions: tuple[PlacedExpression, ...] = ()
    """All that could be typed: whether they can be run, only the engine can say."""


def build_plan(loaded: LoadedPipeline) -> Plan:
    """The physical plan of a pipeline. Raises ConfigErrors with all problems, the loader's included."""
    checked = check_pipeline(loaded)
    if checked.plan is None:
        raise ConfigErrors(checked.problems)
    return checked.plan


def check_pipeline(loaded: LoadedPipeline) -> Checked:
    """Problems, warnings and, if there are no problems, the plan."""
    scope = derive_scope(loaded)
    builder = Builder(loaded)
    for one in scope.declared.values():
        if one.name in scope.unusable:
            builder.look_alone(one)
        else:
            builder.add(one)
    problems = tuple(sorted({*loaded.problems, *scope.problems, *builder.problems}))
    if problems:
        return Checked(None, problems, (), tuple(builder.expressions))
    reachable = derive_reachable(builder.graph)
    warnings = (*_unused(loaded, scope, reachable), *_loops(loaded, reachable), *_unordered(loaded, scope, reachable))
    vertices, edges = derive_vertices(derive_pruned(derive_timed(reachable)))
    settings = loaded.settings
    plan = Plan(
        pipeline=settings.name,
        parallelism=settings.parallelism,
        max_parallelism=settings.max_parallelism,
        exactly_once=settings.checkpoints.mode == "exactly-once",
        vertices=vertices,
        edges=edges,
    )
    return Checked(plan, (), tuple(sorted(warnings)), tuple(builder.expressions))


def _warning(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, severity="warning")


def _unused(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    return [
        _warning(loaded.problem(one.path, "leads to no sink and is left out", "remove it, or read it", at_key=True))
        for name, one in scope.declared.items()
        if name not in reachable
    ]


def _loops(loaded: LoadedPipeline, reachable: LogicalGraph) -> list[Problem]:
    read = {
        topic: node.operator.name
        for node in reachable.values()
        if isinstance(node.operator, SourceOperator)
        for topic in node.operator.topics
    }
    return [
        _warning(
            loaded.problem(
                ("sinks", node.operator.name, "topic"),
                f"`{node.operator.topic}` is read by `{read[node.operator.topic]}`: the pipeline feeds itself",
                "write another topic unless this is meant",
            )
        )
        for node in reachable.values()
        if isinstance(node.operator, SinkOperator) and node.operator.topic in read
    ]


def _unordered(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    """Totals without a record key are spread over partitions, where nobody can know which is the newest."""
    totals: set[str] = set()
    for name, node in reachable.items():
        if any(one.keys or (one.upstream in totals and not one.output) for one in node.inputs):
            totals.add(name)
    message = "writes totals without a `key`: their order is lost among the partitions"
    return [
        _warning(loaded.problem(scope.declared[name].path, message, "add `key`", at_key=True))
        for name, node in reachable.items()
        if isinstance(node.operator, SinkOperator)
        and isinstance(scope.declared[name].settings, SinkSettings)
        and node.operator.key is None
        and name in totals
    ]
