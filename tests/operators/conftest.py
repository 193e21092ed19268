"""Steps are closed after their test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.operators.window.feeding import close_all


@pytest.fixture(autouse=True)
def _closed_steps() -> Iterator[None]:
    yield
    close_all()
