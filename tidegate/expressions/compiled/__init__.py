"""The compiler of typed expressions to Polars, with Spark's results in ANSI mode. Imported in workers only."""

from tidegate.expressions.compiled import (  # noqa: F401  # they register their functions
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
from tidegate.expressions.compiled.compiler import Predicate, Projection, compile_predicate, compile_projection

__all__ = ["Predicate", "Projection", "compile_predicate", "compile_projection"]
