"""The elements of a channel. Control elements keep their place between batches (F05).

Barriers and cancellation markers are about checkpoints (`task/barriers`), watermarks and statuses about event time
(`task/valve.py`). A source that has nothing more to send ends by its final barrier, after the end of event time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tidegate.ids import CheckpointId

if TYPE_CHECKING:
    import polars as pl

BYTES_MAX: Final = 1 << 62
"""More than any batch has: no limit."""


class Batch:
    """Rows that travel together: user columns plus system columns, in order. Never changed after it was made."""

    __slots__ = ("frame", "size_bytes")

    def __init__(self, frame: pl.DataFrame, size_bytes: int) -> None:
        self.frame = frame
        self.size_bytes = size_bytes

    def split(self, rows: int) -> tuple[Batch, Batch]:
        """The first `rows` (at least one, not all) and the others, with their shares of the size."""
        share = self.size_bytes * rows // self.frame.height
        return Batch(self.frame.head(rows), share), Batch(self.frame.slice(rows), self.size_bytes - share)

    def rows_within(self, rows_max: int, bytes_max: int) -> int:
        """How many rows from the first on are within both bounds, of rows and of bytes; at least one."""
        rows = max(1, min(rows_max, self.frame.height))
        if self.size_bytes <= bytes_max:
            return rows
        from tidegate.formats.sizes import count_rows_within

        return min(rows, count_rows_within(self.frame, bytes_max))

    def __repr__(self) -> str:
        return f"Batch({self.frame.height} rows, {self.size_bytes} bytes)"


class Barrier(msgspec.Struct, frozen=True, tag="barrier"):
    """Separates the records of checkpoint `checkpoint` from those of the next (F06, C34)."""

    checkpoint: CheckpointId
    timestamp_ms: int
    """Driver's clock at the trigger, ms since 1970."""
    final: bool = False
    """Sources stop after this barrier: the daemon was asked to end, or every bounded source has ended."""
    unaligned_after_ms: int | None = None
    """None: aligned, it never overtakes rows. 0: unaligned, it overtakes every row that waits. More: it waits its turn
    so long at each place, then it overtakes (B48)."""
    savepoint: bool = False
    """Its snapshots build on no older ones, and no later ones on them."""

    @property
    def is_unaligned(self) -> bool:
        """Whether it overtakes rows at once."""
        return self.unaligned_after_ms == 0

    def as_unaligned(self) -> Barrier:
        """The same barrier, from now on overtaking."""
        return msgspec.structs.replace(self, unaligned_after_ms=0)


class CancelMarker(msgspec.Struct, frozen=True, tag="cancel"):
    """Checkpoint `checkpoint` was given up upstream: whoever aligns for it stops waiting (B09)."""

    checkpoint: CheckpointId


class Watermark(msgspec.Struct, frozen=True, tag="watermark"):
    """No row with an event time up to `time_ms`, ms since 1970, follows that is not late.

    END_OF_TIME (operators/runtime.py): no row follows at all (W01).
    """

    time_ms: int


class StreamStatus(msgspec.Struct, frozen=True, tag="status"):
    """Idle: for a while neither rows nor watermarks follow, so nobody waits for this channel. Channels begin active."""

    idle: bool


class StillIdle(msgspec.Struct, frozen=True, tag="still-idle"):
    """The answer of an idle subtask to a question of the receiver: since it was asked nothing has come (ADR 52)."""

    question: int = 0
    """Of this channel; later ones have higher numbers."""


CheckpointControl = Barrier | CancelMarker
TimeControl = Watermark | StreamStatus
TimeElement = TimeControl | StillIdle
Control = CheckpointControl | TimeElement
Element = Batch | Control
