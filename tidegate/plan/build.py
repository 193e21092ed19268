"""Pipeline file -> physical plan. Pure; every problem of a file in one go.

`scope.py` resolves names, `steps.py` types them, `prune.py` narrows them and `chain.py` cuts the graph into vertices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings
from tidegate.ids import OperatorName
from tidegate.operators.kinds.kafka_sink import SinkOperator
from tidegate.operators.kinds.kafka_source import DELETED, SourceOperator
from tidegate.operators.spec import LATE
from tidegate.plan.chain import derive_vertices
from tidegate.plan.dead_letters import add_dead_letters, find_dead_letter_problems
from tidegate.plan.graph import Plan
from tidegate.plan.logical import LogicalGraph
from tidegate.plan.prune import derive_headed, derive_pruned, derive_reachable, derive_timed
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
    refused, unused = find_dead_letter_problems(reachable, loaded)
    if refused:
        return Checked(None, tuple(sorted(refused)), (), tuple(builder.expressions))
    warnings = (
        *_unused(loaded, scope, reachable),
        *_unread(loaded, scope, reachable),
        *_loops(loaded, reachable),
        *_unordered(loaded, scope, reachable),
        *_undeleted(loaded, scope, reachable, builder.changelogs),
        *map(_warning, unused),
    )
    whole = add_dead_letters(reachable, loaded)
    vertices, edges = derive_vertices(derive_pruned(derive_headed(derive_timed(whole))))
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


def _unread(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    read = {(one.upstream, one.output) for node in reachable.values() for one in node.inputs}
    message = "is read by nobody: its records are dropped, and counted as filtered"
    return [
        _warning(loaded.problem((*one.path, "route", output), message, "read it, or remove it", at_key=True))
        for name, one in scope.declared.items()
        for output in one.outputs
        if name in reachable and (name, output) not in read
    ]


def _loops(loaded: LoadedPipeline, reachable: LogicalGraph) -> list[Problem]:
    sources = [node.operator for node in reachable.values() if isinstance(node.operator, SourceOperator)]
    sinks = [node.operator for node in reachable.values() if isinstance(node.operator, SinkOperator)]
    read = {sink.topic: one.name for sink in sinks for one in sources if one.matches(sink.topic)}
    read |= {topic: one.name for one in sources for topic in one.topics}
    return [
        _warning(
            loaded.problem(
                ("sinks", sink.name, "topic"),
                f"`{sink.topic}` is read by `{read[sink.topic]}`: the pipeline feeds itself",
                "write another topic unless this is meant",
            )
        )
        for sink in sinks
        if sink.topic in read
    ]


def _undeleted(
    loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph, changelogs: Mapping[str, str]
) -> list[Problem]:
    """Sinks of changes where nobody on the way asks which rows are deletes."""
    remedy = "add `on_null: {column: _deleted}`, or leave them out: `where: NOT _deleted`"
    return [
        _warning(
            loaded.problem(
                scope.declared[name].path,
                f"writes deleted rows of `{changelogs[name]}` like any others: nothing reads `{DELETED}`",
                remedy,
                at_key=True,
            )
        )
        for name, node in reachable.items()
        if isinstance(node.operator, SinkOperator) and name in changelogs
        if DELETED not in _columns_read(reachable, name, changelogs[name])
    ]


def _columns_read(graph: LogicalGraph, sink: OperatorName, source: str) -> set[str]:
    """The columns of a source that one of its sinks needs, by whatever way."""
    above, waiting = {sink}, [sink]
    while waiting:
        found = {one.upstream for one in graph[waiting.pop()].inputs} - above
        above |= found
        waiting += found
    alone = derive_pruned({name: node for name, node in graph.items() if name in above})
    return {column for column, _ in alone[OperatorName(source)].operator.produces()}


def _unordered(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    """Totals without a record key are spread over partitions, where nobody can know which is the newest."""
    totals: set[str] = set()
    for name, node in reachable.items():
        if any(one.keys or (one.upstream in totals and one.output != LATE) for one in node.inputs):
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
