"""What fills the room that a source is given: the records that it takes, whatever becomes of them."""

from __future__ import annotations

import json

import pytest

from tests.sources.scripted import P0, Scripted, order
from tidegate.operators.spec import Requirement

CHANGE = json.dumps({"op": "c", "before": None, "after": {"id": 1, "at": 2}}).encode()


def test_bad_records_are_taken_as_good_ones_are() -> None:
    with Scripted(None) as one:
        one.read((P0, order(1, 1)))
        assert one.source.rows_taken == 0, "the last look has found nothing"
        for value in (order(1, 1), b"{", order(2, 2)):
            one.client.put(P0, value)
        one.gather()
        one.poll(10)
        assert one.source.rows_taken == 3


@pytest.mark.parametrize(("records", "rows_max", "taken"), [(9, 8, 9), (9, 7, 7), (3, 8, 7), (3, 2, 3), (3, 1, 3)])
def test_of_changes_a_record_takes_the_room_of_an_update(records: int, rows_max: int, taken: int) -> None:
    with Scripted(None, format="debezium", carries=(Requirement.ROW_KIND,)) as one:
        for _ in range(records):
            one.client.put(P0, CHANGE)
        one.gather()
        one.poll(rows_max)
        assert one.source.rows_taken == taken
