"""Renders lists of states and of their differences as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidegate.cli.output import render_table
from tidegate.clock import describe_stamp

if TYPE_CHECKING:
    from tidegate.tables.diff import StateDiff
    from tidegate.tables.listing import StateInfo, StateListing

_NUMBERS: Final = frozenset({"keys", "bytes", "files", "added", "removed", "changed", "same"})


def render_listing(listing: StateListing) -> str:
    """Renders the output of `tidegate state list`."""
    about = f"pipeline {listing.pipeline}, checkpoint {listing.checkpoint}"
    moment = f"completed {describe_stamp(listing.completed_at_ms)}"
    size = f"parallelism {listing.parallelism}, {listing.max_parallelism} key groups"
    lines = [f"{listing.source}: {about}, {moment}, {size}"]
    if listing.states:
        titles = ("step", "state", "form", "keys", "bytes", "files", "serializer", "columns")
        lines += ["", *render_table(titles, [_cells(state) for state in listing.states], _NUMBERS)]
    else:
        lines.append("no state")
    for one in listing.in_flight:
        lines.append(f"rows in flight on {', '.join(one.edges)}: {one.bytes:,} bytes in {one.files} files")
    return "\n".join(lines)


def _cells(state: StateInfo) -> Sequence[str]:
    keys = f"{state.keys:,}" if state.keys is not None else f"{state.entries:,} and {state.changes:,} changes"
    columns = ", ".join(f"{column.name} {column.type}" for column in state.columns)
    return (
        *(state.step, state.state, state.form, keys, f"{state.bytes:,}", f"{state.files:,}"),
        *(state.serializer, columns),
    )


def render_differences(one: str, other: str, found: Sequence[StateDiff]) -> str:
    """Renders the first part of the output of `tidegate state diff`."""
    titles = ("step", "state", "added", "removed", "changed", "same")
    cells = [
        (each.step, each.state, *(f"{n:,}" for n in (each.added, each.removed, each.changed, each.same)))
        for each in found
        if not each.refused
    ]
    lines = [f"from {one}", f"to {other}"]
    lines += ["", *render_table(titles, cells, _NUMBERS)] if cells else []
    lines += [f"{each.step}.{each.state} cannot be compared: {each.refused}" for each in found if each.refused]
    return "\n".join(lines if found else [*lines, "no state in either"])
