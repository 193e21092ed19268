"""Which of the two readers of Avro a test is about."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.formats.memory_batches import Loaded
from tidegate.formats import schema_decoder

READERS: Final = ("C", "fastavro")


@contextmanager
def reading_by(reader: str) -> Iterator[None]:
    """Schemas that are met meanwhile are read by C, where it can, or by fastavro alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema_decoder, "loaded", Loaded if reader == "C" else lambda: None)
        yield
