"""Rows that people see: where they are copied (at the outputs of a step; for a sink, at the outputs that it reads), and
which columns are masked. Pure.

Masked columns are known by name alone, in all rows of the pipeline: a column that has another name upstream is not
found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidegate.config.errors import Problem
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.load import LoadedPipeline
from tidegate.datatypes import DataType, is_reserved, parts_of
from tidegate.expressions.expression import Call, Cast, Expression, FieldAccess, Lambda, Literal, columns_of
from tidegate.expressions.secrets import find_encrypted, find_secrets
from tidegate.ids import VertexId
from tidegate.operators.builtin.dead_letters import DeadLetterOperator
from tidegate.operators.builtin.kafka_sink import SinkOperator
from tidegate.operators.spec import DEAD
from tidegate.plan.graph import RETRY_VERTEX, OutputPath, Plan, Vertex


class TapPoint(msgspec.Struct, frozen=True):
    """An output of a node in every slot, and the columns to show of its rows."""

    vertex: VertexId
    node: int
    output: str
    """Empty for the main output."""
    columns: tuple[str, ...]


def find_tap_points(plan: Plan) -> Mapping[str, tuple[TapPoint, ...]]:
    """Returns the points of everything that can be tapped, in the order of the plan.

    These are the operators by their names, side outputs as `step.output`, and sinks. Outputs that nothing reads have no
    rows, and neither have outputs of dead letters. Rows of replayed dead letters are left out where they return.
    """
    found: defaultdict[str, list[TapPoint]] = defaultdict(list)
    for vertex in plan.vertices:
        if vertex.id == RETRY_VERTEX or any(isinstance(node.operator, DeadLetterOperator) for node in vertex.nodes):
            continue  # rows within bytes: no column could be masked
        for index, node in enumerate(vertex.nodes):
            for output, way in node.outputs.items():
                if output == DEAD:
                    continue
                columns = [name for name, _ in node.operator.pruned_columns(output)]
                name = f"{node.operator.name}.{output}" if output else str(node.operator.name)
                found[name].append(_point(vertex, index, output, columns))
                for sink in _sinks_of(plan, vertex, way):
                    reads = sink.reads()
                    found[sink.name].append(_point(vertex, index, output, [one for one in columns if one in reads]))
    return {name: tuple(points) for name, points in found.items()}


def _point(vertex: Vertex, node: int, output: str, columns: Iterable[str]) -> TapPoint:
    return TapPoint(vertex.id, node, output, tuple(name for name in columns if not is_reserved(name)))


def _sinks_of(plan: Plan, vertex: Vertex, way: OutputPath) -> Iterator[SinkOperator]:
    """Yields the sinks that read an output."""
    vertices = {one.id: one for one in plan.vertices}
    readers = [vertex.nodes[child] for child in way.children]
    readers += [vertices[edge.downstream].nodes[edge.node] for edge in (plan.edges[index] for index in way.edges)]
    yield from (node.operator for node in readers if isinstance(node.operator, SinkOperator))


def derive_masked_columns(plan: Plan, redact: Iterable[str]) -> frozenset[str]:
    """Returns the columns of `redact`, those that expressions with `secret()` encrypt, decrypt or compute, and those
    that are computed from any of them, in lower case.
    """
    found = {name.casefold() for name in redact}
    for node in plan.nodes:  # in topological order, so that what is computed from a column comes after it
        computed = node.operator.computes()
        for expression in computed.values():
            found.update(name.casefold() for one in find_encrypted(expression) for name in columns_of(one))
        for name, inputs in node.operator.made_from().items():
            read = inputs | (_fields_of(computed[name]) if name in computed else frozenset())
            is_made = name in computed and any(find_secrets(computed[name]))
            if is_made or not found.isdisjoint(one.casefold() for one in read):
                found.add(name.casefold())
    return frozenset(found)


def _fields_of(expression: Expression) -> frozenset[str]:
    """Returns the fields of structs that an expression reads, and the texts that may be keys of maps."""
    match expression:
        case FieldAccess(base=base, name=name):
            return _fields_of(base) | {name}
        case Call(arguments=arguments):
            keys = {str(one.value) for one in arguments if isinstance(one, Literal)}
            return frozenset(keys).union(*map(_fields_of, arguments))
        case Cast(operand=part) | Lambda(body=part):
            return _fields_of(part)
    return frozenset()


def find_unknown_columns(loaded: LoadedPipeline, schemas: Mapping[str, Mapping[str, DataType]]) -> Iterator[Problem]:
    """Yields a warning for each name of `http.redact` that no source and no step has. `schemas` are their columns.

    A site file may name columns of other pipelines.
    """
    known = {name.casefold(): name for columns in schemas.values() for name in _names(columns.items())}
    for index, name in enumerate(loaded.settings.http.redact):
        if name.casefold() in known or loaded.place(("http", "redact", index)).value.file:
            continue
        remedy = derive_suggestion(name, known.values(), otherwise="nothing is masked by it: check the spelling")
        problem = loaded.problem(("http", "redact", index), f"no source and no step has a column `{name}`", remedy)
        yield msgspec.structs.replace(problem, severity="warning")


def _names(columns: Iterable[tuple[str, DataType]]) -> Iterator[str]:
    """Yields the names of columns and of the fields within them."""
    for name, kind in columns:
        yield name
        yield from _names_within(kind)


def _names_within(kind: DataType) -> Iterator[str]:
    yield from (name for name, _ in kind.fields)
    for part in parts_of(kind):
        yield from _names_within(part)
