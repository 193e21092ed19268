"""Every planted protocol bug is caught near a seed that is known to catch it; `make canaries` takes fresh ones."""

from __future__ import annotations

import pytest

from tests.simulation.canaries import CANARIES, NEAR, OPEN, hunt, known_seeds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_every_canary_has_a_known_seed_or_is_said_to_be_open() -> None:
    assert known_seeds().keys() == CANARIES.keys() - OPEN


@pytest.mark.parametrize("name", sorted(CANARIES.keys() - OPEN))
def test_a_planted_bug_is_caught(name: str) -> None:
    found = hunt(name, known_seeds()[name], NEAR)
    assert found, f"{name} is not caught near its known seed any more: make canaries ARGS='--learn {name}'"
    print(f"caught at seed {found[0].seed}: {found[0].problem}")
