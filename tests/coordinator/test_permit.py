"""What a permit leaves to be ended."""

from __future__ import annotations

from tests.coordinator.values import committable
from tidegate.coordinator.permit import issue_permit
from tidegate.ids import CheckpointId

ONE, TWO = committable(1, pool_slot=1), committable(1, pool_slot=2)


def test_what_has_ended_is_left_out_and_another_transaction_of_its_id_is_not() -> None:
    permit = issue_permit(CheckpointId(1), (ONE, TWO))
    later = committable(2, epoch=1, pool_slot=2)
    left = permit.without({ONE.transactional_id: ONE, TWO.transactional_id: later})
    assert (left.checkpoint, left.committables) == (1, (TWO,))
    assert permit.committables == (ONE, TWO)
