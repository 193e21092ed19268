"""How long a stop may take, by what was measured."""

from __future__ import annotations

import pytest

from tidegate.task.stop_limits import CLOSE_S, CLOSE_S_MAX, derive_close_limit_s, derive_return_limit_s


@pytest.mark.parametrize(
    ("measured_s", "close_s", "return_s"),
    [(0.0, 5.0, 6.0), (0.06, 5.0, 6.0), (2.5, 5.0, 6.0), (6.3, 12.6, 13.6), (10.0, 20.0, 21.0), (90.0, 20.0, 21.0)],
)
def test_limits_follow_a_slow_link_and_are_bounded(measured_s: float, close_s: float, return_s: float) -> None:
    assert derive_close_limit_s(measured_s) == pytest.approx(close_s)
    assert derive_return_limit_s(measured_s) == pytest.approx(return_s)
    assert CLOSE_S <= close_s <= CLOSE_S_MAX < derive_return_limit_s(90.0)
