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
from tidegate.expressions.expression import columns_of
from tidegate.expressions.secrets import find_encrypted, find_secrets
from tidegate.plan.graph import Plan


def derive_masked_columns(plan: Plan, redact: Iterable[str]) -> frozenset[str]:
    """Returns the columns of `redact`, those that expressions with `secret()` make, and what is computed from them."""
    found = set(redact)
    for node in plan.nodes:  # in topological order, so that what is computed from a column comes after it
        for expression in node.operator.computes().values():
            found.update(*map(columns_of, find_encrypted(expression)))
        for name, expression in node.operator.computes().items():
            if any(find_secrets(expression)):
                found.add(name)
        found.update(name for name, inputs in node.operator.made_from().items() if inputs & found)
    return frozenset(found)


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
