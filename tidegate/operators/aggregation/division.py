"""Quotients of whole numbers as doubles. Nothing here imports Polars: totals that the plan declares use it, too."""

from __future__ import annotations

import math


def divide(numerator: int, denominator: int) -> float:
    """The nearest double; an infinity beyond the greatest."""
    try:
        return numerator / denominator
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf
