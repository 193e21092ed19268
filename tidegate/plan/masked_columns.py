"""Columns that rows are never shown with: those of `http.redact`, and those made with `secret()`. Pure.

They are known by name alone, in all rows of the pipeline: a column that has another name upstream is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from tidegate.config.errors import Problem
from tidegate.config.fields.suggest import derive_suggestion
from tidegate.config.load import LoadedPipeline
from tidegate.datatypes import DataType, parts_of
from tidegate.expressions.expression import Call, Cast, Expression, FieldAccess, Lambda, Literal, columns_of
from tidegate.expressions.secrets import find_encrypted, find_secrets
from tidegate.plan.graph import Plan


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
