"""The oracle of lookups accepts what can be seen, and nothing else."""

from __future__ import annotations

import pytest

from tidegate.ids import TopicPartition
from tidegate.simulation.shapes.lookup import (
    STREAM,
    TABLE,
    AttemptStart,
    LookupOracle,
    LookupShape,
    TableOracle,
    is_deleted,
    key_of,
)
from tidegate.simulation.shapes.oracle import OracleHistory
from tidegate.simulation.shapes.shape import Content
from tidegate.simulation.workload import InputRecord

DELETED = 3
assert is_deleted(InputRecord(TopicPartition(TABLE, 0), DELETED, "c", "s", 1, 1, ""))
RECORDS = [
    InputRecord(TopicPartition(topic, 0), number, "c", "s", 1, 1, "")
    for number, topic in enumerate((TABLE, STREAM, TABLE, TABLE, STREAM, TABLE, STREAM))
]
"""Of one customer: states none, 0, 2, deleted, 5; orders 1, 4, 6."""
BEGIN = AttemptStart(frozenset(), frozenset())


def problems_of(
    *rows: tuple[int, int | None],
    missing: str = "null",
    starts: tuple[AttemptStart, ...] = (BEGIN,),
    gated: bool = True,
) -> str:
    oracle = LookupOracle(LookupShape(missing, gated=gated), RECORDS, [starts])
    contents = [Content(b"c", {"id": number, "customer": "c", "version": version}) for number, version in rows]
    output = {"enriched": [contents]}
    return "; ".join(oracle.check([OracleHistory(frozenset(), output)]))


@pytest.mark.parametrize("versions", [(None, None, None), (0, 2, 2), (0, None, 5), (None, 2, 5), (2, 2, None)])
def test_versions_that_do_not_go_back_are_right(versions: tuple[int | None, ...]) -> None:
    assert problems_of(*zip((1, 4, 6), versions, strict=True)) == ""


@pytest.mark.parametrize("versions", [(2, 0, 5), (5, 2, 2), (5, None, 5), (3, 5, 5), (7, 7, 7)])
def test_versions_that_go_back_or_never_were_there_are_seen(versions: tuple[int | None, ...]) -> None:
    assert "was expected" in problems_of(*zip((1, 4, 6), versions, strict=True))


def test_a_version_is_at_least_that_of_the_moment_when_the_attempt_began() -> None:
    begun = (BEGIN, AttemptStart(frozenset(range(6)), frozenset({0, 1, 2})))
    assert problems_of((1, 0), (4, 5), (6, 5), starts=begun) == ""
    assert "was expected" in problems_of((1, 0), (4, None), (6, 5), starts=begun)
    assert "was expected" in problems_of((1, 0), (4, 2), (6, 5), starts=begun)
    assert "was expected" in problems_of((1, None), (4, 0), (6, 5), starts=begun, gated=False)
    assert problems_of((1, None), (4, 2), (6, 5), starts=begun, gated=False) == "", (
        "what is in the state, without a gate"
    )


def test_every_order_comes_out_once_and_in_order() -> None:
    assert "lost" in problems_of((1, 0), (4, 2))
    assert "duplicate" in problems_of((1, 0), (4, 2), (4, 2), (6, 2))
    assert "comes after" in problems_of((4, 0), (1, 0), (6, 2))
    assert "unexpected" in problems_of((1, 0), (4, 2), (6, 2), (9, 2))


def test_an_order_is_dropped_only_where_there_may_have_been_no_row() -> None:
    late = (AttemptStart(frozenset(range(6)), frozenset()),)
    assert problems_of((6, 2), missing="drop") == ""
    assert problems_of((1, 5), (4, 5), (6, 5), missing="drop", starts=late) == ""
    assert "lost" in problems_of((4, 5), (6, 5), missing="drop", starts=late)
    assert "unexpected" in problems_of((1, None), (4, 2), (6, 2), missing="drop")


def test_an_order_without_a_key_finds_nothing() -> None:
    number = next(
        number
        for number in range(100)
        if key_of(InputRecord(TopicPartition(STREAM, 0), number, "c", "s", 1, 1, "")) is None
    )
    order = InputRecord(TopicPartition(STREAM, 0), number, "c", "s", 1, 1, "")
    oracle = LookupOracle(LookupShape(), [RECORDS[0], order], [[AttemptStart(frozenset({0}), frozenset())]])
    for version, told in ((None, ""), (0, "was expected")):
        row = Content(None, {"id": number, "customer": None, "version": version})
        problems = "; ".join(oracle.check([OracleHistory(frozenset(), {"enriched": [[row]]})]))
        assert (told in problems) if told else not problems


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([(0, False), (2, False), (2, True), (5, False)], ""),
        ([(5, False)], ""),
        ([(0, False), (0, True), (5, False)], ""),
        ([(0, False), (2, False)], "last row"),
        ([(2, False), (2, True)], "last row"),
        ([(0, False), (2, True), (5, False)], "after"),
        ([(2, False), (0, False), (5, False)], "after"),
        ([(0, True), (5, False)], "after"),
        ([(0, False), (5, False), (5, True)], "after"),
        ([(5, False), (5, False)], "after"),
    ],
)
def test_changes_of_a_table_lead_through_its_states_to_the_last_one(rows: list[tuple[int, bool]], told: str) -> None:
    contents = [Content(b"c", {"id": "c", "version": version, "_deleted": deleted}) for version, deleted in rows]
    histories = [OracleHistory(frozenset(), {"current": [contents]})]
    problems = "; ".join(TableOracle(RECORDS).check(histories))
    assert (told in problems) if told else not problems


def test_changes_go_on_from_the_state_to_which_somebody_went_back() -> None:
    def check(*rows: tuple[int, bool]) -> list[str]:
        contents = [Content(b"c", {"id": "c", "version": version, "_deleted": deleted}) for version, deleted in rows]
        return TableOracle(RECORDS).check([OracleHistory(frozenset({0, 1, 2}), {"current": [contents]})])

    assert check((2, True), (5, False)) == []
    assert check((5, False)) == []
    assert check((2, False), (5, False))
