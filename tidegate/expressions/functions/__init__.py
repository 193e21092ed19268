"""The registry of the expression language: every function and operator by name."""

from __future__ import annotations

from tidegate.expressions.functions import (
    codecs,
    collection,
    intervals,
    json_functions,
    lambdas,
    number,
    operators,
    text,
    time,
)
from tidegate.expressions.functions.core import Argument, Function, Site

FUNCTIONS: tuple[Function, ...] = tuple(
    function
    for family in (operators, text, codecs, number, time, intervals, collection, lambdas, json_functions)
    for function in family.FUNCTIONS
)
"""In the order of the documentation."""

REGISTRY: dict[str, Function] = {
    name: function for function in FUNCTIONS for name in (function.name, *function.aliases)
}
"""By name and alias, in lower case."""

__all__ = ["FUNCTIONS", "REGISTRY", "Argument", "Function", "Site"]
