"""How many rows a vertex takes at a time: so few that everything it makes of them has room. Pure.

By the bounds of `expressions/bounds.py` all that a vertex makes of a batch fits in `BATCH_BYTES_MAX`; a single row is
always taken.
"""

from __future__ import annotations

import msgspec

from tidegate.expressions.bounds import BATCH_BYTES_MAX, Bound, Bounds
from tidegate.plan.graph import Vertex


class BatchLimits(msgspec.Struct, frozen=True):
    """What a vertex takes at a time; one row in any case."""

    rows: int
    size_bytes: int


def derive_batch_limits(vertex: Vertex) -> BatchLimits:
    """From all that the vertex makes of a row: the columns of every operator and what is needed to compute them."""
    total = Bound()
    incoming: dict[int, Bounds] = {0: vertex.nodes[0].operator.arrives()}
    for index, node in enumerate(vertex.nodes):  # children come after their parent
        outgoing, made = node.operator.makes(incoming[index])
        total += made
        for child in node.all_children:
            incoming[child] = outgoing
    factor = max(total.factors.values(), default=0.0)
    return BatchLimits(
        rows=max(1, int(BATCH_BYTES_MAX / max(1.0, total.constant))),
        size_bytes=max(1, int(BATCH_BYTES_MAX / max(1.0, factor))),
    )
