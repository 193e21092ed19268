"""Durations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.settings.units import MAX_DURATION_MS, derive_duration_ms, render_duration


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("10s", 10_000), ("1m30s", 90_000), ("500ms", 500), ("0s", 0), ("1d2h3m4s5ms", 93_784_005), ("2h", 7_200_000)],
)
def test_duration(text: str, milliseconds: int) -> None:
    assert derive_duration_ms(text) == milliseconds


@pytest.mark.parametrize(
    "text", ["", "10", "s", "-1s", "1.5s", "10 s", "1s1m", "1s1s", "10S", "1s ", "\u0661s", "400d", "9" * 13 + "s"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="`"):
        derive_duration_ms(text)


@given(st.integers(0, MAX_DURATION_MS))
def test_a_rendered_duration_reads_as_itself(milliseconds: int) -> None:
    assert derive_duration_ms(render_duration(milliseconds)) == milliseconds
