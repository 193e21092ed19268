"""Which checkpoints a query selects."""

from __future__ import annotations

import pytest

from tidegate.coordinator.history import CheckpointKind, CheckpointRecord, CheckpointResult, SubtaskPhases
from tidegate.daemon.http.pipeline_resources import CheckpointsQuery, select_checkpoints
from tidegate.daemon.http.resources import ResourceRefused
from tidegate.ids import Attempt, CheckpointId, SlotIndex, VertexId

PHASES = SubtaskPhases(
    vertex=VertexId("totals"),
    slot=SlotIndex(0),
    start_delay_ms=1,
    alignment_ms=1,
    snapshot_ms=1,
    upload_ms=1,
    prepare_ms=0,
    acknowledged_after_ms=4,
    size_bytes=10,
    written_bytes=10,
    inflight_bytes=0,
    inflight_rows=0,
)


def record(id_: int) -> CheckpointRecord:
    return CheckpointRecord(
        id=CheckpointId(id_),
        attempt=Attempt(1),
        kind=CheckpointKind.CHECKPOINT,
        result=CheckpointResult.COMPLETED,
        reason="",
        triggered_at_ms=1_000 * id_,
        duration_ms=5,
        acknowledged_ms=4,
        journal_ms=1,
        commit_ms=0,
        size_bytes=10,
        records=1,
        subtasks=(PHASES,),
        missing=(),
    )


KEPT = [record(9), record(8), record(7)]


def test_without_a_query_all_are_there_with_the_phases_of_their_subtasks() -> None:
    assert select_checkpoints(KEPT, CheckpointsQuery()) == KEPT


def test_a_list_without_subtasks_has_everything_else() -> None:
    found = select_checkpoints(KEPT, CheckpointsQuery(subtasks=False))
    assert [(one.id, one.duration_ms, one.subtasks) for one in found] == [(9, 5, ()), (8, 5, ()), (7, 5, ())]


def test_one_checkpoint_is_read_by_its_id() -> None:
    assert select_checkpoints(KEPT, CheckpointsQuery(id=8)) == [KEPT[1]]


@pytest.mark.parametrize(("kept", "hint"), [(KEPT, "it has 7 to 9"), ([], "it has none")])
def test_one_that_is_not_kept_is_refused_and_says_which_are(kept: list[CheckpointRecord], hint: str) -> None:
    with pytest.raises(ResourceRefused) as refused:
        select_checkpoints(kept, CheckpointsQuery(id=3))
    assert (refused.value.refusal.status, refused.value.refusal.code) == (404, "unknown-checkpoint")
    assert f"this daemon has no record of checkpoint 3: {hint}" in str(refused.value)
