"""Finds the aggregate functions: those that the modules of this package list in `FUNCTIONS`."""

from __future__ import annotations

import functools

from tidegate.expressions.expression import AggregateCall, ColumnReference
from tidegate.modules import import_modules
from tidegate.operators import aggregates
from tidegate.operators.aggregates.contract import Aggregate, AggregateUse, Functions


@functools.cache
def find_functions() -> Functions:
    """Returns all functions, by name and by use."""
    modules = import_modules(aggregates).values()
    return {name: uses for module in modules for name, uses in getattr(module, "FUNCTIONS", {}).items()}


def functions_for(use: AggregateUse) -> frozenset[str]:
    """Returns the functions that support a use."""
    return frozenset(name for name, uses in find_functions().items() if use in uses)


def make_aggregate(name: str, call: AggregateCall, use: AggregateUse) -> Aggregate:
    """Creates the aggregate of a call over plain columns. `name` is that of its result."""
    if call.argument is not None and not isinstance(call.argument, ColumnReference):
        raise TypeError(f"{call.argument} is not a plain column")
    return find_functions()[call.function][use](name, call, use)


find_functions()  # families register signatures of their own on import, before anything is parsed
