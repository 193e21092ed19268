"""The elements of a channel. Control elements keep their position between batches (F05).

Barriers and cancellation markers concern checkpoints (`task/barriers`); watermarks and statuses concern event time
(`task/valve.py`). A source with nothing more to send ends with its final barrier, after the end of event time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.ids import CheckpointId

if TYPE_CHECKING:
    import polars as pl

BYTES_MAX: Final = 1 << 62
"""Larger than any batch: no limit."""


class Batch:
    """Rows that travel together: user columns plus system columns, in order. Immutable."""

    __slots__ = ("frame", "size_bytes")

    def __init__(self, frame: pl.DataFrame, size_bytes: int) -> None:
        self.frame = frame
        self.size_bytes = size_bytes

    def split(self, rows: int) -> tuple[Batch, Batch]:
        """Splits into the first `rows` rows (at least one, not all) and the rest, each with its share of the size."""
        share = self.size_bytes * rows // self.frame.height
        return Batch(self.frame.head(rows), share), Batch(self.frame.slice(rows), self.size_bytes - share)

    def rows_within(self, rows_max: int, bytes_max: int) -> int:
        """Returns how many leading rows fit within both limits, rows and bytes; at least one."""
        rows = max(1, min(rows_max, self.frame.height))
        if self.size_bytes <= bytes_max:
            return rows
        from tidegate.formats.sizes import count_rows_within

        return min(rows, count_rows_within(self.frame, bytes_max))

    def __repr__(self) -> str:
        return f"Batch({self.frame.height} rows, {self.size_bytes} bytes)"


class Barrier(msgspec.Struct, frozen=True, tag="barrier"):
    """The separator between the records of checkpoint `checkpoint` and those of the next (F06, C34)."""

    checkpoint: CheckpointId
    timestamp_ms: int
    """Driver's clock at the trigger, ms since 1970."""
    final: bool = False
    """Sources stop after this barrier: the daemon was asked to end, or every bounded source has ended."""
    unaligned_after_ms: int | None = None
    """When it overtakes (B48). None: never (aligned). 0: at once, past every queued row (unaligned). Otherwise: after
    waiting this long at each channel.
    """
    savepoint: bool = False
    """The snapshots of a savepoint build on no older ones, and no later ones build on them."""

    @property
    def is_unaligned(self) -> bool:
        """Whether it overtakes rows at once."""
        return self.unaligned_after_ms == 0

    def as_unaligned(self) -> Barrier:
        """Returns the same barrier, unaligned."""
        return msgspec.structs.replace(self, unaligned_after_ms=0)


class CancelMarker(msgspec.Struct, frozen=True, tag="cancel"):
    """The marker of a checkpoint that was aborted upstream: a subtask that aligns for it stops waiting (B09)."""

    checkpoint: CheckpointId


class Watermark(msgspec.Struct, frozen=True, tag="watermark"):
    """A promise that no row up to `time_ms`, ms since 1970, follows that is not late.

    END_OF_TIME (`operators/runtime.py`) promises that no row follows at all (W01).
    """

    time_ms: int


class StreamStatus(msgspec.Struct, frozen=True, tag="status"):
    """The status of a channel, active or idle. An idle channel delivers neither rows nor watermarks, and is not waited
    for.

    Channels begin active.
    """

    idle: bool


class StillIdle(msgspec.Struct, frozen=True, tag="still-idle"):
    """An idle subtask's answer to a question of the receiver: nothing has arrived since it was asked (ADR 52)."""

    question: int = 0
    """Number of the question on this channel; later questions have higher numbers."""


class CatchUpMarker(msgspec.Struct, frozen=True, tag="catch-up"):
    """The marker that follows everything that the sources of this channel held when the attempt started (ADR 73).

    It is sent at most once, and only in a plan with gates.
    """


CheckpointControl = Barrier | CancelMarker
TimeControl = Watermark | StreamStatus
TimeElement = TimeControl | StillIdle
Control = CheckpointControl | TimeElement | CatchUpMarker
Element = Batch | Control
