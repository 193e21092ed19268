"""The compiler of typed expressions to Polars, with Spark's results in ANSI mode. Imported in workers only."""

from tidegate.expressions.compiled import lambdas  # noqa: F401  # registers functions that need frames
from tidegate.expressions.compiled.compiler import Predicate, Projection, compile_predicate, compile_projection

__all__ = ["Predicate", "Projection", "compile_predicate", "compile_projection"]
