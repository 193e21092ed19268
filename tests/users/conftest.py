"""A user at the session's broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SessionBroker
from tests.users.user import User


@pytest.fixture
def user(broker: SessionBroker, tmp_path: Path) -> Iterator[User]:
    """Everything that was started is ended."""
    with User(broker.bootstrap, tmp_path) as made:
        yield made
