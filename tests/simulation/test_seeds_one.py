"""Half of the simulated schedules of every test run; the other half is in a file of its own, for another worker."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import PER_TEST, TESTS, check_seeds

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize("first", range(1, 1 + TESTS * PER_TEST, PER_TEST))
def test_schedules_with_faults_keep_the_promise(first: int) -> None:
    check_seeds(first)
