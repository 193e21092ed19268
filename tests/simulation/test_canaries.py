"""Every planted protocol bug is found by the simulation within its budget of seeds."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.canaries import BUDGET, CANARIES, hunt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("plant", CANARIES, ids=[plant.__name__ for plant in CANARIES])
def test_a_planted_bug_is_found(plant: Callable[[pytest.MonkeyPatch], None]) -> None:
    found = hunt(plant)
    assert found is not None, f"{plant.__name__} was not caught in {BUDGET} seeds"
    print(f"caught at seed {found.seed}: {found.problem}")
