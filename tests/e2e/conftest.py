"""Rigs on the session's broker, or on one of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.conftest import SessionBroker
from tests.support.rig import Rig


class RigMaker(Protocol):
    """`make_rig()` uses the session's broker, `make_rig(broker=own_broker())` another."""

    def __call__(self, *, broker: Any = None, seed: int = 1, rate: float = 500.0, **overrides: Any) -> Rig: ...


@pytest.fixture
def make_rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[RigMaker]:
    """All rigs of the test are closed at its end."""
    with ExitStack() as stack:
        made: list[Rig] = []

        def make(*, broker: Any = None, seed: int = 1, rate: float = 500.0, **overrides: Any) -> Rig:
            chosen = broker
            if chosen is None:
                session: SessionBroker = request.getfixturevalue("broker")
                chosen = session
            rig = Rig(chosen, tmp_path / f"rig-{len(made)}", seed=seed, rate=rate, **overrides)
            made.append(rig)
            return stack.enter_context(rig)

        yield make
