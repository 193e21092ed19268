"""Finds the aggregate functions: those that the modules of this package list in `FUNCTIONS`."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Final

from tidegate.expressions.aggregates import AGGREGATES
from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.modules import import_modules
from tidegate.operators import aggregates
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse, Functions, Make

_NEEDED: Final = (
    ("add", frozenset(AggregateUse), ""),
    ("result", frozenset(AggregateUse), ""),
    ("merge", frozenset({AggregateUse.WINDOW}), ", which windows need"),
    ("retract", frozenset({AggregateUse.CHANGES}), ", which changes need"),
)
"""Methods of `Aggregate` without a default, and the uses that call them."""


@functools.cache
def find_functions() -> Functions:
    """Returns all functions, by name and by use. Raises TypeError for one that could not be called or computed."""
    modules = import_modules(aggregates).values()  # families declare functions of their own on import
    declared = {function.name.replace(" ", "_") for function in AGGREGATES.values()}
    found: dict[str, Mapping[AggregateUse, Make]] = {}
    for module in modules:
        for name, uses in getattr(module, "FUNCTIONS", {}).items():
            mistakes = [*_find_mistakes(uses)]
            if name in found:
                mistakes.append("is in another family")
            if name not in declared:
                mistakes.append("is of no AggregateFunction: declare it with `declare_aggregate`")
            if mistakes:
                raise TypeError(f"{module.__name__}: `{name}` {'; '.join(mistakes)}")
            found[name] = uses
    for name in sorted(declared - found.keys()):
        raise TypeError(f"the aggregate `{name}` is in no `FUNCTIONS` of tidegate/operators/aggregates")
    return found


def _find_mistakes(uses: Mapping[AggregateUse, Make]) -> Iterator[str]:
    classes = {use: make for use, make in uses.items() if isinstance(make, type)}
    for method, needed_by, why in _NEEDED:
        for one in {make for use, make in classes.items() if use in needed_by}:
            if getattr(one, method) is getattr(Aggregate, method):
                yield f"has no `{method}`{why}: {one.__name__} inherits that of Aggregate"


def functions_for(use: AggregateUse) -> frozenset[str]:
    """Returns the functions that support a use."""
    return frozenset(name for name, uses in find_functions().items() if use in uses)


def make_aggregate(name: str, call: AggregateCall, use: AggregateUse) -> Aggregate:
    """Creates the aggregate of a call over plain columns. `name` is that of its result."""
    if call.argument is not None and not isinstance(call.argument, ColumnReference):
        raise TypeError(f"{call.argument} is not a plain column")
    return find_functions()[call.function][use](name, call, use)


find_functions()  # before anything is parsed
