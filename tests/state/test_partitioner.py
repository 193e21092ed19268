"""Rows go to the subtask that owns their key group, and keep their order."""

from __future__ import annotations

import polars as pl
import pytest

from tidegate.ids import SlotIndex
from tidegate.native.library import Library, loaded
from tidegate.plan.assignment import key_group_range
from tidegate.state import keygroups
from tidegate.state.keygroups import KeyGroupPartitioner, key_group_of

GROUPS = 128
FRAME = pl.DataFrame(
    {
        "key": [None if row % 17 == 0 else f"key-{row * 7 % 101}" for row in range(500)],
        "amount": pl.Series(range(500), dtype=pl.Int64).cast(pl.Decimal(20, 2)),
        "tags": [["a" * (row % 30)] * (row % 3) for row in range(500)],
        "row": range(500),
    }
)


@pytest.fixture(params=[None, loaded()], ids=["Polars", "C"], autouse=True)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library | None:
    """Both ways."""
    monkeypatch.setattr(keygroups, "loaded", lambda: request.param)
    found: Library | None = request.param
    return found


@pytest.mark.parametrize("subtasks", [2, 3, 16])
@pytest.mark.parametrize("keys", [("key",), ("row", "key"), ("amount",)], ids=" ".join)
def test_each_row_goes_to_the_owner_of_its_group(keys: tuple[str, ...], subtasks: int) -> None:
    owned = [key_group_range(SlotIndex(one), subtasks, GROUPS) for one in range(subtasks)]
    splitter = KeyGroupPartitioner(keys, owned, GROUPS)
    for frame in (FRAME, FRAME[100:103], FRAME.clear(), pl.concat([FRAME, FRAME], rechunk=False)):
        parts = splitter.split(frame)
        for part, groups in zip(parts, owned, strict=True):
            assert part.schema == frame.schema
            mine = [group in groups for group in key_group_of(frame, keys, GROUPS)]
            assert part.equals(frame.filter(pl.Series(mine, dtype=pl.Boolean)))
        assert sum(part.height for part in parts) == frame.height
