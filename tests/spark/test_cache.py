"""Where the cache is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.spark.work_directory import cache_directory


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"TIDEGATE_CACHE": "/own", "XDG_CACHE_HOME": "/xdg", "HOME": "/h"}, "/own"),
        ({"XDG_CACHE_HOME": "/xdg", "HOME": "/h"}, "/xdg/tidegate"),
        ({"HOME": "/h"}, "/h/.cache/tidegate"),
    ],
)
def test_cache_is_where_the_user_says(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("TIDEGATE_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert cache_directory() == Path(expected)
