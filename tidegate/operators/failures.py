"""A record that an operator could not evaluate: where it stood in the batch and why."""

from __future__ import annotations

import msgspec


class RecordFailure(msgspec.Struct, frozen=True):
    """`row` is the index in the input frame; `reason` starts with Spark's error class: ``DIVIDE_BY_ZERO in `a / b` ``."""

    row: int
    reason: str
