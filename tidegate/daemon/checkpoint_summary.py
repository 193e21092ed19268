"""A completed checkpoint in figures: its phases, what it commits, and the one line that the log has of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from tidegate.coordinator.types import Ack, CompletedCheckpoint

PHASES: Final = ("total", "start_delay", "alignment", "snapshot", "upload", "prepare", "journal", "commit")
"""Values of the label `phase`; all but `total` are optional in `checkpoint_completed`."""

MILLISECONDS_BELOW_S: Final = 10.0
KIB: Final = 1024


def derive_phases(acks: Iterable[Ack]) -> dict[str, float]:
    """Seconds per phase of a checkpoint, each that of the slowest subtask; empty without acks."""
    phases: dict[str, float] = {}
    for ack in acks:
        for phase, value_ms in (
            ("start_delay", ack.start_delay_ms),
            ("alignment", ack.alignment_ms),
            ("snapshot", ack.snapshot_ms),
            ("upload", ack.upload_ms),
            ("prepare", ack.prepare_ms),
        ):
            phases[phase] = max(phases.get(phase, 0.0), value_ms / 1000)
    return phases


def derive_committed(checkpoint: CompletedCheckpoint) -> dict[str, int]:
    """Records per sink that this checkpoint is the first to decide: committables it carries were counted before."""
    committed: dict[str, int] = {}
    for committable in checkpoint.committables:
        if committable.checkpoint == checkpoint.id:
            committed[committable.sink] = committed.get(committable.sink, 0) + committable.records
    return committed


def checkpoint_line(checkpoint: CompletedCheckpoint, phases: Mapping[str, float]) -> str:
    """The one line a completed checkpoint writes: id, duration, phases (seconds), size, records committed by it."""
    committed = derive_committed(checkpoint)
    records = sum(committed.values())
    duration = (checkpoint.completed_at_ms - checkpoint.triggered_at_ms) / 1000
    parts = ", ".join(f"{name.replace('_', ' ')} {render_duration(seconds)}" for name, seconds in phases.items())
    carried = sum(1 for each in checkpoint.committables if each.checkpoint != checkpoint.id)
    own = len(checkpoint.committables) - carried
    return (
        f"checkpoint {checkpoint.id} completed in {render_duration(duration)}{f' ({parts})' if parts else ''}: "
        f"state {render_size(checkpoint.size_bytes)}, {records:,} records committed in {own} transactions"
        f"{f', {carried} transactions carried over' if carried else ''}{', final' if checkpoint.final else ''}"
    )


def render_duration(seconds: float) -> str:
    """`seconds` for people: milliseconds below ten seconds."""
    return f"{seconds * 1000:.0f} ms" if seconds < MILLISECONDS_BELOW_S else f"{seconds:.1f} s"


def render_size(size_bytes: int) -> str:
    """`size_bytes` for people, in binary units."""
    value = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < KIB:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= KIB
    return f"{value:.1f} TiB"
