"""Durations and sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.config.fields.units import (
    MAX_DURATION_MS,
    derive_duration_ms,
    derive_size_bytes,
    render_duration,
    render_size,
)


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


@pytest.mark.parametrize(("text", "size_bytes"), [("0B", 0), ("7B", 7), ("3KiB", 3072), ("64MiB", 1 << 26)])
def test_size(text: str, size_bytes: int) -> None:
    assert derive_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "10", "MiB", "-1B", "1.5GiB", "10 MiB", "1GiB1MiB", "10MB", "10m", "\u0661B"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        derive_size_bytes(text)


@given(st.integers(0, 10**12 - 1))
def test_a_rendered_size_reads_as_itself(size_bytes: int) -> None:
    assert derive_size_bytes(render_size(size_bytes)) == size_bytes
