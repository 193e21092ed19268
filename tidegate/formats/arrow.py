"""Frames as Arrow IPC, between slots and in checkpoints.

Polars holds the lock of a frame while it writes it, and needs the interpreter's lock for what it writes to. A thread
that has the interpreter's lock and looks at the same frame waits for the first, and both wait for ever. So what
is written is a copy that nobody else has; its columns are shared, not copied.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def encode_frame(frame: pl.DataFrame) -> bytes:
    """A stream of Arrow IPC. Other threads may use the frame meanwhile."""
    target = BytesIO()
    frame.clone().write_ipc_stream(target)
    return target.getvalue()


def decode_frame(data: bytes | memoryview) -> pl.DataFrame:
    """Inverse of `encode_frame`. Raises PolarsError or OSError for spoilt bytes."""
    import polars as pl

    return pl.read_ipc_stream(BytesIO(data), use_pyarrow=False)
