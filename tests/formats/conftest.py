"""Fixtures of several formats."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.formats.avro.readers import READERS, reading_by


@pytest.fixture(params=READERS)
def reader_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """The test is played with each."""
    with reading_by(request.param):
        yield request.param
