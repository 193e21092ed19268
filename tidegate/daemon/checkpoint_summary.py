"""A completed checkpoint in numbers: what it commits, and its log line. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidegate.committable import Committable
from tidegate.config.fields.counts import render_count, render_seconds, render_size
from tidegate.coordinator.types import CompletedCheckpoint

PHASES: Final = ("total", "start_delay", "alignment", "snapshot", "upload", "prepare", "journal", "commit")
"""Values of the label `phase`; all but `total` are optional in `checkpoint_completed`."""


def derive_duration_s(checkpoint: CompletedCheckpoint, phases: Mapping[str, float]) -> float:
    """Returns the seconds from the trigger to the end of the commit; the checkpoint itself ends with its last ack."""
    acknowledged_s = (checkpoint.completed_at_ms - checkpoint.triggered_at_ms) / 1000
    return acknowledged_s + phases.get("journal", 0.0) + phases.get("commit", 0.0)


def derive_state_bytes(checkpoint: CompletedCheckpoint) -> dict[str, int]:
    """Returns the size of the state per operator, without rows in flight."""
    found: dict[str, int] = {}
    for handle in checkpoint.states:
        if not handle.in_flight:
            found[handle.operator] = found.get(handle.operator, 0) + handle.size_bytes
    return found


def checkpoint_line(checkpoint: CompletedCheckpoint, phases: Mapping[str, float]) -> str:
    """Renders the log line of a completed checkpoint: id, duration, phases (seconds), size, what it commits."""
    duration = derive_duration_s(checkpoint, phases)
    parts = ", ".join(f"{name.replace('_', ' ')} {render_seconds(seconds)}" for name, seconds in phases.items())
    own = [each for each in checkpoint.committables if each.checkpoint == checkpoint.id]
    carried = [each for each in checkpoint.committables if each.checkpoint != checkpoint.id]
    return (
        f"checkpoint {checkpoint.id} completed in {render_seconds(duration)}{f' ({parts})' if parts else ''}: "
        f"state {render_size(checkpoint.size_bytes)}{_inflight(checkpoint)}, commits {_content(own)}"
        f"{f' and {_content(carried)} carried over' if carried else ''}{', final' if checkpoint.final else ''}"
    )


def _inflight(checkpoint: CompletedCheckpoint) -> str:
    size_bytes = checkpoint.inflight_bytes
    return f" ({render_size(size_bytes)} of it rows in flight)" if size_bytes else ""


def _content(committables: Sequence[Committable]) -> str:
    records = sum(each.records for each in committables)
    return f"{render_count(records, 'record')} in {render_count(len(committables), 'transaction')}"
