"""Pipeline file -> physical plan. Pure; reports every problem of a file at once.

`scope.py` resolves names, `steps.py` checks types, and `logical.py` removes unused columns and cuts the graph into
vertices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, combinations

import msgspec

from tidegate.config.clusters import cluster_names, derive_clusters, place_of
from tidegate.config.errors import ConfigErrors, Problem
from tidegate.config.fields.base import Path
from tidegate.config.fields.units import derive_waits_ms, render_duration
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
from tidegate.plan.logical import LogicalGraph, derive_planned, derive_reachable, derive_vertices
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
    found = _Warnings(loaded, scope, reachable)
    found.find(builder)
    warnings = {*map(_as_warning, (*found.problems, *unused)), *find_unknown_columns(loaded, builder.schemas)}
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


class _Warnings:
    """Finds what is probably unintended, although the pipeline can run."""

    def __init__(self, loaded: LoadedPipeline, scope: Scope, reachable: LogicalGraph) -> None:
        self.problems: list[Problem] = []
        self._loaded = loaded
        self._declared = scope.declared
        self._reachable = reachable
        self._names = {name.partition(".")[0] for name in reachable}
        """Sources, steps and sinks of which any operator leads to a sink."""
        operators = {name: node.operator for name, node in reachable.items()}
        self._sinks = {name: one for name, one in operators.items() if isinstance(one, SinkOperator)}

    def find(self, builder: Builder) -> None:
        """Finds everything."""
        self._find_unused()
        self._find_unread_outputs()
        self._find_loops()
        self._find_unkeyed_results()
        self._find_unused_settings()
        self._find_unreachable_limit()
        self._find_undeleted_rows(builder.changelogs | builder.corrections)
        self._find_shared_topics()
        self._find_rows_left_behind()
        self._find_repeated_results(builder.corrections)
        self.problems += [problem for name, problem in builder.warnings if name in self._names]
        self.problems += [
            self._loaded.problem_inside(one.path, one.text, remark.line, remark.column, remark.problem, remark.remedy)
            for one in builder.expressions
            for remark in find_remarks(one.text)
        ]

    def _add(self, path: Path, message: str, remedy: str, *, at_key: bool = True) -> None:
        self.problems.append(self._loaded.problem(path, message, remedy, at_key=at_key))

    def _find_unused(self) -> None:
        for name, one in self._declared.items():
            if name not in self._names:
                self._add(one.path, "leads to no sink and is left out", "remove it, or read it")

    def _find_unread_outputs(self) -> None:
        read = {(one.upstream, one.output) for node in self._reachable.values() for one in node.inputs}
        message = "is not read: its records are dropped, and counted as filtered"
        for name, one in self._declared.items():
            for output, path in one.outputs.items():
                if name in self._reachable and (name, output) not in read:
                    self._add((*one.path, *path), message, "read it, or remove it")

    def _find_loops(self) -> None:
        sources = [node.operator for node in self._reachable.values() if isinstance(node.operator, SourceOperator)]
        for name, sink in self._sinks.items():
            for topic in sink.topics:
                readers = [one.name for one in sources if one.reads_topic(sink.cluster, topic)]
                if readers:
                    message = f"`{topic}` is read by `{readers[0]}`: the pipeline feeds itself"
                    remedy = "write another topic unless this is meant"
                    self._add(("sinks", name, "topic"), message, remedy, at_key=False)

    def _find_unkeyed_results(self) -> None:
        """Finds results without a record key: they are spread over partitions, so that the newest cannot be
        determined. A step with keys that passes records on unchanged has no results.
        """
        totals: set[str] = set()
        for name, node in self._reachable.items():
            emitting = node.operator.emits() is Emits.LATEST or not node.operator.preserves_record()
            if any((emitting and one.keys) or (one.upstream in totals and one.output != LATE) for one in node.inputs):
                totals.add(name)
        message = "writes results without a `key`: their order is lost among the partitions"
        for name, sink in self._sinks.items():
            one = self._declared[name]
            if isinstance(one.settings, SinkSettings) and sink.key is None and name in totals:
                self._add(one.path, message, "add `key`")

    def _find_unused_settings(self) -> None:
        """Finds clusters, a schema registry and files of user code that nothing uses."""
        settings, code = self._loaded.settings, self._loaded.code
        used = derive_clusters(settings)
        for name in cluster_names(settings):
            if name not in used:
                remedy = "define a cluster that is used here" if name == MAIN_CLUSTER else "remove it"
                self._add(place_of(name), "no source or sink uses this cluster", remedy)
        formats = [(one.format, one.key_format) for one in settings.sources.values()]
        formats += [(one.format, one.key_format) for one in settings.sinks.values()]
        schemas = any(FORMATS[value].schema_kind or key == AVRO for value, key in formats)
        if settings.registry is not None and not schemas:
            message = "no source or sink has a format with schemas, so the registry is not used"
            self._add(("registry",), message, "remove it")
        if code is not None and code.files and not code.found:
            self._add(("code",), "no step uses your code, so these files are not used", "remove it")

    def _find_unreachable_limit(self) -> None:
        """Finds a restart limit that immediate failures cannot reach because of the waits between attempts."""
        restart = self._loaded.settings.restart
        limit = restart.give_up_after
        waits_ms = derive_waits_ms(restart.initial_ms, restart.max_ms, limit.failures)
        if waits_ms >= limit.within_ms:
            waits = f"the waits between {limit.failures} failures add up to {render_duration(waits_ms)}"
            remedy = "write fewer failures, a longer time, or a smaller `max`"
            self._add(("restart", "give_up_after"), f"may never be reached: {waits}", remedy, at_key=False)

    def _find_undeleted_rows(self, changelogs: Mapping[str, str]) -> None:
        """Finds sinks of a changelog whose deleted rows are written as ordinary rows."""
        remedy = (
            "add `on_null: {column: _deleted}` (each `select` passes `_deleted` on), or a step `where: NOT _deleted`"
        )
        for name in self._sinks:
            if name not in changelogs:
                continue
            of = _find_unread_deletes(self._reachable, name, OperatorName(changelogs[name]))
            if of is not None:
                message = f"writes deleted rows of `{of}` like any others: nothing reads `{DELETED}`"
                self._add(self._declared[name].path, message, remedy)

    def _find_shared_topics(self) -> None:
        """Finds two sinks of one topic if one deletes keys: its tombstones have no order with the rows of the other."""
        for (other, before), (name, sink) in combinations(self._sinks.items(), 2):
            shared = sorted({*sink.topics} & {*before.topics})
            if shared and sink.cluster == before.cluster and (sink.deleted or before.deleted):
                message = f"writes `{shared[0]}`, as `{other}` does, and one of them writes tombstones"
                remedy = "no key may come from both, or a tombstone of one deletes the row of the other"
                self._add(self._declared[name].path, message, remedy)

    def _find_rows_left_behind(self) -> None:
        """Finds upsert topics in which an update may leave a row under a key that its table row no longer has."""
        remedy = (
            "no update changes a primary key: compute a key of it from the record's (`metadata: {key: ...}`); for "
            "another, add a step `where: true` before the sink: the old key then gets a tombstone, and updates need "
            "`before` (in PostgreSQL REPLICA IDENTITY FULL)"
        )
        for name, key in find_left_behind(self._reachable):
            message = f"`{key}` is computed: an update that changes it leaves the row of the old key"
            self._add(("sinks", name, "key"), message, remedy, at_key=False)

    def _find_repeated_results(self, corrections: Mapping[str, str]) -> None:
        """Finds steps and sinks that cannot handle repeated or retracted results."""
        keys = {
            name: choose_step_kind(one.settings).key
            for name, one in self._declared.items()
            if isinstance(one.settings, StepSettings)
        }
        counted = find_counted_again(self._reachable, keys)
        for name, key, message, remedy in chain(counted, find_withheld(self._reachable, corrections, keys)):
            self._add((*self._declared[name].path, key), message, remedy)


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


def _as_warning(problem: Problem) -> Problem:
    return msgspec.structs.replace(problem, severity="warning")
