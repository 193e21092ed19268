"""How many rows a vertex takes at a time: so few that everything it makes of them has room. Pure.

By the bounds of `expressions/bounds.py` all that a vertex makes of a batch fits in `BATCH_BYTES_MAX`; a single row is
always taken.
"""

from __future__ import annotations

import msgspec

from tidegate.datatypes import DataType
from tidegate.expressions.bounds import BATCH_BYTES_MAX, Bound, Bounds, derive_identities
from tidegate.plan.graph import Plan, Vertex


class BatchLimits(msgspec.Struct, frozen=True):
    """What a vertex takes at a time; one row in any case."""

    rows: int
    size_bytes: int


def derive_batch_limits(plan: Plan, vertex: Vertex) -> BatchLimits:
    """From all that the vertex makes of a row: the columns of every operator and what is needed to compute them.

    Where it has several inputs, the one of which most is made counts.
    """
    head, ports = vertex.nodes[0].operator, dict[int, dict[str, DataType]]()
    for edge in plan.inputs_of(vertex.id):
        ports.setdefault(edge.port, {}).update(edge.columns)
    arriving = ports or {0: dict(head.pruned_columns())}
    found = [_limits(vertex, port, derive_identities(columns.items())) for port, columns in arriving.items()]
    return BatchLimits(min(one.rows for one in found), min(one.size_bytes for one in found))


def _limits(vertex: Vertex, port: int, arriving: Bounds) -> BatchLimits:
    """Of a batch on one port of the head."""
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
