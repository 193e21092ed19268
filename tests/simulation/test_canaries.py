"""Every planted protocol bug is caught near a seed that is known to catch it; `make canaries` takes fresh ones."""

from __future__ import annotations

import pytest

from tests.simulation.canaries import CANARIES, NEAR, hunt, known_seeds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_bug_is_caught(name: str) -> None:
    found = hunt(name, known_seeds()[name], NEAR)
    assert found, f"{name} is not caught near its known seed any more: make canaries ARGS='--learn {name}'"
    print(f"caught at seed {found[0].seed}: {found[0].problem}")
