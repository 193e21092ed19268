"""The table of `tidegate status`: what every operator of the pipeline does, and which one is the busiest. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.table import Table

from tidegate.daemon.status import OperatorStatus

NUMBERS: Final = ("in", "out", "filtered", "failed", "in/s", "busy")


def render_operators(operators: Sequence[OperatorStatus]) -> Table:
    """One line each, in the order of the plan; `busy` is the part of its slots' time over the last few seconds."""
    grid = Table.grid(padding=(0, 2))
    for _ in ("operator", "kind"):
        grid.add_column(no_wrap=True)
    for _ in NUMBERS:
        grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    grid.add_row("operator", "kind", *NUMBERS, style="dim")
    busiest = find_busiest(operators)
    for one in operators:
        grid.add_row(
            one.name,
            one.kind,
            *(f"{number:,}" for number in (one.rows_in, one.rows_out, one.filtered, one.failed)),
            f"{one.rows_in_per_second:,.0f}",
            f"{one.busy_ratio:.0%}",
            "busiest" if one is busiest else "",
            style="bold" if one is busiest else "",
        )
    return grid


def find_busiest(operators: Sequence[OperatorStatus]) -> OperatorStatus | None:
    """The one that takes most of its slots' time; None while all of them rest."""
    busiest = max(operators, key=lambda one: one.busy_ratio, default=None)
    return busiest if busiest is not None and busiest.busy_ratio > 0 else None
