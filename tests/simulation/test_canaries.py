"""Every planted protocol bug is found by the simulation within its budget of seeds."""

from __future__ import annotations

import pytest

from tests.simulation.canaries import BUDGET, CANARIES, Canary, hunt

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("canary", CANARIES, ids=[canary.name for canary in CANARIES])
def test_a_planted_bug_is_found(canary: Canary) -> None:
    found = hunt(canary)
    assert found is not None, f"{canary.name} was not caught in {BUDGET} seeds"
    print(f"caught at seed {found.seed}: {found.problem}")
