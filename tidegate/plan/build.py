"""Pipeline file -> physical plan. Pure; reports every problem of a file at once.

`scope.py` resolves names, `steps.py` checks types, `prune.py` removes unused columns and `chain.py` cuts the graph into
vertices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from tidegate.config.clusters import cluster_names, derive_clusters, place_of
from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.fields.backoff import derive_waits_ms
from tidegate.config.fields.units import render_duration
from tidegate.config.load import LoadedPipeline
from tidegate.config.models import SinkSettings, StepSettings
from tidegate.expressions.parse import find_remarks
from tidegate.formats.keys import AVRO
from tidegate.formats.registry import FORMATS
from tidegate.ids import MAIN_CLUSTER, OperatorName
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.builtin.kafka_source import DELETED, SourceOperator
from tidegate.operators.registry import choose_step_kind
from tidegate.operators.spec import LATE, Emits
from tidegate.plan.chain import derive_vertices
from tidegate.plan.changes import (
    derive_changing,
    find_counted_again,
    find_disordered,
    find_left_behind,
    find_unrepeatable,
    find_untimed,
    find_withheld,
)
from tidegate.plan.dead_letters import add_dead_letters, add_retry_edges, add_retry_inputs, find_dead_letter_problems
from tidegate.plan.gates import derive_gates, find_deadlock
from tidegate.plan.graph import Edge, Plan, UpgradeDirective, Vertex
from tidegate.plan.logical import LogicalGraph
from tidegate.plan.prune import derive_planned, derive_reachable
from tidegate.plan.scope import Scope, derive_scope
from tidegate.plan.steps import Builder, PlacedExpression
from tidegate.plan.taps import find_unknown_columns
from tidegate.plan.upgrade_directives import derive_directives, find_directive_problems


@dataclass(frozen=True, slots=True)
class CheckedPipeline:
    """The result of checking a file: `plan` is None if there are problems; warnings prevent nothing."""

    plan: Plan | None
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    expressions: tuple[PlacedExpression, ...] = ()
    """All expressions that could be typed; only the engine can tell whether it can run them."""


def build_plan(loaded: LoadedPipeline) -> Plan:
    """Builds the physical plan of a pipeline. Raises ConfigErrors with all problems, including the loader's."""
    checked = check_pipeline(loaded)
    if checked.plan is None:
        raise ConfigErrors(checked.problems)
    return checked.plan


def check_pipeline(loaded: LoadedPipeline) -> CheckedPipeline:
    """Returns problems, warnings and, if there are no problems, the plan."""
    scope = derive_scope(loaded)
    builder = Builder(loaded)
    for one in scope.declared.values():
        if one.name in scope.unusable:
            builder.check_alone(one)
        else:
            builder.add(one)
    problems = tuple(sorted({*loaded.problems, *scope.problems, *builder.problems}))
    if problems:
        return CheckedPipeline(None, problems, (), tuple(builder.expressions))
    reachable = derive_reachable(builder.graph)
    refused, unused = find_dead_letter_problems(reachable, loaded)
    if refused:
        return CheckedPipeline(None, tuple(sorted(refused)), (), tuple(builder.expressions))
    wrong = [
        *_refuse_unrepeatable(loaded, scope, reachable),
        *_refuse_disordered(loaded, scope, reachable),
        *_refuse_untimed(loaded, scope, reachable),
        *find_directive_problems(loaded, reachable),
    ]
    if wrong:
        return CheckedPipeline(None, tuple(sorted(wrong)), (), tuple(builder.expressions))
    warnings = (
        *_warn_of_unused(loaded, scope, reachable),
        *_warn_of_unread_outputs(loaded, scope, reachable),
        *_warn_of_loops(loaded, reachable),
        *_warn_of_unkeyed_results(loaded, scope, reachable),
        *_warn_of_unused_clusters(loaded),
        *_warn_of_unused_registry(loaded),
        *_warn_of_unused_files(loaded),
        *_warn_of_unreachable_limit(loaded),
        *_warn_of_undeleted_rows(loaded, scope, reachable, builder.changelogs | builder.corrections),
        *_warn_of_shared_topics(loaded, scope, reachable),
        *_warn_of_rows_left_behind(loaded, reachable),
        *_warn_of_repeated_results(loaded, scope, reachable, builder.corrections),
        *map(_as_warning, unused),
        *find_unknown_columns(loaded, builder.schemas),
        *(_as_warning(found) for name, found in builder.warnings if name in _names_in(reachable)),
        *_warn_of_remarks(loaded, builder.expressions),
    )
    plan = _derive_plan(loaded, reachable, builder.secrets)
    deadlocked = _refuse_deadlocks(loaded, scope, plan)
    if deadlocked:
        return CheckedPipeline(None, tuple(sorted(deadlocked)), (), tuple(builder.expressions))
    return CheckedPipeline(plan, (), tuple(sorted(warnings)), tuple(builder.expressions))


def _derive_plan(loaded: LoadedPipeline, reachable: LogicalGraph, secrets: dict[str, str]) -> Plan:
    """Derives the physical plan of a pipeline without problems."""
    whole = add_dead_letters(derive_changing(reachable), loaded)
    directives = derive_directives(loaded)
    vertices, edges = _derive_physical(whole, directives)
    settings = loaded.settings
    return Plan(
        pipeline=settings.name,
        parallelism=settings.parallelism,
        max_parallelism=settings.max_parallelism,
        exactly_once=settings.checkpoints.mode == "exactly-once",
        vertices=vertices,
        edges=edges,
        modules={} if loaded.code is None else dict(loaded.code.modules),
        files=() if loaded.code is None else tuple(one.file for one in loaded.code.files),
        secrets=secrets,
        masked=() if settings.dead_letters is None else tuple(sorted(loaded.secrets.values)),
        directives=directives,
    )


def _derive_physical(
    graph: LogicalGraph, directives: Mapping[OperatorName, UpgradeDirective]
) -> tuple[tuple[Vertex, ...], tuple[Edge, ...]]:
    planned = add_retry_inputs(derive_planned(graph), directives)
    return add_retry_edges(*derive_vertices(planned), planned)


# -- refusals ----------------------------------------------------------------------------------------------------------


def _refuse_unrepeatable(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    """Refuses running totals that depend on a value that may differ when its row is retracted."""
    return [
        loaded.problem(
            (*scope.declared[name].path, "aggregate"),
            f"{part} goes by `{column}` of `{of}`, which may differ when a row is taken back: it would not be found",
            "use columns of the table's row",
            at_key=True,
        )
        for name, part, (of, column) in find_unrepeatable(reachable)
    ]


def _refuse_disordered(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    """Refuses upsert topics in which a tombstone could follow the row that replaces the deleted one."""
    return [
        loaded.problem(
            (*scope.declared[name].path, "from"),
            f"rows of `{of}` come on several ways, which have no order: an update that moves a row from one to another "
            "could delete it",
            "choose values by CASE in one `select`, or write each way to a topic of its own",
            at_key=True,
        )
        for name, of in find_disordered(reachable)
    ]


def _refuse_untimed(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    """Refuses steps that need event time, and read results of batches, which have none."""
    return [
        loaded.problem(
            scope.declared[name.partition(".")[0]].path,
            f"needs event time, and the results of `{of}` are new rows, which have none",
            f"add `rows: same` to `{of}` if each result belongs to one row, or add a step `event_time` behind it",
            at_key=True,
        )
        for name, of in find_untimed(reachable)
    ]


def _refuse_deadlocks(loaded: LoadedPipeline, scope: Scope, plan: Plan) -> set[Problem]:
    """Returns a problem for each step whose input would be waited for in vain."""
    remedy = "let one of these steps start without waiting; a `lookup` has `begin: immediately`"
    gates = find_deadlock(derive_gates(plan))
    order = "; ".join(
        f"`{gate.vertex}` reads `{gate.alias}` before {', '.join(sorted(gate.held))} may be read" for gate in gates
    )
    return {
        loaded.problem(scope.declared[gate.vertex].path, f"no source could start: {order}", remedy) for gate in gates
    }


# -- warnings ----------------------------------------------------------------------------------------------------------


def _warn_of_unused(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    return [
        _as_warning(loaded.problem(one.path, "leads to no sink and is left out", "remove it, or read it", at_key=True))
        for name, one in scope.declared.items()
        if name not in _names_in(reachable)
    ]


def _warn_of_unread_outputs(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    read = {(one.upstream, one.output) for node in reachable.values() for one in node.inputs}
    message = "is not read: its records are dropped, and counted as filtered"
    return [
        _as_warning(loaded.problem((*one.path, *path), message, "read it, or remove it", at_key=True))
        for name, one in scope.declared.items()
        for output, path in one.outputs.items()
        if name in reachable and (name, output) not in read
    ]


def _warn_of_loops(loaded: LoadedPipeline, reachable: LogicalGraph) -> list[Problem]:
    sources = [node.operator for node in reachable.values() if isinstance(node.operator, SourceOperator)]
    sinks = [node.operator for node in reachable.values() if isinstance(node.operator, SinkOperator)]
    return [
        _as_warning(
            loaded.problem(
                ("sinks", sink.name, "topic"),
                f"`{topic}` is read by `{readers[0]}`: the pipeline feeds itself",
                "write another topic unless this is meant",
            )
        )
        for sink in sinks
        for topic in sink.topics
        if (readers := [one.name for one in sources if one.reads_topic(sink.cluster, topic)])
    ]


def _warn_of_unkeyed_results(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    """Warns of results without a record key: they are spread over partitions, so that the newest cannot be determined.

    A step with keys that passes records on unchanged has no results.
    """
    totals: set[str] = set()
    for name, node in reachable.items():
        emitting = node.operator.emits() is Emits.LATEST or not node.operator.preserves_record()
        if any((emitting and one.keys) or (one.upstream in totals and one.output != LATE) for one in node.inputs):
            totals.add(name)
    message = "writes results without a `key`: their order is lost among the partitions"
    return [
        _as_warning(loaded.problem(scope.declared[name].path, message, "add `key`", at_key=True))
        for name, node in reachable.items()
        if isinstance(node.operator, SinkOperator)
        and isinstance(scope.declared[name].settings, SinkSettings)
        and node.operator.key is None
        and name in totals
    ]


def _warn_of_unused_clusters(loaded: LoadedPipeline) -> list[Problem]:
    """Warns of clusters that nothing uses."""
    used = derive_clusters(loaded.settings)
    message = "no source or sink uses this cluster"
    return [
        _as_warning(
            loaded.problem(
                place_of(name),
                message,
                "define a cluster that is used here" if name == MAIN_CLUSTER else "remove it",
                at_key=True,
            )
        )
        for name in cluster_names(loaded.settings)
        if name not in used
    ]


def _warn_of_unused_registry(loaded: LoadedPipeline) -> list[Problem]:
    """Warns of a schema registry that is never used."""
    settings = loaded.settings
    ends = [(one.format, one.key_format) for one in settings.sources.values()]
    ends += [(one.format, one.key_format) for one in settings.sinks.values()]
    if settings.registry is None or any(FORMATS[value].schema_kind or key == AVRO for value, key in ends):
        return []
    message, remedy = "no source or sink has a format with schemas, so the registry is not used", "remove it"
    return [_as_warning(loaded.problem(("registry",), message, remedy, at_key=True))]


def _warn_of_unused_files(loaded: LoadedPipeline) -> list[Problem]:
    """Warns of wheels and data files in a pipeline without user code."""
    if loaded.code is None or not loaded.code.files or loaded.code.found:
        return []
    message = "no step uses your code, so these files are not used"
    return [_as_warning(loaded.problem(("code",), message, "remove it", at_key=True))]


def _warn_of_unreachable_limit(loaded: LoadedPipeline) -> list[Problem]:
    """Warns of a restart limit that immediate failures cannot reach because of the waits between attempts."""
    restart = loaded.settings.restart
    limit = restart.give_up_after
    waits_ms = derive_waits_ms(restart.initial_ms, restart.max_ms, limit.failures)
    if waits_ms < limit.within_ms:
        return []
    message = f"may never be reached: the waits between {limit.failures} failures add up to {render_duration(waits_ms)}"
    remedy = "write fewer failures, a longer time, or a smaller `max`"
    return [_as_warning(loaded.problem(("restart", "give_up_after"), message, remedy))]


def _warn_of_undeleted_rows(
    loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph, changelogs: Mapping[str, str]
) -> list[Problem]:
    """Warns of sinks of a changelog whose deleted rows are written as ordinary rows."""
    sinks = [name for name, node in reachable.items() if isinstance(node.operator, SinkOperator) and name in changelogs]
    unread = {name: _find_unread_deletes(reachable, name, OperatorName(changelogs[name])) for name in sinks}
    remedy = "add `on_null: {column: _deleted}` (each `select` passes `_deleted` on), or a step `where: NOT _deleted`"
    return [
        _as_warning(
            loaded.problem(
                scope.declared[name].path,
                f"writes deleted rows of `{of}` like any others: nothing reads `{DELETED}`",
                remedy,
                at_key=True,
            )
        )
        for name, of in unread.items()
        if of is not None
    ]


def _find_unread_deletes(graph: LogicalGraph, sink: OperatorName, source: OperatorName) -> OperatorName | None:
    """Returns the source or retracting step whose deletes reach a sink; None if `_deleted` is read on the way."""
    above, waiting, of = {sink}, [sink], source
    while waiting:
        name = waiting.pop(0)
        if graph[name].operator.emits() is Emits.RETRACTIONS:
            of = name if of == source else of
            continue
        found = {one.upstream for one in graph[name].inputs} - above
        above |= found
        waiting += found
    alone = derive_planned({name: node for name, node in graph.items() if name in above})
    read = {
        column
        for node in alone.values()
        for one in node.inputs
        if one.upstream == of
        for column in node.operator.reads(one.port)
    }
    return None if DELETED in read else of


def _warn_of_shared_topics(loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> list[Problem]:
    """Warns of two sinks of one topic if one deletes keys: its tombstones have no order with the rows of the other."""
    sinks = [(name, node.operator) for name, node in reachable.items() if isinstance(node.operator, SinkOperator)]
    found = []
    for place, (name, sink) in enumerate(sinks):
        for other, before in sinks[:place]:
            shared = sorted({*sink.topics} & {*before.topics})
            if shared and sink.cluster == before.cluster and (sink.deleted or before.deleted):
                message = f"writes `{shared[0]}`, as `{other}` does, and one of them writes tombstones"
                remedy = "no key may come from both, or a tombstone of one deletes the row of the other"
                found.append(_as_warning(loaded.problem(scope.declared[name].path, message, remedy, at_key=True)))
    return found


def _warn_of_rows_left_behind(loaded: LoadedPipeline, reachable: LogicalGraph) -> list[Problem]:
    """Warns of upsert topics in which an update may leave a row under a key that its table row no longer has."""
    remedy = (
        "no update changes a primary key: compute a key of it from the record's (`metadata: {key: ...}`); for another, "
        "add a step `where: true` before the sink: the old key then gets a tombstone, and updates need `before` (in "
        "PostgreSQL REPLICA IDENTITY FULL)"
    )
    return [
        _as_warning(
            loaded.problem(
                ("sinks", name, "key"),
                f"`{key}` is computed: an update that changes it leaves the row of the old key",
                remedy,
            )
        )
        for name, key in find_left_behind(reachable)
    ]


def _warn_of_repeated_results(
    loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph, corrections: Mapping[str, str]
) -> list[Problem]:
    """Warns of steps and sinks that cannot handle repeated or retracted results."""
    kinds = {
        name: choose_step_kind(one.settings)
        for name, one in scope.declared.items()
        if isinstance(one.settings, StepSettings)
    }
    keys = {name: kind.key for name, kind in kinds.items()}
    return [
        _as_warning(loaded.problem((*scope.declared[name].path, key), message, remedy, at_key=True))
        for name, key, message, remedy in (
            *find_counted_again(reachable, keys),
            *find_withheld(reachable, corrections, keys),
        )
    ]


def _warn_of_remarks(loaded: LoadedPipeline, expressions: Iterable[PlacedExpression]) -> set[Problem]:
    return {
        _as_warning(
            loaded.problem_inside(one.path, one.text, remark.line, remark.column, remark.problem, remark.remedy)
        )
        for one in expressions
        for remark in find_remarks(one.text)
    }


def _as_warning(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, severity="warning")


def _names_in(reachable: LogicalGraph) -> set[str]:
    """Returns the sources, steps and sinks of which any operator leads to a sink."""
    return {name.partition(".")[0] for name in reachable}
