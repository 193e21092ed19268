"""The choice of a subtask's barrier handler. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.plan.graph import Edge
from tidegate.task.barriers.aligner import Aligner
from tidegate.task.barriers.alternating import Alternating
from tidegate.task.barriers.handler import BarrierHandler
from tidegate.task.barriers.tracker import Tracker


def choose_handler(*, exactly_once: bool, unaligned: bool, channels: int) -> BarrierHandler:
    """Returns the handler of a subtask with `channels` inputs (B04). Rejects at-least-once with unaligned (B05)."""
    if channels < 1:
        raise ValueError("a barrier handler needs at least one channel")
    if unaligned and not exactly_once:
        raise ValueError("checkpoints.unaligned needs mode: exactly-once")
    if unaligned:
        return Alternating(channels)
    return Aligner(channels) if exactly_once else Tracker(channels)


def may_overtake(edges: Sequence[Edge]) -> bool:
    """Decides whether unaligned barriers may overtake rows in front of the vertex that these edges lead to.

    Rows in flight are stored by key. Rows of a forward edge have none, so they could not be assigned after a restore
    with other partitions or slots. One forward edge is enough to require alignment on all edges.
    """
    return all(edge.keys for edge in edges)
