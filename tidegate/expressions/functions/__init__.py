"""The registry of the expression language: every function and operator by name."""

from __future__ import annotations

from tidegate.expressions.functions.arrays import FUNCTIONS as _ARRAYS
from tidegate.expressions.functions.codecs import FUNCTIONS as _CODECS
from tidegate.expressions.functions.collection import FUNCTIONS as _COLLECTION
from tidegate.expressions.functions.core import Argument, Function, Site
from tidegate.expressions.functions.encryption import FUNCTIONS as _ENCRYPTION
from tidegate.expressions.functions.intervals import FUNCTIONS as _INTERVALS
from tidegate.expressions.functions.json_functions import FUNCTIONS as _JSON
from tidegate.expressions.functions.lambdas import FUNCTIONS as _LAMBDAS
from tidegate.expressions.functions.maps import FUNCTIONS as _MAPS
from tidegate.expressions.functions.matches import FUNCTIONS as _MATCHES
from tidegate.expressions.functions.number import FUNCTIONS as _NUMBER
from tidegate.expressions.functions.operators import FUNCTIONS as _OPERATORS
from tidegate.expressions.functions.printf import FUNCTIONS as _PRINTF
from tidegate.expressions.functions.text import FUNCTIONS as _TEXT
from tidegate.expressions.functions.time import FUNCTIONS as _TIME
from tidegate.expressions.functions.zones import FUNCTIONS as _ZONES

FUNCTIONS: tuple[Function, ...] = (
    *(*_OPERATORS, *_TEXT, *_MATCHES, *_CODECS, *_PRINTF, *_NUMBER, *_TIME, *_INTERVALS, *_ZONES),
    *(*_COLLECTION, *_ARRAYS, *_MAPS, *_LAMBDAS, *_JSON, *_ENCRYPTION),
)
"""In the order of the documentation."""

REGISTRY: dict[str, Function] = {
    name: function for function in FUNCTIONS for name in (function.name, *function.aliases)
}
"""By name and alias, in lower case."""

__all__ = ["FUNCTIONS", "REGISTRY", "Argument", "Function", "Site"]
