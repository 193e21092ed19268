"""The registry of the expression language: every function and operator that an expression may use, by name."""

from __future__ import annotations

from tidegate.plan.functions.collection import FUNCTIONS as _COLLECTION
from tidegate.plan.functions.core import Argument, Function, Site
from tidegate.plan.functions.number import FUNCTIONS as _NUMBER
from tidegate.plan.functions.operators import FUNCTIONS as _OPERATORS
from tidegate.plan.functions.text import FUNCTIONS as _TEXT
from tidegate.plan.functions.time import FUNCTIONS as _TIME

FUNCTIONS: tuple[Function, ...] = (*_OPERATORS, *_TEXT, *_NUMBER, *_TIME, *_COLLECTION)
"""In the order in which the documentation lists them."""

REGISTRY: dict[str, Function] = {
    name: function for function in FUNCTIONS for name in (function.name, *function.aliases)
}
"""By name and alias, lower case."""

__all__ = ["FUNCTIONS", "REGISTRY", "Argument", "Function", "Site"]
