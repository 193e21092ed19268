"""What the state of a step means: a digest of every expression between the sources and the state. Pure.

A total of `sum(net)` that goes on as `sum(net * 2)` is neither. So the journal keeps, for each step with state and each
source (or step with state) that feeds it, digests of which records reach it, of its keys and of its aggregates; a start
compares them. They are of the typed expressions with columns resolved down to the source: formatting, names of steps in
between, the order of filters and of columns, and wider integers do not matter.

A change of this module, or of how an expression is typed, changes digests: raise `VERSION` then. Digests of another
version are not compared.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from tidegate.expressions.expression import AggregateCall, Call, Cast, Column, Expression, Field, Literal
from tidegate.ids import OperatorName, VertexId
from tidegate.plan.graph import (
    AggregateOperator,
    FilterOperator,
    Operator,
    Plan,
    SelectOperator,
    SourceOperator,
    Vertex,
)

VERSION: Final = 1
_DIGEST_BYTES: Final = 8
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")

Parts = dict[str, str]
"""The choice of records, the keys and the aggregates of a step -> digest."""

Meaning = dict[str, Parts]
"""By what feeds the step: the name of a source, or of another step with state."""


class _Branch(msgspec.Struct, frozen=True):
    """One way that records go: where it begins, digests of its columns and of the conditions that they have passed."""

    origin: str
    columns: Mapping[str, str]
    conditions: frozenset[str] = frozenset()


_Branches = tuple[_Branch, ...]


def derive_meanings(plan: Plan) -> dict[OperatorName, Meaning]:
    """Of every step with state."""
    found: dict[OperatorName, Meaning] = {}
    arriving: defaultdict[VertexId, list[_Branch]] = defaultdict(list)
    for vertex in plan.vertices:  # topological, so that what an edge brings is known here
        for index, branches in _outputs(vertex, tuple(arriving[vertex.id]), found):
            for edge in vertex.nodes[index].edges:
                arriving[plan.edges[edge].downstream] += branches
    return found


def find_changes(old: Meaning, new: Meaning) -> list[str]:
    """In what the meaning of a state has changed; a source that newly feeds it, by whatever way, is no change."""
    changes: list[str] = []
    for origin, parts in old.items():
        if origin not in new:
            changes.append(f"it gets no records of {origin} any more")
            continue
        now = new[origin]
        names = [*parts, *(name for name in now if name not in parts)]
        changes += [f"{name} of {origin}" for name in names if _differ(parts.get(name, ""), now.get(name, ""))]
    return changes


def _differ(one: str, other: str) -> bool:
    versions = {digest.partition(":")[0] for digest in (one, other) if digest}
    return one != other and versions == {str(VERSION)}


def _outputs(
    vertex: Vertex, arriving: _Branches, found: dict[OperatorName, Meaning]
) -> Iterator[tuple[int, _Branches]]:
    """What leaves each node of a vertex; meanings of its steps with state are put into `found`."""
    incoming: dict[int, _Branches] = {0: arriving}
    for index, node in enumerate(vertex.nodes):  # children come after their parent
        branches = _through(node.operator, incoming[index])
        if isinstance(node.operator, AggregateOperator):
            found[node.operator.name] = _meaning(node.operator, incoming[index])
        incoming.update(dict.fromkeys(node.children, branches))
        yield index, branches


def _through(operator: Operator, branches: _Branches) -> _Branches:
    match operator:
        case SourceOperator(name=name, schema=schema):
            return (_Branch(name, {column: _digest("column", name, column) for column, _ in schema}),)
        case FilterOperator(predicate=predicate):
            return tuple(
                msgspec.structs.replace(
                    branch,
                    conditions=branch.conditions | {_digest_of(one, branch.columns) for one in _conjuncts(predicate)},
                )
                for branch in branches
            )
        case SelectOperator(columns=columns):
            return tuple(
                msgspec.structs.replace(
                    branch, columns={name: _digest_of(expression, branch.columns) for name, expression in columns}
                )
                for branch in branches
            )
        case AggregateOperator(name=name, output=output, emit=emit):
            return (_Branch(name, {column: _digest("total", name, emit, column) for column, _ in output}),)
    return branches


def _meaning(operator: AggregateOperator, branches: _Branches) -> Meaning:
    by_origin: defaultdict[str, defaultdict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for branch in branches:
        parts = by_origin[branch.origin]
        conditions = _digest("conditions", *sorted(branch.conditions))
        parts["the choice of records"].append(conditions)
        several = sum(other.origin == branch.origin for other in branches) > 1
        ways = (conditions,) if several else ()  # which of several ways a value goes is part of what it means
        for key in operator.keys:
            parts[f"key `{key}`"].append(_digest("key", branch.columns[key], *ways))
        for name, call in operator.aggregates:
            parts[f"`{name}`"].append(_digest("aggregate", *_call(call, branch.columns), *ways))
    return {
        origin: {name: f"{VERSION}:{_digest(*sorted(digests))}" for name, digests in parts.items()}
        for origin, parts in by_origin.items()
    }


def _call(call: AggregateCall, columns: Mapping[str, str]) -> tuple[str, str]:
    return call.function, "*" if call.argument is None else _digest_of(call.argument, columns)


def _conjuncts(predicate: Expression) -> Iterator[Expression]:
    if isinstance(predicate, Call) and predicate.function == "and":
        for argument in predicate.arguments:
            yield from _conjuncts(argument)
    else:
        yield predicate


def _digest_of(expression: Expression, columns: Mapping[str, str]) -> str:
    match expression:
        case Literal(value=value, type=kind):
            return _digest("literal", "integer" if kind.kind in _INTEGERS else kind.kind, repr(value))
        case Column(name=name):
            return columns[name]
        case Field(base=base, name=name):
            return _digest("field", _digest_of(base, columns), name)
        case Cast(operand=operand, type=kind, attempt=attempt):
            inner = _digest_of(operand, columns)
            before, after = operand.type.kind, kind.kind
            if before in _INTEGERS and after in _INTEGERS and _INTEGERS.index(before) <= _INTEGERS.index(after):
                return inner
            return _digest("try_cast" if attempt else "cast", inner, str(kind))
        case Call(function=function, arguments=arguments):
            return _digest("call", function, *(_digest_of(argument, columns) for argument in arguments))
    raise TypeError(f"{type(expression).__name__} is no expression")


def _digest(*parts: str) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).digest()[:_DIGEST_BYTES].hex()
