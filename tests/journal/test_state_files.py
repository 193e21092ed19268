"""Chains of snapshots: what changed is of no use without what it changed."""

from __future__ import annotations

import msgspec
import pytest

from tests.coordinator.values import handle
from tidegate.coordinator.types import StateHandle
from tidegate.journal.state_files import refuse_broken_chains
from tidegate.storage.base import ObjectCorrupt


def more(checkpoint: int, operator: str = "totals", subtask: int = 0) -> StateHandle:
    return msgspec.structs.replace(handle(checkpoint, operator, subtask), increment=True)


def test_increments_behind_a_full_snapshot_of_their_own_are_whole() -> None:
    refuse_broken_chains([handle(1), more(2), handle(1, subtask=1), more(2, subtask=1), more(3)])


@pytest.mark.parametrize("wrong", [more(2, subtask=1), more(2, "other")])
def test_increments_behind_a_snapshot_of_another_one_are_refused_by_name(wrong: StateHandle) -> None:
    with pytest.raises(ObjectCorrupt, match="does not list") as caught:
        refuse_broken_chains([handle(1), more(2), wrong])
    assert caught.value.fields["name"] == wrong.path
