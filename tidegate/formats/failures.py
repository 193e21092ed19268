"""Values that could not be decoded, rows that could not be encoded: which row of the batch, and why."""

from __future__ import annotations

import msgspec


class DecodeFailure(msgspec.Struct, frozen=True):
    """`row` counts the values given to the decoder, the failing ones included."""

    row: int
    reason: str


class EncodeFailure(msgspec.Struct, frozen=True):
    """`row` is the index in the frame given to the encoder; `reason` begins with a word from a small set."""

    row: int
    reason: str
