"""Every planted protocol bug is found by plain seeds of the simulation within its budget."""

from __future__ import annotations

import pytest

from tests.simulation.canaries import BUDGET, CANARIES, hunt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_bug_is_found(name: str) -> None:
    found = hunt(CANARIES[name])
    assert found is not None, f"{name} was not caught in {BUDGET} seeds"
    print(f"caught at seed {found.seed}: {found.problem}")
