"""Frames as Arrow IPC: what is written, and that nobody waits for whoever writes."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from tests.waiting import PATIENCE_S
from tidegate.formats.arrow import decode_frame, encode_frame

LOOKED_AT_MEANWHILE = """
import io
import polars as pl
from tidegate.formats import arrow

frame = pl.DataFrame({"id": [1, 2], "name": ["a", None]})

class Target(io.BytesIO):
    def write(self, data):
        assert frame.columns == ["id", "name"]  # as another thread does that shares the frame
        return super().write(data)

arrow.BytesIO = Target
assert arrow.decode_frame(arrow.encode_frame(frame)).equals(frame)
"""


def test_a_frame_is_the_same_afterwards() -> None:
    frame = pl.DataFrame({"id": [1, 2], "name": ["a", None]})
    assert decode_frame(memoryview(encode_frame(frame))).equals(frame)


@pytest.mark.slow
def test_a_frame_can_be_looked_at_while_it_is_written() -> None:
    """Polars locks a frame that it writes, and asks for the interpreter's lock meanwhile. A slot whose loop looked at
    the frame then, with that lock, hung for ever: in a process of its own, since not even a timeout ends that.
    """
    command = [sys.executable, "-c", LOOKED_AT_MEANWHILE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
