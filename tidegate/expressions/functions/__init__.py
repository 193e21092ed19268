"""The registry of the expression language: the typing rule of every function and operator by name."""

from __future__ import annotations

from tidegate.expressions.functions import (  # noqa: F401  # they register their functions
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
from tidegate.expressions.functions.core import ALIASES, FUNCTIONS, Argument, Function, Site

REGISTRY: dict[str, Function] = FUNCTIONS | {alias: FUNCTIONS[name] for alias, name in ALIASES.items()}
"""By name and alias, in lower case."""

__all__ = ["REGISTRY", "Argument", "Function", "Site"]
