"""Limits on the rows that a vertex takes at a time, so that everything computed from them fits in memory. Pure.

By the bounds of `expressions/bounds.py`, everything that a vertex computes from a batch fits in `BATCH_BYTES_MAX`. A
single row is always accepted.
"""

from __future__ import annotations

import msgspec

from tidegate.datatypes import DataType
from tidegate.expressions.bounds import BATCH_BYTES_MAX, Bound, Bounds, derive_identities
from tidegate.plan.graph import Plan, Vertex


class BatchLimits(msgspec.Struct, frozen=True):
    """The maximum that a vertex takes at a time, but always at least one row."""

    rows: int
    size_bytes: int


def derive_batch_limits(plan: Plan, vertex: Vertex) -> BatchLimits:
    """Derives the limits from the columns of every operator and the memory needed to compute them.

    With several inputs, the one with the largest output determines the limits.
    """
    head, ports = vertex.nodes[0].operator, dict[int, dict[str, DataType]]()
    for edge in plan.inputs_of(vertex.id):
        if edge.retries:
            continue  # its rows have the columns of another edge, or of a node further down
        ports.setdefault(edge.port, {}).update(edge.columns)
    arriving = ports or {0: dict(head.pruned_columns())}
    found = [_limits(vertex, port, derive_identities(columns.items())) for port, columns in arriving.items()]
    return BatchLimits(min(one.rows for one in found), min(one.size_bytes for one in found))


def _limits(vertex: Vertex, port: int, arriving: Bounds) -> BatchLimits:
    """Derives the limits of a batch on one port of the head."""
    total = Bound()
    incoming: dict[int, Bounds] = {0: arriving}
    for index, node in enumerate(vertex.nodes):  # children come after their parent
        outgoing, made = node.operator.output_size(incoming[index], 0 if index else port)
        total += made
        for child in node.all_children:
            incoming[child] = outgoing
    factor = max(total.factors.values(), default=0.0)
    return BatchLimits(
        rows=max(1, int(BATCH_BYTES_MAX / max(1.0, total.constant))),
        size_bytes=max(1, int(BATCH_BYTES_MAX / max(1.0, factor))),
    )
