"""Values that could not be decoded: which row of the batch, and why."""

from __future__ import annotations

import msgspec


class DecodeFailure(msgspec.Struct, frozen=True):
    """`row` counts the values given to the decoder, the failing ones included."""

    row: int
    reason: str
