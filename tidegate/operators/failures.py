"""A record that an operator could not evaluate: where it stood in the batch and why."""

from __future__ import annotations

import msgspec


class RecordFailure(msgspec.Struct, frozen=True):
    """`row` is the index in the input frame; `reason` is Spark's error class and the expression."""

    row: int
    reason: str
