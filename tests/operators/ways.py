"""The two ways in which running totals are computed."""

from __future__ import annotations

from collections.abc import Callable
from unittest import SkipTest

import pytest

from tidegate.native.library import find_library, loaded

WAYS = ("C", "Python")


def choose_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are opened from now on compute in this way. The tests of C are skipped where there is no library."""
    if way == "Python":
        monkeypatch.setattr("tidegate.operators.aggregates.columnar.running.loaded", lambda: None)
    elif loaded() is None:
        raise SkipTest(f"no totals in C here: {find_library()}")


def both_ways() -> Callable[..., None]:
    """A fixture that runs each test of a module in both ways."""

    @pytest.fixture(params=WAYS, autouse=True)
    def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        choose_way(request.param, monkeypatch)

    return way
