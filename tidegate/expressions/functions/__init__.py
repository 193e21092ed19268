"""The registry of the expression language: every function and operator that an expression may use, by name."""

from __future__ import annotations

from tidegate.expressions.functions.collection import FUNCTIONS as _COLLECTION
from tidegate.expressions.functions.core import Argument, Function, Site
from tidegate.expressions.functions.number import FUNCTIONS as _NUMBER
from tidegate.expressions.functions.operators import FUNCTIONS as _OPERATORS
from tidegate.expressions.functions.text import FUNCTIONS as _TEXT
from tidegate.expressions.functions.time import FUNCTIONS as _TIME

FUNCTIONS: tuple[Function, ...] = (*_OPERATORS, *_TEXT, *_NUMBER, *_TIME, *_COLLECTION)
"""In the order in which the documentation lists them."""

REGISTRY: dict[str, Function] = {
    name: function for function in FUNCTIONS for name in (function.name, *function.aliases)
}
"""By name and alias, lower case."""

__all__ = ["FUNCTIONS", "REGISTRY", "Argument", "Function", "Site"]
