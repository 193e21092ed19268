"""Change events of Debezium with the rows before them, and what becomes of those that lack one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest

from tests.formats.batches import messages_of
from tidegate.datatypes import BIGINT, STRING
from tidegate.formats.contract import Decoded
from tidegate.formats.kinds.debezium import FORMAT
from tidegate.formats.kinds.debezium.envelope import UNAVAILABLE
from tidegate.formats.row_kinds import DELETE, INSERT, ROW_KIND, UPDATE_AFTER, UPDATE_BEFORE
from tidegate.formats.schemas import FormatOptions, KnownSchemas
from tidegate.sources.kafka import spread_updates

DECLARED = tuple(FORMAT.read_columns({"id": BIGINT, "name": STRING}).items())
OLD, NEW = {"id": 1, "name": "a", "more": 1}, {"id": 1, "name": "b"}


def decode(events: Sequence[Any], *read: str, nothing: bool = False) -> Decoded:
    output = tuple(one for one in DECLARED if one[0] in read) if read or nothing else DECLARED
    decoder = FORMAT.decoder(DECLARED, output, FormatOptions(row_kinds=True), KnownSchemas())
    found = decoder.decode(messages_of([json.dumps(event).encode() for event in events]))
    assert isinstance(found, Decoded)
    assert found.frame.height + len(found.failures) == len(events)
    return found


def rows_of(found: Decoded) -> list[tuple[Any, ...]]:
    frame = found.frame.with_columns(pl.int_range(pl.len()).alias("__tidegate_offset"))
    return spread_updates(frame).select(ROW_KIND, "__tidegate_offset", pl.exclude("__tidegate_offset", ROW_KIND)).rows()


def update(before: Any, after: Any = NEW) -> dict[str, Any]:
    return {"op": "u", "before": before, "after": after}


def test_an_update_is_two_rows_and_any_other_change_one() -> None:
    events = [
        {"op": "r", "after": OLD},
        update(OLD),
        {"payload": update(NEW, OLD)},
        {"op": "c", "after": NEW},
        {"op": "d", "before": NEW},
    ]
    found = decode(events)
    assert list(found.failures) == []
    assert rows_of(found) == [
        (INSERT, 0, 1, "a", False, "r"),
        (UPDATE_BEFORE, 1, 1, "a", False, "u"),
        (UPDATE_AFTER, 1, 1, "b", False, "u"),
        (UPDATE_BEFORE, 2, 1, "b", False, "u"),
        (UPDATE_AFTER, 2, 1, "a", False, "u"),
        (INSERT, 3, 1, "b", False, "c"),
        (DELETE, 4, 1, "b", True, "d"),
    ]


@pytest.mark.parametrize("read", ["name", "_op"])
def test_the_columns_that_are_read_are_made_of_both_rows(read: str) -> None:
    found = decode([{"op": "c", "after": OLD}, update(OLD)], read)
    values = {"name": ["a", "a", "b"], "_op": ["c", "u", "u"]}[read]
    assert rows_of(found) == list(zip([INSERT, UPDATE_BEFORE, UPDATE_AFTER], [0, 1, 1], values, strict=True))
    assert rows_of(decode([], read)) == []


def test_kinds_are_there_where_no_column_of_the_value_is_read() -> None:
    """A total that reads only the topic or the key of records never ran."""
    half = update({"id": "1", "name": "a"})
    found = decode([{"op": "c", "after": OLD}, half, update(OLD), {"op": "d", "before": NEW}], nothing=True)
    assert [(one.row, one.kind) for one in found.failures] == [(1, "WRONG_TYPE")]
    assert rows_of(found) == [(INSERT, 0), (UPDATE_BEFORE, 1), (UPDATE_AFTER, 1), (DELETE, 2)]
    assert rows_of(decode([], nothing=True)) == []


def test_a_batch_without_updates_has_one_row_for_each() -> None:
    assert rows_of(decode([{"op": "c", "after": OLD}])) == [(INSERT, 0, 1, "a", False, "c")]


REMEDY = "(PostgreSQL writes it with `REPLICA IDENTITY FULL`, MySQL with `binlog_row_image=FULL`)"
LACKS = f"INCOMPLETE_CHANGE: the row in `before` must be retracted, but has no `name` {REMEDY} - at `$.before.name`"


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (
            update(None),
            (
                "INCOMPLETE_CHANGE: the event `u` has no row in `before`, which must be retracted "
                f"{REMEDY} - at `$.before`"
            ),
        ),
        (update({"id": 1}), LACKS),
        ({"op": "d", "before": {"id": 1}}, LACKS),
        ({"payload": {"op": "d", "before": {"id": 1}}}, LACKS.replace("$", "$.payload")),
        (update([1]), "WRONG_TYPE: Expected `object`, got `array` - at `$.before`"),
        (update(OLD, [1]), "WRONG_TYPE: Expected `object`, got `array` - at `$.after`"),
        (update({"id": 1}, [1]), "WRONG_TYPE: Expected `object`, got `array` - at `$.after`"),
        (update({"id": "1", "name": "a"}), "WRONG_TYPE: Expected `integer | null`, got `string` - at `$.before.id`"),
        (
            update({"id": 1, "name": UNAVAILABLE}),
            (
                "INCOMPLETE_CHANGE: the database's log does not contain the value (with `REPLICA IDENTITY FULL` "
                "it does) - "
                "at `$.before.name`"
            ),
        ),
    ],
)
def test_half_a_row_cannot_be_taken_back(event: Any, expected: str) -> None:
    good = [{"op": "c", "after": OLD}, update(OLD)]
    found = decode([*good, event, *good])
    (failure,) = found.failures
    assert (failure.row, str(failure)) == (2, expected)
    assert [kind for kind, *_ in rows_of(found)] == [INSERT, UPDATE_BEFORE, UPDATE_AFTER] * 2


def test_a_column_that_the_table_has_not_is_null_on_both_sides() -> None:
    found = decode([update({"id": 1}, {"id": 2})])
    assert rows_of(found) == [(UPDATE_BEFORE, 0, 1, None, False, "u"), (UPDATE_AFTER, 0, 2, None, False, "u")]
