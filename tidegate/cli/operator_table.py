"""What `tidegate status` shows below the state: a line for every operator, and what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.table import Table

from tidegate.daemon.event_time import render_moment
from tidegate.daemon.status import Diagnosis, DiagnosisSeverity, OperatorStatus
from tidegate.operators.early_event_times import describe_early

NUMBERS: Final = ("in", "out", "filtered", "failed", "in/s", "busy")
BUSY: Final = 0.005
"""Up to this ratio the table shows `0%`."""
NOTHING_WRONG: Final = "nothing is wrong"
STYLES: Final = {DiagnosisSeverity.PROBLEM: "bold red", DiagnosisSeverity.NOTICE: "yellow"}
EVENT_TIME: Final = ("late", "watermark", "lag")


def render_operators(operators: Sequence[OperatorStatus]) -> Table:
    """Renders one line per operator in the order of the plan; `busy` is the share of its slots' time in the last few
    seconds.

    The event-time columns appear if any operator has a watermark.
    """
    timed = any(one.watermark_ms is not None for one in operators)
    headings = (*NUMBERS, *EVENT_TIME) if timed else NUMBERS
    grid = Table.grid(padding=(0, 2))
    for _ in ("operator", "kind"):
        grid.add_column(no_wrap=True)
    for _ in headings:
        grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True)
    grid.add_row("operator", "kind", *headings, style="dim")
    busiest = find_busiest(operators)
    for one in operators:
        grid.add_row(
            one.name,
            one.kind,
            *(f"{number:,}" for number in (one.rows_in, one.rows_out, one.filtered, one.failed)),
            f"{one.rows_in_per_second:,.0f}",
            f"{one.busy_ratio:.0%}",
            *(_event_time(one) if timed else ()),
            "busiest" if one is busiest else "",
            style="bold" if one is busiest else "",
        )
    return grid


def render_diagnoses(diagnoses: Sequence[Diagnosis]) -> Iterator[tuple[str, str]]:
    """Yields lines with their styles: for each diagnosis its sentence and its remedy, or that nothing is wrong."""
    if not diagnoses:
        yield NOTHING_WRONG, "green"
    for one in diagnoses:
        yield f"{one.severity} {one.code}: {one.sentence}", STYLES[one.severity]
        yield f"    {one.remedy}", ""


def find_waiting(operators: Sequence[OperatorStatus]) -> Iterator[str]:
    """Yields a line for every operator that keeps rows until another input has rows for them."""
    for one in operators:
        if one.waiting:
            yield f"{one.name}: {one.waiting}"


def find_early(operators: Sequence[OperatorStatus]) -> Iterator[str]:
    """Yields a line for every source that has event times before 1971."""
    for one in operators:
        if one.before_1971:
            yield describe_early(one.name, one.before_1971, one.before_1971_remedy)


def find_busiest(operators: Sequence[OperatorStatus]) -> OperatorStatus | None:
    """Returns the operator that takes the most of its slots' time, or None while all are idle."""
    busiest = max(operators, key=lambda one: one.busy_ratio, default=None)
    return busiest if busiest is not None and busiest.busy_ratio > BUSY else None


def _event_time(one: OperatorStatus) -> tuple[str, str, str]:
    if one.watermark_ms is None or one.event_time_lag_seconds is None:
        return f"{one.late:,}", "", ""
    lag = "idle" if one.idle else f"{one.event_time_lag_seconds:,.1f} s"
    return f"{one.late:,}", render_moment(one.watermark_ms), lag
