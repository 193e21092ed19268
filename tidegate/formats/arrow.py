"""Frames as Arrow IPC, between slots and in checkpoints.

Polars locks a frame while it writes it, and needs the interpreter's lock for the object that it writes to. A thread
that holds the interpreter's lock and accesses the same frame waits for the writing thread, so both deadlock. Therefore
a private copy of the frame is written. The copy shares its columns with the original.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl


def encode_frame(frame: pl.DataFrame) -> bytes:
    """Encodes a frame as a stream of Arrow IPC. Other threads may use the frame meanwhile."""
    target = BytesIO()
    frame.clone().write_ipc_stream(target)
    return target.getvalue()


def decode_frame(data: bytes | memoryview) -> pl.DataFrame:
    """Decodes the output of `encode_frame`. Raises PolarsError or OSError for corrupt bytes."""
    import polars as pl

    return pl.read_ipc_stream(BytesIO(data), use_pyarrow=False)
